//! Whether objects and indices changed since somebody looked, by a look at shared memory: no message.

use cenote_model::{ContainerId, IndexId, IndexKey, ObjectId, ObjectKey, Result};

use crate::{Container, Store};

/// How often some objects and indices had been changed. Equal: none of them was changed in between. Different: most likely one
/// was, or another that shares its version word, or the engine is another one than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Which engine of the store counted: each opening has a number of its own.
    pub instance: u64,
    /// The sum of the version words.
    pub count: u64,
}

impl Container {
    /// See [`Changes`]. A change of this or another process counts from the moment on when it is acknowledged.
    pub fn changes(&self, indices: &[IndexId], objects: &[ObjectId]) -> Result<Changes> {
        let container = self.id();
        let session = self.store().session()?;
        let attachment = session.home(container).channel.attachment();
        let readers = &attachment.readers;
        // The instance first: a word of a later one must not pass for one of an earlier.
        let instance = readers.instance();
        let indices = indices.iter().map(|id| IndexKey { container, index: *id }.word_hash());
        let objects = objects.iter().map(|id| ObjectKey { container, object: *id }.word_hash());
        let count = indices.chain(objects).fold(0u64, |sum, hash| sum.wrapping_add(readers.word(hash)));
        Ok(Changes { instance, count })
    }
}

impl Store {
    /// The container of that number, whether it is there or not: nothing is asked. It is to be read by whoever has the number from one that was
    /// found; its settings are taken to be the presets.
    pub fn container_numbered(&self, id: ContainerId) -> Container {
        Container::numbered(self, id)
    }
}
