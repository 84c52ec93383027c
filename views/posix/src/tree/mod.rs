//! The tree of one container: its indices, what is found in them, and changes as transactions.
//!
//! Each directory has an index of its own, so that its version word tells of its entries alone: what a process knows of a
//! directory holds, without asking, until somebody changes that very directory. What is looked up by number (directories,
//! files with several names or none) is in the index of nodes.

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
use crate::records::{INO_BITS, Node, keys};
use crate::{FsResult, Ino, Options, fail};

pub use change::Change;
use claims::{Claimed, Claims, Gates};
pub use find::{Found, Place, Slot};
use gather::Gathered;
pub use gather::{Fate, Moment};
use numbers::Numbers;
use places::Places;
pub use who::Who;

/// Handles of directories that are kept, with what is known of their entries.
const DIRS_MAX: usize = 4096;

/// A hash map of numbers.
pub type NumberMap<T> = HashMap<u64, T, foldhash::fast::RandomState>;

/// What all trees of a file system share.
#[derive(Debug)]
pub struct Common {
    /// How it was opened.
    pub options: Options,
    /// Wakes the keeper.
    pub bell: Bell,
    /// Where times come from.
    pub clock: Arc<dyn Clock>,
    /// Who this is to other processes.
    pub who: Who,
}

/// The tree of one container.
#[derive(Debug)]
pub struct Tree {
    /// The container's number.
    pub number: u64,
    /// Where it is.
    pub container: Container,
    /// What all trees share.
    pub common: Arc<Common>,
    nodes: Index,
    /// Who may have what open.
    pub opens: Index,
    /// Which files have a window.
    pub windows: Index,
    /// The version of that when it was not there.
    pub no_windows: Mutex<Option<IndexVersion>>,
    dirs: Mutex<NumberMap<Index>>,
    /// Directories' nodes, and the version of the index of nodes when each was looked up.
    dirs_seen: RwLock<NumberMap<(IndexVersion, Arc<Found>)>>,
    numbers: Numbers,
    places: Places,
    /// Its indices were seen.
    is_made: AtomicBool,
    /// The last `open` that could make a file made one.
    pub makes_new: AtomicBool,
    claimed: Mutex<Claimed>,
    /// Who claims directories, as it was known last.
    claims_known: Mutex<NumberMap<Claims>>,
    /// Names that others do not know yet.
    pub gathered: Gathered,
    /// Held for reading while a file is opened, for writing while one loses its last name.
    pub gates: Gates,
    /// What this process has open.
    pub live: Mutex<NumberMap<Weak<Live>>>,
    /// Space that this process keeps for files.
    pub reserved: ReservedFiles,
}

impl Tree {
    /// The tree of `container`, which need not have been made yet.
    pub fn new(container: Container, common: &Arc<Common>) -> FsResult<Arc<Self>> {
        let number = container.id().0;
        if number == 0 || number >> (64 - INO_BITS) != 0 {
            return fail(libc::EOVERFLOW);
        }
        Ok(Arc::new(Self {
            number,
            nodes: container.index(keys::nodes_index()).remembering(),
            opens: container.index(keys::opens_index()).remembering(),
            windows: container.index(keys::windows_index()).remembering(),
            no_windows: Mutex::default(),
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
            container,
            common: common.clone(),
        }))
    }
    /// A number of this tree, as programs see it.
    pub fn whole(&self, ino: u64) -> Ino {
        Ino(self.number << INO_BITS | ino)
    }
    /// The entries of a directory.
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
    /// The bytes of a file.
    pub fn object(&self, ino: u64) -> Object {
        self.container.object(keys::object(ino))
    }
    /// The bytes of what was found: its own, or those that it shows.
    pub fn object_of(&self, ino: u64, node: &Node) -> Object {
        match &node.stream {
            Some(key) => self.container.store().container_numbered(key.container).object(key.object),
            None => self.object(ino),
        }
    }
    /// The index of nodes.
    pub fn nodes(&self) -> &Index {
        &self.nodes
    }
    /// What this process has open of that number.
    pub fn live(&self, ino: u64) -> Option<Arc<Live>> {
        self.live.lock().get(&ino).and_then(Weak::upgrade)
    }
    /// Nobody will ask for this number any more.
    pub fn forget(&self, ino: u64) {
        self.places.forget(ino);
    }
}
