//! Devices whose changes go to mirrors.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};
use parking_lot::Mutex;

use super::Stream;
use super::change::{Change, write_head};
use crate::{Device, Devices, Lent, OpenedDevice, SegmentFile};

/// Bytes that are noted as one change at most.
pub(super) const WRITE_BYTES_MAX: u64 = 1 << 20;

/// The devices of a home that mirrors have too, with their specifications.
pub(super) type Known = Mutex<BTreeMap<DeviceId, (DeviceSpec, Arc<dyn Device>)>>;

/// Opens devices through another factory, and notes their changes. Tiers in object services are left alone: any node can
/// reach those.
pub struct MirroredDevices {
    inner: Arc<dyn Devices>,
    stream: Arc<Stream>,
    pub(super) known: Arc<Known>,
}

impl MirroredDevices {
    /// Notes changes of the devices that `inner` opens in `stream`.
    pub fn new(inner: Arc<dyn Devices>, stream: Arc<Stream>) -> Self {
        Self { inner, stream, known: Arc::default() }
    }
}

impl Devices for MirroredDevices {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        let opened = self.inner.open(store, id, spec, create)?;
        if spec.kind.is_object() {
            return Ok(opened);
        }
        self.known.lock().insert(id, (spec.clone(), opened.device.clone()));
        self.stream.put(&Change::Device { id, spec: spec.clone() });
        let device = MirroredDevice { inner: opened.device, id, stream: self.stream.clone() };
        Ok(OpenedDevice { device: Arc::new(device), survived: opened.survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        self.inner.remove(store, id, spec)?;
        if self.known.lock().remove(&id).is_some() {
            self.stream.put(&Change::DeviceGone { id });
        }
        Ok(())
    }
}

struct MirroredDevice {
    inner: Arc<dyn Device>,
    id: DeviceId,
    stream: Arc<Stream>,
}

/// Appends bytes of a device, read now.
pub(super) fn put_range(device: &dyn Device, id: DeviceId, offset: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
    let before = out.len();
    write_head(id, offset, len, out);
    let at = out.len();
    out.resize(at + len, 0);
    device.read_at(offset, &mut out[at..]).inspect_err(|_| out.truncate(before))
}

impl MirroredDevice {
    /// Notes a write.
    fn note_write(&self, offset: u64, bytes: &[u8]) {
        let parts = bytes.chunks(WRITE_BYTES_MAX as usize);
        for (bytes, at) in parts.zip((offset..).step_by(WRITE_BYTES_MAX as usize)) {
            self.stream.put(&Change::Write { id: self.id, offset: at, bytes });
        }
    }
}

impl Device for MirroredDevice {
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
        self.inner.read_at(offset, buf)
    }
    fn copy_out(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.copy_out(offset, buf)
    }
    fn lend(&self, offset: u64, len: usize) -> Option<Lent> {
        self.inner.lend(offset, len)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write_at(offset, bytes)?;
        self.note_write(offset, bytes);
        Ok(())
    }
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.copy_in(offset, bytes)?;
        self.note_write(offset, bytes);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)?;
        self.stream.put(&Change::Discard { id: self.id, offset, len });
        Ok(())
    }
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        self.inner.retain(live)
    }
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>> {
        self.inner.segment(number)
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.inner.mend(from)
    }
    fn note(&self) -> String {
        self.inner.note()
    }
    fn has_twin(&self) -> bool {
        self.stream.has_twin()
    }
    fn read_twin(&self, offset: u64, buf: &mut [u8]) -> Result<bool> {
        self.stream.read_twin(self.id, offset, buf)
    }
    fn committed(&self, offset: u64, len: u64) -> Result<()> {
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(WRITE_BYTES_MAX);
            self.stream.put_with(|out| put_range(self.inner.as_ref(), self.id, at, part as usize, out))?;
            at += part;
        }
        Ok(())
    }
}
