//! Which bytes of a stripe are written: a stripe is encoded once it is full, or once it is quiet.

use std::collections::BTreeMap;
use std::ops::Range;

/// The written bytes of one stripe that is kept as copies.
///
/// ```
/// # use cenote_layout::Coverage;
/// let mut coverage = Coverage::default();
/// coverage.add(0..10);
/// coverage.add(15..20);
/// assert!(!coverage.covers(0..20));
/// coverage.add(8..16);
/// assert!(coverage.covers(0..20));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Coverage {
    /// End by begin; ranges neither overlap nor touch.
    written: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Adds bytes that were written. They may have been before.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let (mut begin, mut end) = (range.start, range.end);
        while let Some((&at, &to)) = self.written.range(..=end).next_back().filter(|(_, to)| **to >= begin) {
            (begin, end) = (begin.min(at), end.max(to));
            self.written.remove(&at);
        }
        self.written.insert(begin, end);
    }
    /// Returns true if all bytes of the range are written: then the stripe can be encoded into new runs, which one record
    /// swaps in for the copies.
    pub fn covers(&self, range: Range<u64>) -> bool {
        let before = self.written.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, end)| *end >= range.end)
    }
    /// Bytes written.
    pub fn bytes(&self) -> u64 {
        self.written.iter().map(|(begin, end)| end - begin).sum()
    }
}
