//! A wrapper that limits the bandwidth of devices and adds latency.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};
use parking_lot::Mutex;

use crate::{Device, Devices, OpenedDevice, SegmentFile};

/// Bandwidth limit and added latency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Throttle {
    /// Bytes per second, reads and writes together; 0 for no limit.
    pub bytes_per_s: u64,
    /// Added to each read, write and sync.
    pub latency: Duration,
}

/// A throttled device, or factory of devices. Its segments are not shareable, since I/O through a descriptor
/// could not be throttled.
pub struct Throttled<T> {
    inner: T,
    throttle: Throttle,
    /// When the bytes requested so far will have passed.
    busy_until: Mutex<Instant>,
}

impl<T> Throttled<T> {
    /// Wraps `inner`.
    pub fn new(inner: T, throttle: Throttle) -> Self {
        Self { inner, throttle, busy_until: Mutex::new(Instant::now()) }
    }
    fn pay(&self, bytes: usize) {
        let now = Instant::now();
        let mut until = now + self.throttle.latency;
        if let Some(ns) = (bytes as u64).saturating_mul(1_000_000_000).checked_div(self.throttle.bytes_per_s) {
            let mut busy_until = self.busy_until.lock();
            *busy_until = (*busy_until).max(now) + Duration::from_nanos(ns);
            until = until.max(*busy_until);
        }
        std::thread::sleep(until.saturating_duration_since(now));
    }
}

impl Device for Throttled<Arc<dyn Device>> {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }
    fn unit_bytes(&self) -> u32 {
        self.inner.unit_bytes()
    }
    fn segment_bytes(&self) -> u64 {
        self.inner.segment_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.pay(buf.len());
        self.inner.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.pay(bytes.len());
        self.inner.write_at(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        self.pay(0);
        self.inner.sync()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        self.inner.retain(live)
    }
    fn segment(&self, _number: u64) -> Result<Option<SegmentFile>> {
        Ok(None)
    }
    fn committed(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.committed(offset, len)
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.inner.mend(from)
    }
    fn note(&self) -> String {
        self.inner.note()
    }
}

impl<T: Devices> Devices for Throttled<T> {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        let opened = self.inner.open(store, id, spec, create)?;
        let device = Arc::new(Throttled::new(opened.device, self.throttle));
        Ok(OpenedDevice { device, survived: opened.survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        self.inner.remove(store, id, spec)
    }
}
