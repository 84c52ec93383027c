//! The record cache, with all orders of changes and answers.

use std::collections::BTreeMap;

use cenote_workload::property::{Held, Plan, hold, plans};
use cenote_workload::{Rng, Step};
use proptest::prelude::*;

use super::*;

const ONE: Stamp = Stamp { instance: 1, word: 7 };
const TWO: Stamp = Stamp { instance: 1, word: 8 };

#[allow(clippy::option_option, reason = "whether it is known, and whether it is there, are two questions")]
fn get(cache: &RecordCache, now: Stamp, key: &[u8]) -> Option<Option<Vec<u8>>> {
    match cache.get(now, &[key]) {
        CacheAnswer::Hit(mut values) => values.pop(),
        _ => None,
    }
}
fn loaded(more: bool) -> RecordCache {
    let cache = RecordCache::default();
    assert!(matches!(cache.get(ONE, &[b"a"]), CacheAnswer::Load(NextFrom::Start)));
    cache.learn_many(ONE, &NextFrom::Start, &[("a", "1"), ("c", "3")].into_iter().collect(), more);
    cache
}

#[test]
fn what_is_loaded_is_known_until_the_word_changes() {
    let cache = loaded(false);
    assert_eq!(get(&cache, ONE, b"a"), Some(Some(b"1".to_vec())));
    assert_eq!(get(&cache, ONE, b"z"), Some(None));
    assert_eq!(get(&cache, TWO, b"a"), None);
    assert_eq!(get(&cache, ONE, b"a"), None, "the word never goes back, but if it did");
}

#[test]
fn a_part_answers_for_that_part_only() {
    let cache = loaded(true);
    assert_eq!(get(&cache, ONE, b"b"), Some(None));
    assert_eq!(get(&cache, ONE, b"d"), None);
    assert!(matches!(cache.next(ONE, b"c", &NextFrom::Start, 9), CacheAnswer::Load(NextFrom::After(_))));
    assert!(matches!(cache.next(ONE, b"b", &NextFrom::Start, 9), CacheAnswer::Hit((found, false)) if found.is_empty()));
    cache.learn_prefix(ONE, b"c", &[("c", "3"), ("cc", "4")].into_iter().collect());
    assert!(
        matches!(cache.next(ONE, b"c", &NextFrom::After(b"c".to_vec()), 9), CacheAnswer::Hit((found, false)) if found.len() == 1)
    );
}

#[test]
fn own_changes_are_applied_only_if_nobody_elses_came_between() {
    let cache = loaded(false);
    cache.changed(ONE, TWO, false, [(b"a".to_vec(), None), (b"b".to_vec(), Some(b"2".to_vec()))].into_iter());
    assert_eq!(get(&cache, TWO, b"a"), Some(None));
    assert_eq!(get(&cache, TWO, b"b"), Some(Some(b"2".to_vec())));
    let three = Stamp { word: 9, ..TWO };
    cache.changed(ONE, three, false, [(b"a".to_vec(), Some(b"x".to_vec()))].into_iter());
    assert_eq!(get(&cache, three, b"a"), None);
    let cache = loaded(false);
    cache.changed(ONE, Stamp { instance: 2, ..TWO }, false, [(b"a".to_vec(), None)].into_iter());
    assert_eq!(get(&cache, ONE, b"a"), Some(Some(b"1".to_vec())));
}

#[test]
fn what_is_known_outlasts_a_look_while_an_own_change_is_on_its_way() {
    let cache = Arc::new(loaded(false));
    let under_way = cache.begin_change();
    assert_eq!(get(&cache, TWO, b"a"), None, "it may be another's change");
    cache.changed(ONE, TWO, false, [(b"b".to_vec(), Some(b"2".to_vec()))].into_iter());
    drop(under_way);
    assert_eq!(cache.get_one(TWO, b"a"), Some(Some(b"1".to_vec())));
    assert_eq!(cache.get_one(TWO, b"b"), Some(Some(b"2".to_vec())));
    let under_way = cache.begin_change();
    let three = Stamp { word: 9, ..TWO };
    assert_eq!(get(&cache, three, b"a"), None);
    drop(under_way);
    assert_eq!(cache.get_one(three, b"a"), None);
    assert_eq!(cache.get_one(TWO, b"a"), None, "forgotten: it was another's");
}

#[test]
fn an_answer_from_before_a_change_is_not_learnt() {
    let cache = loaded(false);
    assert_eq!(get(&cache, TWO, b"a"), None);
    cache.learn(ONE, [(&b"a"[..], Some(&b"old"[..]))].into_iter());
    assert_eq!(get(&cache, TWO, b"a"), None);
}

/// An answer of the engine that arrives late, or never.
enum LateAnswer {
    Load { asked: Stamp, from: NextFrom, found: Records, more: bool },
    Prefix { asked: Stamp, prefix: Vec<u8>, found: Records },
    Value { asked: Stamp, key: Vec<u8>, value: Option<Vec<u8>> },
}

/// The engine's state of an index, the cache of this process, and answers in flight.
struct Pair {
    plan: Plan,
    rng: Rng,
    cache: Arc<RecordCache>,
    truth: BTreeMap<Vec<u8>, Vec<u8>>,
    word: u64,
    late: Vec<LateAnswer>,
    hits: u64,
}

impl Pair {
    fn now(&self) -> Stamp {
        Stamp { instance: 1, word: self.word }
    }
    fn change(&mut self, key: &[u8], value: Option<&[u8]>) {
        match value {
            Some(value) => drop(self.truth.insert(key.to_vec(), value.to_vec())),
            None => drop(self.truth.remove(key)),
        }
        self.word += 1;
    }
    /// A change by this process or another one. Other changes may come before, in between or after, and other threads
    /// read.
    fn step(&mut self, step: Step) -> Held {
        let key = self.plan.shape.key(step.ordinal());
        let value = vec![self.word as u8; self.rng.below(40) as usize];
        let value = matches!(step, Step::Put(_)).then_some(value);
        if self.rng.chance(300) {
            self.change(&key, value.as_deref());
            return self.look(step.ordinal());
        }
        let before = self.now();
        let under_way = self.rng.chance(500).then(|| self.cache.begin_change());
        let others = self.rng.chance(100).then(|| self.plan.shape.key(step.ordinal() + 1));
        if let Some(other) = others.as_ref().filter(|_| self.rng.chance(500)) {
            self.change(other, Some(b"of another"));
        }
        self.change(&key, value.as_deref());
        let answered = self.now();
        if self.rng.chance(300) {
            self.look(step.ordinal())?;
        }
        if let Some(other) = others.filter(|_| self.rng.chance(500)) {
            self.change(&other, None);
        }
        self.cache.changed(before, answered, false, [(key, value)].into_iter());
        drop(under_way);
        self.look(step.ordinal())
    }
    /// Reads by key and by prefix near an ordinal, and takes in some answers in any order.
    fn look(&mut self, near: u64) -> Held {
        for _ in 0..self.rng.below(3) {
            let key = self.plan.shape.key(near.saturating_add(self.rng.below(5)).saturating_sub(2));
            if self.rng.chance(600) { self.look_up(&key)? } else { self.scan(&key)? }
        }
        if self.late.len() > 4 || self.rng.chance(500) {
            while !self.late.is_empty() && self.rng.chance(700) {
                let late = self.late.swap_remove(self.rng.index(self.late.len()));
                self.take_in(&late);
            }
        }
        prop_assert_eq!(lock(&self.cache.state).check(), Ok(()));
        Ok(())
    }
    fn look_up(&mut self, key: &[u8]) -> Held {
        let now = self.now();
        match self.cache.get(now, &[key]) {
            CacheAnswer::Hit(values) => {
                self.hits += 1;
                prop_assert_eq!(values, [self.truth.get(key).cloned()]);
            }
            CacheAnswer::Ask => {
                let value = self.truth.get(key).cloned();
                self.late.push(LateAnswer::Value { asked: now, key: key.to_vec(), value });
            }
            CacheAnswer::Load(from) => self.load(from),
        }
        Ok(())
    }
    fn scan(&mut self, key: &[u8]) -> Held {
        let now = self.now();
        let prefix = &key[..self.rng.index(key.len() + 1)];
        let from = match self.rng.below(3) {
            0 => NextFrom::Start,
            1 => NextFrom::At(key.to_vec()),
            _ => NextFrom::After(key.to_vec()),
        };
        let limit = 1 + self.rng.index(20);
        match self.cache.next(now, prefix, &from, limit) {
            CacheAnswer::Hit(found) => {
                self.hits += 1;
                prop_assert_eq!(found, self.records(prefix, &from, limit));
            }
            CacheAnswer::Ask => {
                let (found, _) = self.records(prefix, &NextFrom::Start, usize::MAX);
                self.late.push(LateAnswer::Prefix { asked: now, prefix: prefix.to_vec(), found });
            }
            CacheAnswer::Load(from) => self.load(from),
        }
        Ok(())
    }
    fn load(&mut self, from: NextFrom) {
        let limit = 1 + self.rng.index(60);
        let (found, more) = self.records(b"", &from, limit);
        self.late.push(LateAnswer::Load { asked: self.now(), from, found, more });
    }
    fn records(&self, prefix: &[u8], from: &NextFrom, limit: usize) -> (Records, bool) {
        let is_behind = |key: &[u8]| match from {
            NextFrom::Start => true,
            NextFrom::At(from) => key >= from.as_slice(),
            NextFrom::After(from) => key > from.as_slice(),
        };
        let all = || self.truth.iter().filter(|(key, _)| key.starts_with(prefix) && is_behind(key));
        (all().take(limit).collect(), all().nth(limit).is_some())
    }
    fn take_in(&self, late: &LateAnswer) {
        match late {
            LateAnswer::Load { asked, from, found, more } => self.cache.learn_many(*asked, from, found, *more),
            LateAnswer::Prefix { asked, prefix, found } => self.cache.learn_prefix(*asked, prefix, found),
            LateAnswer::Value { asked, key, value } => {
                self.cache.learn(*asked, [(key.as_slice(), value.as_deref())].into_iter());
            }
        }
    }
}

fn follow(plan: &Plan) -> Result<u64, TestCaseError> {
    let mut pair = Pair {
        plan: plan.clone(),
        rng: Rng::new(plan.seed),
        cache: Arc::default(),
        truth: BTreeMap::new(),
        word: 1,
        late: Vec::new(),
        hits: 0,
    };
    plan.each(|step| pair.step(step))?;
    Ok(pair.hits)
}

#[test]
fn what_is_known_is_what_the_engine_has_in_all_orders() {
    let hits = std::cell::Cell::new(0);
    hold("records known", 60, plans(80, 200), |plan| {
        hits.set(hits.get() + follow(plan)?);
        Ok(())
    });
    assert!(hits.get() > 1000, "only {} reads were answered from what is known", hits.get());
}
