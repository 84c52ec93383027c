//! A session: the state of this process in one store, shared by all handles of the store.
//!
//! A session has one link for each engine that it reaches, and knows the home link of each container. Today it has one
//! link. This file must not know how to reach an engine, nor how bytes are moved.

pub(crate) mod pins;

use std::path::Path;
use std::sync::Arc;

use cenote_host::fork;
use cenote_model::{ContainerId, ObjectKey, Result};

use crate::OpenOptions;
use crate::data::tiering;
use crate::link::Link;
use crate::link::shared::Shared;
use crate::map::cache::ObjectCache;
use pins::Pins;

/// A session; see the module.
pub(crate) struct Session {
    /// Fork generation of its process.
    pub generation: u64,
    link: Arc<Link>,
    pub shared: Arc<Shared>,
    pub pins: Pins,
}

impl Session {
    /// Attaches to the store in `dir`.
    pub fn open(dir: &Path, options: &OpenOptions) -> Result<Arc<Self>> {
        let shared = Arc::new(Shared::new(dir));
        let link = Link::open(dir, options, &shared)?;
        Ok(Arc::new(Self { generation: fork::generation(), link, shared, pins: Pins::default() }))
    }
    /// Returns the link to the engine of the container. While there is one engine, it has all containers.
    #[inline]
    pub fn home(&self, _container: ContainerId) -> &Arc<Link> {
        &self.link
    }
    /// Returns the link to the engine of the store as a whole: its containers, devices and rules.
    #[inline]
    pub fn root(&self) -> &Arc<Link> {
        &self.link
    }
    /// Returns the cached object, empty at first.
    pub fn object(&self, key: ObjectKey) -> Arc<ObjectCache> {
        self.shared.objects.get(key, self.home(key.container).queue.settled())
    }
    /// Finishes pipelined operations, gives everything back, and detaches. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        if self.link.channel.check_open().is_err() {
            return Ok(());
        }
        tiering::keep_learned(&self.link);
        self.link.close()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return; // a forked child's copy: the session is the parent's
        }
        // The last handle was dropped without `close`: only the log can take the errors.
        if let Err(error) = self.close() {
            tracing::warn!(%error, "leaving the store");
        }
    }
}
