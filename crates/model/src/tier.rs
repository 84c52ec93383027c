//! Tiers: what they are made of, their settings, and their use.

use std::cmp::Ordering;
use std::path::PathBuf;

use crate::{DeviceId, HomeId, Speed, TierOptions, size};

/// The kind of a device. The order is the assumed order of speed until a device is measured; the numbers are those on
/// media and on the wire.
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
    /// A namespace of a pool of Ceph RADOS: packed, immutable segments.
    Rados = 6,
    /// Several directories, each on a disk of its own: packed, immutable segments, spread by a layout (mirror, k+m,
    /// stripe) so that disks may be lost.
    Raid = 7,
}

impl DeviceKind {
    /// All kinds, fastest first.
    pub const ALL: [Self; 8] = [
        Self::SharedMemory,
        Self::PersistentMemory,
        Self::File,
        Self::Directory,
        Self::Raid,
        Self::Rados,
        Self::S3,
        Self::Swift,
    ];

    /// The kind with this code on media and on the wire.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == code)
    }
    /// Returns true if synced bytes survive power loss.
    pub fn is_persistent(self) -> bool {
        self != Self::SharedMemory
    }
    /// Returns true if clients read and write its bytes themselves, through descriptors of its segments. Data on other
    /// devices move to such a device before anybody reads them.
    pub fn is_shareable(self) -> bool {
        !self.is_object()
    }
    /// Returns true for what keeps whole, immutable objects: a bucket or pool of an object service, whose path is not in
    /// the file system, or the places of a `raid` tier.
    pub fn is_object(self) -> bool {
        matches!(self, Self::Raid | Self::Rados | Self::S3 | Self::Swift)
    }
    /// Returns true if the bytes are in a service that other machines reach, too.
    pub fn is_remote(self) -> bool {
        self.is_object() && self != Self::Raid
    }
    /// Its name in configuration and on screen.
    pub fn word(self) -> &'static str {
        match self {
            Self::SharedMemory => "memory",
            Self::PersistentMemory => "pmem",
            Self::File => "file",
            Self::Directory => "directory",
            Self::S3 => "s3",
            Self::Swift => "swift",
            Self::Rados => "rados",
            Self::Raid => "raid",
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

/// The settings of a device in a store, or to be added to one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceSpec {
    /// Name of the tier, unique in the store.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its place: the file, block device or directory; `BUCKET/PREFIX` or `POOL/NAMESPACE` for an object service; all
    /// directories of a `raid` tier with `:` between them ([`DeviceSpec::paths`]). Empty for shared memory: the store
    /// chooses a name in `/dev/shm`.
    pub path: PathBuf,
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
    /// Draining (write-back) starts above this use, in thousandths of the capacity.
    pub watermark_high_permille: u16,
    /// Draining stops at this use.
    pub watermark_low_permille: u16,
    /// Options that only some kinds take.
    pub options: TierOptions,
}

impl DeviceSpec {
    /// The paths of the file system that the tier is made of: none for memory and services, several for `raid`.
    pub fn paths(&self) -> Vec<PathBuf> {
        match self.kind {
            DeviceKind::SharedMemory => Vec::new(),
            DeviceKind::Raid => std::env::split_paths(&self.path).collect(),
            kind if kind.is_object() => Vec::new(),
            _ if self.path.as_os_str().is_empty() => Vec::new(),
            _ => vec![self.path.clone()],
        }
    }
    /// Replaces each of [`DeviceSpec::paths`] by what `change` makes of it, but not names of nodes ([`node_of_place`]).
    pub fn change_paths(&mut self, mut change: impl FnMut(PathBuf) -> PathBuf) {
        let mut all = std::ffi::OsString::new();
        for (number, path) in self.paths().into_iter().enumerate() {
            if number > 0 {
                all.push(":");
            }
            all.push(if node_of_place(&path).is_some() { path } else { change(path) });
        }
        if !all.is_empty() {
            self.path = all.into();
        }
    }
}

/// The node that a place of a `raid` tier names: `@NAME`.
pub fn node_of_place(path: &std::path::Path) -> Option<&str> {
    path.to_str()?.strip_prefix('@').filter(|name| !name.is_empty() && !name.contains('/'))
}

/// The state of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum DeviceState {
    /// Takes new data.
    Online = 0,
    /// Is being emptied; takes no new data.
    Draining = 1,
    /// Cannot be reached, or failed; its extents cannot be read.
    Failed = 2,
}

/// A device's current state and usage.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Its id.
    pub id: DeviceId,
    /// Its settings.
    pub spec: DeviceSpec,
    /// Its state.
    pub state: DeviceState,
    /// Bytes in use by extents.
    pub used_bytes: u64,
    /// Bytes that are leased to clients, or that cannot be reused before readers leave.
    pub reserved_bytes: u64,
    /// Of the reserved bytes, those leased to clients: for their next writes, and for files that used `fallocate`.
    pub leased_bytes: u64,
    /// Of the used bytes, those with a copy on another device: they can be evicted without I/O.
    pub evictable_bytes: u64,
    /// Allocation unit in bytes; every run begins at a multiple of it.
    pub unit_bytes: u32,
    /// Bytes in each segment file; offset / this = segment number.
    pub segment_bytes: u64,
    /// Its speed, as measured and observed since; `None` while unknown.
    pub speed: Option<Speed>,
    /// A note for a person about how it works here; mostly empty.
    pub note: String,
    /// Of the used bytes, those of compressed extents.
    pub packed_bytes: u64,
    /// Plain bytes of those extents.
    pub unpacked_bytes: u64,
}

impl DeviceInfo {
    /// Bytes that are neither used nor leased. Space that waits for readers is free soon and counts as free.
    pub fn free_bytes(&self) -> u64 {
        self.spec.capacity_bytes.saturating_sub(self.used_bytes.saturating_add(self.leased_bytes))
    }
    /// The effect of compression, in words: plain and stored bytes. `None` if nothing is compressed.
    pub fn compression(&self) -> Option<String> {
        let ratio = self.unpacked_bytes as f64 / self.packed_bytes.max(1) as f64;
        let text = || format!("{} compressed {ratio:.1} times", size::human(self.unpacked_bytes));
        (self.unpacked_bytes > 0).then(text)
    }
}

/// Settings fixed when a store is created. Settings tunable per process are in the client's `OpenOptions`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreConfig {
    /// The devices. Empty: a memory tier and a directory beside the metadata, sized for this machine.
    pub devices: Vec<DeviceSpec>,
    /// Users besides the owner and root who may read and write.
    pub writers: Vec<u32>,
    /// Users who may read only.
    pub readers: Vec<u32>,
    /// Engines that share the devices, each with a lock, a journal and containers of its own: 1 to 16; 0 counts as 1.
    pub engines: u16,
    /// The home that this store is in a cluster; 0 for a store by itself. A home of a cluster has one engine.
    pub home: HomeId,
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
