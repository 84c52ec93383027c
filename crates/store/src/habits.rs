//! The file `habits` of the store directory: the access patterns of programs by container. Only clients know the
//! content of such a profile ([`cenote_policy::prefetch`]); nothing depends on it.

use cenote_model::{ContainerId, StoreId};

use crate::codec::{Decoded, Decoder, Encode};
use crate::sidecar::{seal, unseal};

/// The file's name.
pub(crate) const HABITS: &str = "habits";
const MAGIC: [u8; 8] = *b"CENOTEH\0";
const VERSION: u32 = 1;
/// Most bytes of one profile.
pub(crate) const HABIT_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a program's name.
pub(crate) const PROGRAM_BYTES_MAX: usize = 255;
/// Most bytes of all; the oldest go first.
const ALL_BYTES_MAX: usize = 4 << 20;

/// The access pattern of one program in one container.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Habit {
    pub container: ContainerId,
    pub program: String,
    pub learned: Vec<u8>,
}

/// All patterns, the newest last.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Habits {
    all: Vec<Habit>,
    /// Something was learned since the file was written.
    pub is_changed: bool,
}

impl Habits {
    /// Returns the pattern of a program; empty if there is none.
    pub fn of(&self, container: ContainerId, program: &str) -> &[u8] {
        let known = self.all.iter().find(|habit| habit.container == container && habit.program == program);
        known.map_or(&[], |habit| &habit.learned)
    }
    /// Keeps what a program has learned.
    pub fn learn(&mut self, habit: Habit) {
        if self.of(habit.container, &habit.program) == habit.learned {
            return;
        }
        self.all.retain(|known| known.container != habit.container || known.program != habit.program);
        self.all.push(habit);
        let mut bytes: usize = self.all.iter().map(|habit| habit.learned.len()).sum();
        while bytes > ALL_BYTES_MAX {
            bytes -= self.all.remove(0).learned.len();
        }
        self.is_changed = true;
    }
    /// Drops the patterns of containers that are gone.
    pub fn keep(&mut self, is_there: impl Fn(ContainerId) -> bool) {
        self.all.retain(|habit| is_there(habit.container));
    }
    /// Returns the bytes of the file.
    pub fn encode(&self, store: StoreId) -> Vec<u8> {
        seal(MAGIC, VERSION, store, |out| {
            out.put_u32(self.all.len() as u32);
            for habit in &self.all {
                out.put_u64(habit.container.0);
                out.put_bytes(habit.program.as_bytes());
                out.put_bytes(&habit.learned);
            }
        })
    }
    /// Returns the content of the file, if it is whole and this store's.
    pub fn decode(store: StoreId, bytes: &[u8]) -> Option<Self> {
        let habit = |from: &mut Decoder<'_>| -> Decoded<Habit> {
            let container = ContainerId(from.u64()?);
            let program = from.text()?;
            Ok(Habit { container, program, learned: from.bytes()?.to_vec() })
        };
        let all = unseal(MAGIC, VERSION, store, bytes, |from| {
            let count = from.count(16)?;
            (0..count).map(|_| habit(from)).collect::<Decoded<Vec<_>>>()
        });
        Some(Self { all: all?, is_changed: false })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn habit(container: u64, program: &str, len: usize) -> Habit {
        Habit { container: ContainerId(container), program: program.into(), learned: vec![7; len] }
    }

    #[test]
    fn comes_back_as_written_or_not_at_all() {
        let mut habits = Habits::default();
        habits.learn(habit(1, "solver", 100));
        habits.learn(habit(2, "viewer", 0));
        let bytes = habits.encode(StoreId(5));
        habits.is_changed = false;
        assert_eq!(Habits::decode(StoreId(5), &bytes), Some(habits));
        assert_eq!(Habits::decode(StoreId(6), &bytes), None, "another store's");
        for len in 0..bytes.len() {
            assert_eq!(Habits::decode(StoreId(5), &bytes[..len]), None, "cut at {len}");
        }
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 1;
            assert_eq!(Habits::decode(StoreId(5), &bad), None, "flipped at {at}");
        }
    }

    #[test]
    fn what_was_learned_longest_ago_goes_first() {
        let mut habits = Habits::default();
        for container in 0..100 {
            habits.learn(habit(container, "p", HABIT_BYTES_MAX));
        }
        assert!(habits.of(ContainerId(0), "p").is_empty() && !habits.of(ContainerId(99), "p").is_empty());
        habits.keep(|container| container.0 != 99);
        assert!(habits.of(ContainerId(99), "p").is_empty());
    }
}
