//! Renaming.

use std::sync::Arc;

use crate::records::{Entry, Node};
use crate::rights::{self, SEARCH, WRITE};
use crate::tree::{Change, FoundNode, Slot, Tree};
use crate::{Caller, FsResult, Kind, Rename, fail};

use super::LINKS_MAX;
use super::link::set_apart;
use super::make::of_names;
use super::remove::{lose, lose_directory, once_published};

/// A name in a directory.
type Name<'a> = (u64, &'a [u8]);

/// Maximum depth of directories: a path of 4096 bytes has fewer, but moves of directories can exceed that.
const DEPTH_MAX: usize = 1 << 16;

/// `renameat2`.
pub fn rename(tree: &Tree, caller: &Caller, from: Name<'_>, to: Name<'_>, how: Rename) -> FsResult<()> {
    for (_, name) in [from, to] {
        super::check(name)?;
        if super::is_dots(name) {
            return fail(libc::EBUSY);
        }
    }
    let rename = || {
        tree.change(|change| match how {
            Rename::Exchange => exchange(change, caller, from, to),
            Rename::Replace | Rename::Keep => one(change, caller, from, to, how == Rename::Keep),
        })
    };
    once_published(tree, || tree.find_in(to.0, to.1).map(Arc::new), rename).map_err(of_names)
}

/// A looked-up name with its directory and entry.
struct Named {
    parent: Arc<FoundNode>,
    slot: Slot,
    found: FoundNode,
}

fn named(change: &Change<'_>, (dir, name): Name<'_>) -> FsResult<Option<Named>> {
    let tree = change.tree;
    let parent = tree.directory(dir)?;
    for _ in 0..100 {
        let Some(slot) = tree.slot(dir, name)? else { return Ok(None) };
        if let Some(found) = tree.found_at(dir, name, slot.clone())? {
            return Ok(Some(Named { parent, slot, found }));
        }
    }
    fail(libc::ESTALE)
}

/// Checks that `caller` may search both directories.
fn check_search(change: &Change<'_>, caller: &Caller, dirs: [u64; 2]) -> FsResult<()> {
    for dir in dirs {
        rights::need(caller, &change.tree.directory(dir)?.node, SEARCH)?;
    }
    Ok(())
}

/// Checks that `caller` may change the directory, and remove this name from it if the name exists.
fn check_change(change: &Change<'_>, caller: &Caller, parent: &FoundNode, node: Option<&Node>) -> FsResult<()> {
    change.tree.check_changes(parent)?;
    rights::need(caller, &parent.node, WRITE)?;
    node.map_or(Ok(()), |node| rights::need_unstuck(caller, &parent.node, node))
}

fn one(change: &mut Change<'_>, caller: &Caller, from: Name<'_>, to: Name<'_>, keep: bool) -> FsResult<()> {
    let tree = change.tree;
    check_search(change, caller, [from.0, to.0])?;
    let Some(source) = named(change, from)? else { return fail(libc::ENOENT) };
    let target = named(change, to)?;
    if keep && target.is_some() {
        return fail(libc::EEXIST);
    }
    check_change(change, caller, &source.parent, Some(&source.found.node))?;
    let to_parent = tree.directory(to.0)?;
    check_change(change, caller, &to_parent, target.as_ref().map(|target| &target.found.node))?;
    let is_dir = source.found.node.kind == Kind::Directory;
    if is_dir {
        check_not_below(change, source.found.ino, to.0)?;
        if from.0 != to.0 {
            // The move changes its `..`.
            rights::need(caller, &source.found.node, WRITE)?;
        }
    }
    if let Some(target) = &target {
        let target_is_dir = target.found.node.kind == Kind::Directory;
        if target.found.ino == source.found.ino {
            return Ok(()); // two names of one file: both stay
        }
        match (is_dir, target_is_dir) {
            (true, false) => return fail(libc::ENOTDIR),
            (false, true) => {
                // The target is an ancestor of the source: Linux reports that first.
                let is_above = check_not_below(change, target.found.ino, from.0);
                return fail(if is_above.is_err() { libc::ENOTEMPTY } else { libc::EISDIR });
            }
            (true, true) => lose_directory(change, &target.found, to.0)?,
            (false, false) => lose(change, &target.found).map(drop)?,
        }
    }
    change.remove(from.0, from.1, &source.slot.raw)?;
    place(change, &source.found, to, target.as_ref().map(|target| &target.slot))?;
    if is_dir && from.0 != to.0 {
        let above = change.dir_mut(from.0)?;
        above.links = above.links.saturating_sub(1);
        let above = change.dir_mut(to.0)?;
        if above.links >= LINKS_MAX {
            return fail(libc::EMLINK);
        }
        above.links += 1;
    }
    Ok(())
}

/// Puts what was found under another name, and replaces what is there.
fn place(change: &mut Change<'_>, found: &FoundNode, (dir, name): Name<'_>, over: Option<&Slot>) -> FsResult<()> {
    let now = change.now;
    let kind = found.node.kind;
    if kind == Kind::Directory {
        let node = change.dir_mut(found.ino)?;
        node.parent = dir;
        node.changed = now;
    } else {
        let node = Node { changed: now, ..found.node.clone() };
        set_apart(change, found, &node)?;
    }
    let entry = Entry::to(kind, found.ino);
    match over {
        Some(slot) => change.set(dir, name, &slot.raw, &entry)?,
        None => change.add_over(dir, name, &entry)?,
    }
    if kind != Kind::Directory {
        change.tree.seen(found.ino, dir, name);
    }
    Ok(())
}

fn exchange(change: &mut Change<'_>, caller: &Caller, from: Name<'_>, to: Name<'_>) -> FsResult<()> {
    check_search(change, caller, [from.0, to.0])?;
    let (Some(a), Some(b)) = (named(change, from)?, named(change, to)?) else { return fail(libc::ENOENT) };
    for (one, other_dir) in [(&a, to.0), (&b, from.0)] {
        check_change(change, caller, &one.parent, Some(&one.found.node))?;
        if one.found.node.kind == Kind::Directory {
            check_not_below(change, one.found.ino, other_dir)?;
            if from.0 != to.0 {
                rights::need(caller, &one.found.node, WRITE)?;
            }
        }
    }
    if a.found.ino == b.found.ino {
        return Ok(());
    }
    place(change, &a.found, to, Some(&b.slot))?;
    place(change, &b.found, from, Some(&a.slot))?;
    let dirs = |one: &Named| i64::from(one.found.node.kind == Kind::Directory);
    let more = dirs(&a) - dirs(&b);
    if from.0 != to.0 && more != 0 {
        for (dir, more) in [(from.0, -more), (to.0, more)] {
            let node = change.dir_mut(dir)?;
            node.links = node.links.saturating_add_signed(more as i32);
        }
    }
    Ok(())
}

/// Returns `EINVAL` if `dir` is `ino` or lies below it, now or at the commit.
fn check_not_below(change: &mut Change<'_>, ino: u64, dir: u64) -> FsResult<()> {
    let mut at = dir;
    for _ in 0..DEPTH_MAX {
        if at == ino {
            return fail(libc::EINVAL);
        }
        let found = change.tree.directory(at)?;
        if found.node.parent == at {
            return Ok(());
        }
        // Moving a directory always changes its node.
        change.rely_on(&found)?;
        at = found.node.parent;
    }
    fail(libc::ELOOP)
}
