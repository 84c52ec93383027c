//! What launched changes rely on, as messages carry it. This file must not know who makes premises.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_model::{Check, IndexKey, Update};

/// See [`Premise`](crate::Premise).
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

/// What goes before the updates of a message.
#[derive(Default)]
pub(crate) struct Head {
    pub checks: Vec<Check>,
    pub updates: Vec<Update>,
}

impl Grounds {
    /// An index has a record of this value.
    pub fn of(check: Check) -> Self {
        Self { check, series: None }
    }
    /// The same, for messages that change `index` one after the other; its record `key` counts them.
    pub fn in_series(&self, index: IndexKey, key: &[u8], id: u64) -> Self {
        let series = Series { index, key: key.to_vec(), id, begun: AtomicU64::new(0) };
        Self { check: self.check.clone(), series: Some(series) }
    }
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
