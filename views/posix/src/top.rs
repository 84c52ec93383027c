//! The directory of containers: containers with a plain label are directories at the top.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cenote::{ContainerId, ContainerInfo, ErrorKind};

use crate::inner::Inner;
use crate::names::NAME_BYTES_MAX;
use crate::records::{Claimant, Node, PRIVATE, ROOT};
use crate::tree::{Change, FoundNode, Tree};
use crate::{Attr, Caller, Consistency, FsError, FsResult, Ino, Kind, Make, Rename, fail};

/// How long a looked-up label is trusted. A deleted container is still noticed at once, since its number is never reused.
const LABEL_HOLDS: Duration = Duration::from_millis(200);
/// Number of indices of an empty tree.
const INDICES_OF_EMPTY: u64 = 5;

/// Label prefix of containers under construction: not a name at the top. Pid, start and nonce of the process, and a number follow.
const HALF: &str = "/making/";

/// Returns the label for a name at the top.
fn label(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok().filter(|label| is_plain(label))
}

/// Returns true for labels that are directories at the top.
fn is_plain(label: &str) -> bool {
    let is_name = !label.is_empty() && label.len() <= NAME_BYTES_MAX && label != "." && label != "..";
    is_name && !label.bytes().any(|byte| matches!(byte, b'/' | 0))
}

/// Returns the attributes of the top.
pub fn attr(fs: &Inner) -> FsResult<Attr> {
    let containers = containers(fs)?.len() as u32;
    let begun = fs.begun;
    Ok(Attr {
        ino: Ino::TOP,
        kind: Kind::Directory,
        mode: 0o1777,
        links: containers + 2,
        uid: 0,
        gid: 0,
        rdev: 0,
        size_bytes: 4096,
        blocks: 8,
        accessed: begun,
        modified: begun,
        changed: begun,
        born: begun,
        consistency: Consistency::Strict,
    })
}

/// Returns the containers that are directories here, in the order of names. Those of a node of a cluster that is away are among
/// them: what is in them cannot be reached, and all else can.
pub fn containers(fs: &Inner) -> FsResult<Vec<(String, ContainerId)>> {
    let mut all = fs.store.labels("")?;
    if crate::images::begin_where(fs, &all)? {
        all = fs.store.labels("")?;
    }
    all.retain(|(label, _)| is_plain(label));
    Ok(all)
}

/// The same without those that were lost with a node. Fails if a node is away: what can be looked at is all that there is.
pub fn whole_containers(fs: &Inner) -> FsResult<Vec<(String, ContainerId)>> {
    let mut all = containers(fs)?;
    let there = fs.store.containers("")?;
    all.retain(|(label, _)| there.binary_search_by(|info| info.label.as_str().cmp(label)).is_ok());
    Ok(all)
}

/// Returns the tree of a container by name; `ENOENT`.
pub fn tree(fs: &Inner, name: &[u8]) -> FsResult<Arc<Tree>> {
    let Some(label) = label(name) else {
        return fail(if name.len() > NAME_BYTES_MAX { libc::ENAMETOOLONG } else { libc::ENOENT });
    };
    if let Some((number, seen)) = fs.labels.lock().get(label)
        && seen.elapsed() < LABEL_HOLDS
        && let Some(tree) = fs.known_tree(*number)
    {
        return Ok(tree);
    }
    let container = match fs.store.container(label) {
        Ok(container) => container,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            fs.labels.lock().remove(label);
            match crate::images::begun(fs, label)? {
                Some(container) => container,
                None => return fail(libc::ENOENT),
            }
        }
        Err(error) => return Err(error.into()),
    };
    let tree = fs.tree_in(container)?;
    fs.labels.lock().insert(label.to_owned(), (tree.number, Instant::now()));
    fs.images.found(label, Some(&tree));
    Ok(tree)
}

/// Returns until when a looked-up label is trusted.
pub fn label_holds_until(fs: &Inner, name: &[u8]) -> Option<Instant> {
    let label = label(name)?;
    let seen = fs.labels.lock().get(label)?.1;
    Some(seen + LABEL_HOLDS)
}

/// Returns the root of a container's tree, by name.
pub fn find(fs: &Inner, name: &[u8]) -> FsResult<(Arc<Tree>, FoundNode)> {
    let tree = tree(fs, name)?;
    match tree.directory(ROOT) {
        Ok(found) => Ok((tree, FoundNode::clone(&found))),
        // Removed since its label was looked up.
        Err(error) if error.errno == libc::ESTALE => {
            fs.forget_labels();
            Err(error.with_errno(libc::ENOENT))
        }
        Err(error) => Err(error),
    }
}

/// Creates a container.
pub fn make(fs: &Inner, caller: &Caller, name: &[u8], what: &Make) -> FsResult<(Arc<Tree>, FoundNode)> {
    crate::names::check(name)?;
    fs.check_writable()?;
    if what.kind != Kind::Directory {
        return Err(FsError::because(
            libc::EPERM,
            ErrorKind::InvalidInput,
            format!("`{}` at the top", String::from_utf8_lossy(name)),
            "only directories are here: each is a container",
        ));
    }
    let Some(label) = label(name) else {
        let dots = crate::names::is_dots(name);
        return fail(if dots { libc::EEXIST } else { libc::EILSEQ }); // labels are UTF-8
    };
    match fs.store.container(label) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(_) => return fail(libc::EEXIST),
        Err(error) => return Err(error.into()),
    }
    let tree = make_whole(fs, (caller.uid, caller.gid), label, what.mode & 0o7777)?;
    let found = tree.directory(ROOT)?;
    Ok((tree, FoundNode::clone(&found)))
}

/// Creates a container with a tree in it under a hidden label, so that others find the whole tree or none.
fn make_whole(fs: &Inner, owner: (u32, u32), label: &str, mode: u32) -> FsResult<Arc<Tree>> {
    if !fs.halves_swept.swap(true, Ordering::AcqRel) {
        sweep_halves(fs)?;
    }
    let me = fs.common.who.me();
    let half =
        format!("{HALF}{}-{}-{:x}-{:x}", me.pid, me.started, me.nonce, fs.halves.fetch_add(1, Ordering::Relaxed));
    let container = fs.store.create_container(&half, &fs.common.options.new_containers)?;
    let made = Tree::new(container, &fs.common)
        .and_then(|tree| tree.make(Some(owner), mode))
        .and_then(|()| Ok(fs.store.rename_container(&half, label)?));
    if let Err(error) = made {
        let _ = fs.store.delete_container(&half); // the next process sweeps what stays
        return Err(error);
    }
    fs.tree_in(fs.store.container(label)?)
}

/// Deletes containers that dead processes left half made.
fn sweep_halves(fs: &Inner) -> FsResult<()> {
    for (label, _) in fs.store.labels(HALF)? {
        let mut parts = label[HALF.len()..].split('-');
        let (pid, started) = (parts.next().and_then(|it| it.parse().ok()), parts.next().and_then(|it| it.parse().ok()));
        let (Some(pid), Some(started)) = (pid, started) else { continue };
        if !fs.common.who.lives(&Claimant { pid, started, nonce: 0 }) {
            match fs.store.delete_container(&label) {
                // At a node of a cluster that is away it stays for a later process.
                Err(error) if !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Disconnected) => {
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Returns `EPERM` unless `caller` may remove or rename the container: as in a directory with the sticky bit.
fn check_owner(caller: &Caller, root: &Node) -> FsResult<()> {
    if caller.owns(root) { Ok(()) } else { fail(libc::EPERM) }
}

/// Deletes an empty container.
pub fn remove(fs: &Inner, caller: &Caller, name: &[u8]) -> FsResult<()> {
    crate::names::check(name)?;
    fs.check_writable()?;
    let tree = tree(fs, name)?;
    let gone = |error: cenote::Error| FsError::from(error).with_errno(libc::ENOENT);
    let delete = |change: &mut Change<'_>| {
        // Count orphans before objects: a deletion in between must not look like an unknown object.
        let orphans = tree.orphans()? as u64;
        let info = tree.container.info().map_err(gone)?;
        match tree.directory(ROOT) {
            Ok(root) => check_owner(caller, &root.node)?,
            // An earlier version deleted the root, and was stopped before it deleted the container.
            Err(error) if error.errno == libc::ESTALE => {}
            Err(error) => return Err(error),
        }
        check_unused(&tree, &info, orphans)?;
        for dir in [ROOT, PRIVATE] {
            change.stays_empty(dir)?;
        }
        Ok(change.txn.delete_container(&tree.container)?)
    };
    let done = crate::names::once_published(&tree, || tree.directory(ROOT), || tree.change(delete));
    fs.forget_labels();
    match done {
        // Deleted meanwhile.
        Err(error) if error.kind() == Some(ErrorKind::NotFound) => Err(error.with_errno(libc::ENOENT)),
        other => other,
    }
}

/// Returns `ENOTEMPTY` if a container holds more than an empty tree and this many open files without a name.
fn check_unused(tree: &Tree, info: &ContainerInfo, orphans: u64) -> FsResult<()> {
    let is_there = tree.is_there()?;
    let most = INDICES_OF_EMPTY + u64::from(is_there && tree.has_page_caches()?);
    if info.indices > most || (!is_there && info.indices + info.objects > 0) {
        return fail(libc::ENOTEMPTY);
    }
    if info.objects > orphans { fail(libc::ENOTEMPTY) } else { Ok(()) }
}

/// Renames a container.
pub fn rename(fs: &Inner, caller: &Caller, from: &[u8], to: &[u8], how: Rename) -> FsResult<()> {
    crate::names::check(from)?;
    crate::names::check(to)?;
    fs.check_writable()?;
    if crate::names::is_dots(from) || crate::names::is_dots(to) {
        return fail(libc::EBUSY);
    }
    if how == Rename::Exchange {
        return fail(libc::EINVAL);
    }
    let (tree, root) = find(fs, from)?;
    check_owner(caller, &root.node)?;
    let Some(label) = label(to) else { return fail(libc::EILSEQ) };
    if from == to {
        return if how == Rename::Keep { fail(libc::EEXIST) } else { Ok(()) };
    }
    let old = tree.container.info()?.label;
    let renamed = fs.store.rename_container(&old, label);
    let renamed = match renamed {
        Err(error) if error.kind() == ErrorKind::Exists && how == Rename::Replace => {
            remove(fs, caller, to)?;
            fs.store.rename_container(&old, label)
        }
        other => other,
    };
    fs.forget_labels();
    Ok(renamed?)
}
