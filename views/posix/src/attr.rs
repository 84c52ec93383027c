//! File attributes: what is known of a file besides its bytes.

/// Inode number in a mounted store: the container's number in the upper 24 bits, the tree's own in the lower 40. 1 is the top, whose entries
/// are containers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ino(pub u64);

impl Ino {
    /// The top: the directory of containers.
    pub const TOP: Self = Self(1);
}

/// File type.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Regular file.
    File = 1,
    /// Directory.
    Directory = 2,
    /// Symbolic link.
    Symlink = 3,
    /// Named pipe; the kernel implements it.
    Fifo = 4,
    /// Named socket.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

/// Time since 1970, as files record it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub s: i64,
    /// Nanoseconds after that, less than 10^9.
    pub ns: u32,
}

/// When a change in a directory becomes visible to other processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Consistency {
    /// When the call returns, as POSIX requires.
    #[default]
    Strict = 0,
    /// At `fsync` or `close`.
    Commit = 1,
    /// Nothing changes any more (read-only).
    Laminated = 2,
}

/// Result of `stat`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// File type.
    pub kind: Kind,
    /// Permissions with the set-id and sticky bits: at most `0o7777`.
    pub mode: u32,
    /// Number of hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Allocated units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of its bytes, or of a directory's entries.
    pub modified: Time,
    /// Last change of bytes or attributes.
    pub changed: Time,
    /// Creation.
    pub born: Time,
    /// Of a directory: its own; of a file: that of the directory it was found in.
    pub consistency: Consistency,
}

/// A time for [`SetAttr`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The current time (allowed to anybody who may write).
    Now,
    /// This time (allowed to the owner).
    To(Time),
}

/// Changes to attributes; `None` leaves an attribute as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size of a file, in bytes.
    pub size_bytes: Option<u64>,
    /// Last access.
    pub accessed: Option<SetTime>,
    /// Last change of its bytes.
    pub modified: Option<SetTime>,
}
