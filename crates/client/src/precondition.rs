//! Preconditions of pipelined changes.

use std::sync::Arc;

use cenote_model::Check;

use crate::index::Index;
use crate::link::precondition::PreconditionCheck;
use crate::link::queue::Together;

/// A precondition: a record whose value proves that no other process changes the same data. Changes pipelined on
/// it ([`crate::Transaction::launch`], [`crate::Object::launch_write_on`]) travel together, some dozens in one message.
/// The message is applied whole if the record still has its value, and not at all otherwise. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Precondition(Arc<PreconditionCheck>);

impl Precondition {
    /// The precondition that the record `key` of `index` has this value.
    pub fn new(index: &Index, key: &[u8], value: &[u8]) -> Self {
        let check = Check::Value { index: index.key(), key: key.to_vec(), value: Some(value.to_vec()) };
        Self(Arc::new(PreconditionCheck::of(check)))
    }
    /// The same precondition for a series of dependent changes: a message that changes `index` is applied only if its
    /// predecessor was. The record `key` of `index` counts the messages; `id` must be unique for each series. After a
    /// failure, begin a new series.
    #[must_use]
    pub fn in_series(&self, index: &Index, key: &[u8], id: u64) -> Self {
        Self(Arc::new(self.0.in_series(index.key(), key, id)))
    }
    pub(crate) fn check(&self) -> &Check {
        self.0.check()
    }
    pub(crate) fn together(&self) -> Together {
        Together::Precondition(self.0.clone())
    }
}
