//! Removal of names.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keeper::ROUND;
use crate::records::keys;
use crate::rights::{self, SEARCH, WRITE};
use crate::tree::{Change, FoundNode, NodeLocation, Tree};
use crate::{Caller, Consistency, FsResult, Kind, fail};

use super::make::of_names;

/// Time in which processes publish what they gather, even on a busy machine.
const PUBLISHED_WITHIN: Duration = ROUND.saturating_mul(4);

/// State of a file after it lost a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// It has other names.
    Lives,
    /// It has no name, and somebody may have it open.
    Orphaned,
    /// It is deleted.
    Gone,
}

/// Returns what a name in `dir` leads to, with its entry, if `caller` may remove it.
fn to_remove(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<(FoundNode, Vec<u8>)> {
    let parent = tree.directory(dir)?;
    rights::need(caller, &parent.node, SEARCH)?;
    let (found, raw) = tree.find_with_entry(dir, name)?;
    tree.check_changes(&parent)?;
    rights::need(caller, &parent.node, WRITE)?;
    rights::need_unstuck(caller, &parent.node, &found.node)?;
    Ok((found, raw))
}

/// `unlink`.
pub fn unlink(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<()> {
    super::check(name)?;
    if super::is_dots(name) {
        return fail(libc::EISDIR);
    }
    if tree.directory(dir)?.node.consistency == Consistency::Commit && gather(tree, caller, dir, name)? {
        tree.publish_if_full();
        return Ok(());
    }
    let done = tree.change(|change| {
        let (found, raw) = to_remove(tree, caller, dir, name)?;
        if found.node.kind == Kind::Directory {
            return fail(libc::EISDIR);
        }
        change.remove(dir, name, &raw)?;
        let loss = lose(change, &found)?;
        Ok((loss != Loss::Lives).then_some((found.ino, found.node.kind)))
    });
    match done.map_err(of_names)? {
        Some((pipe, Kind::Fifo)) => crate::pipe::forget(tree, pipe),
        Some((file, Kind::File)) if tree.live(file).is_none() => tree.reserved.forget(file),
        _ => {}
    }
    Ok(())
}

/// Removes a name in a `commit` directory; others learn of it later. False: remove it another way.
fn gather(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<bool> {
    let since = tree.gathered.moment();
    // A process that finds the directory not empty asks those who claim it.
    tree.claim(dir)?;
    // Keeps threads from opening the file between lookup and removal.
    let _gate = tree.gates.of_dir(dir).write();
    if !tree.is_claimed(dir) {
        return Ok(false); // the claim was given up just now
    }
    let (found, _) = to_remove(tree, caller, dir, name)?;
    let is_simple = found.node.kind == Kind::File && matches!(found.place, NodeLocation::Entry { .. });
    // Files lent to a forked child are considered at publishing.
    let is_gathered = is_simple && tree.live(found.ino).is_none() && tree.gather_gone(since, &found, dir, name);
    if is_gathered {
        tree.reserved.forget(found.ino);
    }
    Ok(is_gathered)
}

/// Removes one of a file's names; the same change removes or replaces the entry.
pub fn lose(change: &mut Change<'_>, found: &FoundNode) -> FsResult<Loss> {
    let tree = change.tree;
    let mut node = found.node.clone();
    node.links = node.links.saturating_sub(1);
    node.changed = change.now;
    if found.place == NodeLocation::Own {
        change.rely_on(found)?;
        if node.links > 0 {
            change.txn.put(tree.nodes(), &keys::node(found.ino), &node.encode())?;
            return Ok(Loss::Lives);
        }
        change.txn.del_expected(tree.nodes(), &keys::node(found.ino))?;
    }
    change.close_gate(&found.place);
    let holders = tree.holders(change, found)?;
    if !holders.is_empty() {
        tree.hold(change, found.ino, &holders)?;
        change.txn.put(&tree.opens, &keys::orphan(found.ino), &node.encode())?;
        return Ok(Loss::Orphaned);
    }
    bury(change, found.ino, &node)?;
    Ok(Loss::Gone)
}

/// Deletes the bytes and attributes of a file without a name.
pub fn bury(change: &mut Change<'_>, ino: u64, node: &crate::records::Node) -> FsResult<()> {
    if node.image.is_some() {
        crate::images::bury(change, ino, node)?;
    } else if node.has_object {
        change.txn.delete_object(&change.tree.object(ino))?;
    }
    if node.has_xattrs {
        change.drop_xattrs(ino)?;
    }
    Ok(())
}

/// `rmdir`.
pub fn rmdir(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<()> {
    super::check(name)?;
    match name {
        b"." => return fail(libc::EINVAL),
        b".." => return fail(libc::ENOTEMPTY),
        _ => {}
    }
    let remove = || {
        tree.change(|change| {
            let (found, raw) = to_remove(tree, caller, dir, name)?;
            let found = found.directory()?;
            change.remove(dir, name, &raw)?;
            lose_directory(change, &found, dir)
        })
    };
    once_published(tree, || tree.find_in(dir, name).map(Arc::new), remove).map_err(of_names)
}

/// Removes or replaces the directory that `find` finds. If others may have removed names in it that they have not published, retries until
/// it is empty or they have had the time to publish.
pub fn once_published(
    tree: &Tree,
    find: impl Fn() -> FsResult<Arc<FoundNode>>,
    take: impl Fn() -> FsResult<()>,
) -> FsResult<()> {
    let is_full = |done: &FsResult<()>| done.as_ref().is_err_and(|error| error.errno == libc::ENOTEMPTY);
    let mut done = take();
    let mut until = None;
    while is_full(&done) {
        let Ok(found) = find() else { break };
        if found.node.consistency != Consistency::Commit {
            break;
        }
        let (entries, until) = (tree.dir(found.ino), *until.get_or_insert_with(|| Instant::now() + PUBLISHED_WITHIN));
        // A claimant that is gone by now has published everything, maybe after the last try; later publications change the version.
        let is_last = !tree.is_claimed_by_others(found.ino)? || Instant::now() >= until;
        let seen = entries.version()?;
        done = take();
        if is_last {
            break;
        }
        while is_full(&done) && entries.version()? == seen && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    done
}

/// Removes a directory's name in `dir`; `ENOTEMPTY`.
pub fn lose_directory(change: &mut Change<'_>, found: &FoundNode, dir: u64) -> FsResult<()> {
    let tree = change.tree;
    change.stays_empty(found.ino)?;
    change.rely_on(found)?;
    change.txn.del_expected(tree.nodes(), &keys::node(found.ino))?;
    change.txn.delete_index(&tree.dir(found.ino))?;
    if found.node.has_xattrs {
        change.drop_xattrs(found.ino)?;
    }
    if tree.opens.get_one(&keys::claims(found.ino))?.is_some() {
        change.txn.del(&tree.opens, &keys::claims(found.ino))?;
    }
    let above = change.dir_mut(dir)?;
    above.links = above.links.saturating_sub(1);
    Ok(())
}
