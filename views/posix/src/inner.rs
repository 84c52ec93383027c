//! What a file system holds: the trees that it has met, and how numbers and names lead to them.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Instant;

use crate::sync::Mutex;
use cenote::{Container, Store};

use crate::clock::Clock;
use crate::keeper::{Bell, Keeper};
use crate::names::{self};
use crate::records::{INO_BITS, ROOT};
use crate::rights::{self, SEARCH};
use crate::streams::{self, Streams};
use crate::tree::{Common, Found, NumberMap, Tree, Who};
use crate::ways::Ways;
use crate::{Attr, Caller, FsError, FsResult, Ino, Kind, Options, Time, fail, stat, top};

/// See [`crate::FileSystem`].
#[derive(Debug)]
pub struct Inner {
    pub store: Store,
    pub common: Arc<Common>,
    /// When it was opened.
    pub begun: Time,
    /// Containers by label, with the time when that was seen.
    pub labels: Mutex<HashMap<String, (u64, Instant)>>,
    /// Ways to directories that were walked.
    pub ways: Ways,
    trees: Mutex<NumberMap<Arc<Tree>>>,
    /// The only tree, if the top is its root.
    single: Option<Arc<Tree>>,
    pub keeper: Keeper,
    /// HDF5 files as byte streams.
    pub streams: Streams,
    /// Containers that it began to make, and whether those were looked for that others left half made.
    pub halves: AtomicU64,
    pub halves_swept: AtomicBool,
}

/// What a name leads to.
#[expect(clippy::large_enum_variant, reason = "nearly all are in a tree, and live for one call")]
pub enum Where {
    /// The directory of containers.
    Top,
    /// Something in a tree.
    In(Arc<Tree>, Found),
}

impl Where {
    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Top => Kind::Directory,
            Self::In(_, found) => found.node.kind,
        }
    }
    /// Its number.
    pub fn ino(&self) -> Ino {
        match self {
            Self::Top => Ino::TOP,
            Self::In(tree, found) => tree.whole(found.ino),
        }
    }
    /// Where a symbolic link leads.
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
        let common = Arc::new(Common { options, clock, bell: Bell::default(), who: Who::new() });
        let mut inner = Self {
            store: store.clone(),
            common: common.clone(),
            begun,
            labels: Mutex::default(),
            ways: Ways::default(),
            trees: Mutex::default(),
            single: None,
            keeper: Keeper::default(),
            streams: Streams::default(),
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
            inner.streams.found(label, inner.single.as_ref());
        }
        Ok(inner)
    }
    /// Labels of containers may lead elsewhere now.
    pub fn forget_labels(&self) {
        self.labels.lock().clear();
        self.ways.forget();
    }
    /// The root of all that it shows.
    pub fn root(&self) -> Ino {
        self.single.as_ref().map_or(Ino::TOP, |tree| tree.whole(ROOT))
    }
    /// `EROFS` if nothing may be changed.
    pub fn check_writable(&self) -> FsResult<()> {
        if self.common.options.is_read_only { fail(libc::EROFS) } else { Ok(()) }
    }
    /// The tree of that number, if it was met.
    pub fn known_tree(&self, number: u64) -> Option<Arc<Tree>> {
        self.trees.lock().get(&number).cloned()
    }
    /// All trees that were met.
    pub fn known_trees(&self) -> Vec<Arc<Tree>> {
        self.trees.lock().values().cloned().collect()
    }
    /// The tree in a container.
    pub fn tree_in(&self, container: Container) -> FsResult<Arc<Tree>> {
        let mut trees = self.trees.lock();
        if let Some(tree) = trees.get(&container.id().0) {
            return Ok(tree.clone());
        }
        let tree = Tree::new(container, &self.common)?;
        trees.insert(tree.number, tree.clone());
        Ok(tree)
    }
    /// The tree in the container of that label.
    pub fn tree_in_label(&self, label: &str) -> FsResult<Arc<Tree>> {
        top::tree(self, label.as_bytes())
    }
    /// The tree that a number belongs to, and the number there; none: the top.
    pub fn split(&self, ino: Ino) -> FsResult<Option<(Arc<Tree>, u64)>> {
        let (number, within) = (ino.0 >> INO_BITS, ino.0 & ((1 << INO_BITS) - 1));
        if number == 0 {
            return if ino == Ino::TOP && self.single.is_none() { Ok(None) } else { fail(libc::ESTALE) };
        }
        if let Some(tree) = self.known_tree(number) {
            return Ok(Some((tree, within)));
        }
        if self.single.is_none()
            && let Some(info) = top::containers(self)?.into_iter().find(|info| info.id.0 == number)
        {
            return Ok(Some((self.tree_in_label(&info.label)?, within)));
        }
        fail(libc::ESTALE)
    }
    /// The same for what cannot be the top.
    pub fn in_tree(&self, ino: Ino, if_top: i32) -> FsResult<(Arc<Tree>, u64)> {
        self.split(ino)?.ok_or_else(|| FsError::new(if_top))
    }
    /// A number in that very tree; `EXDEV`.
    pub fn in_tree_of(&self, tree: &Tree, ino: Ino) -> FsResult<u64> {
        match self.split(ino)? {
            Some((other, number)) if other.number == tree.number => Ok(number),
            _ => fail(libc::EXDEV),
        }
    }
    /// The directory above a directory.
    pub fn parent_of(&self, tree: &Tree, found: &Found) -> Ino {
        if found.node.parent == found.ino || found.ino == ROOT {
            return self.root();
        }
        tree.whole(found.node.parent)
    }
    /// What `name` in `dir` leads to.
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
            b"." => Ok(Where::In(tree, Found::clone(&parent))),
            b".." => self.find(self.parent_of(&tree, &parent)),
            _ => {
                let found = streams::find_in(self, &tree, number, name)?;
                Ok(Where::In(tree, found))
            }
        }
    }
    /// What a number stands for.
    pub fn find(&self, ino: Ino) -> FsResult<Where> {
        let Some((tree, number)) = self.split(ino)? else { return Ok(Where::Top) };
        let found = tree.find(number)?;
        Ok(Where::In(tree, found))
    }
    /// What `stat` tells.
    pub fn attr_of(&self, found: &Where) -> FsResult<Attr> {
        match found {
            Where::Top => top::attr(self),
            Where::In(tree, found) => stat::attr(tree, found),
        }
    }
    /// The same by number.
    pub fn attr(&self, ino: Ino) -> FsResult<Attr> {
        self.attr_of(&self.find(ino)?)
    }
    /// Nobody will ask for this number any more.
    pub fn forget(&self, ino: Ino) {
        if let Some(tree) = self.known_tree(ino.0 >> INO_BITS) {
            tree.forget(ino.0 & ((1 << INO_BITS) - 1));
        }
    }
}
