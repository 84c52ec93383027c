//! A copy of everything, for a new mirror.

use std::sync::Arc;

use cenote_model::{DeviceId, ErrorKind, NodeId, Result};

use super::change::Change;
use super::devices::{Known, MirroredDevices, WRITE_BYTES_MAX, put_range};
use super::files::put_file;
use super::{FileKind, Kinds, Stream};
use crate::{Device, MetaDir};

/// Bytes of a log that are copied at once.
const LOG_PART: usize = 256 << 10;

/// What a home has on this node, to be copied.
pub struct Source {
    files: Arc<dyn MetaDir>,
    known: Arc<Known>,
    stream: Arc<Stream>,
    kinds: Kinds,
}

impl Source {
    /// The files and devices whose changes `stream` notes. `files`: without the notes.
    pub fn new(files: Arc<dyn MetaDir>, devices: &MirroredDevices, stream: Arc<Stream>, kinds: Kinds) -> Self {
        Self { files, known: devices.known.clone(), stream, kinds }
    }
    /// Queues everything for a mirror that was attached to the stream just now. `used`: the ranges of a device that may hold bytes
    /// (offset, length), asked once the queue exists. `progress` is told how many bytes were queued, and how many there
    /// are. Blocks while the mirror is slow; fails if it is given up, or if a device cannot be read.
    pub fn copy_to(
        &self,
        node: NodeId,
        used: &dyn Fn(DeviceId) -> Vec<(u64, u64)>,
        progress: &dyn Fn(u64, u64),
    ) -> Result<()> {
        self.put(node, &Change::Begin)?;
        let devices: Vec<_> = {
            let known = self.known.lock();
            known.iter().map(|(id, (spec, device))| (*id, spec.clone(), device.clone())).collect()
        };
        for (id, spec, _) in &devices {
            self.put(node, &Change::Device { id: *id, spec: spec.clone() })?;
        }
        let ranges: Vec<_> = devices.iter().map(|(id, _, _)| used(*id)).collect();
        let total = ranges.iter().flatten().map(|(_, len)| len).sum();
        let mut copied = 0;
        for ((id, _, device), ranges) in devices.iter().zip(&ranges) {
            // The stamp that tells whose device it is.
            self.range(node, *id, device.as_ref(), (0, u64::from(device.unit_bytes())))?;
            for range in ranges {
                self.range(node, *id, device.as_ref(), *range)?;
                copied += range.1;
                progress(copied, total);
            }
        }
        self.logs_and_files(node)?;
        self.put(node, &Change::Complete)
    }
    fn put(&self, node: NodeId, change: &Change<'_>) -> Result<()> {
        self.stream.put_to(node, |out| {
            change.encode(out);
            Ok(())
        })
    }
    fn range(&self, node: NodeId, id: DeviceId, device: &dyn Device, (offset, len): (u64, u64)) -> Result<()> {
        let mut at = offset;
        while at < offset + len {
            let part = (offset + len - at).min(WRITE_BYTES_MAX);
            self.stream.put_to(node, |out| put_range(device, id, at, part as usize, out))?;
            at += part;
        }
        Ok(())
    }
    fn logs_and_files(&self, node: NodeId) -> Result<()> {
        for name in self.files.list()? {
            let copied = match (self.kinds)(&name) {
                Some(FileKind::Log) => self.log(node, &name),
                Some(FileKind::Whole) => self.stream.put_to(node, |out| {
                    put_file(&name, &self.files.read_file(&name)?, out);
                    Ok(())
                }),
                None => Ok(()),
            };
            match copied {
                Err(error) if error.kind() == ErrorKind::NotFound => {} // removed meanwhile
                copied => copied?,
            }
        }
        Ok(())
    }
    fn log(&self, node: NodeId, name: &str) -> Result<()> {
        let mut opened = None;
        self.stream.put_to(node, |out| {
            let log = self.files.open_log(name)?;
            Change::Log { name, capacity: log.capacity() }.encode(out);
            opened = Some(log);
            Ok(())
        })?;
        let Some(log) = opened else { return Ok(()) };
        let mut at = 0;
        while let Some(offset) = log.data_from(at) {
            let len = LOG_PART.min((log.capacity() - offset) as usize);
            self.stream.put_to(node, |out| {
                let mut bytes = vec![0; len];
                log.read(offset, &mut bytes)?;
                let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                if used > 0 {
                    Change::LogWrite { name, offset, bytes: &bytes[..used] }.encode(out);
                }
                Ok(())
            })?;
            at = offset + len as u64;
        }
        Ok(())
    }
}
