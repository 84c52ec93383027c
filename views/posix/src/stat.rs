//! Conversion of records to the result of `stat`, and of settable attributes back.

use std::sync::Arc;

use cenote::ErrorKind;

use crate::file::Live;
use crate::file::live::{FILE_BYTES_MAX, settled, truncated};
use crate::records::{Node, Times, keys};
use crate::rights::{self, Keeps, WRITE};
use crate::tree::{FoundNode, Tree};
use crate::{Attr, Caller, FsResult, Kind, SetAttr, SetTime, Time, fail};

/// Size that directories report.
const DIRECTORY_BYTES: u64 = 4096;
/// Bytes of a block in `stat`.
const BLOCK: u64 = 512;

/// Returns the attributes of what was found.
pub fn attr(tree: &Tree, found: &FoundNode) -> FsResult<Attr> {
    let live = if found.node.kind == Kind::File { tree.live(found.ino) } else { None };
    let mut node = live.as_ref().map_or_else(|| found.node.clone(), |live| settled(&found.node, live.dirty()));
    let page_cache = match (node.kind, live.as_deref()) {
        (Kind::File, Some(live)) => live.page_cache()?.map(|page_cache| page_cache.attr()).transpose()?,
        (Kind::File, None) => tree.page_cache_usage(found.ino)?,
        _ => None,
    };
    if let Some(page_cache) = page_cache {
        node.modified = node.modified.max(page_cache.modified);
        node.changed = node.changed.max(page_cache.modified);
    }
    let (size_bytes, used) = match node.kind {
        Kind::File if page_cache.is_some() => page_cache.map_or((0, 0), |at| (at.size_bytes, at.used_bytes)),
        Kind::File if node.has_object => match usage(tree, found.ino, &node, live.as_deref()) {
            Ok(usage) => usage,
            Err(error) if error.kind() == ErrorKind::NotFound => (0, 0), // being deleted now
            Err(error) => return Err(error.into()),
        },
        Kind::Symlink => (node.target.len() as u64, 0),
        Kind::Directory => (DIRECTORY_BYTES, DIRECTORY_BYTES),
        _ => (0, 0),
    };
    let times = match node.kind {
        Kind::Directory => tree.times(found)?,
        _ => Times { modified: node.modified, changed: node.changed },
    };
    Ok(Attr {
        ino: tree.whole(found.ino),
        kind: node.kind,
        mode: node.mode,
        links: node.links,
        uid: node.uid,
        gid: node.gid,
        rdev: node.rdev,
        size_bytes,
        blocks: (used + tree.reserved.bytes(found.ino)).div_ceil(BLOCK),
        accessed: node.accessed,
        modified: times.modified,
        changed: times.changed,
        born: node.born,
        consistency: tree.consistency(found),
    })
}

/// Returns size and bytes in use of a file that has an object.
fn usage(tree: &Tree, ino: u64, node: &Node, live: Option<&Live>) -> cenote::Result<(u64, u64)> {
    // A handle that was used before finds the object faster.
    match live {
        Some(live) => live.handle().usage(),
        None => tree.object_of(ino, node).usage(),
    }
}

/// Applies `set`. `by_descriptor`: the caller opened the file for writing and may set the size.
pub fn set_attr(tree: &Arc<Tree>, caller: &Caller, ino: u64, set: &SetAttr, by_descriptor: bool) -> FsResult<()> {
    if *set == SetAttr::default() {
        return Ok(());
    }
    if set.size_bytes.is_some_and(|size| size > FILE_BYTES_MAX) {
        return fail(libc::EFBIG);
    }
    tree.make(None, 0o755)?;
    if set.size_bytes.is_some() {
        tree.check_mapped_elsewhere(ino)?;
    }
    if (set.size_bytes.is_none() && set.modified.is_none()) || !tree.has_page_cache(ino)? {
        set_records(tree, caller, ino, set, by_descriptor)?;
        // The file may have got a page cache meanwhile.
        return match set.size_bytes {
            Some(_) if !tree.is_at_home => tree.check_mapped_elsewhere(ino),
            _ => set_page_cache(tree, ino, set),
        };
    }
    let live = Live::of(tree, &tree.find(ino)?);
    match live.page_cache()? {
        None => set_records(tree, caller, ino, set, by_descriptor),
        Some(page_cache) => page_cache.undisturbed(|| {
            set_records(tree, caller, ino, set, by_descriptor)?;
            set_page_cache(tree, ino, set)
        }),
    }
}

/// Applies the part that concerns the page cache.
fn set_page_cache(tree: &Arc<Tree>, ino: u64, set: &SetAttr) -> FsResult<()> {
    if (set.size_bytes.is_none() && set.modified.is_none()) || !tree.has_page_cache(ino)? {
        return Ok(());
    }
    let live = Live::of(tree, &tree.find(ino)?);
    let Some(page_cache) = live.page_cache()? else { return Ok(()) };
    if let Some(size) = set.size_bytes {
        page_cache.set_size(size)?;
    }
    if set.modified.is_some() {
        page_cache.set_modified(live.find()?.node.modified)?;
    }
    Ok(())
}

/// Applies the part that concerns the records and the object.
fn set_records(tree: &Tree, caller: &Caller, ino: u64, set: &SetAttr, by_descriptor: bool) -> FsResult<()> {
    let live = tree.live(ino);
    let dirty = live.as_ref().map(|live| live.take_dirty()).unwrap_or_default();
    let done = tree.change(|change| {
        let found = tree.find(ino)?;
        tree.check_changes(&found)?;
        check(caller, &found.node, set, by_descriptor)?;
        let is_dir = found.node.kind == Kind::Directory;
        let mut node = match set.size_bytes {
            Some(_) if is_dir => return fail(libc::EISDIR),
            Some(_) if found.node.kind != Kind::File => return fail(libc::EINVAL),
            Some(size) => truncated(change, &found, size)?,
            None => settled(&found.node, dirty),
        };
        if set.uid.is_some() || set.gid.is_some() {
            change.drop_capabilities(&found)?;
        }
        apply(&mut node, caller, set, change.now);
        if is_dir {
            if set.modified.is_some() {
                let times = Times { modified: node.modified, changed: change.now };
                change.txn.put(&tree.dir(ino), &keys::times(), &times.encode())?;
            }
            *change.dir_mut(ino)? = node;
            return Ok(());
        }
        change.put_node(&found, &node)
    });
    if let (Ok(()), Some(size)) = (&done, set.size_bytes) {
        tree.reserved.cut(ino, size);
    }
    done
}

fn check(caller: &Caller, node: &Node, set: &SetAttr, by_descriptor: bool) -> FsResult<()> {
    if set.mode.is_some() && !caller.owns(node) {
        return fail(libc::EPERM);
    }
    if let Some(uid) = set.uid
        && !caller.is_above()
        && (uid != node.uid || caller.uid != node.uid)
    {
        return fail(libc::EPERM);
    }
    if let Some(gid) = set.gid
        && !caller.is_above()
        && (caller.uid != node.uid || (gid != node.gid && !caller.is_in(gid)))
    {
        return fail(libc::EPERM);
    }
    if set.size_bytes.is_some() && !by_descriptor {
        rights::need(caller, node, WRITE)?;
    }
    let times = [set.accessed, set.modified];
    if times.iter().any(|time| matches!(time, Some(SetTime::To(_)))) && !caller.owns(node) {
        return fail(libc::EPERM);
    }
    if times.contains(&Some(SetTime::Now)) && !caller.owns(node) {
        rights::need(caller, node, WRITE)?;
    }
    Ok(())
}

fn apply(node: &mut Node, caller: &Caller, set: &SetAttr, now: Time) {
    if set.size_bytes.is_some() {
        node.mode = Keeps::of(caller, node.gid).behind(node.kind, node.mode);
    }
    if set.uid.is_some() || set.gid.is_some() {
        node.mode = Keeps::of_owner_change(caller, node.gid).behind(node.kind, node.mode);
        node.uid = set.uid.unwrap_or(node.uid);
        node.gid = set.gid.unwrap_or(node.gid);
    }
    if let Some(mode) = set.mode {
        node.mode = mode & 0o7777;
        if !caller.is_above() && !caller.is_in(node.gid) {
            node.mode &= !rights::SETGID;
        }
    }
    let time = |set: SetTime| match set {
        SetTime::Now => now,
        SetTime::To(time) => time,
    };
    node.accessed = set.accessed.map_or(node.accessed, time);
    node.modified = set.modified.map_or(node.modified, time);
    node.changed = now;
}
