//! What launched changes rely on.

use std::sync::Arc;

use cenote_model::Check;

use crate::index::Index;
use crate::link::premise::Grounds;
use crate::link::queue::Together;

/// A record that says that nobody else changes what this process does. Changes launched on a premise
/// ([`crate::Transaction::launch`], [`crate::Object::launch_write_on`]) travel together, some dozens in one message that is
/// applied whole, if the record still has its value, or not at all. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Premise(Arc<Grounds>);

impl Premise {
    /// The record `key` of `index` has this value.
    pub fn new(index: &Index, key: &[u8], value: &[u8]) -> Self {
        let check = Check::Value { index: index.key(), key: key.to_vec(), value: Some(value.to_vec()) };
        Self(Arc::new(Grounds::of(check)))
    }
    /// The same, and no message that changes `index` is applied when one before it was not: changes build on each other.
    /// The record `key` of `index` counts them; `id` is another one for each series. After a failure begin a new one.
    #[must_use]
    pub fn in_series(&self, index: &Index, key: &[u8], id: u64) -> Self {
        Self(Arc::new(self.0.in_series(index.key(), key, id)))
    }
    pub(crate) fn together(&self) -> Together {
        Together::Premise(self.0.clone())
    }
}
