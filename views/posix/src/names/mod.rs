//! Names: create, link, remove, rename. Each is one transaction.

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

/// Maximum length of a name in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a path in bytes, with the terminating NUL of C.
pub const PATH_BYTES_MAX: usize = 4096;
/// Maximum number of hard links.
pub const LINKS_MAX: u32 = 65_000;

/// Returns an error for an invalid name; `.` and `..` are valid.
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

/// Returns true for `.` and `..`.
pub fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}
