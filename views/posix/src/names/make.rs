//! Creation of names.

use cenote::ErrorKind;

use crate::records::{Entry, Node, keys};
use crate::rights::{self, SEARCH, WRITE};
use crate::tree::{FoundNode, Moment, NodeLocation, Tree};
use crate::{Caller, Consistency, FsError, FsResult, Kind, Make, fail};

use super::{LINKS_MAX, PATH_BYTES_MAX};

/// Creates `name` in `dir`.
pub fn make(tree: &Tree, caller: &Caller, dir: u64, name: &[u8], what: &Make) -> FsResult<FoundNode> {
    let _apart = tree.apart();
    make_alone(tree, caller, dir, name, what)
}

/// Creates `name` in `dir` without publishing gathered names first.
pub fn make_alone(tree: &Tree, caller: &Caller, dir: u64, name: &[u8], what: &Make) -> FsResult<FoundNode> {
    check(what)?;
    may_make(tree, caller, dir, name)?;
    tree.make(None, 0o755)?;
    let ino = tree.draw()?;
    let made = tree.change_alone(|change| {
        let parent = tree.directory(dir)?;
        let (mode, gid) = rights::of_new(caller, &parent.node, what.kind, what.mode);
        let mut node = Node::new(what.kind, mode, (caller.uid, gid), change.now);
        node.target.clone_from(&what.target);
        node.rdev = what.rdev;
        if what.kind == Kind::Directory {
            node.consistency = parent.node.consistency;
            node.layout.clone_from(&parent.node.layout);
            node.parent = dir;
            let above = change.dir_mut(dir)?;
            if above.links >= LINKS_MAX {
                return fail(libc::EMLINK);
            }
            above.links += 1;
            change.txn.create_index(&tree.container, Some(keys::dir_index(ino)))?;
            // The first record tells this process the whole directory: nothing else is in it.
            change.touch(ino)?;
            let raw = node.encode();
            change.txn.put_new(tree.nodes(), &keys::node(ino), &raw)?;
            change.add(dir, name, &Entry::to(Kind::Directory, ino))?;
            return Ok(FoundNode { ino, node, place: NodeLocation::Own, dir, raw });
        }
        let entry = Entry { kind: what.kind, ino, node: Some(node.clone()) };
        change.add(dir, name, &entry)?;
        let place = NodeLocation::Entry { dir, name: name.to_vec() };
        Ok(FoundNode { ino, node, place, dir, raw: entry.encode() })
    });
    let found = made.map_err(of_names)?;
    if what.kind != Kind::Directory {
        tree.seen(found.ino, dir, name);
    }
    Ok(found)
}

/// Creates a file in a `commit` directory; others learn of it later. The name was looked up after `since` and does not exist. `None`: create
/// it another way.
pub fn gather(
    tree: &Tree,
    caller: &Caller,
    since: Moment,
    dir: u64,
    name: &[u8],
    mode: u32,
) -> FsResult<Option<FoundNode>> {
    let parent = tree.directory(dir)?;
    if parent.node.consistency != Consistency::Commit {
        return Ok(None);
    }
    may_make(tree, caller, dir, name)?;
    let (mode, gid) = rights::of_new(caller, &parent.node, Kind::File, mode);
    let node = Node::new(Kind::File, mode, (caller.uid, gid), tree.common.clock.now());
    let entry = Entry { kind: Kind::File, ino: tree.draw()?, node: Some(node.clone()) };
    let (ino, raw) = (entry.ino, entry.encode());
    if !tree.gather_made(since, dir, name, entry) {
        return Ok(None);
    }
    let place = NodeLocation::Entry { dir, name: name.to_vec() };
    Ok(Some(FoundNode { ino, node, place, dir, raw }))
}

/// Translates a commit's error for a name: `NotFound` refers to its directory.
pub fn of_names(error: FsError) -> FsError {
    if error.kind() == Some(ErrorKind::NotFound) { error.with_errno(libc::ENOENT) } else { error }
}

fn check(what: &Make) -> FsResult<()> {
    if what.kind == Kind::Symlink {
        if what.target.is_empty() {
            return fail(libc::ENOENT);
        }
        if what.target.len() >= PATH_BYTES_MAX {
            return fail(libc::ENAMETOOLONG);
        }
        if what.target.contains(&0) {
            return fail(libc::EINVAL);
        }
    }
    Ok(())
}

/// Checks that `caller` may create a name in `dir`. An existing name takes precedence over missing rights.
pub fn may_make(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<()> {
    super::check(name)?;
    if super::is_dots(name) {
        return fail(libc::EEXIST);
    }
    let parent = tree.directory(dir)?;
    rights::need(caller, &parent.node, SEARCH)?;
    let refusal = match tree.check_changes(&parent) {
        Ok(()) => rights::need(caller, &parent.node, WRITE),
        refused => refused,
    };
    if refusal.is_err() && tree.slot(dir, name)?.is_some() {
        return fail(libc::EEXIST);
    }
    refusal
}
