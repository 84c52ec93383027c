//! Predicts what a sequence of reads will read next: sequences, strides (also backward and nested), passes over the same
//! ranges, and sequences learned in earlier runs. Pure: reads go in, ranges worth prefetching come out.
//!
//! Waste is bounded: each range named takes a credit, and only ranges that are then read bring more than one. Of n reads of
//! which u were foreseen at most 8 + n/64 + 0.6 u are wasted; how far it looks ahead follows what came true, too. (Feedback-directed
//! prefetching: Srinath et al., HPCA 2007; strides of strides
//! and majority votes over noise: Leap, Al Maruf & Chowdhury, ATC 2020; learned successors: Joseph & Grunwald, ISCA 1997.)

mod nest;
mod profile;

use std::collections::VecDeque;

use cenote_model::ObjectKey;

pub use profile::{AccessProfile, PROFILE_BYTES_MAX};

use nest::Nest;
use profile::Follower;

/// Look-ahead in ranges at first, and after a stop.
const DEPTH_FIRST: f32 = 2.0;
/// Initial credit. Each predicted range takes one credit.
const CREDIT_FIRST: f32 = 8.0;
/// Credit for each prediction that came true (so prefetching goes on if 62% do).
const CREDIT_PER_USE: f32 = 1.6;
/// Credit for each read, so that predictions are tried again now and then.
const CREDIT_PER_READ: f32 = 1.0 / 64.0;
/// Upper bound of the objects of one access sequence whose strides are followed at once.
const NESTS_MAX: usize = 16;
/// Weight of the newest outcome in the accuracy.
const WEIGHT: f32 = 0.08;

/// A range that will probably be read.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Foreseen {
    /// The object.
    pub object: ObjectKey,
    /// Offset in the object.
    pub offset: u64,
    /// Length.
    pub bytes: u64,
    /// Milliseconds until the read, at the rate of the last reads.
    pub in_ms: f32,
    /// 0 to 1: the share of recent predictions that came true.
    pub confidence: f32,
}

/// Accuracy of the predictions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Accuracy {
    /// Ranges predicted.
    pub issued: u64,
    /// Predicted ranges that were read.
    pub used: u64,
    /// Predicted ranges that were given up.
    pub wasted: u64,
    /// Reads without a prediction.
    pub missed: u64,
}

/// One access sequence: the reads of one client (or thread) of one container.
#[derive(Clone, Debug)]
pub struct Prefetcher {
    nests: VecDeque<(ObjectKey, Nest, u64)>,
    follower: Follower,
    /// Predicted and not read yet, oldest first.
    open: VecDeque<(ObjectKey, u64, u64)>,
    reads: u64,
    accuracy: Accuracy,
    recent: f32,
    depth: f32,
    depth_max: usize,
    credit: f32,
    last: Option<(ObjectKey, u64, u64)>,
    last_ms: u64,
    gap_ms: f32,
    in_order: u32,
}

impl Prefetcher {
    /// A prefetcher that looks at most `depth_max` ranges ahead, with the profile of earlier runs.
    pub fn new(depth_max: usize, learned: AccessProfile) -> Self {
        Self {
            nests: VecDeque::new(),
            follower: Follower::new(learned),
            open: VecDeque::new(),
            reads: 0,
            accuracy: Accuracy::default(),
            recent: 0.7,
            depth: DEPTH_FIRST,
            depth_max: depth_max.max(1),
            credit: CREDIT_FIRST,
            last: None,
            last_ms: 0,
            gap_ms: 0.0,
            in_order: 0,
        }
    }
    /// The learned profile, to be kept with the container.
    pub fn profile(&self) -> &AccessProfile {
        self.follower.profile()
    }
    /// Accuracy of the predictions so far.
    pub fn accuracy(&self) -> Accuracy {
        self.accuracy
    }
    /// Returns true while too few predictions come true.
    pub fn is_stopped(&self) -> bool {
        self.credit < 1.0
    }
    /// The current look-ahead, in ranges.
    pub fn depth(&self) -> usize {
        (self.depth.min(self.credit) as usize).min(self.depth_max)
    }

    /// Records a read.
    pub fn read(&mut self, now_ms: u64, object: ObjectKey, offset: u64, bytes: u64) {
        if self.last.is_some() {
            let gap = now_ms.saturating_sub(self.last_ms) as f32;
            self.gap_ms += 0.2 * (gap - self.gap_ms);
        }
        self.judge(object, offset);
        let went_on = self.last.is_some_and(|(key, at, len)| key == object && at.wrapping_add(len) == offset);
        self.in_order = if went_on { self.in_order + 1 } else { 0 };
        (self.last, self.last_ms) = (Some((object, offset, bytes)), self.last_ms.max(now_ms));
        let known = self.nests.iter().position(|(key, ..)| *key == object);
        let (_, mut nest, _) = known.and_then(|i| self.nests.remove(i)).unwrap_or((object, Nest::default(), 0));
        nest.see(offset as i64);
        self.nests.push_front((object, nest, bytes));
        self.nests.truncate(NESTS_MAX);
        self.follower.see(object, offset, bytes.min(u64::from(u32::MAX)) as u32);
    }

    /// Checks whether this read was predicted, and adjusts the look-ahead.
    fn judge(&mut self, object: ObjectKey, offset: u64) {
        self.credit = (self.credit + CREDIT_PER_READ).min(2.0 * self.depth_max as f32);
        self.reads += 1;
        let patience = (4 * self.depth as u64).max(12);
        if let Some(found) = self.open.iter().position(|(key, at, _)| (*key, *at) == (object, offset)) {
            self.open.remove(found);
            self.accuracy.used += 1;
            self.recent += WEIGHT * (1.0 - self.recent);
            self.depth = (self.depth * 1.25 + 0.5).min(self.depth_max as f32);
            self.credit += CREDIT_PER_USE;
        } else {
            self.accuracy.missed += 1;
        }
        while self.open.front().is_some_and(|(.., since)| self.reads - since > patience) {
            self.open.pop_front();
            self.accuracy.wasted += 1;
            self.recent -= WEIGHT * self.recent;
            self.depth = (self.depth * 0.7).max(1.0);
        }
    }

    /// Ranges to prefetch now that were not named before, soonest first.
    pub fn ahead(&mut self) -> Vec<Foreseen> {
        let depth = self.depth();
        let Some((object, offset, bytes)) = self.last.filter(|_| depth > 0) else { return Vec::new() };
        let by_script = self.follower.hits >= 2;
        let nest = self.nests.front().map(|(_, nest, _)| *nest).unwrap_or_default();
        let mut found: Vec<(ObjectKey, u64, u64)> = if by_script {
            self.follower.ahead(depth).map(|(key, offset, bytes)| (key, offset, u64::from(bytes))).collect()
        } else {
            nest.ahead(depth).filter_map(|at| Some((object, u64::try_from(at).ok()?, bytes))).collect()
        };
        if found.is_empty() && self.in_order >= 2 && !nest.is_at_end() {
            // Pieces of varying length, one after the other.
            let next = |nth: u64| offset.checked_add(bytes.checked_mul(nth)?);
            found = (1..=depth as u64).map_while(|nth| Some((object, next(nth)?, bytes))).collect();
        }
        let confidence = self.recent.clamp(0.0, 1.0);
        let mut wanted = Vec::new();
        for (nth, (object, offset, bytes)) in found.into_iter().enumerate() {
            if self.open.iter().any(|(key, at, _)| (*key, *at) == (object, offset)) {
                continue;
            }
            if self.credit < 1.0 {
                break;
            }
            self.open.push_back((object, offset, self.reads));
            self.accuracy.issued += 1;
            self.credit -= 1.0;
            let in_ms = self.gap_ms * (nth + 1) as f32;
            wanted.push(Foreseen { object, offset, bytes, in_ms, confidence });
        }
        wanted
    }
}

/// Converts predictions into whole pieces of an object: extents or chunks, given as `(offset, bytes)` in order of
/// offsets. Names each piece once, with the soonest time; leaves out ranges outside of all pieces.
pub fn in_pieces(foreseen: &[Foreseen], pieces: &[(u64, u64)]) -> Vec<Foreseen> {
    let mut named = std::collections::HashSet::new();
    let mut out = Vec::new();
    for range in foreseen {
        let end = range.offset.saturating_add(range.bytes);
        let first = pieces.partition_point(|(at, len)| at.saturating_add(*len) <= range.offset);
        for (at, len) in pieces[first..].iter().take_while(|(at, _)| *at < end) {
            if named.insert((range.object, *at)) {
                out.push(Foreseen { offset: *at, bytes: *len, ..*range });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ObjectId};

    use super::*;

    fn object(id: u128) -> ObjectKey {
        ObjectKey { container: ContainerId(1), object: ObjectId(id) }
    }

    #[test]
    fn a_scan_is_foreseen_ever_further_and_nothing_is_wasted() {
        let mut prefetcher = Prefetcher::new(16, AccessProfile::default());
        for i in 0..200_u64 {
            prefetcher.read(i * 10, object(1), i << 20, 1 << 20);
            prefetcher.ahead();
        }
        let accuracy = prefetcher.accuracy();
        assert!(accuracy.used >= 190 && accuracy.wasted == 0, "{accuracy:?}");
        assert_eq!(prefetcher.depth(), 16);
        prefetcher.read(2000, object(1), 200 << 20, 1 << 20);
        let ahead = prefetcher.ahead();
        assert_eq!(ahead.len(), 1, "only what is new");
        assert!((ahead[0].in_ms - 160.0).abs() < 5.0, "{ahead:?}");
    }

    #[test]
    fn noise_stops_it_and_order_starts_it_again() {
        let mut prefetcher = Prefetcher::new(16, AccessProfile::default());
        let mut state = 5_u64;
        // Some reads in a row, then a jump: each time a prediction is made, and each time it is wrong.
        for i in 0..2000_u64 {
            if i % 3 == 0 || state >> 61 == i % 8 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            }
            prefetcher.read(i, object(1), ((state >> 20) & !0xfff) + i % 3 * 4096, 4096);
            prefetcher.ahead();
        }
        let noise = prefetcher.accuracy();
        let bound = |seen: Accuracy| 8 + (seen.used + seen.missed) / 64 + seen.used * 6 / 10;
        assert!(noise.wasted <= bound(noise), "{noise:?}");
        assert!(noise.wasted < 250, "{noise:?}");
        for i in 0..2000_u64 {
            prefetcher.read(2000 + i, object(2), i * 4096, 4096);
            prefetcher.ahead();
        }
        assert!(
            !prefetcher.is_stopped() && prefetcher.accuracy().used > noise.used + 900,
            "{:?}",
            prefetcher.accuracy()
        );
    }

    #[test]
    fn several_objects_in_turn_and_a_second_pass() {
        let mut prefetcher = Prefetcher::new(8, AccessProfile::default());
        let pass = |prefetcher: &mut Prefetcher| {
            let before = prefetcher.accuracy().used;
            for i in 0..100_u64 {
                prefetcher.read(i, object(u128::from(i % 4)), i / 4 * 1000 + i * i % 7, 1000);
                prefetcher.ahead();
            }
            prefetcher.accuracy().used - before
        };
        pass(&mut prefetcher);
        assert!(pass(&mut prefetcher) > 80, "{:?}", prefetcher.accuracy());
        assert!(pass(&mut prefetcher) > 95, "{:?}", prefetcher.accuracy());
    }

    #[test]
    fn whole_chunks_once_each() {
        let foreseen: Vec<_> = (0..4)
            .map(|i| Foreseen { object: object(1), offset: i * 400, bytes: 400, in_ms: i as f32, confidence: 1.0 })
            .collect();
        let chunks = [(0, 1000), (1000, 500), (1500, 1000)];
        let pieces = in_pieces(&foreseen, &chunks);
        assert_eq!(pieces.iter().map(|p| (p.offset, p.bytes)).collect::<Vec<_>>(), chunks);
        assert!((pieces[1].in_ms - 2.0).abs() < f32::EPSILON);
    }
}
