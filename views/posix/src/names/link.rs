//! Hard links.

use crate::records::{Entry, keys};
use crate::tree::{Change, FoundNode, NodeLocation, Tree};
use crate::{Caller, FsResult, Kind, fail};

use super::LINKS_MAX;
use super::make::{may_make, of_names};

/// `link`.
pub fn link(tree: &Tree, caller: &Caller, ino: u64, dir: u64, name: &[u8]) -> FsResult<FoundNode> {
    may_make(tree, caller, dir, name)?;
    let done = tree.change(|change| {
        let found = tree.find(ino)?;
        if found.node.kind == Kind::Directory {
            return fail(libc::EPERM);
        }
        if found.place == NodeLocation::Orphan {
            return fail(libc::ENOENT);
        }
        tree.check_changes(&found)?;
        if found.node.links >= LINKS_MAX {
            return fail(libc::EMLINK);
        }
        let mut node = found.node.clone();
        node.links += 1;
        node.changed = change.now;
        let raw = set_apart(change, &found, &node)?;
        if let NodeLocation::Entry { dir, name } = &found.place {
            change.set_quietly(*dir, name, &found.raw, &Entry::to(node.kind, ino))?;
        }
        change.add(dir, name, &Entry::to(node.kind, ino))?;
        Ok(FoundNode { ino, node, place: NodeLocation::Own, dir, raw })
    });
    match done {
        // An existing name takes precedence over any error about the file.
        Err(_) if tree.slot(dir, name)?.is_some() => fail(libc::EEXIST),
        other => other.map_err(of_names),
    }
}

/// Moves a file's node into a record of its own, so that it is found by its number whatever its name. The caller
/// changes its entry.
pub fn set_apart(change: &mut Change<'_>, found: &FoundNode, node: &crate::records::Node) -> FsResult<Vec<u8>> {
    let (index, key, raw) = (change.tree.nodes(), keys::node(found.ino), node.encode());
    change.rely_on(found)?;
    match found.place {
        NodeLocation::Entry { .. } => change.txn.put_new(index, &key, &raw)?,
        _ => change.txn.put(index, &key, &raw)?,
    }
    Ok(raw)
}
