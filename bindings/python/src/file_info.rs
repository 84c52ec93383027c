//! Attributes of files, and free space.

use cenote_posix::{Attr, Consistency, Kind, Space, Time};
use pyo3::prelude::*;

/// The result of `stat` for a file or directory.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct FileStat {
    /// Kind and permissions, as used by the module `stat`.
    st_mode: u32,
    /// Inode number.
    st_ino: u64,
    /// Number of hard links.
    st_nlink: u32,
    /// Owner's user id.
    st_uid: u32,
    /// Group id.
    st_gid: u32,
    /// Size in bytes.
    st_size: u64,
    /// Units of 512 bytes in use.
    st_blocks: u64,
    /// Last access, in nanoseconds since 1970.
    st_atime_ns: i128,
    /// Last change of its bytes or entries, in nanoseconds since 1970.
    st_mtime_ns: i128,
    /// Last change of anything, in nanoseconds since 1970.
    st_ctime_ns: i128,
    /// Time of creation, in nanoseconds since 1970.
    st_birthtime_ns: i128,
    /// Device number of a device file.
    st_rdev: u64,
    /// When others see changes in it: "strict", "commit" or "laminated".
    consistency: &'static str,
}

impl From<Attr> for FileStat {
    fn from(attr: Attr) -> Self {
        let ns = |time: Time| i128::from(time.s) * 1_000_000_000 + i128::from(time.ns);
        let kind = match attr.kind {
            Kind::File => 0o100_000,
            Kind::Directory => 0o040_000,
            Kind::Symlink => 0o120_000,
            Kind::Fifo => 0o010_000,
            Kind::Socket => 0o140_000,
            Kind::CharDevice => 0o020_000,
            Kind::BlockDevice => 0o060_000,
        };
        Self {
            st_mode: kind | attr.mode,
            st_ino: attr.ino.0,
            st_nlink: attr.links,
            st_uid: attr.uid,
            st_gid: attr.gid,
            st_size: attr.size_bytes,
            st_blocks: attr.blocks,
            st_atime_ns: ns(attr.accessed),
            st_mtime_ns: ns(attr.modified),
            st_ctime_ns: ns(attr.changed),
            st_birthtime_ns: ns(attr.born),
            st_rdev: attr.rdev,
            consistency: match attr.consistency {
                Consistency::Strict => "strict",
                Consistency::Commit => "commit",
                Consistency::Laminated => "laminated",
            },
        }
    }
}

#[pymethods]
impl FileStat {
    /// True for a directory.
    fn is_dir(&self) -> bool {
        self.st_mode & 0o170_000 == 0o040_000
    }
    /// True for a file.
    fn is_file(&self) -> bool {
        self.st_mode & 0o170_000 == 0o100_000
    }
    /// True for a symbolic link.
    fn is_symlink(&self) -> bool {
        self.st_mode & 0o170_000 == 0o120_000
    }
    /// Last change of its bytes or entries, in seconds since 1970.
    #[getter]
    fn st_mtime(&self) -> f64 {
        self.st_mtime_ns as f64 / 1e9
    }
}

/// Capacity of a store, or of a container with a quota.
#[pyclass(frozen, get_all, module = "cenote")]
pub struct FileSpace {
    /// Total capacity.
    total_bytes: u64,
    /// Free capacity.
    free_bytes: u64,
    /// Number of files and directories.
    files: u64,
}

impl From<Space> for FileSpace {
    fn from(space: Space) -> Self {
        Self { total_bytes: space.total_bytes, free_bytes: space.free_bytes, files: space.files }
    }
}
