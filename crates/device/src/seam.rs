//! The traits: what an implementer owes, and no more.

use std::sync::Arc;

use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};

use crate::SegmentFile;
use crate::control::ClientCounts;

/// One member of a tier: `capacity_bytes` bytes that keep what is written to them.
///
/// Calls may come from many threads at once. Concurrent calls on overlapping ranges have no defined outcome;
/// the allocator above never makes them. Offsets and lengths need not be aligned, but aligned ones are faster.
/// Bytes never written read as zeros or as anything once written there before a `discard`.
pub trait Device: Send + Sync {
    /// Bytes that it holds; a multiple of `unit_bytes`. Fixed while it is open.
    fn capacity_bytes(&self) -> u64;
    /// Allocation unit: 512 for memory of both kinds, 4096 for files. Runs begin and (padded) end at multiples of it.
    fn unit_bytes(&self) -> u32;
    /// Bytes of data in each segment; `offset / segment_bytes` is the segment number. No run crosses segments.
    fn segment_bytes(&self) -> u64;
    /// Fills `buf` from `offset`. Fails with `InvalidInput` past the capacity.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Writes all of `bytes` at `offset`; on return every process that maps or opens the segment sees them.
    /// After an error any part of the range may have changed, and nothing outside of it
    /// (up to the allocation units that the range touches).
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// A device that is not shareable ([`Device::segment`] gives `None`) may forget what was not synced when its process dies.
    /// Then nothing was dropped by a sync that failed while the process lives.
    ///
    /// On return everything whose write (through this value or through a segment's descriptor) had returned before
    /// the call survives power loss. Does nothing on volatile devices.
    fn sync(&self) -> Result<()>;
    /// A hint: nobody needs these bytes any more.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    /// Only these ranges (offset, bytes; ascending, apart from each other) are in use; called once after opening. What was
    /// discarded before a crash need not be known to the device any more: this is how its space comes back.
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        let _ = live;
        Ok(())
    }
    /// A descriptor of a segment for clients, made if it is not there yet. `None`: the device is not shareable,
    /// all bytes must go through `read_at` and `write_at`.
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>>;
    /// What a person should know of how it works here, in a few words; empty if it works as its kind does.
    fn note(&self) -> String {
        String::new()
    }
}

/// The factory through which the engine opens every device, so that tests can put others in their place.
pub trait Devices: Send + Sync {
    /// Opens a device of `store`.
    ///
    /// With `create` it is made empty: `Exists` if something that may hold data of another store or device is there;
    /// what a store of the same id and device left behind is replaced. Without, its headers are checked: `Corrupt`,
    /// `VersionMismatch` or `NotFound` name the path. A *volatile* device that is gone is no error: it is made anew,
    /// empty, and `survived` is false.
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice>;
    /// Deletes what `open` made. No error if it is gone already.
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()>;
}

/// What [`Devices::open`] gives.
#[derive(Clone)]
pub struct OpenedDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// False if it was made anew and what it held is gone. Also false after `create`.
    pub survived: bool,
}

/// The store's directory: superblock, journal and checkpoints live in it. Names are plain file names.
pub trait MetaDir: Send + Sync {
    /// Makes a log file of exactly `capacity` bytes, all zero, with its space reserved. `Exists` if the name is taken.
    /// On return the (empty) file survives power loss.
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>>;
    /// Opens a log file with all its bytes.
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>>;
    /// Replaces a file at once: after any crash it has all of the old bytes or all of the new ones.
    /// On return the new ones survive power loss.
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// All bytes of a file.
    fn read_file(&self, name: &str) -> Result<Vec<u8>>;
    /// Names of all files, sorted; temporary ones left by a crash are not among them.
    fn list(&self) -> Result<Vec<String>>;
    /// Deletes a file; survives power loss on return. `NotFound` if it is not there.
    fn remove(&self, name: &str) -> Result<()>;
}

/// A file of fixed size that takes writes without a system call.
pub trait LogFile: Send + Sync {
    /// Its size in bytes.
    fn capacity(&self) -> u64;
    /// Writes; survives the death of this process at once. Fails with `InvalidInput` past the capacity.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Reads what was last written.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// What was written before the call survives power loss on return. May be called from another thread while
    /// writes go on; those may or may not be included, in whole or in part. After an error nothing is known about
    /// what is on media since the last success.
    fn sync(&self) -> Result<()>;
    /// The first byte from `offset` on that was perhaps written: all before it are zeros. `None` if there is none.
    /// A hint that saves reading what was only ever reserved.
    fn data_from(&self, offset: u64) -> Option<u64> {
        (offset < self.capacity()).then_some(offset)
    }
}

/// Time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed point; never goes back.
    fn now_ns(&self) -> u64;
    /// Milliseconds since 1970, as well as the machine knows.
    fn unix_ms(&self) -> u64;
}

/// The shared control table as the engine sees it. Everything here is in shared memory and survives the engine.
///
/// How it makes reading without messages safe: the engine changes its maps, raises the object's word, *then* tags
/// retired space with [`Control::epoch`] and calls [`Control::epoch_raise`]. The space is free when
/// [`Control::slots_min`] is greater than the tag. A reader announces the epoch, fences, and only then compares words.
pub trait Control: Send + Sync {
    /// Finds the table of this store in shared memory, or makes one. True if it was there, from this boot and
    /// whole, and an engine had come to the end of its opening with it: [`Control::instance_raise`] says that. One that
    /// died before, on its way back from a power loss, must not make the next one believe that there was none.
    /// To be called once, before everything else; until then the other methods work on a private table.
    fn attach(&self, store: StoreId) -> Result<bool>;
    /// Raises the instance word, which tells clients that another engine has the store; returns the new value.
    fn instance_raise(&self) -> u64;
    /// The version word for objects whose key has this hash ([`cenote_model::ObjectKey::word_hash`]).
    fn word(&self, hash: u64) -> u64;
    /// Raises the version word by one, with a full fence after it; returns the new value.
    fn word_raise(&self, hash: u64) -> u64;
    /// The reader epoch. Begins at 1.
    fn epoch(&self) -> u64;
    /// Raises the reader epoch; returns the new value.
    fn epoch_raise(&self) -> u64;
    /// The least epoch that a reader of a live client has announced; `u64::MAX` if none has. Slots of clients whose
    /// process is gone do not count.
    fn slots_min(&self) -> u64;
    /// What each client counted of its own reads and writes, and (under session 0) all those together that left.
    fn client_counts(&self) -> Vec<ClientCounts> {
        Vec::new()
    }
}
