//! What launched changes rely on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_model::{Check, IndexKey, Update};

use crate::data::queue::Together;
use crate::index::Index;

/// A record that says that nobody else changes what this process does. Changes launched on a premise
/// ([`crate::Transaction::launch`], [`crate::Object::launch_write_on`]) travel together, some dozens in one message that is
/// applied whole, if the record still has its value, or not at all. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Premise(Arc<Grounds>);

/// See [`Premise`].
#[derive(Debug)]
pub(crate) struct Grounds {
    check: Check,
    series: Option<Series>,
}

/// Messages that change an index, one after the other.
#[derive(Debug)]
struct Series {
    index: IndexKey,
    key: Vec<u8>,
    /// Tells it from other series.
    id: u64,
    /// Messages that were begun.
    begun: AtomicU64,
}

impl Series {
    fn value(&self, number: u64) -> Vec<u8> {
        [self.id.to_le_bytes(), number.to_le_bytes()].concat()
    }
}

impl Premise {
    /// The record `key` of `index` has this value.
    pub fn new(index: &Index, key: &[u8], value: &[u8]) -> Self {
        let check = Check::Value { index: index.key(), key: key.to_vec(), value: Some(value.to_vec()) };
        Self(Arc::new(Grounds { check, series: None }))
    }
    /// The same, and no message that changes `index` is applied when one before it was not: changes build on each other.
    /// The record `key` of `index` counts them; `id` is another one for each series. After a failure begin a new one.
    #[must_use]
    pub fn in_series(&self, index: &Index, key: &[u8], id: u64) -> Self {
        let series = Series { index: index.key(), key: key.to_vec(), id, begun: AtomicU64::new(0) };
        Self(Arc::new(Grounds { check: self.0.check.clone(), series: Some(series) }))
    }
    pub(crate) fn together(&self) -> Together {
        Together::Premise(self.0.clone())
    }
}

/// What goes before the updates of a message.
#[derive(Default)]
pub(crate) struct Head {
    pub checks: Vec<Check>,
    pub updates: Vec<Update>,
}

impl Grounds {
    /// What is to be checked for every message.
    pub fn begin(&self, head: &mut Head) {
        head.checks.push(self.check.clone());
    }
    /// Called for each part of a message until it was true: it changes the index of the series. Also of a message that is not sent
    /// then: those after it must find it missing.
    pub fn is_next_in_series(&self, updates: &[Update], head: &mut Head) -> bool {
        let Some(series) = &self.series else { return false };
        let is_in = |update: &Update| match update {
            Update::Put { index, .. } | Update::Del { index, .. } => *index == series.index,
            _ => false,
        };
        if !updates.iter().any(is_in) {
            return false;
        }
        let before = series.begun.fetch_add(1, Ordering::Relaxed);
        let (index, key) = (series.index, series.key.clone());
        if before > 0 {
            head.checks.push(Check::Value { index, key: key.clone(), value: Some(series.value(before)) });
        }
        head.updates.push(Update::Put { index, key, value: series.value(before + 1), only_new: false });
        true
    }
}
