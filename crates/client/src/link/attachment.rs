//! One engine that a link is, or was, attached to. This file must not know how an engine is found, nor what requests mean.

use std::sync::Arc;

use cenote_model::StoreId;

use super::readers::Readers;
use super::transport::Transport;
use crate::map::cache::Version;

/// See the module.
pub(crate) struct Attachment {
    pub store: StoreId,
    pub(super) transport: Arc<dyn Transport>,
    pub readers: Readers,
    /// Value of the instance word that belongs to this engine.
    pub instance: u64,
    /// May it change anything?
    pub write: bool,
    /// Owners and modes of containers bind it: it maps nothing, and the daemon carries its bytes.
    pub bound: bool,
}

impl Attachment {
    /// False once another engine has taken over.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.readers.instance() == self.instance
    }
    /// True if the engine is in this process.
    pub fn is_local(&self) -> bool {
        self.transport.host().is_some()
    }
    /// What an object's map must have been told at to be true now; the word's hash is the object's.
    #[inline]
    pub fn version(&self, hash: u64) -> Version {
        Version { instance: self.instance, word: self.readers.word(hash) }
    }
}
