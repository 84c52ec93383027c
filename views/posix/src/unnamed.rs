//! Files without a name, how they get one, and files created with bytes and name at once.

use std::sync::Arc;

use crate::file::{File, Live};
use crate::names::{self, lose};
use crate::records::{Entry, Node, PRIVATE, keys};
use crate::rights::{self, SEARCH, WRITE};
use crate::tree::{Change, FoundNode, NodeLocation, Tree};
use crate::{Caller, FsResult, Kind, OpenFlags, Over, Time, fail};

/// Creates a file without a name.
pub fn open(tree: &Arc<Tree>, caller: &Caller, dir: u64, flags: OpenFlags, mode: u32) -> FsResult<File> {
    tree.make(None, 0o755)?;
    let parent = tree.directory(dir)?;
    rights::need(caller, &parent.node, WRITE | SEARCH)?;
    tree.check_changes(&parent)?;
    tree.claim(0)?;
    let ino = tree.draw()?;
    // Register it as open before the record exists: the keeper would delete it in between.
    let mut opened = None;
    let found = tree.change(|change| {
        let (mode, gid) = rights::of_new(caller, &parent.node, Kind::File, mode);
        let mut node = Node::new(Kind::File, mode, (caller.uid, gid), change.now);
        node.links = 0;
        let raw = node.encode();
        change.txn.put_new(&tree.opens, &keys::orphan(ino), &raw)?;
        tree.hold(change, ino, &[tree.common.who.me()])?;
        let found = FoundNode { ino, node, place: NodeLocation::Orphan, dir: 0, raw };
        opened = Some(Live::of(tree, &found));
        Ok(found)
    })?;
    let live = opened.unwrap_or_else(|| Live::of(tree, &found));
    live.note_orphaned();
    Ok(File::new(live, flags, caller))
}

/// Gives an unnamed file a name, together with everything in the same transaction.
pub fn place(
    tree: &Tree,
    caller: &Caller,
    live: &Live,
    (dir, name): (u64, &[u8]),
    xattrs: &[(&[u8], &[u8])],
    over: Over,
    keep: Option<(u64, &[u8])>,
) -> FsResult<FoundNode> {
    names::check(name)?;
    if names::is_dots(name) {
        return fail(libc::EEXIST);
    }
    {
        // The file is open, and found in the directory's entries from now on.
        let _gate = tree.claim_and_keep(dir)?;
        live.moves_to(dir);
    }
    let dirty = live.take_dirty();
    let done = tree.change(|change| {
        let parent = tree.directory(dir)?;
        rights::need(caller, &parent.node, WRITE | SEARCH)?;
        tree.check_changes(&parent)?;
        let found = live.find()?;
        if found.place != NodeLocation::Orphan {
            return fail(libc::EINVAL); // it has a name already
        }
        let before = make_room(change, caller, &parent, name, over, keep)?;
        let mut node = crate::file::live::settled(&found.node, dirty);
        node.links = 1;
        node.changed = change.now;
        for (key, value) in xattrs {
            change.txn.put(tree.nodes(), &keys::xattr(found.ino, key), value)?;
            node.has_xattrs = true;
        }
        change.rely_on(&found)?;
        change.txn.del(&tree.opens, &keys::orphan(found.ino))?;
        tree.hold_no_more(change, found.ino)?;
        let entry = Entry { kind: Kind::File, ino: found.ino, node: Some(node.clone()) };
        match before {
            Some(raw) => change.set(dir, name, &raw, &entry)?,
            None => change.add_over(dir, name, &entry)?,
        }
        let place = NodeLocation::Entry { dir, name: name.to_vec() };
        Ok(FoundNode { ino: found.ino, node, place, dir, raw: entry.encode() })
    });
    let found = done.map_err(names::of_names)?;
    tree.seen(found.ino, dir, name);
    Ok(found)
}

/// A file to be created with its bytes.
pub struct New<'a> {
    /// The whole content.
    pub bytes: &'a [u8],
    /// Permissions after the umask.
    pub mode: u32,
    /// Returns the extended attributes, given the time of creation.
    pub describe: &'a mut dyn FnMut(Time) -> Vec<(&'static [u8], Vec<u8>)>,
}

/// Creates a file with bytes and a name.
pub fn put(
    tree: &Tree,
    caller: &Caller,
    (dir, name): (u64, &[u8]),
    new: New<'_>,
    over: Over,
    keep: Option<(u64, &[u8])>,
) -> FsResult<FoundNode> {
    let New { bytes, mode: wanted_mode, describe } = new;
    names::check(name)?;
    if names::is_dots(name) {
        return fail(libc::EEXIST);
    }
    tree.make(None, 0o755)?;
    let ino = tree.draw()?;
    let done = tree.change(|change| {
        let parent = tree.directory(dir)?;
        rights::need(caller, &parent.node, WRITE | SEARCH)?;
        tree.check_changes(&parent)?;
        let before = make_room(change, caller, &parent, name, over, keep)?;
        let (mode, gid) = rights::of_new(caller, &parent.node, Kind::File, wanted_mode);
        let mut node = Node::new(Kind::File, mode, (caller.uid, gid), change.now);
        if !bytes.is_empty() {
            let object = change.create_object_in(dir, ino)?;
            change.txn.write(&object, 0, bytes)?;
            node.has_object = true;
        }
        for (key, value) in describe(change.now) {
            change.txn.put(tree.nodes(), &keys::xattr(ino, key), &value)?;
            node.has_xattrs = true;
        }
        let entry = Entry { kind: Kind::File, ino, node: Some(node.clone()) };
        match before {
            Some(raw) => change.set(dir, name, &raw, &entry)?,
            None => change.add_over(dir, name, &entry)?,
        }
        let place = NodeLocation::Entry { dir, name: name.to_vec() };
        Ok(FoundNode { ino, node, place, dir, raw: entry.encode() })
    });
    let found = done.map_err(names::of_names)?;
    tree.seen(ino, dir, name);
    Ok(found)
}

/// Deletes the file that has the name, or gives it the name `keep`. Returns its entry.
fn make_room(
    change: &mut Change<'_>,
    caller: &Caller,
    parent: &FoundNode,
    name: &[u8],
    over: Over,
    keep: Option<(u64, &[u8])>,
) -> FsResult<Option<Vec<u8>>> {
    let tree = change.tree;
    let Some(slot) = tree.slot(parent.ino, name)? else {
        return match over {
            Over::This(_) => fail(libc::EBUSY),
            Over::Any | Over::Nothing => Ok(None),
        };
    };
    let Some(there) = tree.found_at(parent.ino, name, slot.clone())? else { return fail(libc::EBUSY) };
    match over {
        Over::Nothing => return fail(libc::EEXIST),
        Over::This(ino) if ino != tree.whole(there.ino) => return fail(libc::EBUSY),
        Over::This(_) | Over::Any => {}
    }
    if there.node.kind == Kind::Directory {
        return fail(libc::EISDIR);
    }
    rights::need_unstuck(caller, &parent.node, &there.node)?;
    match keep {
        None => drop(lose(change, &there)?),
        Some((dir, name)) => {
            names::check(name)?;
            let node = Node { changed: change.now, ..there.node.clone() };
            names::set_apart(change, &there, &node)?;
            change.add(dir, name, &Entry::to(node.kind, there.ino))?;
        }
    }
    Ok(Some(slot.raw))
}

/// Returns the directory beside a tree's root.
pub fn private_dir(tree: &Tree) -> FsResult<u64> {
    tree.make(None, 0o755)?;
    Ok(PRIVATE)
}
