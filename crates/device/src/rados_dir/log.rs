//! A log: written to a local file, sent to the pool by syncs.

use std::ops::Range;
use std::sync::Arc;

use cenote_model::{Error, Result};
use cenote_rados::Change;
use parking_lot::Mutex;

use super::dirty::{Dirty, batches};
use super::head::Record;
use super::parts::{self, PART_BYTES};
use super::tenure::Tenure;
use crate::{FsMetaDir, LogFile, MetaDir};

/// Bytes that one operation sends. One object takes some hundred operations a second whatever their size.
const SEND_BYTES: u64 = 4 << 20;
/// Unit in which a local log is compared with the pool.
const COMPARE_BYTES: usize = 4096;
const CHUNK_BYTES: usize = 1 << 20;

/// A log that was opened; all handles share it.
pub(super) struct Shared {
    tenure: Arc<Tenure>,
    name: String,
    object: String,
    local: Box<dyn LogFile>,
    /// What the pool does not have.
    dirty: Mutex<Dirty>,
    /// The last change of each part, where it is known. Held while bytes are sent.
    parts: Mutex<Vec<Option<Vec<u8>>>>,
}

impl Shared {
    pub fn new(tenure: &Arc<Tenure>, name: &str, record: &Record, local: Box<dyn LogFile>) -> Self {
        Self {
            tenure: Arc::clone(tenure),
            name: name.to_owned(),
            object: record.object.clone(),
            local,
            dirty: Mutex::default(),
            parts: Mutex::new(vec![None; usize::try_from(parts::count(record)).unwrap_or(0)]),
        }
    }
    /// Sends what the pool does not have. After an error nothing of it is forgotten.
    fn send(&self) -> Result<()> {
        let mut parts = self.parts.lock();
        let ranges = self.dirty.lock().take();
        let batches = batches(&ranges, PART_BYTES, SEND_BYTES);
        for (at, batch) in batches.iter().enumerate() {
            let Some(last) = parts.get_mut(batch.part as usize) else { continue };
            if let Err(error) = self.send_batch(batch.part, &batch.ranges, last) {
                let mut dirty = self.dirty.lock();
                let unsent = batches[at..].iter().flat_map(|batch| &batch.ranges);
                unsent.for_each(|range| dirty.add(range.start, range.end - range.start));
                return Err(error);
            }
        }
        Ok(())
    }
    fn send_batch(&self, part: u64, ranges: &[Range<u64>], last: &mut Option<Vec<u8>>) -> Result<()> {
        let mut pieces = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.local.read(range.start, &mut bytes)?;
            pieces.push((range.start - part * PART_BYTES, bytes));
        }
        let changes: Vec<_> = pieces.iter().map(|(at, bytes)| Change::Write(*at, bytes)).collect();
        self.tenure.change(&parts::name(&self.object, part), last, &changes)
    }
    /// Marks what the local file has and the pool has not.
    fn compare(&self, record: &Record) -> Result<()> {
        for part in 0..parts::count(record) {
            let (begin, end) = (part * PART_BYTES, ((part + 1) * PART_BYTES).min(record.bytes));
            let mut at = begin;
            parts::read_part(&self.tenure, &parts::name(&self.object, part), |piece, offset| {
                for (chunk, bytes) in (0..).zip(piece.chunks(CHUNK_BYTES)) {
                    let from = begin + offset + chunk * CHUNK_BYTES as u64;
                    self.compare_chunk(from, bytes)?;
                    at = from + bytes.len() as u64;
                }
                Ok(())
            })?;
            self.mark_written(at, end)?;
        }
        Ok(())
    }
    fn compare_chunk(&self, from: u64, pool: &[u8]) -> Result<()> {
        let len = pool.len().min(usize::try_from(self.local.capacity().saturating_sub(from)).unwrap_or(usize::MAX));
        let mut local = vec![0; len];
        self.local.read(from, &mut local)?;
        let mut dirty = self.dirty.lock();
        for (unit, (ours, theirs)) in (0..).zip(local.chunks(COMPARE_BYTES).zip(pool.chunks(COMPARE_BYTES))) {
            if ours != &theirs[..ours.len()] {
                dirty.add(from + unit * COMPARE_BYTES as u64, ours.len() as u64);
            }
        }
        Ok(())
    }
    /// Marks what is not zero in a range that the pool has nothing of.
    fn mark_written(&self, from: u64, end: u64) -> Result<()> {
        let mut at = from;
        while let Some(data) = self.local.data_from(at).map(|data| data.max(at)).filter(|data| *data < end) {
            let mut bytes = vec![0; CHUNK_BYTES.min((end - data) as usize)];
            self.local.read(data, &mut bytes)?;
            let first = bytes.iter().position(|byte| *byte != 0);
            if let (Some(first), Some(last)) = (first, bytes.iter().rposition(|byte| *byte != 0)) {
                self.dirty.lock().add(data + first as u64, (last + 1 - first) as u64);
            }
            at = data + bytes.len() as u64;
        }
        Ok(())
    }
    /// Fills the local file, which is all zero, from the pool.
    fn fetch(&self, record: &Record) -> Result<()> {
        for part in 0..parts::count(record) {
            parts::read_part(&self.tenure, &parts::name(&self.object, part), |piece, at| {
                self.local.write(part * PART_BYTES + at, piece)
            })?;
        }
        Ok(())
    }
}

/// Opens the local file of a log and brings it and the pool to the same state.
pub(super) fn bring(
    tenure: &Arc<Tenure>,
    files: &FsMetaDir,
    name: &str,
    record: &Record,
    is_whole: bool,
) -> Result<Arc<Shared>> {
    if is_whole
        && let Ok(local) = files.open_log(name)
        && local.capacity() == record.bytes
    {
        let log = Shared::new(tenure, name, record, local);
        log.compare(record)?;
        log.send()?;
        return Ok(Arc::new(log));
    }
    let _ = files.remove(name); // it may be absent
    let log = Shared::new(tenure, name, record, files.create_log(name, record.bytes)?);
    log.fetch(record)?;
    Ok(Arc::new(log))
}

/// A handle of a log.
pub(super) struct RadosLog(pub Arc<Shared>);

impl LogFile for RadosLog {
    fn capacity(&self) -> u64 {
        self.0.local.capacity()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.tenure.check()?;
        self.0.local.write(offset, bytes)?;
        self.0.dirty.lock().add(offset, bytes.len() as u64);
        Ok(())
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.local.read(offset, buf)
    }
    fn sync(&self) -> Result<()> {
        if let Some(error) = self.0.tenure.lost() {
            return Err(error);
        }
        self.0.send().map_err(|error| {
            Error::new(error.kind(), format!("log `{}` of {}", self.0.name, error.subject()))
                .because(error.cause())
                .try_next(error.next_step())
        })
    }
    fn data_from(&self, offset: u64) -> Option<u64> {
        self.0.local.data_from(offset)
    }
}
