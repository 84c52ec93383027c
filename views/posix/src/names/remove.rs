//! Taking names away.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::keeper::ROUND;
use crate::records::keys;
use crate::rights::{self, SEARCH, WRITE};
use crate::tree::{Change, Found, Place, Tree};
use crate::{Caller, Consistency, FsResult, Kind, fail};

use super::make::of_names;

/// What processes gather they publish by then, though the machine is busy.
const PUBLISHED_WITHIN: Duration = ROUND.saturating_mul(4);

/// What became of a file that lost a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Loss {
    /// It has other names.
    Lives,
    /// It has none, and somebody may have it open.
    Orphaned,
    /// It is gone.
    Gone,
}

/// What a name in `dir` leads to, with its entry, if `caller` may take it away.
fn to_remove(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<(Found, Vec<u8>)> {
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

/// Takes a name in a `commit` directory away, which others learn of later. False: that is better done otherwise.
fn gather(tree: &Tree, caller: &Caller, dir: u64, name: &[u8]) -> FsResult<bool> {
    let since = tree.gathered.moment();
    // Who finds the directory not empty asks those who claim it.
    tree.claim(dir)?;
    // No thread opens it between the look and the removal.
    let _gate = tree.gates.of_dir(dir).write();
    if !tree.is_claimed(dir) {
        return Ok(false); // it was given up just now
    }
    let (found, _) = to_remove(tree, caller, dir, name)?;
    let is_simple = found.node.kind == Kind::File && matches!(found.place, Place::Entry { .. });
    // What was lent is looked at when it is published.
    let is_gathered = is_simple && tree.live(found.ino).is_none() && tree.gather_gone(since, &found, dir, name);
    if is_gathered {
        tree.reserved.forget(found.ino);
    }
    Ok(is_gathered)
}

/// A file loses one of its names, whose entry is taken away or replaced by the same change.
pub fn lose(change: &mut Change<'_>, found: &Found) -> FsResult<Loss> {
    let tree = change.tree;
    let mut node = found.node.clone();
    node.links = node.links.saturating_sub(1);
    node.changed = change.now;
    if found.place == Place::Own {
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

/// What a file without a name had goes, too.
pub fn bury(change: &mut Change<'_>, ino: u64, node: &crate::records::Node) -> FsResult<()> {
    if node.stream.is_some() {
        crate::streams::bury(change, ino, node)?;
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

/// Takes away, or replaces, the directory that `find` finds; where others may have taken names in it away that they did not publish yet, not
/// before it is empty or they had the time to do so.
pub fn once_published(
    tree: &Tree,
    find: impl Fn() -> FsResult<Arc<Found>>,
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
        // Who is gone by now has published everything, maybe since it was tried; what is published from here on is noticed.
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

/// A directory loses its name in `dir`; `ENOTEMPTY`.
pub fn lose_directory(change: &mut Change<'_>, found: &Found, dir: u64) -> FsResult<()> {
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
