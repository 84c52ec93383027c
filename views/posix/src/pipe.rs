//! Named pipes: the store has the name; the data go through a kernel pipe in shared memory, one per node.

use std::path::PathBuf;

use crate::rights::{self, READ, WRITE};
use crate::tree::Tree;
use crate::{Caller, FsError, FsResult, Kind, OpenFlags, fail};

/// Name of this kind of meeting files.
const SORT: &str = "pipes";

fn name(tree: &Tree, ino: u64) -> String {
    format!("{:016x}", tree.whole(ino).0)
}

/// Returns the path of the kernel pipe of a node, and creates it if needed, for a `caller` who may open the node so; `ENXIO` if it is no pipe.
pub fn meet(tree: &Tree, caller: &Caller, ino: u64, flags: OpenFlags) -> FsResult<PathBuf> {
    let found = tree.find(ino)?;
    if found.node.kind != Kind::Fifo {
        return fail(libc::ENXIO);
    }
    let mask = if flags.read { READ } else { 0 } | if flags.write { WRITE } else { 0 };
    rights::need(caller, &found.node, mask)?;
    let met = tree.container.store().meeting_pipe(SORT, &name(tree, ino));
    met.map_err(|error| FsError::new(error.raw_os_error().unwrap_or(libc::EIO)))
}

/// Removes the pipe of a node that lost its last name: processes that have it open keep it, and nobody finds it any more.
pub fn forget(tree: &Tree, ino: u64) {
    if let Ok(dir) = tree.container.store().meeting_dir(SORT) {
        let _ = std::fs::remove_file(dir.join(name(tree, ino)));
    }
}
