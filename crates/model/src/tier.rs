//! Tiers: what they are made of, their settings, and their use.

use std::cmp::Ordering;
use std::path::PathBuf;

use crate::{DeviceId, Speed, TierOptions, size};

/// What a device is made of. The order is that in which tiers are taken to be fast as long as nobody has measured them;
/// the numbers are those on media and on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DeviceKind {
    /// A file in `/dev/shm`, mapped by clients. Volatile: it survives processes, not power loss.
    SharedMemory = 0,
    /// Persistent memory: a file on a DAX file system, mapped with `MAP_SYNC`, written back by cache line.
    PersistentMemory = 3,
    /// One file or block device of fixed capacity, direct I/O.
    File = 1,
    /// A directory of segment files, direct I/O where the file system has it: local, or of a parallel file system.
    Directory = 2,
    /// A bucket of an S3 service: packed, immutable segments.
    S3 = 4,
    /// A container of an OpenStack Swift service: packed, immutable segments.
    Swift = 5,
}

impl DeviceKind {
    /// All of them, fastest first.
    pub const ALL: [Self; 6] =
        [Self::SharedMemory, Self::PersistentMemory, Self::File, Self::Directory, Self::S3, Self::Swift];

    /// The one with that number on media and on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
    /// True if what was synced survives power loss.
    pub fn is_persistent(self) -> bool {
        self != Self::SharedMemory
    }
    /// True if clients read and write its bytes themselves, through descriptors of its segments. What lies on others
    /// comes to such a device before anybody reads it.
    pub fn is_shareable(self) -> bool {
        !self.is_object()
    }
    /// True if it is a bucket of an object service: its path is none of the file system's.
    pub fn is_object(self) -> bool {
        matches!(self, Self::S3 | Self::Swift)
    }
    /// The word used in configuration and on screen.
    pub fn word(self) -> &'static str {
        match self {
            Self::SharedMemory => "memory",
            Self::PersistentMemory => "pmem",
            Self::File => "file",
            Self::Directory => "directory",
            Self::S3 => "s3",
            Self::Swift => "swift",
        }
    }
    fn rank(self) -> usize {
        Self::ALL.iter().position(|kind| *kind == self).unwrap_or(usize::MAX)
    }
}

impl PartialOrd for DeviceKind {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DeviceKind {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

/// A device that a store is made of, or is to get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Unique in the store; the name of the tier on screen.
    pub name: String,
    /// What it is made of.
    pub kind: DeviceKind,
    /// Where: the file, block device or directory; `BUCKET/PREFIX` of an object service. For shared memory empty: the
    /// store chooses a name in `/dev/shm`.
    pub path: PathBuf,
    /// Bytes that it may hold.
    pub capacity_bytes: u64,
    /// Draining starts when use passes this many thousandths of the capacity…
    pub watermark_high_permille: u16,
    /// …and goes on down to this.
    pub watermark_low_permille: u16,
    /// What only some kinds of tiers take.
    pub options: TierOptions,
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
    /// Of the reserved bytes those leased to clients: room for their next writes, and what `fallocate` keeps for files.
    pub leased_bytes: u64,
    /// Of the used bytes those that have a copy on another device: they can leave without I/O.
    pub evictable_bytes: u64,
    /// Allocation unit in bytes; every run begins at a multiple of it.
    pub unit_bytes: u32,
    /// Bytes in each segment file; address / this = segment number.
    pub segment_bytes: u64,
    /// How fast it is, as measured and seen since; `None` while nothing is known.
    pub speed: Option<Speed>,
    /// What a person should know of how it works here; mostly empty.
    pub note: String,
    /// Of the bytes in use, those of compressed extents…
    pub packed_bytes: u64,
    /// …and how many these are as programs see them.
    pub unpacked_bytes: u64,
}

impl DeviceInfo {
    /// Bytes that nobody uses and nobody keeps for himself. What waits for readers to leave is free soon, and counts as free.
    pub fn free_bytes(&self) -> u64 {
        self.spec.capacity_bytes.saturating_sub(self.used_bytes.saturating_add(self.leased_bytes))
    }
    /// What comes of compression, in words: how many bytes take how many. `None` if nothing there is compressed.
    pub fn compression(&self) -> Option<String> {
        let ratio = self.unpacked_bytes as f64 / self.packed_bytes.max(1) as f64;
        let text = || format!("{} compressed {ratio:.1} times", size::human(self.unpacked_bytes));
        (self.unpacked_bytes > 0).then(text)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_compression_brings_is_told_where_there_is_some() {
        let spec = "name=disk,kind=file,path=/d,size=1GiB".parse().unwrap();
        let mut tier = DeviceInfo {
            id: DeviceId(0),
            spec,
            state: DeviceState::Online,
            used_bytes: 3 << 20,
            reserved_bytes: 2 << 20,
            leased_bytes: 1 << 20,
            evictable_bytes: 0,
            unit_bytes: 4096,
            segment_bytes: 1 << 30,
            speed: None,
            note: String::new(),
            packed_bytes: 0,
            unpacked_bytes: 0,
        };
        assert_eq!(tier.free_bytes(), (1 << 30) - (4 << 20));
        assert_eq!(tier.compression(), None);
        (tier.packed_bytes, tier.unpacked_bytes) = (2 << 20, 5 << 20);
        assert_eq!(tier.compression().as_deref(), Some("5.0 MiB compressed 2.5 times"));
    }

    #[test]
    fn kinds_are_ordered_by_speed_and_known_by_their_numbers() {
        assert!(DeviceKind::ALL.is_sorted() && DeviceKind::PersistentMemory < DeviceKind::File);
        let coded: Vec<DeviceKind> = (0..=u8::MAX).filter_map(DeviceKind::from_code).collect();
        assert_eq!(coded.len(), DeviceKind::ALL.len());
        assert!(coded.iter().enumerate().all(|(code, kind)| *kind as usize == code));
    }
}
