//! Detects changes of objects and indices by a look at shared memory, without a message.

use cenote_model::{ContainerId, IndexId, IndexKey, ObjectId, ObjectKey, Result};

use crate::{Container, Store};

/// Counts the changes of some objects and indices. Equal values: none of them was changed in between. Different values:
/// most likely one of them was changed, or another one that shares its version word, or a new engine has taken over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// The engine of the store that counted: each opening of the store has its own number.
    pub instance: u64,
    /// The sum of the version words.
    pub count: u64,
}

impl Container {
    /// Returns the current [`Changes`] of these objects and indices. A change of any process counts once it is
    /// acknowledged.
    pub fn changes(&self, indices: &[IndexId], objects: &[ObjectId]) -> Result<Changes> {
        let container = self.id();
        let session = self.store().session()?;
        let attachment = session.home(container).channel.attachment();
        let readers = &attachment.readers;
        // The instance is read first: a word of a later instance must not pass for one of an earlier.
        let instance = readers.instance();
        let indices = indices.iter().map(|id| IndexKey { container, index: *id }.word_hash());
        let objects = objects.iter().map(|id| ObjectKey { container, object: *id }.word_hash());
        let count = indices.chain(objects).fold(0u64, |sum, hash| sum.wrapping_add(readers.word(hash)));
        Ok(Changes { instance, count })
    }
}

impl Store {
    /// Returns a handle for the container with this number, without a message and whether it exists or not. It is meant
    /// for readers that have the number from an existing handle; it assumes the default settings.
    pub fn container_numbered(&self, id: ContainerId) -> Container {
        Container::numbered(self, id)
    }
}
