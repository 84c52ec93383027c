//! What launched changes rely on.

use std::sync::Arc;

use cenote_model::Check;

use crate::data::queue::Together;
use crate::index::Index;

/// A record that says that nobody else changes what this process does. Changes launched on a premise
/// ([`crate::Transaction::launch`], [`crate::Object::launch_write_on`]) travel together, some dozens in one message that is
/// applied whole, if the record still has its value, or not at all. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Premise(Arc<Check>);

impl Premise {
    /// The record `key` of `index` has this value.
    pub fn new(index: &Index, key: &[u8], value: &[u8]) -> Self {
        Self(Arc::new(Check::Value { index: index.key(), key: key.to_vec(), value: Some(value.to_vec()) }))
    }
    pub(crate) fn together(&self) -> Together {
        Together::Premise(self.0.clone())
    }
}
