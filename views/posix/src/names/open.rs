//! Opening files, by number or by name.

use std::sync::Arc;

use crate::file::{File, Live};
use crate::rights::{self, READ, SEARCH, WRITE};
use crate::tree::{Found, Tree};
use crate::{Caller, FsResult, Kind, Make, OpenFlags, fail};

use super::make::make;

/// Opens a file by its number.
pub fn open(tree: &Arc<Tree>, caller: &Caller, ino: u64, flags: OpenFlags) -> FsResult<File> {
    tree.claim_of(ino)?;
    let found = tree.find(ino)?;
    open_found(tree, caller, &found, flags)
}

fn open_found(tree: &Arc<Tree>, caller: &Caller, found: &Found, flags: OpenFlags) -> FsResult<File> {
    match found.node.kind {
        Kind::File => {}
        Kind::Directory => return fail(libc::EISDIR),
        Kind::Symlink => return fail(libc::ELOOP),
        _ => return fail(libc::ENXIO),
    }
    let changes = flags.write || flags.truncate;
    let mask = if flags.read { READ } else { 0 } | if changes { WRITE } else { 0 };
    rights::need(caller, &found.node, mask)?;
    if changes {
        tree.check_changes(found)?;
    }
    let file = File::new(Live::of(tree, found), flags, caller);
    if flags.truncate {
        file.truncate(0)?;
    }
    Ok(file)
}

/// Opens `name` in `dir`, making it first if `flags` say so and it is not there. True: it was made.
pub fn open_at(
    tree: &Arc<Tree>,
    caller: &Caller,
    dir: u64,
    name: &[u8],
    flags: OpenFlags,
    mode: u32,
) -> FsResult<(File, Found, bool)> {
    super::check(name)?;
    if super::is_dots(name) {
        return fail(libc::EISDIR);
    }
    tree.claim(dir)?;
    loop {
        if !(flags.create && flags.exclusive) {
            rights::need(caller, &tree.directory(dir)?.node, SEARCH)?;
            match tree.find_in(dir, name) {
                Ok(found) => {
                    if found.node.links > 1 || found.place == crate::tree::Place::Own {
                        tree.claim(0)?;
                    }
                    let file = open_found(tree, caller, &found, flags)?;
                    return Ok((file, found, false));
                }
                Err(error) if error.errno == libc::ENOENT && flags.create => {}
                Err(error) => return Err(error),
            }
        }
        let what = Make { kind: Kind::File, mode, rdev: 0, target: Vec::new() };
        match make(tree, caller, dir, name, &what) {
            Ok(found) => {
                let file = File::new(Live::of(tree, &found), flags, caller);
                return Ok((file, found, true));
            }
            Err(error) if error.errno == libc::EEXIST && !flags.exclusive => {} // another was faster
            Err(error) => return Err(error),
        }
    }
}
