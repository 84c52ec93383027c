//! The open devices and segments of a link.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

use cenote_device::SegmentIo;
use cenote_model::{DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, Request, Response, Result, Speed};

use super::channel::Channel;
use crate::sync::{read, write};

/// The properties of a device that the data path needs.
#[derive(Clone, Debug)]
pub(crate) struct DeviceShape {
    pub name: Arc<str>,
    pub kind: DeviceKind,
    pub unit_bytes: u64,
    pub segment_bytes: u64,
    pub capacity_bytes: u64,
    /// The measured speed, if any.
    pub speed: Option<Speed>,
}

/// Granularity of memory that is made present.
const GRANULE_BYTES: u64 = 64 << 10;

/// An open segment, and the part of its memory that is present in this process.
pub(crate) struct Segment {
    io: SegmentIo,
    /// One bit per granule. A segment never loses space while it is open, so a present granule stays present.
    present: Vec<AtomicU64>,
}

impl std::ops::Deref for Segment {
    type Target = SegmentIo;
    fn deref(&self) -> &SegmentIo {
        &self.io
    }
}

impl Segment {
    fn new(io: SegmentIo) -> Self {
        let granules = if io.mode().is_mapped() { io.len().div_ceil(GRANULE_BYTES) } else { 0 };
        Self { present: (0..granules.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(), io }
    }
    /// Returns true if a range is known to be present (always for files).
    #[inline]
    pub fn is_present(&self, offset: u64, len: u64) -> bool {
        let is_set = |granule: u64| {
            let word = &self.present[(granule / 64) as usize];
            word.load(Ordering::Relaxed) & 1 << (granule % 64) != 0
        };
        self.present.is_empty() || (offset / GRANULE_BYTES..=(offset + len.max(1) - 1) / GRANULE_BYTES).all(is_set)
    }
    /// Makes a range present, so that an access neither faults nor fails.
    pub fn make_present(&self, offset: u64, len: u64) -> Result<()> {
        const HUGE: u64 = cenote_device::map::HUGE_BYTES as u64;
        let (from, to) = (offset / HUGE * HUGE, (offset + len).next_multiple_of(HUGE));
        if to <= self.io.len() && self.make_granules_present(from, to - from).is_ok() {
            return Ok(());
        }
        self.make_granules_present(offset, len)
    }
    fn make_granules_present(&self, offset: u64, len: u64) -> Result<()> {
        let (first, last) = (offset / GRANULE_BYTES, (offset + len.max(1) - 1) / GRANULE_BYTES);
        let (from, to) = (first * GRANULE_BYTES, ((last + 1) * GRANULE_BYTES).min(self.io.len()));
        self.io.populate(from, (to - from) as usize)?;
        for granule in first..=last {
            self.present[(granule / 64) as usize].fetch_or(1 << (granule % 64), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Segments stay open as long as the link: addresses in cached maps and views point into them.
pub(crate) struct Segments {
    channel: Arc<Channel>,
    shapes: RwLock<HashMap<DeviceId, DeviceShape>>,
    open: RwLock<HashMap<(DeviceId, u64), Arc<Segment>>>,
}

impl Segments {
    pub(super) fn new(channel: &Arc<Channel>) -> Self {
        Self { channel: channel.clone(), shapes: RwLock::default(), open: RwLock::default() }
    }
    /// Returns the shape of a device.
    pub fn shape(&self, id: DeviceId) -> Result<DeviceShape> {
        if let Some(shape) = read(&self.shapes).get(&id) {
            return Ok(shape.clone());
        }
        if let Response::Devices(devices) = self.channel.ask(Request::Devices)? {
            self.learn(&devices);
        }
        read(&self.shapes).get(&id).cloned().ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("device {id}"))
                .because("an extent names it, but the store has no such device")
        })
    }
    fn learn(&self, devices: &[DeviceInfo]) {
        let mut shapes = write(&self.shapes);
        for device in devices {
            let shape = DeviceShape {
                name: device.spec.name.as_str().into(),
                kind: device.spec.kind,
                unit_bytes: u64::from(device.unit_bytes.max(1)),
                segment_bytes: device.segment_bytes.max(1),
                capacity_bytes: device.spec.capacity_bytes,
                speed: device.speed,
            };
            shapes.insert(device.id, shape);
        }
    }
    /// Returns the total capacity of the store's memory devices in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let memory = |shape: &&DeviceShape| shape.kind == DeviceKind::SharedMemory;
        read(&self.shapes).values().filter(memory).map(|shape| shape.capacity_bytes).sum()
    }
    /// Returns the segment of a device offset, and the offset in it.
    pub fn locate(&self, device: DeviceId, offset: u64) -> Result<(Arc<Segment>, u64)> {
        let shape = self.shape(device)?;
        let (number, inside) = (offset / shape.segment_bytes, offset % shape.segment_bytes);
        if let Some(io) = read(&self.open).get(&(device, number)) {
            return Ok((io.clone(), inside));
        }
        let (file, writable) = self.channel.segment(device, number)?;
        let io = SegmentIo::new(file, writable, format!("segment {number} of device `{}`", shape.name))?;
        let io = write(&self.open).entry((device, number)).or_insert_with(|| Arc::new(Segment::new(io))).clone();
        Ok((io, inside))
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::{SegmentFile, SegmentMode};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    #[test]
    fn exactly_the_granules_that_a_range_touches_are_made_present() {
        const G: u64 = GRANULE_BYTES;
        let len = 64 * G;
        let fd = memfd_create("segment", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        let file = SegmentFile { fd: Arc::new(fd), data_offset: 0, len, mode: SegmentMode::Mapped };
        let segment = Segment::new(SegmentIo::new(file, true, "a segment").unwrap());
        let present = |segment: &Segment| (0..64).filter(|n| segment.is_present(n * G, G)).collect::<Vec<_>>();
        assert!(present(&segment).is_empty());
        segment.make_granules_present(2 * G, G).unwrap();
        assert_eq!(present(&segment), [2]);
        segment.make_granules_present(10 * G - 1, 2).unwrap();
        assert_eq!(present(&segment), [2, 9, 10]);
        // Up to the end, and not past it.
        segment.make_granules_present(63 * G + 5, G - 5).unwrap();
        assert_eq!(present(&segment), [2, 9, 10, 63]);
        for granule in present(&segment) {
            assert!(segment.is_resident(granule * G, G as usize), "{granule}");
        }
    }
}
