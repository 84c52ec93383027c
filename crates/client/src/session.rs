//! A session: the state of this process in one store, shared by all handles of the store.
//!
//! A session has one link for each home that it uses, and knows the home link of each container. This file must not know
//! how to reach an engine, nor how bytes are moved.

pub(crate) mod pins;

use std::path::Path;
use std::sync::Arc;

use cenote_host::fork;
use cenote_model::{ContainerId, HomeId, ObjectKey, Result};

use crate::OpenOptions;
use crate::data::tiering;
use crate::link::Link;
use crate::link::shared::Shared;
use crate::links::Links;
use crate::map::cache::ObjectCache;
use crate::map::kept::Keeping;
use pins::Pins;

/// A session; see the module.
pub(crate) struct Session {
    /// Fork generation of its process.
    pub generation: u64,
    pub links: Links,
    pub shared: Arc<Shared>,
    pub pins: Pins,
}

impl Session {
    /// Attaches to the store in `dir`.
    pub fn open(dir: &Path, options: &OpenOptions) -> Result<Arc<Self>> {
        let shared = Arc::new(Shared::new(dir));
        let link = Link::open(dir, options, &shared)?;
        let links = Links::of(link)?;
        if !links.homes().is_empty() {
            Keeping::check()?;
        }
        Ok(Arc::new(Self { generation: fork::generation(), links, shared, pins: Pins::default() }))
    }
    /// Returns the link to the home of the container.
    #[inline]
    pub fn home(&self, container: ContainerId) -> &Arc<Link> {
        self.links.to(container.home())
    }
    /// Returns the link to the home of this node, or to the only engine of a store by itself.
    #[inline]
    pub fn root(&self) -> &Arc<Link> {
        self.links.root()
    }
    /// Number of the engine that has a container, among those of its home.
    pub fn engine_of(&self, id: ContainerId) -> u16 {
        self.home(id).engine_of(id)
    }
    /// Returns the links to all homes of the store.
    pub fn all(&self) -> Vec<(HomeId, &Arc<Link>)> {
        let homes = self.links.homes();
        if homes.is_empty() {
            return vec![(HomeId(0), self.root())];
        }
        homes.into_iter().map(|home| (home, self.links.to(home))).collect()
    }
    /// Returns the cached object, empty at first.
    pub fn object(&self, key: ObjectKey) -> Arc<ObjectCache> {
        self.shared.objects.get(key, self.home(key.container).queue.settled())
    }
    /// Finishes pipelined operations, gives everything back, and detaches. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        if self.root().channel.check_open().is_err() {
            return Ok(());
        }
        self.links.try_for_each(|link| {
            if link.channel.attachment().is_somewhere() {
                tiering::keep_learned(link);
            }
            link.close()
        })
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
