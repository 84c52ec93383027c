//! The devices and segments that a session has open.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use cenote_device::SegmentIo;
use cenote_model::{DeviceId, DeviceInfo, DeviceKind, Error, ErrorKind, Request, Response, Result};

use crate::session::Session;
use crate::sync::{read, write};

/// What the data path needs of a device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceShape {
    pub name: Arc<str>,
    pub kind: DeviceKind,
    pub unit_bytes: u64,
    pub segment_bytes: u64,
    pub capacity_bytes: u64,
}

/// Segments stay open as long as the session: addresses in cached maps and views point into them.
#[derive(Default)]
pub(crate) struct Segments {
    shapes: RwLock<HashMap<DeviceId, DeviceShape>>,
    open: RwLock<HashMap<(DeviceId, u64), Arc<SegmentIo>>>,
}

impl Segments {
    /// What a device looks like.
    pub fn shape(&self, session: &Session, id: DeviceId) -> Result<DeviceShape> {
        if let Some(shape) = read(&self.shapes).get(&id) {
            return Ok(shape.clone());
        }
        if let Response::Devices(devices) = session.ask(Request::Devices)? {
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
            };
            shapes.insert(device.id, shape);
        }
    }
    /// Bytes of memory that the store's memory devices hold.
    pub fn memory_bytes(&self) -> u64 {
        let memory = |shape: &&DeviceShape| shape.kind == DeviceKind::SharedMemory;
        read(&self.shapes).values().filter(memory).map(|shape| shape.capacity_bytes).sum()
    }
    /// The segment that holds a device offset, and the offset in it.
    pub fn locate(&self, session: &Session, device: DeviceId, offset: u64) -> Result<(Arc<SegmentIo>, u64)> {
        let shape = self.shape(session, device)?;
        let (number, inside) = (offset / shape.segment_bytes, offset % shape.segment_bytes);
        if let Some(io) = read(&self.open).get(&(device, number)) {
            return Ok((io.clone(), inside));
        }
        let (file, writable) = session.segment(device, number)?;
        let io = SegmentIo::new(file, writable, format!("segment {number} of device `{}`", shape.name))?;
        let io = write(&self.open).entry((device, number)).or_insert_with(|| Arc::new(io)).clone();
        Ok((io, inside))
    }
}
