//! Histograms of durations, in buckets whose width grows with the duration: four to each doubling.

/// Buckets from 16 ns to 68 s; shorter and longer durations count in the first and the last.
pub const HISTOGRAM_BUCKETS: usize = 128;
const FIRST_SHIFT: u32 = 4;

/// The bucket of a duration.
#[inline]
#[must_use]
pub fn histogram_bucket(ns: u64) -> usize {
    let ns = ns.max(1 << FIRST_SHIFT);
    let doublings = ns.ilog2();
    let quarter = (ns >> (doublings - 2)) & 3;
    (((doublings - FIRST_SHIFT) * 4) as usize + quarter as usize).min(HISTOGRAM_BUCKETS - 1)
}

/// Upper bound of a bucket, exclusive, in nanoseconds.
#[must_use]
pub fn histogram_end_ns(bucket: usize) -> u64 {
    let bucket = bucket.min(HISTOGRAM_BUCKETS - 1) as u64;
    (5 + bucket % 4) << (2 + bucket / 4)
}

/// A histogram of durations.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    /// Counts of the buckets that are not empty, ascending.
    pub counts: Vec<(u8, u64)>,
    /// Sum of all durations, in nanoseconds.
    pub sum_ns: u64,
}

impl Histogram {
    /// Builds a histogram from one count for each bucket.
    pub fn from_counts(counts: impl IntoIterator<Item = u64>, sum_ns: u64) -> Self {
        let numbered = counts.into_iter().take(HISTOGRAM_BUCKETS).enumerate();
        let counts = numbered.filter(|(_, count)| *count > 0).map(|(bucket, count)| (bucket as u8, count)).collect();
        Self { counts, sum_ns }
    }
    /// Adds the durations of another histogram.
    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            match self.counts.binary_search_by_key(bucket, |(bucket, _)| *bucket) {
                Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(*count),
                Err(at) => self.counts.insert(at, (*bucket, *count)),
            }
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }
    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
    /// Number of durations shorter than `ns`, a power of two.
    pub fn below(&self, ns: u64) -> u64 {
        let inside = self.counts.iter().filter(|(bucket, _)| histogram_end_ns(*bucket as usize) <= ns);
        inside.fold(0, |sum, (_, count)| sum.saturating_add(*count))
    }
    /// The quantile `part` (0 to 1) to within an eighth; `None` without durations.
    pub fn quantile_ns(&self, part: f64) -> Option<u64> {
        let count = self.count();
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0u64;
        for (bucket, count) in &self.counts {
            seen = seen.saturating_add(*count);
            if seen >= rank {
                let bucket = *bucket as usize;
                let begin = if bucket == 0 { 0 } else { histogram_end_ns(bucket - 1) };
                return Some(u64::midpoint(begin, histogram_end_ns(bucket)));
            }
        }
        None
    }
    /// The durations since `before`, an earlier state of the same histogram; all durations if `before` is not one.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let earlier = |bucket: u8| before.counts.iter().find(|(at, _)| *at == bucket).map_or(0, |(_, count)| *count);
        if before.count() > self.count() {
            return self.clone();
        }
        let left = self.counts.iter().map(|(bucket, count)| (*bucket, count.saturating_sub(earlier(*bucket))));
        Self {
            counts: left.filter(|(_, count)| *count > 0).collect(),
            sum_ns: self.sum_ns.saturating_sub(before.sum_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_their_ends_say() {
        let mut ns = 1u64;
        while ns < 1 << 40 {
            let bucket = histogram_bucket(ns);
            assert!(ns < histogram_end_ns(bucket) || bucket == HISTOGRAM_BUCKETS - 1, "{ns}");
            assert!(bucket == 0 || ns >= histogram_end_ns(bucket - 1), "{ns}");
            ns += ns / 7 + 1;
        }
        assert_eq!(histogram_bucket(u64::MAX), HISTOGRAM_BUCKETS - 1);
        assert_eq!((histogram_end_ns(0), histogram_end_ns(3), histogram_end_ns(4)), (20, 32, 40));
    }

    #[test]
    fn quantiles_are_close() {
        let mut counts = vec![0; HISTOGRAM_BUCKETS];
        for ns in 1..=100_000u64 {
            counts[histogram_bucket(ns)] += 1;
        }
        let all = Histogram::from_counts(counts, 5_000_050_000);
        assert_eq!(all.count(), 100_000);
        for part in [0.01, 0.5, 0.99, 1.0] {
            let found = all.quantile_ns(part).unwrap() as f64;
            let exact = 100_000.0 * part;
            assert!((found - exact).abs() <= exact / 7.0, "{part}: {found}");
        }
        assert_eq!(all.below(65_536), 65_535);
        assert_eq!(Histogram::default().quantile_ns(0.5), None);
        assert_eq!(
            Histogram { counts: vec![(0, 1)], sum_ns: 3 }.quantile_ns(0.5),
            Some(10),
            "the first bucket begins at 0"
        );
        let before = Histogram { counts: vec![(30, 1)], sum_ns: 0 };
        assert_eq!(all.since(&before).count(), 99_999);
        assert_eq!(before.since(&all), before, "it was begun anew");
    }

    #[test]
    fn sums_hold_the_durations_of_both_and_differences_give_them_back() {
        let first = Histogram { counts: vec![(10, 2), (40, 1)], sum_ns: 30 };
        let second = Histogram { counts: vec![(5, 1), (40, 4), (90, 1)], sum_ns: 12 };
        let mut both = first.clone();
        both.add(&second);
        assert_eq!(both, Histogram { counts: vec![(5, 1), (10, 2), (40, 5), (90, 1)], sum_ns: 42 });
        assert_eq!(both.since(&first), second);
        assert_eq!(both.since(&both), Histogram::default());
        both.add(&Histogram { counts: vec![(90, u64::MAX)], sum_ns: u64::MAX });
        assert_eq!((both.count(), both.sum_ns), (u64::MAX, u64::MAX), "they end at the greatest number");
    }
}
