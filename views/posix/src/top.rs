//! The directory of containers: those with a plain label are directories at the top.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote::{ContainerInfo, ContainerSpec, ErrorKind};

use crate::inner::Inner;
use crate::names::NAME_BYTES_MAX;
use crate::records::{BACKSTAGE, Node, ROOT, keys};
use crate::tree::{Found, Tree};
use crate::{Attr, Caller, Consistency, FsError, FsResult, Ino, Kind, Make, Rename, fail};

/// How long a label is taken to lead where it led. A container that was deleted is noticed at once all the same, since its
/// number is never used again.
const LABEL_HOLDS: Duration = Duration::from_millis(200);
/// Indices of a tree with nothing in it.
const INDICES_OF_EMPTY: u64 = 5;

/// The label that a name at the top stands for.
fn label(name: &[u8]) -> Option<&str> {
    std::str::from_utf8(name).ok().filter(|label| is_plain(label))
}

/// True for labels that are directories at the top.
fn is_plain(label: &str) -> bool {
    let is_name = !label.is_empty() && label.len() <= NAME_BYTES_MAX && label != "." && label != "..";
    is_name && !label.bytes().any(|byte| matches!(byte, b'/' | 0))
}

/// What `stat` tells of the top.
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

/// Containers that are directories here, in the order of names.
pub fn containers(fs: &Inner) -> FsResult<Vec<ContainerInfo>> {
    let mut all = fs.store.containers("")?;
    if crate::streams::begin_where(fs, &all)? {
        all = fs.store.containers("")?;
    }
    all.retain(|info| is_plain(&info.label));
    Ok(all)
}

/// The tree of a container by its name; `ENOENT`.
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
            match crate::streams::begun(fs, label)? {
                Some(container) => container,
                None => return fail(libc::ENOENT),
            }
        }
        Err(error) => return Err(error.into()),
    };
    fs.labels.lock().insert(label.to_owned(), (container.id().0, Instant::now()));
    let tree = fs.tree_in(container)?;
    fs.streams.found(label, Some(&tree));
    Ok(tree)
}

/// The root of a container's tree, by name.
pub fn find(fs: &Inner, name: &[u8]) -> FsResult<(Arc<Tree>, Found)> {
    let tree = tree(fs, name)?;
    match tree.directory(ROOT) {
        Ok(found) => Ok((tree, found)),
        // It went since its label was seen.
        Err(error) if error.errno == libc::ESTALE => {
            fs.labels.lock().clear();
            Err(error.as_errno(libc::ENOENT))
        }
        Err(error) => Err(error),
    }
}

/// Makes a container.
pub fn make(fs: &Inner, caller: &Caller, name: &[u8], what: &Make) -> FsResult<(Arc<Tree>, Found)> {
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
    let spec = ContainerSpec { ..fs.common.options.new_containers.clone() };
    let container = fs.store.create_container(label, &spec)?;
    let tree = fs.tree_in(container)?;
    tree.make(Some((caller.uid, caller.gid)), what.mode & 0o7777)?;
    let found = tree.directory(ROOT)?;
    Ok((tree, found))
}

/// `EPERM` unless `caller` may take away or rename the container: as in a directory with the sticky bit.
fn check_owner(caller: &Caller, root: &Node) -> FsResult<()> {
    if caller.owns(root) { Ok(()) } else { fail(libc::EPERM) }
}

/// Deletes an empty container.
pub fn remove(fs: &Inner, caller: &Caller, name: &[u8]) -> FsResult<()> {
    crate::names::check(name)?;
    fs.check_writable()?;
    let tree = tree(fs, name)?;
    let info = tree.container.info().map_err(|error| FsError::from(error).as_errno(libc::ENOENT))?;
    let is_there = tree.is_there()?;
    match tree.directory(ROOT) {
        Ok(root) => {
            check_owner(caller, &root.node)?;
            if info.indices > INDICES_OF_EMPTY || (!is_there && info.indices + info.objects > 0) {
                return fail(libc::ENOTEMPTY);
            }
            if is_there {
                close_down(&tree, &info)?;
            }
        }
        // Somebody was stopped between the two steps.
        Err(error) if error.errno == libc::ESTALE => {}
        Err(error) => return Err(error),
    }
    fs.labels.lock().clear();
    match fs.store.delete_container(&info.label) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// From here on nothing can be made in a tree, which was empty.
fn close_down(tree: &Tree, info: &ContainerInfo) -> FsResult<()> {
    let orphans = tree.nodes().next_with_prefix(&keys::orphans(), cenote::NextFrom::Start, u32::MAX)?.len() as u64;
    if info.objects > orphans {
        return fail(libc::ENOTEMPTY);
    }
    tree.change(|change| {
        for dir in [ROOT, BACKSTAGE] {
            change.stays_empty(dir)?;
            change.txn.delete_index(&tree.dir(dir))?;
        }
        change.txn.del(tree.nodes(), &keys::node(ROOT))?;
        Ok(())
    })
}

/// Gives a container another name.
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
    fs.labels.lock().clear();
    Ok(renamed?)
}
