use std::path::PathBuf;

use crate::DeviceId;

/// What a device is made of, fastest first; the order is the tier order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum DeviceKind {
    /// A file in `/dev/shm`, mapped by clients. Volatile: it survives processes, not power loss.
    SharedMemory = 0,
    /// One file or block device of fixed capacity, direct I/O.
    File = 1,
    /// A directory of segment files, direct I/O where the file system has it.
    Directory = 2,
}

impl DeviceKind {
    /// True if what was synced survives power loss.
    pub fn is_persistent(self) -> bool {
        self != Self::SharedMemory
    }
    /// The word used in configuration and on screen.
    pub fn word(self) -> &'static str {
        match self {
            Self::SharedMemory => "memory",
            Self::File => "file",
            Self::Directory => "directory",
        }
    }
}

/// A device that a store is made of, or is to get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Unique in the store; the name of the tier on screen.
    pub name: String,
    /// What it is made of.
    pub kind: DeviceKind,
    /// Where: the file, block device or directory. For shared memory empty: the store chooses a name in `/dev/shm`.
    pub path: PathBuf,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
    /// Draining starts when use passes this many thousandths of the capacity…
    pub watermark_high_permille: u16,
    /// …and goes on down to this.
    pub watermark_low_permille: u16,
}

/// Where a device is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeviceState {
    /// Takes new data.
    Online = 0,
    /// Is being emptied; takes none.
    Draining = 1,
    /// Cannot be reached, or failed; its extents cannot be read.
    Failed = 2,
}

/// A device as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its id.
    pub id: DeviceId,
    /// Its settings.
    pub spec: DeviceSpec,
    /// Where it is in its life.
    pub state: DeviceState,
    /// Bytes in use by extents.
    pub used_bytes: u64,
    /// Bytes leased to clients or waiting for readers to leave before they can be used again.
    pub reserved_bytes: u64,
    /// Allocation unit in bytes; every run begins at a multiple of it.
    pub unit_bytes: u32,
    /// Bytes in each segment file; address / this = segment number.
    pub segment_bytes: u64,
}

/// What is fixed when a store is made. What can be tuned per process is in the client's `OpenOptions`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreConfig {
    /// The devices. Empty: a memory tier and a directory beside the metadata, sized for this machine.
    pub devices: Vec<DeviceSpec>,
    /// Users besides the owner and root who may read and write.
    pub writers: Vec<u32>,
    /// Users who may read only.
    pub readers: Vec<u32>,
}
