//! The attachment of a link to one engine, current or former. This file must not know how to find an engine, nor what
//! requests mean.

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
    /// The instance word of this engine.
    pub instance: u64,
    /// The session may make changes.
    pub write: bool,
    /// Owners and modes of containers bind the session: it maps nothing, and the daemon carries its bytes.
    pub bound: bool,
    /// Engines of the store; leased space is for the containers of one.
    pub engines: u16,
}

impl Attachment {
    /// Returns false once another engine has taken over.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.readers.instance() == self.instance
    }
    /// Returns true if the engine is in this process.
    pub fn is_local(&self) -> bool {
        self.transport.host().is_some()
    }
    /// Returns the current version of an object with this hash: a map holds while the version is the same.
    #[inline]
    pub fn version(&self, hash: u64) -> Version {
        Version { instance: self.instance, word: self.readers.word(hash) }
    }
}
