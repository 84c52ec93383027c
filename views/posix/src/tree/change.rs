//! Change of a tree: one transaction, retried when others changed what it relies on.

use std::time::{Duration, Instant};

use cenote::{ErrorKind, Transaction};
use std::sync::{Arc, RwLockWriteGuard};

use crate::records::{Entry, Node, Times, keys};
use crate::{FsResult, Time, xattr};

use super::{FoundNode, NodeLocation, Tree};

/// How long a change is retried before it fails with `EBUSY`.
const TRIED_FOR: Duration = Duration::from_secs(30);

/// A change in progress.
pub struct Change<'a> {
    /// The tree to change.
    pub tree: &'a Tree,
    /// The transaction.
    pub txn: Transaction,
    /// Time stamp of the change.
    pub now: Time,
    /// Directories whose nodes it changes, with old and new node.
    dirs: Vec<(Arc<FoundNode>, Node)>,
    touched: Vec<u64>,
    /// Directories whose claims it relies on.
    claims: Vec<u64>,
    /// Held until the end, so that no thread opens a file that loses its last name.
    gate: Option<RwLockWriteGuard<'a, ()>>,
}

impl Tree {
    /// Makes a change of names, in order after what is gathered, and commits it; calls `make` again after a conflict.
    pub fn change<T>(&self, make: impl FnMut(&mut Change<'_>) -> FsResult<T>) -> FsResult<T> {
        let _apart = self.apart();
        self.change_alone(make)
    }
    /// Makes a change of no names, after publishing what was gathered until now.
    pub fn change_file<T>(&self, make: impl FnMut(&mut Change<'_>) -> FsResult<T>) -> FsResult<T> {
        self.publish();
        self.change_alone(make)
    }
    /// Makes a change without publishing gathered names first.
    pub fn change_alone<T>(&self, mut make: impl FnMut(&mut Change<'_>) -> FsResult<T>) -> FsResult<T> {
        let mut begun = None;
        loop {
            let mut change = Change::new(self, self.container.store().begin());
            let made = make(&mut change)?;
            match change.commit() {
                Ok(()) => return Ok(made),
                Err(error) if error.kind() == Some(ErrorKind::Conflict) => {
                    self.forget_claims();
                    let begun = *begun.get_or_insert_with(Instant::now);
                    if begun.elapsed() > TRIED_FOR {
                        return Err(error);
                    }
                    std::thread::yield_now();
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<'a> Change<'a> {
    /// Creates an empty change.
    pub fn new(tree: &'a Tree, txn: Transaction) -> Self {
        let now = tree.common.clock.now();
        Self { tree, txn, now, dirs: Vec::new(), touched: Vec::new(), claims: Vec::new(), gate: None }
    }
    /// Applies all of it, or nothing.
    pub fn commit(mut self) -> FsResult<()> {
        for (found, node) in std::mem::take(&mut self.dirs) {
            if found.node != node {
                self.put_node(&found, &node)?;
            }
        }
        if self.txn.is_empty() {
            return Ok(()); // nothing to do, and the conditions held a moment ago
        }
        self.txn.commit()?;
        drop(self.gate);
        Ok(())
    }
    /// Returns a directory's node to be changed.
    pub fn dir_mut(&mut self, ino: u64) -> FsResult<&mut Node> {
        let at = if let Some(at) = self.dirs.iter().position(|(found, _)| found.ino == ino) {
            at
        } else {
            let found = self.tree.directory(ino)?;
            let node = found.node.clone();
            self.dirs.push((found, node));
            self.dirs.len() - 1
        };
        Ok(&mut self.dirs[at].1)
    }
    /// Requires the directory to be unchanged at the commit.
    pub fn rely_on(&mut self, found: &FoundNode) -> FsResult<()> {
        match &found.place {
            NodeLocation::Entry { dir, name } => {
                self.txn.expect(&self.tree.dir(*dir), &keys::entry(name), Some(&found.raw))?;
            }
            NodeLocation::Own => self.txn.expect(self.tree.nodes(), &keys::node(found.ino), Some(&found.raw))?,
            NodeLocation::Orphan => self.txn.expect(&self.tree.opens, &keys::orphan(found.ino), Some(&found.raw))?,
        }
        Ok(())
    }
    /// Writes a node back to where it was found, on the condition that it is unchanged.
    pub fn put_node(&mut self, found: &FoundNode, node: &Node) -> FsResult<()> {
        self.rely_on(found)?;
        match &found.place {
            NodeLocation::Entry { dir, name } => {
                let entry = Entry { kind: node.kind, ino: found.ino, node: Some(node.clone()) };
                self.txn.put(&self.tree.dir(*dir), &keys::entry(name), &entry.encode())?;
            }
            NodeLocation::Own => self.txn.put(self.tree.nodes(), &keys::node(found.ino), &node.encode())?,
            NodeLocation::Orphan => self.txn.put(&self.tree.opens, &keys::orphan(found.ino), &node.encode())?,
        }
        Ok(())
    }
    /// Creates an entry; `EEXIST` at the commit if the name exists.
    pub fn add(&mut self, dir: u64, name: &[u8], entry: &Entry) -> FsResult<()> {
        self.txn.put_new(&self.tree.dir(dir), &keys::entry(name), &entry.encode())?;
        self.touch(dir)
    }
    /// Creates an entry that may replace one, at a name that is free now: if another process takes the name first, this
    /// change is retried and replaces that.
    pub fn add_over(&mut self, dir: u64, name: &[u8], entry: &Entry) -> FsResult<()> {
        let index = self.tree.dir(dir);
        self.txn.expect(&index, &keys::entry(name), None)?;
        self.txn.put(&index, &keys::entry(name), &entry.encode())?;
        self.touch(dir)
    }
    /// Replaces an entry whose record was `raw`.
    pub fn set(&mut self, dir: u64, name: &[u8], raw: &[u8], entry: &Entry) -> FsResult<()> {
        self.set_quietly(dir, name, raw, entry)?;
        self.touch(dir)
    }
    /// Changes how an entry is recorded, but not what it leads to.
    pub fn set_quietly(&mut self, dir: u64, name: &[u8], raw: &[u8], entry: &Entry) -> FsResult<()> {
        let index = self.tree.dir(dir);
        self.txn.expect(&index, &keys::entry(name), Some(raw))?;
        self.txn.put(&index, &keys::entry(name), &entry.encode())?;
        Ok(())
    }
    /// Removes an entry whose record was `raw`.
    pub fn remove(&mut self, dir: u64, name: &[u8], raw: &[u8]) -> FsResult<()> {
        let index = self.tree.dir(dir);
        self.txn.expect(&index, &keys::entry(name), Some(raw))?;
        self.txn.del_expected(&index, &keys::entry(name))?;
        self.touch(dir)
    }
    /// Updates the times of a directory whose entries change.
    pub fn touch(&mut self, dir: u64) -> FsResult<()> {
        if !self.touched.contains(&dir) {
            self.touched.push(dir);
            self.txn.put(&self.tree.dir(dir), &keys::times(), &Times::at(self.now).encode())?;
        }
        Ok(())
    }
    /// Requires the directory `dir` to have no entries at the commit.
    pub fn stays_empty(&mut self, dir: u64) -> FsResult<()> {
        self.tree.check_empty(dir)?;
        self.txn.expect_none(&self.tree.dir(dir), &keys::entries())?;
        Ok(())
    }
    /// Makes the change rely on the claims of a directory. Returns false if it did already.
    pub fn relies_on_claims(&mut self, dir: u64) -> bool {
        let is_new = !self.claims.contains(&dir);
        if is_new {
            self.claims.push(dir);
        }
        is_new
    }
    /// Keeps threads of this process from opening files found in this place until the change is over. A change removes at
    /// most one file.
    pub fn close_gate(&mut self, place: &NodeLocation) {
        debug_assert!(self.gate.is_none(), "one file at most");
        self.gate = None;
        self.gate = Some(self.tree.gates.of(place).write());
    }
    /// Removes a file's capabilities. Returns true if it had some.
    pub fn drop_capabilities(&mut self, found: &FoundNode) -> FsResult<bool> {
        let has_some = xattr::has_capabilities(self.tree, found)?;
        if has_some {
            self.txn.del(self.tree.nodes(), &keys::xattr(found.ino, xattr::CAPABILITIES))?;
        }
        Ok(has_some)
    }
    /// Removes all extended attributes of a number.
    pub fn drop_xattrs(&mut self, ino: u64) -> FsResult<()> {
        for record in self.tree.nodes().iter(&keys::xattrs(ino)) {
            self.txn.del(self.tree.nodes(), &record?.0)?;
        }
        Ok(())
    }
}
