//! Devices whose bytes are in this process: they can vanish, fill, and lose power.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use parking_lot::Mutex;

use super::medium::{Keep, Medium, SplitMix, dead};
use crate::{Device, Devices, OpenedDevice, SegmentFile};

type Media = HashMap<(StoreId, DeviceId), NamedMedium>;

/// A medium and its path.
struct NamedMedium {
    medium: Arc<Mutex<Medium>>,
    path: PathBuf,
}

/// Devices in this process. Cheap to clone; clones are the same devices.
#[derive(Clone)]
pub struct MemDevices {
    media: Arc<Mutex<Media>>,
    segment_bytes: u64,
}

impl Default for MemDevices {
    fn default() -> Self {
        Self::new(64 << 20)
    }
}

impl MemDevices {
    /// Devices with segments of `segment_bytes` (a multiple of 4096).
    pub fn new(segment_bytes: u64) -> Self {
        assert!(segment_bytes > 0 && segment_bytes.is_multiple_of(4096), "segments of {segment_bytes} bytes");
        Self { media: Arc::default(), segment_bytes }
    }
    /// Simulates a power loss: shared memory devices are gone; others keep what was synced and, of the rest, what
    /// `keep` says. Handles opened before fail from now on.
    pub fn power_loss(&self, keep: Keep) {
        let mut rng = SplitMix::new(if let Keep::Random(seed) = keep { seed } else { 0 });
        let mut media = self.media.lock();
        let mut keys: Vec<_> = media.keys().copied().collect();
        keys.sort_unstable(); // one seed, one result
        for key in keys {
            let medium = Arc::clone(&media[&key].medium);
            let mut medium = medium.lock();
            if medium.is_volatile() {
                medium.generation += 1;
                media.remove(&key);
            } else {
                medium.power_loss(keep, &mut rng);
            }
        }
    }
    /// Simulates the death of the process that uses the devices: all bytes stay, handles opened before fail from now
    /// on.
    pub fn kill(&self) {
        for place in self.media.lock().values() {
            place.medium.lock().generation += 1;
        }
    }
    /// Makes all that was written survive a power loss, but for shared memory.
    pub fn sync_all(&self) {
        for place in self.media.lock().values() {
            place.medium.lock().sync();
        }
    }
    /// Simulates a failed sync: what was written and not synced stays readable until power loss and is lost then,
    /// whatever later syncs report.
    pub fn forget_unsynced(&self, store: StoreId, id: DeviceId) {
        if let Some(place) = self.media.lock().get(&(store, id)) {
            place.medium.lock().forget_unsynced();
        }
    }
    /// Destroys the device: handles opened before fail from now on, and it cannot be opened.
    pub fn destroy(&self, store: StoreId, id: DeviceId) {
        if let Some(place) = self.media.lock().remove(&(store, id)) {
            place.medium.lock().generation += 1;
        }
    }
    /// Flips the bits of `xor` in one byte on the medium; returns false if there is no such device.
    pub fn corrupt(&self, store: StoreId, id: DeviceId, offset: u64, xor: u8) -> bool {
        let media = self.media.lock();
        media.get(&(store, id)).is_some_and(|place| {
            let mut medium = place.medium.lock();
            let inside = offset < medium.capacity();
            if inside {
                medium.corrupt(offset, xor);
            }
            inside
        })
    }
}

impl Devices for MemDevices {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        let is_memory = matches!(spec.kind, DeviceKind::SharedMemory | DeviceKind::PersistentMemory);
        let unit_bytes: u32 = if is_memory { 512 } else { 4096 };
        let subject = format!("device `{}` in memory", spec.name);
        let capacity = spec.capacity_bytes - spec.capacity_bytes % u64::from(unit_bytes);
        if capacity == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, subject)
                .because(format!("a capacity of {} bytes", spec.capacity_bytes))
                .try_next(format!("give it at least {unit_bytes} bytes")));
        }
        let mut media = self.media.lock();
        let existing = if create { None } else { media.get(&(store, id)).map(|place| Arc::clone(&place.medium)) };
        // As a file or a directory refuses when it holds another device.
        let other = media.iter().find(|(key, place)| **key != (store, id) && place.path == spec.path);
        if let Some(((store, device), _)) =
            other.filter(|_| create && spec.kind.is_persistent() && !spec.path.as_os_str().is_empty())
        {
            return Err(Error::new(ErrorKind::Exists, subject)
                .because(format!("its path holds device {device} of store {store}"))
                .try_next("choose another path"));
        }
        let survived = existing.is_some();
        let medium = match existing {
            Some(medium) => medium,
            None if create || !spec.kind.is_persistent() => {
                let medium = Arc::new(Mutex::new(Medium::new(capacity, !spec.kind.is_persistent(), 0)));
                media.insert((store, id), NamedMedium { medium: Arc::clone(&medium), path: spec.path.clone() });
                medium
            }
            None => return Err(Error::new(ErrorKind::NotFound, subject)),
        };
        let (generation, capacity) = {
            let medium = medium.lock();
            (medium.generation, medium.capacity())
        };
        let device = MemDevice { medium, generation, capacity, unit_bytes, segment_bytes: self.segment_bytes, subject };
        Ok(OpenedDevice { device: Arc::new(device), survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, _spec: &DeviceSpec) -> Result<()> {
        self.media.lock().remove(&(store, id));
        Ok(())
    }
}

struct MemDevice {
    medium: Arc<Mutex<Medium>>,
    generation: u64,
    capacity: u64,
    unit_bytes: u32,
    segment_bytes: u64,
    subject: String,
}

impl MemDevice {
    fn with<T>(&self, act: impl FnOnce(&mut Medium) -> Result<T>) -> Result<T> {
        let mut medium = self.medium.lock();
        if medium.generation == self.generation { act(&mut medium) } else { Err(dead(&self.subject)) }
    }
}

impl Device for MemDevice {
    fn capacity_bytes(&self) -> u64 {
        self.capacity
    }
    fn unit_bytes(&self) -> u32 {
        self.unit_bytes
    }
    fn segment_bytes(&self) -> u64 {
        self.segment_bytes.min(self.capacity)
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.with(|medium| {
            medium.check(&self.subject, offset, buf.len())?;
            medium.read(offset, buf);
            Ok(())
        })
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.with(|medium| {
            medium.check(&self.subject, offset, bytes.len())?;
            medium.write(offset, bytes);
            Ok(())
        })
    }
    fn sync(&self) -> Result<()> {
        self.with(|medium| {
            medium.sync();
            Ok(())
        })
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.with(|medium| medium.check(&self.subject, offset, usize::try_from(len).unwrap_or(usize::MAX)))
    }
    fn segment(&self, _number: u64) -> Result<Option<SegmentFile>> {
        Ok(None)
    }
}
