//! Bytes in whole allocation units.

/// Counts the bytes of ranges on their devices, in allocation units. A unit shared by consecutive ranges counts once.
#[derive(Debug)]
pub struct UnitBytes<P> {
    bytes: u64,
    /// Place of the last range, and the end of its units there.
    before: Option<(P, u64)>,
}

impl<P> Default for UnitBytes<P> {
    fn default() -> Self {
        Self { bytes: 0, before: None }
    }
}

impl<P: PartialEq> UnitBytes<P> {
    /// Adds the range from `from` up to `to` on `place`, whose allocation unit is `unit` bytes.
    pub fn add(&mut self, place: P, unit: u64, from: u64, to: u64) {
        let (from, to) = (from / unit * unit, to.next_multiple_of(unit));
        let known = self.before.as_ref().filter(|(known, end)| *known == place && *end > from && *end <= to);
        self.bytes += to - known.map_or(from, |(_, end)| *end);
        self.before = Some((place, to));
    }
    /// Adds bytes whose place is unknown.
    pub fn add_whole(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
    /// The sum.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_that_neighbours_share_count_once() {
        let mut taken = UnitBytes::default();
        taken.add('a', 512, 0, 1);
        taken.add('a', 512, 1, 600);
        assert_eq!(taken.bytes(), 1024);
        taken.add('b', 512, 600, 601);
        assert_eq!(taken.bytes(), 1536, "another place");
        taken.add('b', 512, 600, 700);
        assert_eq!(taken.bytes(), 1536);
        taken.add('b', 512, 0, 10);
        assert_eq!(taken.bytes(), 2048, "it is before that");
        taken.add_whole(3);
        assert_eq!(taken.bytes(), 2051);
    }
}
