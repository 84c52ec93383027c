//! State of a file system: the trees it has met, and the mapping of numbers and names to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use crate::sync::Mutex;
use cenote::{Container, Store};

use crate::cached_paths::CachedPaths;
use crate::clock::Clock;
use crate::images::{self, Images};
use crate::keeper::{Bell, Keeper};
use crate::names::{self};
use crate::numbering::Numbering;
use crate::records::ROOT;
use crate::rights::{self, SEARCH};
use crate::tree::{Common, FoundNode, NumberMap, Tree, Who};
use crate::{Attr, Caller, FsError, FsResult, Ino, Kind, Options, Time, fail, stat, top};

/// Implementation of [`crate::FileSystem`].
#[derive(Debug)]
pub struct Inner {
    pub store: Store,
    pub common: Arc<Common>,
    /// When it was opened.
    pub begun: Time,
    /// Containers by label, with the time of the lookup.
    pub labels: Mutex<HashMap<String, (u64, Instant)>>,
    /// Cached paths to directories.
    pub paths: CachedPaths,
    trees: Mutex<NumberMap<Arc<Tree>>>,
    /// The only tree, if the top is its root.
    single: Option<Arc<Tree>>,
    pub keeper: Keeper,
    /// HDF5 files as byte images.
    pub images: Images,
    /// Number of containers that it began to create, and whether those that dead processes left half
    /// made were swept.
    pub halves: AtomicU64,
    pub halves_swept: AtomicBool,
}

/// Target of a name.
#[expect(clippy::large_enum_variant, reason = "nearly all are in a tree, and live for one call")]
pub enum Where {
    /// The directory of containers.
    Top,
    /// A node of a tree.
    In(Arc<Tree>, FoundNode),
}

impl Where {
    /// Returns the file type.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Top => Kind::Directory,
            Self::In(_, found) => found.node.kind,
        }
    }
    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        match self {
            Self::Top => Ino::TOP,
            Self::In(tree, found) => tree.whole(found.ino),
        }
    }
    /// Returns the target of a symbolic link.
    pub fn target(&self) -> &[u8] {
        match self {
            Self::Top => &[],
            Self::In(_, found) => &found.node.target,
        }
    }
}

impl Inner {
    pub fn new(store: &Store, options: Options, clock: Arc<dyn Clock>) -> FsResult<Self> {
        let begun = clock.now();
        let numbering = Numbering::of(store);
        let common = Arc::new(Common { options, clock, bell: Bell::default(), who: Who::new(store), numbering });
        let mut inner = Self {
            store: store.clone(),
            common: common.clone(),
            begun,
            labels: Mutex::default(),
            paths: CachedPaths::default(),
            trees: Mutex::default(),
            single: None,
            keeper: Keeper::default(),
            images: Images::default(),
            halves: AtomicU64::new(0),
            halves_swept: AtomicBool::new(false),
        };
        if let Some(label) = &common.options.container {
            let options = &common.options;
            let container = if options.is_read_only {
                store.container(label).map_err(|error| match error.kind() {
                    cenote::ErrorKind::NotFound => FsError::from(error).with_errno(libc::ENOENT),
                    _ => error.into(),
                })?
            } else {
                store.open_container(label, &options.new_containers)?
            };
            inner.single = Some(inner.tree_in(container)?);
            inner.images.found(label, inner.single.as_ref());
        }
        Ok(inner)
    }
    /// Forgets which containers labels lead to.
    pub fn forget_labels(&self) {
        self.labels.lock().clear();
        self.paths.forget();
    }
    /// Returns the root.
    pub fn root(&self) -> Ino {
        self.single.as_ref().map_or(Ino::TOP, |tree| tree.whole(ROOT))
    }
    /// Returns `EROFS` if the file system is read-only.
    pub fn check_writable(&self) -> FsResult<()> {
        if self.common.options.is_read_only { fail(libc::EROFS) } else { Ok(()) }
    }
    /// Returns the tree with this number, if it was met.
    pub fn known_tree(&self, number: u64) -> Option<Arc<Tree>> {
        self.trees.lock().get(&number).cloned()
    }
    /// Returns all trees that were met.
    pub fn known_trees(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().values().cloned().collect()
    }
    /// Returns the tree in a container.
    pub fn tree_in(&self, container: Container) -> FsResult<Arc<Tree>> {
        let mut trees = self.trees.lock();
        let number = self.common.numbering.tree(container.id());
        if let Some(tree) = number.and_then(|number| trees.get(&number)) {
            return Ok(tree.clone());
        }
        let tree = Tree::new(container, &self.common)?;
        trees.insert(tree.number, tree.clone());
        Ok(tree)
    }
    /// Returns the tree in the container with this label.
    pub fn tree_in_label(&self, label: &str) -> FsResult<Arc<Tree>> {
        top::tree(self, label.as_bytes())
    }
    /// Splits an inode number into its tree and the number there; `None`: the top.
    pub fn split(&self, ino: Ino) -> FsResult<Option<(Arc<Tree>, u64)>> {
        let numbering = self.common.numbering;
        let (number, within) = numbering.split(ino);
        if number == 0 {
            return if ino == Ino::TOP && self.single.is_none() { Ok(None) } else { fail(libc::ESTALE) };
        }
        if let Some(tree) = self.known_tree(number) {
            return Ok(Some((tree, within)));
        }
        if self.single.is_none()
            && let Some((label, _)) =
                top::containers(self)?.into_iter().find(|(_, id)| numbering.tree(*id) == Some(number))
        {
            return Ok(Some((self.tree_in_label(&label)?, within)));
        }
        fail(libc::ESTALE)
    }
    /// Splits the number of something that cannot be the top; the top gives the error `if_top`.
    pub fn in_tree(&self, ino: Ino, if_top: i32) -> FsResult<(Arc<Tree>, u64)> {
        self.split(ino)?.ok_or_else(|| FsError::new(if_top))
    }
    /// Returns the number within this tree, or `EXDEV`.
    pub fn in_tree_of(&self, tree: &Tree, ino: Ino) -> FsResult<u64> {
        match self.split(ino)? {
            Some((other, number)) if other.number == tree.number => Ok(number),
            _ => fail(libc::EXDEV),
        }
    }
    /// Returns the parent of a directory.
    pub fn parent_of(&self, tree: &Tree, found: &FoundNode) -> Ino {
        if found.node.parent == found.ino || found.ino == ROOT {
            return self.root();
        }
        tree.whole(found.node.parent)
    }
    /// Looks up `name` in `dir`.
    pub fn find_in(&self, caller: &Caller, dir: Ino, name: &[u8]) -> FsResult<Where> {
        names::check(name)?;
        let Some((tree, number)) = self.split(dir)? else {
            if names::is_dots(name) {
                return Ok(Where::Top);
            }
            let (tree, found) = top::find(self, name)?;
            return Ok(Where::In(tree, found));
        };
        let parent = tree.directory(number)?;
        rights::need(caller, &parent.node, SEARCH)?;
        match name {
            b"." => Ok(Where::In(tree, FoundNode::clone(&parent))),
            b".." => self.find(self.parent_of(&tree, &parent)),
            _ => {
                let found = images::find_in(self, &tree, number, name)?;
                Ok(Where::In(tree, found))
            }
        }
    }
    /// Looks up an inode number.
    pub fn find(&self, ino: Ino) -> FsResult<Where> {
        let Some((tree, number)) = self.split(ino)? else { return Ok(Where::Top) };
        let found = tree.find(number)?;
        Ok(Where::In(tree, found))
    }
    /// Returns attributes (`stat`).
    pub fn attr_of(&self, found: &Where) -> FsResult<Attr> {
        match found {
            Where::Top => top::attr(self),
            Where::In(tree, found) => stat::attr(tree, found),
        }
    }
    /// Returns attributes by inode number.
    pub fn attr(&self, ino: Ino) -> FsResult<Attr> {
        self.attr_of(&self.find(ino)?)
    }
    /// Forgets a number that nobody will use again.
    pub fn forget(&self, ino: Ino) {
        let (number, within) = self.common.numbering.split(ino);
        if let Some(tree) = self.known_tree(number) {
            tree.forget(within);
        }
    }
}
