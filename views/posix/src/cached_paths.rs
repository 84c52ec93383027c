//! Cache of paths to directories (dentry cache): programs use the same few again and again. A cached path is valid without a look at its parts as
//! long as the indices that it led through are unchanged, which their version words tell.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use cenote::{Index, IndexVersion};

use crate::sync::RwLock;
use crate::tree::Tree;
use crate::{Caller, FsResult, Ino};

/// Maximum number of cached paths.
const KEPT_MAX: usize = 4096;

/// Conditions of a cached path, collected during the walk: each part before it is looked up.
#[derive(Debug, Default)]
pub struct Grounds {
    indices: Vec<(Index, IndexVersion)>,
    until: Option<Instant>,
}

/// A path from one directory to another, without symbolic links or `..`.
#[derive(Debug)]
pub struct CachedPath {
    caller: Caller,
    base: Ino,
    grounds: Grounds,
    /// The directory it leads to.
    pub to: Ino,
    /// Its components, each after a slash.
    pub trail: Vec<u8>,
}

/// Cached paths.
#[derive(Debug, Default)]
pub struct CachedPaths(RwLock<HashMap<Box<[u8]>, Arc<CachedPath>, foldhash::fast::RandomState>>);

impl Grounds {
    /// Adds the entries of a directory, before a lookup in it.
    pub fn rely_on(&mut self, tree: &Tree, dir: u64) -> FsResult<()> {
        self.rely_on_nodes(tree)?;
        self.rely_on_index(tree.dir(dir))
    }
    /// Adds the tree's index of nodes.
    pub fn rely_on_nodes(&mut self, tree: &Tree) -> FsResult<()> {
        self.rely_on_index(tree.nodes().clone())
    }
    fn rely_on_index(&mut self, index: Index) -> FsResult<()> {
        let key = index.key();
        if !self.indices.iter().any(|(known, _)| known.key() == key) {
            let version = index.version()?;
            self.indices.push((index, version));
        }
        Ok(())
    }
    /// Limits the validity to this time.
    pub fn hold_until(&mut self, until: Instant) {
        self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
    }
    fn hold(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
            && self.indices.iter().all(|(index, version)| index.version().is_ok_and(|now| now == *version))
    }
}

impl CachedPaths {
    /// Returns the cached path `path` from `base`, if it is valid for `caller`.
    pub fn get(&self, caller: &Caller, base: Ino, path: &[u8]) -> Option<Arc<CachedPath>> {
        let cached = self.0.read().get(path)?.clone();
        (cached.base == base && is_same(&cached.caller, caller) && cached.grounds.hold()).then_some(cached)
    }
    /// Caches a walked path.
    pub fn put(&self, caller: &Caller, base: Ino, path: &[u8], grounds: Grounds, to: Ino, trail: Vec<u8>) {
        let cached = Arc::new(CachedPath { caller: caller.clone(), base, grounds, to, trail });
        let mut all = self.0.write();
        if all.len() >= KEPT_MAX {
            all.clear();
        }
        all.insert(path.into(), cached);
    }
    /// Drops all.
    pub fn forget(&self) {
        self.0.write().clear();
    }
}

fn is_same(one: &Caller, other: &Caller) -> bool {
    let groups = Arc::ptr_eq(&one.groups, &other.groups) || one.groups == other.groups;
    groups && (one.uid, one.gid, one.is_checked) == (other.uid, other.gid, other.is_checked)
}
