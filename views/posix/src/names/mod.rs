//! Names: made, linked, taken away, renamed. Each is one transaction.

mod link;
mod make;
mod open;
mod remove;
mod rename;

pub use link::{link, set_apart};
pub use make::{make, of_names};
pub use open::{open, open_at};
pub use remove::{bury, lose, once_published, rmdir, unlink};
pub use rename::rename;

use crate::{FsResult, fail};

/// Longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest path, in bytes, with the NUL that C puts behind it.
pub const PATH_BYTES_MAX: usize = 4096;
/// Names that a file can have.
pub const LINKS_MAX: u32 = 65_000;

/// An error for what cannot be a name; `.` and `..` can.
pub fn check(name: &[u8]) -> FsResult<()> {
    if name.is_empty() {
        return fail(libc::ENOENT);
    }
    if name.len() > NAME_BYTES_MAX {
        return fail(libc::ENAMETOOLONG);
    }
    if name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        return fail(libc::EINVAL);
    }
    Ok(())
}

/// True for `.` and `..`.
pub fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
