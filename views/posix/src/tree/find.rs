//! Lookup of nodes: by name, by number.

use std::sync::Arc;

use cenote::{ErrorKind, Index};

use crate::records::{Entry, Node, ROOT, Times, keys};
use crate::{Consistency, FsResult, Kind, fail};

use super::{DIRS_MAX, NameChange, Tree};

/// Retries of a lookup whose node disappears between reading the entry and the node.
const LOOKS_MAX: usize = 100;

/// Location of a node's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NodeLocation {
    /// In the entry of its only name.
    Entry {
        /// The directory.
        dir: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// In the index of nodes.
    Own,
    /// In the index of opens, without a name.
    Orphan,
}

/// A node that was found.
#[derive(Clone, Debug)]
pub struct FoundNode {
    /// Inode number in the tree.
    pub ino: u64,
    /// The node.
    pub node: Node,
    /// Location of its record.
    pub place: NodeLocation,
    /// The directory in which it was last seen; 0: none.
    pub dir: u64,
    /// The record as read: a change relies on it.
    pub raw: Vec<u8>,
}

/// An entry that was found, and its record.
#[derive(Clone, Debug)]
pub struct Slot {
    /// The entry.
    pub entry: Entry,
    /// The record as read.
    pub raw: Vec<u8>,
}

impl FoundNode {
    /// Returns an error unless it is a directory.
    pub fn directory(self) -> FsResult<Self> {
        if self.node.kind == Kind::Directory { Ok(self) } else { fail(libc::ENOTDIR) }
    }
}

/// Returns the value of a key; `None` also if the index does not exist.
fn get(index: &Index, key: &[u8]) -> FsResult<Option<Vec<u8>>> {
    match index.get_one(key) {
        Ok(value) => Ok(value),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Tree {
    /// Returns a directory by number; `ENOTDIR` if it is something else, `ESTALE` if it does not exist.
    pub fn directory(&self, ino: u64) -> FsResult<Arc<FoundNode>> {
        // Every call needs it, so it is read again only when the index changed.
        let now = self.nodes().version()?;
        if let Some((seen, found)) = self.dirs_seen.read().get(&ino)
            && *seen == now
        {
            return Ok(found.clone());
        }
        for _ in 0..2 {
            if let Some(raw) = get(self.nodes(), &keys::node(ino))? {
                let found =
                    FoundNode { ino, node: Node::decode(&raw)?, place: NodeLocation::Own, dir: 0, raw }.directory()?;
                let found = Arc::new(found);
                let mut seen = self.dirs_seen.write();
                if seen.len() >= DIRS_MAX {
                    seen.clear();
                }
                seen.insert(ino, (now, found.clone()));
                return Ok(found);
            }
            if ino != ROOT {
                break;
            }
            if !self.is_there()? {
                let node = self.unmade_root(None, 0o755)?;
                return Ok(Arc::new(FoundNode { ino, node, place: NodeLocation::Own, dir: 0, raw: Vec::new() }));
            }
            // Most likely created between the two lookups.
        }
        match self.places.get(ino) {
            Some(_) => fail(libc::ENOTDIR),
            None => fail(libc::ESTALE),
        }
    }
    /// Returns an entry of a directory, as this process sees it.
    pub fn slot(&self, dir: u64, name: &[u8]) -> FsResult<Option<Slot>> {
        match self.gathered.fate(dir, name) {
            Some(NameChange::Made(slot)) => Ok(Some(slot)),
            Some(NameChange::Gone(_)) => Ok(None),
            None => self.slot_there(dir, name),
        }
    }
    /// Returns an entry of a directory, as all see it.
    pub fn slot_there(&self, dir: u64, name: &[u8]) -> FsResult<Option<Slot>> {
        let Some(raw) = get(&self.dir(dir), &keys::entry(name))? else { return Ok(None) };
        Ok(Some(Slot { entry: Entry::decode(&raw)?, raw }))
    }
    /// Looks up a name; `ENOENT`.
    pub fn find_in(&self, dir: u64, name: &[u8]) -> FsResult<FoundNode> {
        for _ in 0..LOOKS_MAX {
            let Some(slot) = self.slot(dir, name)? else { return fail(libc::ENOENT) };
            if let Some(found) = self.found_at(dir, name, slot)? {
                return Ok(found);
            }
            // Its name or its node disappeared between the two lookups.
        }
        fail(libc::ESTALE)
    }
    /// Looks up a name, and returns also the record of the entry, both from one lookup: for a caller that
    /// removes the name.
    pub fn find_with_entry(&self, dir: u64, name: &[u8]) -> FsResult<(FoundNode, Vec<u8>)> {
        for _ in 0..LOOKS_MAX {
            let Some(slot) = self.slot(dir, name)? else { return fail(libc::ENOENT) };
            let raw = slot.raw.clone();
            if let Some(found) = self.found_at(dir, name, slot)? {
                return Ok((found, raw));
            }
        }
        fail(libc::ESTALE)
    }
    /// Returns what an entry leads to; `None` if its node does not exist.
    pub fn found_at(&self, dir: u64, name: &[u8], slot: Slot) -> FsResult<Option<FoundNode>> {
        let Slot { entry, raw } = slot;
        if entry.kind != Kind::Directory {
            self.places.set(entry.ino, dir, name);
        }
        if let Some(node) = entry.node {
            return Ok(Some(FoundNode {
                ino: entry.ino,
                node,
                place: NodeLocation::Entry { dir, name: name.to_vec() },
                dir,
                raw,
            }));
        }
        let Some(raw) = get(self.nodes(), &keys::node(entry.ino))? else { return Ok(None) };
        Ok(Some(FoundNode { ino: entry.ino, node: Node::decode(&raw)?, place: NodeLocation::Own, dir, raw }))
    }
    /// Looks up a number; `ESTALE` if it does not exist.
    pub fn find(&self, ino: u64) -> FsResult<FoundNode> {
        let hint = self.places.get(ino);
        if let Some((dir, name)) = &hint
            && let Some(slot) = self.slot(*dir, name)?
            && slot.entry.ino == ino
            && let Some(found) = self.found_at(*dir, name, slot)?
        {
            return Ok(found);
        }
        let dir = hint.map_or(0, |(dir, _)| dir);
        if let Some(raw) = get(self.nodes(), &keys::node(ino))? {
            let node = Node::decode(&raw)?;
            let dir = if node.kind == Kind::Directory { 0 } else { dir };
            return Ok(FoundNode { ino, node, place: NodeLocation::Own, dir, raw });
        }
        if let Some(raw) = get(&self.opens, &keys::orphan(ino))? {
            return Ok(FoundNode { ino, node: Node::decode(&raw)?, place: NodeLocation::Orphan, dir: 0, raw });
        }
        if ino == ROOT { Ok(FoundNode::clone(&*self.directory(ino)?)) } else { fail(libc::ESTALE) }
    }
    /// Returns true if the file's creation or removal is gathered and not yet visible to others.
    pub fn is_gathered(&self, found: &FoundNode) -> bool {
        match &found.place {
            NodeLocation::Entry { dir, name } => self.gathered.fate(*dir, name).is_some(),
            NodeLocation::Own | NodeLocation::Orphan => false,
        }
    }
    /// Records where this process saw a file.
    pub fn seen(&self, ino: u64, dir: u64, name: &[u8]) {
        self.places.set(ino, dir, name);
    }
    /// Returns the times of a directory.
    pub fn times(&self, found: &FoundNode) -> FsResult<Times> {
        let own = Times { modified: found.node.modified, changed: found.node.changed };
        if let Some(now) = self.gathered.changed(found.ino) {
            return Ok(Times::at(now));
        }
        let Some(raw) = get(&self.dir(found.ino), &keys::times())? else { return Ok(own) };
        let times = Times::decode(&raw)?;
        Ok(Times { changed: times.changed.max(own.changed), ..times })
    }
    /// Returns the consistency that applies: a directory's own, otherwise that of the directory it is in.
    pub fn consistency(&self, found: &FoundNode) -> Consistency {
        if found.node.kind == Kind::Directory {
            return found.node.consistency;
        }
        match found.dir {
            0 => Consistency::Strict,
            dir => self.directory(dir).map_or(Consistency::Strict, |dir| dir.node.consistency),
        }
    }
    /// Returns `EROFS` if what was found must not change.
    pub fn check_changes(&self, found: &FoundNode) -> FsResult<()> {
        let is_fixed = found.node.image.is_some() || self.consistency(found) == Consistency::Laminated;
        if self.common.options.is_read_only || is_fixed {
            return fail(libc::EROFS);
        }
        Ok(())
    }
    /// Returns `EROFS` if the file with this number must not be changed.
    pub fn check_changes_of(&self, ino: u64) -> FsResult<()> {
        match self.find(ino) {
            Ok(found) => self.check_changes(&found),
            // Its directory may have been laminated before its name was published.
            Err(error) if error.errno == libc::ESTALE => match self.places.get(ino) {
                Some((dir, _)) if self.is_laminated(dir) => fail(libc::EROFS),
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }
    /// Returns true for a directory where nothing changes any more.
    pub fn is_laminated(&self, dir: u64) -> bool {
        self.directory(dir).is_ok_and(|dir| dir.node.consistency == Consistency::Laminated)
    }
    /// Returns `ENOTEMPTY` if a directory has entries.
    pub fn check_empty(&self, dir: u64) -> FsResult<()> {
        match self.dir(dir).next_with_prefix(&keys::entries(), cenote::NextFrom::Start, 1) {
            Ok(records) if records.is_empty() => Ok(()),
            Ok(_) => fail(libc::ENOTEMPTY),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
