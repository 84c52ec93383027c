//! Files mounted in groups of other files (`H5Fmount`), while this process has them open. A path that reaches a mount
//! point continues in the mounted file's root group; absolute paths of a mounted file begin at the top of its hierarchy.
//!
//! Mounts are not stored, as in native HDF5; other processes see none. This module must not know paths or links.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::ErrorKind;
use parking_lot::Mutex;

use super::File;
use crate::Result;
use crate::error::fail;
use crate::meta::keys;

struct Mount {
    parent: Arc<File>,
    /// The group of the parent.
    group: u64,
    /// The group's path when it became a mount point.
    path: Vec<u8>,
    child: Arc<File>,
}

static MOUNTS: Mutex<Vec<Mount>> = Mutex::new(Vec::new());
/// Number of mounts, read without a lock since almost always there is none.
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn any() -> bool {
    COUNT.load(Ordering::Acquire) > 0
}

fn change<T>(act: impl FnOnce(&mut Vec<Mount>) -> T) -> T {
    let mut mounts = MOUNTS.lock();
    let out = act(&mut mounts);
    COUNT.store(mounts.len(), Ordering::Release);
    out
}

fn parent_in(mounts: &[Mount], file: &Arc<File>) -> Option<Arc<File>> {
    mounts.iter().find(|m| Arc::ptr_eq(&m.child, file)).map(|m| m.parent.clone())
}

fn top_in(mounts: &[Mount], file: &Arc<File>) -> Arc<File> {
    let mut at = file.clone();
    while let Some(parent) = parent_in(mounts, &at) {
        at = parent;
    }
    at
}

/// The file at the top of the hierarchy in which `file` is mounted: where absolute paths begin.
pub fn top(file: &Arc<File>) -> Arc<File> {
    if any() { top_in(&MOUNTS.lock(), file) } else { file.clone() }
}

/// Continues a path that has reached the object `oid` of `file`: in the root group of the file mounted there, if any.
pub fn traverse(file: &mut Arc<File>, oid: &mut u64) {
    if !any() {
        return;
    }
    let mounts = MOUNTS.lock();
    while let Some(mount) = mounts.iter().find(|m| m.group == *oid && m.parent.is_same(file)) {
        *file = mount.child.clone();
        *oid = keys::ROOT;
    }
}

/// Returns true if a file is mounted on the group.
pub fn is_mount_point(file: &File, group: u64) -> bool {
    any() && MOUNTS.lock().iter().any(|m| m.group == group && m.parent.is_same(file))
}

/// The path of the group on which `file` is mounted, from the top of its hierarchy; empty if it is not mounted.
pub fn prefix(file: &Arc<File>) -> Vec<u8> {
    if !any() {
        return Vec::new();
    }
    let mounts = MOUNTS.lock();
    mounts.iter().find(|m| Arc::ptr_eq(&m.child, file)).map(|m| m.path.clone()).unwrap_or_default()
}

/// The files mounted directly in `file`.
pub fn children(file: &File) -> Vec<Arc<File>> {
    if !any() {
        return Vec::new();
    }
    MOUNTS.lock().iter().filter(|m| m.parent.is_same(file)).map(|m| m.child.clone()).collect()
}

/// Returns true if `file` is `base` or in the same hierarchy, and not one that an external link has opened.
pub fn is_inside(base: &Arc<File>, file: &Arc<File>) -> bool {
    Arc::ptr_eq(base, file) || any() && Arc::ptr_eq(&top(base), &top(file))
}

/// Mounts `child` on a group of `parent`.
pub fn mount(parent: &Arc<File>, group: u64, path: &[u8], child: &Arc<File>) -> Result<()> {
    change(|mounts| {
        let refuse = |why: &str| Err(fail(ErrorKind::InvalidInput, format!("mounting file {}", child.path), why));
        if parent_in(mounts, child).is_some() {
            return refuse("file is already mounted");
        }
        if mounts.iter().any(|m| m.group == group && m.parent.is_same(parent)) {
            return refuse("mount point is already in use");
        }
        let mut ancestor = Some(parent.clone());
        while let Some(file) = ancestor {
            if file.is_same(child) {
                return refuse("mount would introduce a cycle");
            }
            ancestor = parent_in(mounts, &file);
        }
        mounts.push(Mount { parent: parent.clone(), group, path: path.to_vec(), child: child.clone() });
        Ok(())
    })
}

/// Undoes the mount at the group, which is the mounted file's root group or the mount point itself.
pub fn unmount(file: &Arc<File>, group: u64) -> Result<()> {
    let taken = change(|mounts| {
        let at = mounts
            .iter()
            .position(|m| group == keys::ROOT && Arc::ptr_eq(&m.child, file))
            .or_else(|| mounts.iter().position(|m| m.group == group && m.parent.is_same(file)));
        at.map(|at| mounts.remove(at))
    });
    // Files that close with the mount are closed without the lock.
    taken
        .map(drop)
        .ok_or_else(|| fail(ErrorKind::InvalidInput, format!("group of file {}", file.path), "not a mount point"))
}

/// Undoes all mounts of the hierarchy of `file` if `in_use` says that none of its files is in use.
pub fn dissolve_if_unused(file: &Arc<File>, in_use: impl FnOnce(&dyn Fn(&Arc<File>) -> bool) -> bool) {
    if !any() {
        return;
    }
    let gone = change(|mounts| {
        let top = top_in(mounts, file);
        let tops: Vec<Arc<File>> = mounts.iter().map(|m| top_in(mounts, &m.parent)).collect();
        let (inside, outside): (Vec<_>, Vec<_>) =
            std::mem::take(mounts).into_iter().zip(tops).partition(|(_, its_top)| Arc::ptr_eq(its_top, &top));
        let inside: Vec<Mount> = inside.into_iter().map(|(mount, _)| mount).collect();
        mounts.extend(outside.into_iter().map(|(mount, _)| mount));
        let files: HashSet<usize> =
            inside.iter().flat_map(|m| [&m.parent, &m.child]).map(|f| Arc::as_ptr(f) as usize).collect();
        if in_use(&|file| files.contains(&(Arc::as_ptr(file) as usize))) {
            mounts.extend(inside);
            return Vec::new();
        }
        inside
    });
    drop(gone);
}
