//! The most used objects of late.

use cenote_model::ObjectKey;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Half-life of a use, in seconds.
const HALF_LIFE_S: f64 = 60.0;
/// Most objects; beyond that, the least used half is forgotten.
const OBJECTS_MAX: usize = 4096;
/// Scores are rescaled after this many doublings, far from the limit of the numbers.
const DOUBLINGS_MAX: f64 = 200.0;

/// Decaying scores. Instead of lowering all of them, later uses get a higher weight.
#[derive(Default)]
pub struct Hot {
    scores: HashMap<ObjectKey, f64, FixedState>,
    /// The second in which the weight of a use is 1.
    base_s: u32,
    /// The second for which `weight` holds.
    weight_s: u32,
    weight: f64,
}

impl Hot {
    /// Notes a use of an object.
    #[inline]
    pub fn note(&mut self, key: ObjectKey, bytes: u64, now_s: u32) {
        if now_s != self.weight_s || self.weight == 0.0 {
            self.new_second(now_s);
        }
        *self.scores.entry(key).or_insert(0.0) += bytes as f64 * self.weight;
        if self.scores.len() > OBJECTS_MAX {
            self.forget_half();
        }
    }
    fn new_second(&mut self, now_s: u32) {
        let doublings = f64::from(now_s.saturating_sub(self.base_s)) / HALF_LIFE_S;
        if doublings > DOUBLINGS_MAX {
            let factor = (-doublings).exp2();
            self.scores.retain(|_, score| {
                *score *= factor;
                *score >= 1.0
            });
            self.base_s = now_s;
            self.weight = 1.0;
        } else {
            self.weight = doublings.exp2();
        }
        self.weight_s = now_s;
    }
    #[cold]
    fn forget_half(&mut self) {
        let mut scores: Vec<f64> = self.scores.values().copied().collect();
        let middle = scores.len() / 2;
        let (_, median, _) = scores.select_nth_unstable_by(middle, f64::total_cmp);
        let least = *median;
        self.scores.retain(|_, score| *score > least);
    }
    /// Forgets a deleted object.
    pub fn forget(&mut self, key: ObjectKey) {
        self.scores.remove(&key);
    }
    /// Returns the most used objects with their present scores, most used first.
    pub fn top(&mut self, count: usize, now_s: u32) -> Vec<(ObjectKey, u64)> {
        self.new_second(now_s);
        let mut all: Vec<(ObjectKey, f64)> = self.scores.iter().map(|(key, score)| (*key, *score)).collect();
        all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        all.truncate(count);
        all.into_iter().map(|(key, score)| (key, (score / self.weight) as u64)).collect()
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ObjectId};

    use super::*;

    fn key(object: u128) -> ObjectKey {
        ObjectKey { container: ContainerId(1), object: ObjectId(object) }
    }

    #[test]
    fn what_is_used_now_beats_what_was() {
        let mut hot = Hot::default();
        hot.note(key(1), 1000, 0);
        hot.note(key(2), 600, 60);
        assert_eq!(hot.top(9, 60), [(key(2), 600), (key(1), 500)]);
        assert_eq!(hot.top(1, 120), [(key(2), 300)]);
        // Long after, when scores have been rescaled.
        hot.note(key(3), 4, 1_000_000);
        assert_eq!(hot.top(9, 1_000_000), [(key(3), 4)]);
        hot.forget(key(3));
        assert!(hot.top(9, 1_000_000).is_empty());
    }

    #[test]
    fn the_hottest_of_many_are_remembered() {
        let mut hot = Hot::default();
        for round in 0..20u32 {
            for object in 0..10_000u128 {
                hot.note(key(object + u128::from(round) * 10_000 + 100), 10, round);
            }
            for object in 0..10 {
                hot.note(key(object), 1000, round);
            }
        }
        let found: Vec<_> = hot.top(10, 20).into_iter().map(|(key, _)| key).collect();
        assert!((0..10).all(|object| found.contains(&key(object))), "{found:?}");
        assert!(hot.scores.len() <= OBJECTS_MAX);
    }
}
