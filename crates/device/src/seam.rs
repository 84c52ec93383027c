//! The traits: what an implementer must provide, and no more.

use std::sync::Arc;

use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};

use crate::control::ClientCounts;
use crate::{Lent, SegmentFile};

/// One member of a tier: `capacity_bytes` bytes that keep what is written to them.
///
/// Calls may come from many threads at once. Concurrent calls on overlapping ranges have no defined outcome;
/// the allocator above never makes them. Offsets and lengths need not be aligned, but aligned ones are faster.
/// Bytes that were never written read as zeros, or as anything once written there before a `discard`.
pub trait Device: Send + Sync {
    /// Capacity in bytes; a multiple of `unit_bytes`. Fixed while the device is open.
    fn capacity_bytes(&self) -> u64;
    /// Allocation unit: 512 for memory of both kinds, 4096 for files. Runs begin and (padded) end at multiples of it.
    fn unit_bytes(&self) -> u32;
    /// Bytes of data in each segment; `offset / segment_bytes` is the segment number. No run crosses segments.
    fn segment_bytes(&self) -> u64;
    /// Fills `buf` from `offset`. Fails with `InvalidInput` past the capacity.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// The same for bytes that were written, where a mapping gives them without a system call.
    fn copy_out(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read_at(offset, buf)
    }
    /// The same bytes where they are, if they lie in mapped memory and in one segment: nothing is copied. `None` otherwise.
    fn lend(&self, offset: u64, len: usize) -> Option<Lent> {
        let _ = (offset, len);
        None
    }
    /// Writes all of `bytes` at `offset`; on return every process that maps or opens the segment sees them. After an
    /// error any part of the range may have changed, and nothing outside of it (up to the allocation units that the
    /// range touches).
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// The same for bytes of which the medium loses nothing that is not synced, where a mapping takes them without a system
    /// call.
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_at(offset, bytes)
    }
    /// Makes every write durable that had returned before the call, through this value or through a segment's
    /// descriptor: on return it survives power loss. Does nothing on volatile devices.
    ///
    /// A device that is not shareable ([`Device::segment`] returns `None`) may lose unsynced writes when its process
    /// dies. A failed sync of such a device drops nothing while the process lives.
    fn sync(&self) -> Result<()>;
    /// Hints that these bytes are no longer needed.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    /// Declares that only these ranges (offset, bytes; ascending, disjoint) are in use; called once after opening. A
    /// device may have forgotten discards from before a crash: this call recovers their space.
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        let _ = live;
        Ok(())
    }
    /// A descriptor of a segment for clients; creates the segment if it is absent. `None` if the device is not
    /// shareable: then all bytes must go through `read_at` and `write_at`.
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>>;
    /// Tells that a client has written a range through a segment, and that the store is about to name it. A device whose
    /// bytes have copies elsewhere passes them on. An error keeps the store from naming the range.
    fn committed(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Ok(())
    }
    /// Returns true if the same bytes are elsewhere, too.
    fn has_twin(&self) -> bool {
        false
    }
    /// Fills `buf` from `offset` with what another copy of the device has there, which may be older: whoever asks has checksums.
    /// Returns false if there is none.
    fn read_twin(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let _ = (offset, buf);
        Ok(false)
    }
    /// Checks what no read sees, such as parity, and makes good what is bad or missing, as far as the device can. Works for
    /// about a second, from where the previous call ended (`None`: from the beginning); returns where the next one is to
    /// begin, or `None` at the end.
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        let _ = from;
        Ok(None)
    }
    /// A few words for a person about how the device works here; empty if it works as usual for its kind.
    fn note(&self) -> String {
        String::new()
    }
}

/// The factory through which the engine opens every device, so that tests can substitute others.
pub trait Devices: Send + Sync {
    /// Opens a device of `store`.
    ///
    /// With `create`, makes it empty: `Exists` if something is there that may hold data of another store or device;
    /// leftovers of the same store and device are replaced. Without, checks its headers: `Corrupt`, `VersionMismatch`
    /// or `NotFound` name the path. A *volatile* device that is gone is no error: it is created anew, empty, and
    /// `survived` is false.
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice>;
    /// Deletes what `open` created. No error if it is gone already.
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()>;
}

/// The result of [`Devices::open`].
#[derive(Clone)]
pub struct OpenedDevice {
    /// The device.
    pub device: Arc<dyn Device>,
    /// False if the device was created anew and its content is gone. Also false after `create`.
    pub survived: bool,
}

/// The store's directory, which holds superblock, journal and checkpoints. Names are plain file names.
pub trait MetaDir: Send + Sync {
    /// Creates a log file of exactly `capacity` bytes, all zero, with its space reserved. `Exists` if the name is
    /// taken. On return the (empty) file survives power loss.
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>>;
    /// Opens a log file with all its bytes.
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>>;
    /// Replaces a file atomically: after any crash it has all of the old bytes or all of the new ones. On return the
    /// new ones survive power loss.
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// All bytes of a file.
    fn read_file(&self, name: &str) -> Result<Vec<u8>>;
    /// Names of all files, sorted, without temporary files that a crash left.
    fn list(&self) -> Result<Vec<String>>;
    /// Deletes a file; the deletion survives power loss on return. `NotFound` if there is none.
    fn remove(&self, name: &str) -> Result<()>;
}

/// A file of fixed size whose writes need no system call.
pub trait LogFile: Send + Sync {
    /// Size in bytes.
    fn capacity(&self) -> u64;
    /// Writes; survives the death of this process at once. Fails with `InvalidInput` past the capacity.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Reads the bytes last written.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// On return all writes from before the call survive power loss. May be called from another thread while writes go
    /// on; those may or may not be included, in whole or in part. After an error, the media state since the last
    /// success is unknown.
    fn sync(&self) -> Result<()>;
    /// The first byte from `offset` on that may have been written: all bytes before it are zeros. `None` if there is
    /// none. A hint that saves reading space that was only reserved.
    fn data_from(&self, offset: u64) -> Option<u64> {
        (offset < self.capacity()).then_some(offset)
    }
}

/// The source of time.
pub trait Clock: Send + Sync {
    /// Nanoseconds since some fixed point; never goes back.
    fn now_ns(&self) -> u64;
    /// Milliseconds since 1970, as far as the machine knows.
    fn unix_ms(&self) -> u64;
}

/// The shared control table as the engine sees it. Everything here is in shared memory and survives the engine.
///
/// Why reads without messages are safe: the engine changes its maps, raises the object's word, *then* tags retired
/// space with [`Control::epoch`] and calls [`Control::epoch_raise`]. The space is free when [`Control::slots_min`] is
/// greater than the tag. A reader announces the epoch, fences, and only then compares words.
pub trait Control: Send + Sync {
    /// Finds the table of this store in shared memory, or creates one. True if a whole table of this boot existed and
    /// an engine had completed its opening with it, which [`Control::instance_raise`] records. An engine that died
    /// earlier, during recovery from a power loss, must not make the next one believe that there was none. Call once,
    /// before everything else; until then the other methods work on a private table.
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
    /// The least epoch that a reader of a live client has announced; `u64::MAX` if there is none. Slots of dead clients
    /// do not count.
    fn slots_min(&self) -> u64;
    /// Counts of each client's own reads and writes, and (under session 0) the sum of those of clients that left.
    fn client_counts(&self) -> Vec<ClientCounts> {
        Vec::new()
    }
}
