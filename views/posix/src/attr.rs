//! What is known of a file besides its bytes.

/// Number of a file or directory in a mounted store: the container's in the upper 24 bits, the tree's own in the lower 40. 1 is the top, whose
/// entries are containers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ino(pub u64);

impl Ino {
    /// The directory of containers.
    pub const TOP: Self = Self(1);
}

/// What kind of thing a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Bytes.
    File = 1,
    /// Names.
    Directory = 2,
    /// A path.
    Symlink = 3,
    /// A pipe with a name; the kernel gives it meaning.
    Fifo = 4,
    /// A socket with a name.
    Socket = 5,
    /// A character device.
    CharDevice = 6,
    /// A block device.
    BlockDevice = 7,
}

/// A time since 1970, as files have it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub s: i64,
    /// Nanoseconds after that, less than 10^9.
    pub ns: u32,
}

/// When what happens in a directory is seen by others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Consistency {
    /// When the call returns, as POSIX has it.
    #[default]
    Strict = 0,
    /// At `fsync` or `close`.
    Commit = 1,
    /// Nothing changes any more.
    Laminated = 2,
}

/// What `stat` tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Its number.
    pub ino: Ino,
    /// What it is.
    pub kind: Kind,
    /// Permissions, with the set-id and sticky bits: `0o7777` at most.
    pub mode: u32,
    /// Names that lead to it.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file.
    pub rdev: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// Units of 512 bytes in use.
    pub blocks: u64,
    /// Last access.
    pub accessed: Time,
    /// Last change of its bytes, or of a directory's entries.
    pub modified: Time,
    /// Last change of anything.
    pub changed: Time,
    /// When it was made.
    pub born: Time,
    /// Of a directory: its own; of a file: that of the directory it was found in.
    pub consistency: Consistency,
}

/// A time to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The current one (allowed to whoever may write).
    Now,
    /// This one (allowed to the owner).
    To(Time),
}

/// What is to be changed; what is none stays.
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
