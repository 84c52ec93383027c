//! A session: this process's standing with one store. All handles of the store share it.
//!
//! A session has links, one for each engine that it reaches, and says which link is a container's home. Today it has one
//! link. This file must not know how an engine is reached, nor how bytes are moved.

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

/// See the module.
pub(crate) struct Session {
    /// Fork generation of the process that it belongs to.
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
    /// The link to the engine that has the container. While there is one engine, it has all.
    #[inline]
    pub fn home(&self, _container: ContainerId) -> &Arc<Link> {
        &self.link
    }
    /// The link to the engine that knows the store as a whole: its containers, devices and rules.
    #[inline]
    pub fn root(&self) -> &Arc<Link> {
        &self.link
    }
    /// What this process knows of an object; nothing at first.
    pub fn object(&self, key: ObjectKey) -> Arc<ObjectCache> {
        self.shared.objects.get(key, self.home(key.container).queue.settled())
    }
    /// Finishes what was launched, gives everything back, and leaves. The second call does nothing.
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
        // The last handle went without `close`: errors have nobody to go to but the log.
        if let Err(error) = self.close() {
            tracing::warn!(%error, "leaving the store");
        }
    }
}
