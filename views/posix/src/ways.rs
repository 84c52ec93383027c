//! Ways to directories that were walked: programs come to the same few again and again. A way holds without a look at its parts as long as nobody
//! changed the indices that it led through, which their version words tell.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use cenote::{Index, IndexVersion};

use crate::sync::RwLock;
use crate::tree::Tree;
use crate::{Caller, FsResult, Ino};

/// Ways that are kept.
const KEPT_MAX: usize = 4096;

/// What a way relies on, noted while it is walked: each part before it is looked at.
#[derive(Debug, Default)]
pub struct Grounds {
    indices: Vec<(Index, IndexVersion)>,
    until: Option<Instant>,
}

/// A way, from a directory to another, without symbolic links or `..`.
#[derive(Debug)]
pub struct Way {
    caller: Caller,
    base: Ino,
    grounds: Grounds,
    /// Where it leads.
    pub to: Ino,
    /// Its components, each behind a slash.
    pub trail: Vec<u8>,
}

/// Ways by their paths.
#[derive(Debug, Default)]
pub struct Ways(RwLock<HashMap<Box<[u8]>, Arc<Way>, foldhash::fast::RandomState>>);

impl Grounds {
    /// Something in that directory is about to be looked for.
    pub fn rely_on(&mut self, tree: &Tree, dir: u64) -> FsResult<()> {
        self.rely_on_nodes(tree)?;
        self.rely_on_index(tree.dir(dir))
    }
    /// The tree has directories as they are now.
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
    /// It holds until then at most.
    pub fn hold_until(&mut self, until: Instant) {
        self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
    }
    fn hold(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
            && self.indices.iter().all(|(index, version)| index.version().is_ok_and(|now| now == *version))
    }
}

impl Ways {
    /// The way that `path` is from `base`, if it is known and holds for `caller`.
    pub fn get(&self, caller: &Caller, base: Ino, path: &[u8]) -> Option<Arc<Way>> {
        let way = self.0.read().get(path)?.clone();
        (way.base == base && is_same(&way.caller, caller) && way.grounds.hold()).then_some(way)
    }
    /// A way was walked.
    pub fn put(&self, caller: &Caller, base: Ino, path: &[u8], grounds: Grounds, to: Ino, trail: Vec<u8>) {
        let way = Arc::new(Way { caller: caller.clone(), base, grounds, to, trail });
        let mut all = self.0.write();
        if all.len() >= KEPT_MAX {
            all.clear();
        }
        all.insert(path.into(), way);
    }
    /// None holds any more.
    pub fn forget(&self) {
        self.0.write().clear();
    }
}

fn is_same(one: &Caller, other: &Caller) -> bool {
    let groups = Arc::ptr_eq(&one.groups, &other.groups) || one.groups == other.groups;
    groups && (one.uid, one.gid, one.is_checked) == (other.uid, other.gid, other.is_checked)
}
