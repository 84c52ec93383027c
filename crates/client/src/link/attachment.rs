//! The attachment of a link to one engine, current or former. This file must not know how to find an engine, nor what
//! requests mean.

use std::sync::Arc;

use std::time::Duration;

use cenote_device::SegmentFile;
use cenote_model::{DeviceId, Error, ErrorKind, Request, Result, StoreId};
use cenote_server::Host;
use cenote_wire::ClusterPlace;

use super::readers::Readers;
use super::transport::{Done, Pending, Transport, Unsent};
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
    /// Where in a cluster the engine is.
    pub place: ClusterPlace,
}

impl Attachment {
    /// That of a link which is attached by its first request. Fails if the system gives no memory.
    pub fn nowhere() -> Result<Self> {
        Ok(Self {
            store: StoreId(0),
            transport: Arc::new(Nowhere),
            readers: Readers::nowhere()?,
            instance: u64::MAX,
            write: true,
            bound: true,
            engines: 1,
            place: ClusterPlace { far: true, ..ClusterPlace::default() },
        })
    }
    /// Returns false for a link which is not attached yet.
    pub fn is_somewhere(&self) -> bool {
        self.store != StoreId(0)
    }
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

/// The transport of a link that is not attached yet: it takes nothing.
struct Nowhere;

impl Transport for Nowhere {
    fn submit(&self, request: Request, done: Done) -> Result<(), Unsent> {
        Err(Unsent { request, done })
    }
    fn progress(&self, _seen: u64, _patience: Duration) -> bool {
        true // nothing is under way
    }
    fn segment(&self, _device: DeviceId, _number: u64) -> Result<(SegmentFile, bool)> {
        Err(Error::new(ErrorKind::Disconnected, "a home").because("it was not asked for anything yet"))
    }
    fn retire(&self) -> Vec<Pending> {
        Vec::new()
    }
    fn close(&self) -> Result<()> {
        Ok(())
    }
    fn resend(&self, _pending: Vec<Pending>) {}
    fn host(&self) -> Option<&Host> {
        None
    }
}
