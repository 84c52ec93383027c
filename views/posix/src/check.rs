//! Consistency check of a tree's records (fsck). Nobody may change the tree meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use cenote::Index;

use crate::FsResult;
use crate::Kind;
use crate::records::{Entry, Node, PRIVATE, ROOT, keys};
use crate::tree::Tree;

/// What the walk collects.
#[derive(Default)]
struct Walk {
    /// Nodes in the index of nodes.
    nodes: BTreeMap<u64, Node>,
    orphans: BTreeMap<u64, Node>,
    /// Nodes in directory entries.
    inside: BTreeMap<u64, Node>,
    /// Per inode number: the directories with an entry for it.
    names: BTreeMap<u64, Vec<u64>>,
    xattrs: BTreeSet<u64>,
    /// Inconsistencies found.
    wrong: Vec<String>,
}

/// Lists the inconsistencies in a tree's records; empty if there are none.
pub fn check(tree: &Tree) -> FsResult<Vec<String>> {
    if !tree.is_there()? {
        return Ok(Vec::new());
    }
    let mut walk = Walk::default();
    walk.read_nodes(tree)?;
    let dirs: Vec<u64> = walk.directories().collect();
    for dir in dirs {
        walk.read_entries(&tree.dir(dir), dir)?;
    }
    walk.check_names();
    walk.check_objects(tree)?;
    walk.check_indices(tree)?;
    for ino in walk.orphans.keys() {
        if tree.opens.get_one(&keys::holders(*ino))?.is_none() {
            walk.wrong.push(format!("{ino} has no name, and nobody holds it"));
        }
    }
    Ok(walk.wrong)
}

impl Walk {
    fn directories(&self) -> impl Iterator<Item = u64> + '_ {
        self.nodes.iter().filter(|(_, node)| node.kind == Kind::Directory).map(|(ino, _)| *ino)
    }
    fn read_nodes(&mut self, tree: &Tree) -> FsResult<()> {
        for record in tree.nodes().iter(&[]) {
            let (key, value) = record?;
            let Some(ino) = keys::ino_in(&key) else { continue };
            if key == keys::node(ino) {
                self.nodes.insert(ino, Node::decode(&value)?);
            } else if key == keys::old_orphan(ino) {
                self.orphans.insert(ino, Node::decode(&value)?);
            } else if key != keys::image(ino) {
                self.xattrs.insert(ino);
            }
        }
        for record in tree.opens.iter(&keys::orphans()) {
            let (key, value) = record?;
            if let Some(ino) = keys::ino_in(&key) {
                self.orphans.insert(ino, Node::decode(&value)?);
            }
        }
        Ok(())
    }
    fn read_entries(&mut self, entries: &Index, dir: u64) -> FsResult<()> {
        for record in entries.iter(&keys::entries()) {
            let (key, value) = record?;
            let entry = Entry::decode(&value)?;
            let name = String::from_utf8_lossy(keys::entry_name(&key)).into_owned();
            self.names.entry(entry.ino).or_default().push(dir);
            match (entry.node, self.nodes.get(&entry.ino)) {
                (Some(node), None) => {
                    if node.links != 1 || self.inside.insert(entry.ino, node).is_some() {
                        self.wrong.push(format!("`{name}` of {dir} holds a node that has other names"));
                    }
                }
                (None, Some(node)) if node.kind == entry.kind => {}
                (None, Some(_)) => self.wrong.push(format!("`{name}` of {dir} is of another kind than its node")),
                (Some(_), Some(_)) => self.wrong.push(format!("`{name}` of {dir} has two nodes")),
                (None, None) => {
                    self.wrong.push(format!("`{name}` of {dir} leads to {}, which is not there", entry.ino));
                }
            }
        }
        Ok(())
    }
    fn check_names(&mut self) {
        for (ino, node) in &self.nodes {
            let names = self.names.get(ino).map_or(&[][..], Vec::as_slice);
            let is_right = match node.kind {
                Kind::Directory if matches!(*ino, ROOT | PRIVATE) => names.is_empty() && node.parent == *ino,
                Kind::Directory => names == [node.parent],
                _ => names.len() as u32 == node.links,
            };
            if !is_right {
                let (links, parent) = (node.links, node.parent);
                self.wrong
                    .push(format!("{ino} has names in {names:?}; it has {links} links, and its parent is {parent}"));
            }
            if node.kind == Kind::Directory {
                let is_below = |other: &&Node| other.kind == Kind::Directory && other.parent == *ino;
                let own = u32::from(matches!(*ino, ROOT | PRIVATE)); // each is its own parent
                let below = self.nodes.values().filter(is_below).count() as u32 - own;
                if node.links != below + 2 {
                    self.wrong.push(format!("directory {ino} has {} links and {below} directories", node.links));
                }
            }
        }
        for (ino, node) in &self.orphans {
            if node.links != 0 || self.names.contains_key(ino) || self.nodes.contains_key(ino) {
                self.wrong.push(format!("{ino} has no name, and has one"));
            }
        }
        for ino in &self.xattrs {
            let node = self.nodes.get(ino).or_else(|| self.inside.get(ino)).or_else(|| self.orphans.get(ino));
            if !node.is_some_and(|node| node.has_xattrs) {
                self.wrong.push(format!("extended attributes of {ino}, which has none or is not there"));
            }
        }
    }
    fn check_objects(&mut self, tree: &Tree) -> FsResult<()> {
        let mut there = BTreeSet::new();
        let mut after = None;
        loop {
            let page = tree.container.objects(after, 4096)?;
            let Some(last) = page.last() else { break };
            after = Some(*last);
            there.extend(page.into_iter().filter_map(keys::ino_of_object));
        }
        let all = self.nodes.iter().chain(&self.inside).chain(&self.orphans);
        let said: BTreeSet<u64> =
            all.filter(|(_, node)| node.has_object && node.image.is_none()).map(|(ino, _)| *ino).collect();
        for ino in there.symmetric_difference(&said) {
            let word = if said.contains(ino) { "should be there, and is not" } else { "is there, and of no file" };
            self.wrong.push(format!("the object of {ino} {word}"));
        }
        Ok(())
    }
    fn check_indices(&mut self, tree: &Tree) -> FsResult<()> {
        let there: BTreeSet<u64> =
            tree.container.indices(None, u32::MAX)?.into_iter().filter_map(keys::dir_of_index).collect();
        let said: BTreeSet<u64> = self.directories().collect();
        for ino in there.symmetric_difference(&said) {
            let word = if said.contains(ino) { "has no index" } else { "has an index and no node" };
            self.wrong.push(format!("directory {ino} {word}"));
        }
        Ok(())
    }
}
