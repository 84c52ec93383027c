//! Preconditions of pipelined changes, in the form that messages carry. This file must not know who sets them.

use std::sync::atomic::{AtomicU64, Ordering};

use cenote_model::{Check, IndexKey, Update};

/// See [`Precondition`](crate::Precondition).
#[derive(Debug)]
pub(crate) struct PreconditionCheck {
    check: Check,
    series: Option<Series>,
}

/// A sequence of messages that change an index.
#[derive(Debug)]
struct Series {
    index: IndexKey,
    key: Vec<u8>,
    /// Distinguishes this series from others.
    id: u64,
    /// Number of messages begun.
    begun: AtomicU64,
}

impl Series {
    fn value(&self, number: u64) -> Vec<u8> {
        [self.id.to_le_bytes(), number.to_le_bytes()].concat()
    }
}

/// The part of a message before its updates.
#[derive(Default)]
pub(crate) struct Head {
    pub checks: Vec<Check>,
    pub updates: Vec<Update>,
}

impl PreconditionCheck {
    /// The precondition that an index has a record with this value.
    pub fn of(check: Check) -> Self {
        Self { check, series: None }
    }
    /// The same, for a sequence of messages that change `index`; its record `key` counts them.
    pub fn in_series(&self, index: IndexKey, key: &[u8], id: u64) -> Self {
        let series = Series { index, key: key.to_vec(), id, begun: AtomicU64::new(0) };
        Self { check: self.check.clone(), series: Some(series) }
    }
    /// The check of every message.
    pub fn check(&self) -> &Check {
        &self.check
    }
    /// Adds the check of every message.
    pub fn begin(&self, head: &mut Head) {
        head.checks.push(self.check.clone());
    }
    /// Returns true if the message belongs to the series, because a part of it changes the index; then adds check and
    /// counter. Called for each part until it returns true. A message that is later not sent counts too: its successors
    /// must find it missing.
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
