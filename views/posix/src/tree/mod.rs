//! The tree of one container: its indices, lookups in them, and changes as transactions.
//!
//! Each directory has its own index, so that its version word covers its entries alone: what a process knows of a
//! directory stays valid, without asking, until somebody changes that directory. Nodes looked up by number (directories,
//! files with several names or none) are in the index of nodes.

mod change;
mod claims;
mod find;
mod gather;
mod made;
mod numbers;
mod places;
mod who;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use crate::sync::{Mutex, RwLock};
use cenote::{Container, Index, IndexVersion, Object};

use crate::clock::Clock;
use crate::file::{Live, ReservedFiles};
use crate::keeper::Bell;
use crate::layouts::KnownTier;
use crate::numbering::Numbering;
use crate::records::{Node, keys};
use crate::{FsResult, Ino, Options, fail};

pub use change::Change;
use claims::{Claimed, Claims, Gates};
pub use find::{FoundNode, NodeLocation, Slot};
use gather::Gathered;
pub use gather::{Moment, NameChange};
use numbers::Numbers;
use places::Places;
pub use who::Who;

/// Maximum number of cached directory handles, with what is known of their entries.
const DIRS_MAX: usize = 4096;

/// Hash map with inode numbers as keys.
pub type NumberMap<T> = HashMap<u64, T, foldhash::fast::RandomState>;

/// State shared by all trees of a file system.
#[derive(Debug)]
pub struct Common {
    /// Options of the file system.
    pub options: Options,
    /// Wakes the keeper.
    pub bell: Bell,
    /// Source of times.
    pub clock: Arc<dyn Clock>,
    /// This process's identity to others.
    pub who: Who,
    /// How inode numbers are made.
    pub numbering: Numbering,
}

/// The tree of one container.
#[derive(Debug)]
pub struct Tree {
    /// Its number in inode numbers.
    pub number: u64,
    /// The container.
    pub container: Container,
    /// Shared state.
    pub common: Arc<Common>,
    /// The container's home is that of this node, so that all who use the container's files on this machine share memory with its home.
    pub is_at_home: bool,
    nodes: Index,
    /// Index of the processes that may have files open.
    pub opens: Index,
    /// Index of files that have a page cache.
    pub page_caches: Index,
    /// The index's version when it did not exist.
    pub no_page_caches: Mutex<Option<IndexVersion>>,
    dirs: Mutex<NumberMap<Index>>,
    /// Nodes of directories, with the version of the index of nodes at each lookup.
    dirs_seen: RwLock<NumberMap<(IndexVersion, Arc<FoundNode>)>>,
    numbers: Numbers,
    places: Places,
    /// The tree's indices exist.
    is_made: AtomicBool,
    /// The last `open` with creation created a file.
    pub makes_new: AtomicBool,
    claimed: Mutex<Claimed>,
    /// Cached claimants of directories.
    claims_known: Mutex<NumberMap<Claims>>,
    /// Names that others do not see yet.
    pub gathered: Gathered,
    /// Held for reading while a file is opened, for writing while one loses its last name.
    pub gates: Gates,
    /// Files that this process has open.
    pub live: Mutex<NumberMap<Weak<Live>>>,
    /// Space that this process reserves for files.
    pub reserved: ReservedFiles,
    /// See [`crate::layouts`].
    pub known_tier: Mutex<KnownTier>,
}

impl Tree {
    /// Creates the tree of `container`, whose records need not exist yet.
    pub fn new(container: Container, common: &Arc<Common>) -> FsResult<Arc<Self>> {
        let Some(number) = common.numbering.tree(container.id()) else { return fail(libc::EOVERFLOW) };
        Ok(Arc::new(Self {
            number,
            is_at_home: container.home() == container.store().home(),
            nodes: container.index(keys::nodes_index()).remembering(),
            opens: container.index(keys::opens_index()).remembering(),
            page_caches: container.index(keys::page_caches_index()).remembering(),
            no_page_caches: Mutex::default(),
            dirs: Mutex::default(),
            dirs_seen: RwLock::default(),
            numbers: Numbers::new(&container),
            places: Places::new(common.options.keeps_numbers),
            is_made: AtomicBool::new(false),
            makes_new: AtomicBool::new(false),
            claimed: Mutex::default(),
            claims_known: Mutex::default(),
            gathered: Gathered::default(),
            gates: Gates::default(),
            live: Mutex::default(),
            reserved: ReservedFiles::default(),
            known_tier: Mutex::default(),
            container,
            common: common.clone(),
        }))
    }
    /// Returns a number of this tree as programs see it.
    pub fn whole(&self, ino: u64) -> Ino {
        self.common.numbering.whole(self.number, ino)
    }
    /// Returns the index of a directory's entries.
    pub fn dir(&self, ino: u64) -> Index {
        let mut dirs = self.dirs.lock();
        if let Some(index) = dirs.get(&ino) {
            return index.clone();
        }
        if dirs.len() >= DIRS_MAX {
            let mut keep = false;
            dirs.retain(|_, _| {
                keep = !keep;
                keep
            });
        }
        let index = self.container.index(keys::dir_index(ino)).remembering();
        dirs.insert(ino, index.clone());
        index
    }
    /// Returns the object of a file's bytes.
    pub fn object(&self, ino: u64) -> Object {
        self.container.object(keys::object(ino))
    }
    /// Returns the object of a node's bytes: its own, or the image that it shows.
    pub fn object_of(&self, ino: u64, node: &Node) -> Object {
        match &node.image {
            Some(key) => self.container.store().container_numbered(key.container).object(key.object),
            None => self.object(ino),
        }
    }
    /// Returns the index of nodes.
    pub fn nodes(&self) -> &Index {
        &self.nodes
    }
    /// Returns this process's open state of a number.
    pub fn live(&self, ino: u64) -> Option<Arc<Live>> {
        self.live.lock().get(&ino).and_then(Weak::upgrade)
    }
    /// Forgets a number that nobody will use again.
    pub fn forget(&self, ino: u64) {
        self.places.forget(ino);
    }
}
