//! Ranges of a log that the pool does not have yet.

use std::ops::Range;

/// Ranges that are closer than this are one: sending a few more bytes costs less than another range.
const GAP: u64 = 4096;
/// Above this number of ranges, they are put in order.
const RANGES_MAX: usize = 1024;

/// A set of byte ranges, which may have some bytes more than were put in.
#[derive(Default, Debug)]
pub(super) struct Dirty(Vec<Range<u64>>);

impl Dirty {
    pub fn add(&mut self, offset: u64, len: u64) {
        let added = offset..offset + len;
        if added.is_empty() {
            return;
        }
        match self.0.last_mut() {
            // A log grows at its end, a record's length last.
            Some(last) if are_near(last, &added) => *last = joined(last, &added),
            _ => self.0.push(added),
        }
        if self.0.len() > RANGES_MAX {
            self.order();
        }
    }
    /// Takes all ranges, ascending and apart.
    pub fn take(&mut self) -> Vec<Range<u64>> {
        self.order();
        std::mem::take(&mut self.0)
    }
    fn order(&mut self) {
        self.0.sort_unstable_by_key(|range| range.start);
        self.0.dedup_by(|next, range| {
            let near = are_near(range, next);
            if near {
                *range = joined(range, next);
            }
            near
        });
    }
}

fn are_near(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start <= b.end.saturating_add(GAP) && b.start <= a.end.saturating_add(GAP)
}

fn joined(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.min(b.start)..a.end.max(b.end)
}

/// What one operation sends: ranges within one part of a log, by offsets in the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Batch {
    pub part: u64,
    pub ranges: Vec<Range<u64>>,
}

/// Splits ascending ranges into batches of at most `most` bytes, each within one part of `part_bytes`.
pub(super) fn batches(ranges: &[Range<u64>], part_bytes: u64, most: u64) -> Vec<Batch> {
    let mut all: Vec<Batch> = Vec::new();
    let mut used = 0;
    for range in ranges {
        let mut at = range.start;
        while at < range.end {
            let part = at / part_bytes;
            let is_begun = all.last().is_some_and(|batch| batch.part == part) && used < most;
            if !is_begun {
                all.push(Batch { part, ranges: Vec::new() });
                used = 0;
            }
            let end = range.end.min((part + 1) * part_bytes).min(at + (most - used));
            if let Some(batch) = all.last_mut() {
                batch.ranges.push(at..end);
            }
            used += end - at;
            at = end;
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::seed;
    use crate::mem::SplitMix;

    #[test]
    fn records_that_follow_each_other_are_one_range() {
        let mut dirty = Dirty::default();
        for at in (4096..9000).step_by(40) {
            dirty.add(at + 4, 28);
            dirty.add(at, 4);
        }
        assert_eq!(dirty.0.len(), 1);
        dirty.add(1 << 20, 0);
        let taken = dirty.take();
        assert_eq!((taken.len(), taken[0].start, taken[0].end), (1, 4096, 9008));
        assert!(dirty.take().is_empty());
    }

    #[test]
    fn nothing_is_forgotten_and_batches_keep_to_their_part() {
        let seed = seed();
        let mut rng = SplitMix::new(seed);
        for _ in 0..200 {
            let (mut dirty, mut wanted) = (Dirty::default(), vec![false; 300_000]);
            for _ in 0..rng.below(3000) {
                let (at, len) = (rng.below(290_000), rng.below(100));
                dirty.add(at, len);
                wanted[at as usize..(at + len) as usize].fill(true);
            }
            let ranges = dirty.take();
            assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start), "seed {seed}");
            let (part_bytes, most) = (1 + rng.below(100_000), 1 + rng.below(50_000));
            let mut sent = vec![false; 310_000];
            for batch in batches(&ranges, part_bytes, most) {
                assert!(batch.ranges.iter().map(|range| range.end - range.start).sum::<u64>() <= most, "seed {seed}");
                for range in &batch.ranges {
                    assert_eq!((range.start / part_bytes, (range.end - 1) / part_bytes), (batch.part, batch.part));
                    sent[range.start as usize..range.end as usize].fill(true);
                }
            }
            assert!(wanted.iter().zip(&sent).all(|(wanted, sent)| *sent || !wanted), "seed {seed}");
        }
    }
}
