//! Numbers of runs, by which bytes at a place are told from others that were there before.

use cenote_model::Birth;

/// Bits of a number within a generation.
const NUMBER_BITS: u32 = 48;
/// Set in numbers of places that the engine writes. Writes of programs have their epoch.
const PLACED: u64 = 1 << (NUMBER_BITS - 1);

/// Hands out births. Replaying the journal hands out the same ones again, so they are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Births {
    /// Raised when a power loss takes epochs back, which are then used once more.
    pub generation: u16,
    /// Places that the engine has written in all generations.
    pub placed: u64,
}

impl Births {
    /// The birth of runs that an update of this epoch brings.
    pub fn of_write(self, epoch: u64) -> Birth {
        self.number(epoch & (PLACED - 1))
    }
    /// The birth of the next place that the engine writes; of the last one, if that place is `shared`.
    pub fn of_place(&mut self, shared: bool) -> Birth {
        self.placed += u64::from(!shared);
        self.number(PLACED | (self.placed & (PLACED - 1)))
    }
    fn number(self, number: u64) -> Birth {
        Birth(u64::from(self.generation) << NUMBER_BITS | number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_runs_are_born_with_one_number() {
        let mut births = Births::default();
        let (one, other) = (births.of_place(false), births.of_place(false));
        assert_eq!(births.of_place(true), other, "of the same place");
        let later = Births { generation: 1, ..births };
        let all = [one, other, births.of_write(1), births.of_write(2), later.of_write(1), later.of_write(2)];
        assert!(all.iter().enumerate().all(|(at, birth)| !all[..at].contains(birth)), "{all:?}");
    }
}
