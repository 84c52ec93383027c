//! Numbers of the kernel's protocol (`linux/fuse.h`, 7.45) that this room uses.

/// Bytes of a request's header.
pub const IN_HEADER_BYTES: usize = 40;
/// Bytes of an answer's header.
pub const OUT_HEADER_BYTES: usize = 16;
/// Bytes of a directory entry before its name.
pub const DIRENT_BYTES: usize = 24;
/// Bytes of the attributes that the kernel gets with a file's number.
pub const ENTRY_BYTES: usize = 128;

/// Operations.
pub mod op {
    pub const LOOKUP: u32 = 1;
    pub const FORGET: u32 = 2;
    pub const GETATTR: u32 = 3;
    pub const SETATTR: u32 = 4;
    pub const READLINK: u32 = 5;
    pub const SYMLINK: u32 = 6;
    pub const MKNOD: u32 = 8;
    pub const MKDIR: u32 = 9;
    pub const UNLINK: u32 = 10;
    pub const RMDIR: u32 = 11;
    pub const RENAME: u32 = 12;
    pub const LINK: u32 = 13;
    pub const OPEN: u32 = 14;
    pub const READ: u32 = 15;
    pub const WRITE: u32 = 16;
    pub const STATFS: u32 = 17;
    pub const RELEASE: u32 = 18;
    pub const FSYNC: u32 = 20;
    pub const SETXATTR: u32 = 21;
    pub const GETXATTR: u32 = 22;
    pub const LISTXATTR: u32 = 23;
    pub const REMOVEXATTR: u32 = 24;
    pub const FLUSH: u32 = 25;
    pub const OPENDIR: u32 = 27;
    pub const READDIR: u32 = 28;
    pub const RELEASEDIR: u32 = 29;
    pub const FSYNCDIR: u32 = 30;
    pub const GETLK: u32 = 31;
    pub const SETLK: u32 = 32;
    pub const SETLKW: u32 = 33;
    pub const CREATE: u32 = 35;
    pub const INTERRUPT: u32 = 36;
    pub const DESTROY: u32 = 38;
    pub const IOCTL: u32 = 39;
    pub const BATCH_FORGET: u32 = 42;
    pub const FALLOCATE: u32 = 43;
    pub const READDIRPLUS: u32 = 44;
    pub const RENAME2: u32 = 45;
    pub const LSEEK: u32 = 46;
    pub const COPY_FILE_RANGE: u32 = 47;
    pub const TMPFILE: u32 = 51;
    pub const STATX: u32 = 52;
    pub const COPY_FILE_RANGE_64: u32 = 53;
}

/// Valid fields of `setattr`.
pub mod set {
    pub const MODE: u32 = 1 << 0;
    pub const UID: u32 = 1 << 1;
    pub const GID: u32 = 1 << 2;
    pub const SIZE: u32 = 1 << 3;
    pub const ATIME: u32 = 1 << 4;
    pub const MTIME: u32 = 1 << 5;
    pub const HANDLE: u32 = 1 << 6;
    pub const ATIME_NOW: u32 = 1 << 7;
    pub const MTIME_NOW: u32 = 1 << 8;
}

/// How the kernel treats an opened file.
pub mod opened {
    pub const DIRECT_IO: u32 = 1 << 0;
    pub const KEEP_CACHE: u32 = 1 << 1;
    pub const CACHE_DIR: u32 = 1 << 3;
    pub const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
    pub const PASSTHROUGH: u32 = 1 << 7;
}

/// A lock of a whole file, by `flock`.
pub const LOCK_WHOLE: u32 = 1;
/// `release`: also releases the locks of `flock`.
pub const RELEASE_LOCKS: u32 = 1 << 1;
/// `getattr`: with a handle.
pub const GETATTR_HANDLE: u32 = 1;
/// `fsync`: data only.
pub const FSYNC_DATA: u32 = 1;
/// `write`: writes back a page of the kernel's cache.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `read`, `write`: by a program, not by the kernel's cache.
pub const READ_BY_OWNER: u32 = 1 << 1;
pub const WRITE_BY_OWNER: u32 = 1 << 1;
/// `write`: drop set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;
