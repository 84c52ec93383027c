//! Raw data of datasets in stored form, for views without libhdf5.
//!
//! Elements are in stored form throughout. A dataset is a *run* of bytes (contiguous, compact) or *chunks* as stored, with
//! filters applied. Writes keep to this module's rules: record and bytes in one transaction that detects conflicts with other
//! writers.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Object, Transaction};

use super::body::{BLOCK_BYTES, pipeline_of};
use super::chunked::{fill_bytes, past_room};
use super::filter::Pipeline;
use super::geometry::Geometry;
use super::place::{self, ChunkRecord};
use super::slots::Slots;
use crate::Result;
use crate::ffi::types::{H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_USER_DEFINED};
use crate::file::Core;
use crate::meta::bytes::Reader;
use crate::meta::{self, keys};
use crate::props::{DatasetProps, Layout};
use crate::space::Extent;

/// Attempts of a reader before a conflict with writers becomes an error.
const READS_MAX: u32 = 1000;

/// A dataset's raw data.
pub struct PlainData {
    /// The file.
    pub core: Arc<Core>,
    /// The dataset's number.
    pub oid: u64,
    /// Bytes of a stored element.
    pub element_bytes: u64,
    /// Filters of its chunks.
    pub pipeline: Pipeline,
    /// The value of an element that was never written; `None` for zeros.
    pub fill: Option<Vec<u8>>,
    /// True if the program that made the dataset set a fill value, even zeros.
    pub is_fill_set: bool,
    /// Dimensions of a chunk; `None` for a run.
    pub chunk: Option<Vec<u64>>,
    /// Greatest dimensions.
    pub max_dims: Vec<u64>,
    at_creation: Extent,
    object: Object,
}

impl PlainData {
    /// The raw data of a dataset with these properties. Refuses layouts whose elements are elsewhere.
    pub fn new(core: &Arc<Core>, oid: u64, props: &DatasetProps, extent: &Extent, element_bytes: u64) -> Result<Self> {
        let chunk = match &props.layout {
            Layout::Chunked(chunk) => Some(chunk.clone()),
            Layout::Compact | Layout::Contiguous => None,
            other => {
                return Err(Error::new(ErrorKind::Unsupported, format!("dataset {oid:016x} of file {}", core.path))
                    .because(format!("its elements are {}, not its own", other.word())));
            }
        };
        Ok(Self {
            core: core.clone(),
            oid,
            element_bytes,
            pipeline: pipeline_of(props, element_bytes as usize),
            fill: fill_of(core, oid, props)?,
            is_fill_set: props.fill_status == H5D_FILL_VALUE_USER_DEFINED,
            chunk,
            max_dims: extent.max_dims().to_vec(),
            at_creation: extent.clone(),
            object: core.object(oid),
        })
    }
    /// The present extent.
    pub fn extent(&self) -> Result<Extent> {
        if self.chunk.is_none() { Ok(self.at_creation.clone()) } else { meta::extent_get(&self.core, self.oid) }
    }
    /// The dataset's name for errors.
    pub fn name(&self) -> String {
        format!("dataset {:016x} of file {}", self.oid, self.core.path)
    }
    /// A whole chunk, or `bytes` of a run, before anything was written.
    pub fn blank(&self, bytes: usize) -> Vec<u8> {
        let mut out = vec![0; bytes];
        if let Some(fill) = self.fill.as_ref().filter(|fill| !fill.is_empty()) {
            fill_bytes(&mut out, Some(fill));
        }
        out
    }

    fn slots<'a>(&'a self, chunk: &'a [u64], max_dims: &'a [u64]) -> Slots<'a> {
        let chunk_bytes = chunk.iter().product::<u64>() * self.element_bytes;
        Slots { chunk, max_dims, chunk_bytes, is_filtered: !self.pipeline.is_empty() }
    }
    fn offset(&self, slots: Slots<'_>, record: &ChunkRecord) -> Result<u64> {
        if record.bytes > slots.bytes() {
            return Err(self.corrupt("a chunk record is damaged"));
        }
        slots.offset(record.slot).ok_or_else(|| past_room(self.name()))
    }
    fn corrupt(&self, cause: &str) -> Error {
        Error::new(ErrorKind::Corrupt, self.name()).because(cause).try_next("run `cenote verify` on the store")
    }
    fn record(&self, bytes: &[u8]) -> Result<ChunkRecord> {
        ChunkRecord::decode(bytes).ok_or_else(|| self.corrupt("a chunk record is damaged"))
    }
    fn record_at(&self, key: &[u8]) -> Result<Option<ChunkRecord>> {
        self.core.meta.get_one(key)?.map(|bytes| self.record(&bytes)).transpose()
    }
    fn chunk_dims(&self) -> Result<&[u64]> {
        self.chunk
            .as_deref()
            .ok_or_else(|| Error::new(ErrorKind::InvalidInput, self.name()).because("it has no chunks"))
    }

    /// Stored bytes of the chunk at these grid coordinates, and the mask of filters left out; `None` if it was never written.
    pub fn read_chunk(&self, coords: &[u64]) -> Result<Option<(Vec<u8>, u32)>> {
        let slots = self.slots(self.chunk_dims()?, &self.max_dims);
        let key = place::chunk_key(self.oid, coords);
        for _ in 0..READS_MAX {
            let Some(record) = self.record_at(&key)? else { return Ok(None) };
            let mut bytes = vec![0; record.bytes as usize];
            let got = self.object.read_at(self.offset(slots, &record)?, &mut bytes)?;
            bytes[got..].fill(0);
            // Bytes of a filtered chunk must match its record; those of an unfiltered one may change piece by piece.
            if self.pipeline.is_empty() || self.record_at(&key)? == Some(record) {
                return Ok(Some((bytes, record.mask)));
            }
        }
        Err(Error::new(ErrorKind::Busy, self.name()).because("a chunk was rewritten faster than it could be read"))
    }
    /// Number of stored bytes of a chunk; `None` if it does not exist.
    pub fn chunk_bytes(&self, coords: &[u64]) -> Result<Option<u64>> {
        Ok(self.record_at(&place::chunk_key(self.oid, coords))?.map(|record| record.bytes))
    }
    /// Grid coordinates of all existing chunks, in order.
    pub fn chunks(&self) -> Result<Vec<Vec<u64>>> {
        let mut out = Vec::new();
        for record in self.core.meta.iter(&place::chunk_prefix(self.oid)) {
            let (key, _) = record?;
            let (words, _) = keys::suffix(&key).as_chunks::<8>();
            out.push(words.iter().map(|word| u64::from_be_bytes(*word)).collect());
        }
        Ok(out)
    }
    /// Writes a whole chunk in stored form. `make` gets the present dimensions and returns the stored bytes; it is called
    /// again if they change meanwhile.
    pub fn write_chunk(&self, coords: &[u64], mut make: impl FnMut(&[u64]) -> Result<Vec<u8>>) -> Result<()> {
        let chunk = self.chunk_dims()?;
        let slots = self.slots(chunk, &self.max_dims);
        let key = place::chunk_key(self.oid, coords);
        meta::transact(&self.core, |tx| {
            let extent = meta::extent_get_in(tx, &self.core, self.oid)?;
            let is_inside = coords.len() == chunk.len()
                && coords.iter().zip(chunk).zip(extent.dims()).all(|((x, c), dim)| x.saturating_mul(*c) < *dim);
            if !is_inside {
                return Err(Error::new(ErrorKind::InvalidInput, self.name())
                    .because(format!("chunk {coords:?} is outside of its extent {:?}", extent.dims())));
            }
            let stored = make(extent.dims())?;
            if stored.len() as u64 > slots.bytes() || (!slots.is_filtered && stored.len() as u64 != slots.bytes()) {
                return Err(Error::new(ErrorKind::InvalidInput, self.name())
                    .because(format!("a chunk of {} bytes does not fit", stored.len())));
            }
            let old = tx.get(&self.core.meta, &key)?.map(|bytes| self.record(&bytes)).transpose()?;
            self.put_block(tx, slots, (&key, coords), old, &stored)
        })
    }
    fn put_block(
        &self,
        tx: &mut Transaction,
        slots: Slots<'_>,
        (key, coords): (&[u8], &[u64]),
        old: Option<ChunkRecord>,
        stored: &[u8],
    ) -> Result<()> {
        let slot = match old {
            Some(old) => old.slot,
            None => self.new_slot(tx, slots, coords)?,
        };
        let edit = if slots.is_filtered { place::nonce() } else { 0 };
        let record = ChunkRecord { slot, bytes: stored.len() as u64, mask: 0, edit };
        let offset = self.offset(slots, &record)?;
        self.core.shared.ahead().wait_for_all_others()?;
        tx.write(&self.object, offset, stored)?;
        if let Some(old) = old.filter(|old| old.bytes > record.bytes) {
            tx.punch(&self.object, offset + record.bytes, old.bytes - record.bytes)?;
        }
        if old == Some(record) { Ok(()) } else { tx.put(&self.core.meta, key, &record.encode()) }
    }
    fn new_slot(&self, tx: &mut Transaction, slots: Slots<'_>, coords: &[u64]) -> Result<u64> {
        match slots.fixed(coords) {
            Some(slot) => Ok(slot),
            None => meta::count_up(tx, &self.core, &place::slot_key(self.oid)),
        }
    }
    /// Drops a chunk, which then reads as fill. Returns false if it did not exist.
    pub fn drop_chunk(&self, coords: &[u64]) -> Result<bool> {
        let slots = self.slots(self.chunk_dims()?, &self.max_dims);
        let key = place::chunk_key(self.oid, coords);
        meta::transact(&self.core, |tx| {
            let Some(old) = tx.get(&self.core.meta, &key)? else { return Ok(false) };
            let old = self.record(&old)?;
            tx.del(&self.core.meta, &key)?;
            tx.punch(&self.object, self.offset(slots, &old)?, old.bytes)?;
            tx.put(&self.core.meta, &place::had_key(self.oid), &[])?;
            // Makes handles forget the slots that they know.
            meta::count_up(tx, &self.core, &place::generation_key(self.oid)).map(|_| true)
        })
    }

    /// Changes the current dimensions: drops chunks outside, and sets the outer parts of chunks at the edge to fill.
    pub fn resize(&self, dims: &[u64]) -> Result<()> {
        let chunk = self.chunk_dims()?;
        let bad = |cause: String| Err(Error::new(ErrorKind::InvalidInput, self.name()).because(cause));
        if dims.len() != self.max_dims.len() || dims.iter().zip(&self.max_dims).any(|(dim, max)| dim > max) {
            return bad(format!("{dims:?} is past its greatest dimensions {:?}", self.max_dims));
        }
        Geometry::new(dims, chunk)?;
        let extent = Extent::Simple { dims: dims.to_vec(), max: self.max_dims.clone() };
        if extent.counted().is_none() {
            return bad(format!("{dims:?} has more than 2^64 elements"));
        }
        self.core.shared.ahead().wait_for_all_others()?;
        meta::transact(&self.core, |tx| {
            let old = meta::extent_get_in(tx, &self.core, self.oid)?;
            if old.dims().iter().zip(dims).any(|(old, new)| new < old) {
                self.shrink(tx, chunk, dims)?;
                meta::count_up(tx, &self.core, &place::generation_key(self.oid))?;
            }
            meta::extent_put_in(tx, &self.core, self.oid, &extent)
        })
    }
    fn shrink(&self, tx: &mut Transaction, chunk: &[u64], dims: &[u64]) -> Result<()> {
        let slots = self.slots(chunk, &self.max_dims);
        for coords in self.chunks()? {
            let key = place::chunk_key(self.oid, &coords);
            // Through the transaction, so that a concurrent writer makes it start again.
            let Some(old) = tx.get(&self.core.meta, &key)? else { continue };
            let old = self.record(&old)?;
            let offset = self.offset(slots, &old)?;
            let is_outside = coords.iter().zip(chunk).zip(dims).any(|((x, c), dim)| x.saturating_mul(*c) >= *dim);
            if is_outside {
                tx.del(&self.core.meta, &key)?;
                tx.punch(&self.object, offset, old.bytes)?;
                tx.put(&self.core.meta, &place::had_key(self.oid), &[])?;
                continue;
            }
            if coords.iter().zip(chunk).zip(dims).all(|((x, c), dim)| (x + 1).saturating_mul(*c) <= *dim) {
                continue;
            }
            if !self.pipeline.is_ours() {
                return Err(Error::new(ErrorKind::Unsupported, format!("shrinking {}", self.name()))
                    .because("chunks at the new edge went through filters that HDF5 alone can undo")
                    .try_next("shrink it by HDF5, or to a multiple of its chunks"));
            }
            let mut stored = vec![0; old.bytes as usize];
            let got = tx.read(&self.object, offset, &mut stored)?.min(stored.len());
            stored[got..].fill(0);
            let whole = (chunk.iter().product::<u64>() * self.element_bytes) as usize;
            let mut image = self.pipeline.decode(stored, old.mask, whole, false)?;
            self.clear_outside(&coords, dims, &mut image)?;
            let (stored, _) = self.pipeline.encode(&image, 0)?;
            self.put_block(tx, slots, (&key, &coords), Some(old), &stored)?;
        }
        Ok(())
    }

    /// Reads a piece of a run.
    pub fn read_run(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(blocks) = self.blocks()? else {
            let got = self.object.read_at(offset, buf)?;
            buf[got..].fill(0);
            return Ok(());
        };
        let (slots, block_bytes) = (blocks.slots(self), blocks.bytes(self));
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            let (number, inside) = (at / block_bytes, at % block_bytes);
            let len = ((block_bytes - inside) as usize).min(buf.len() - done);
            let part = &mut buf[done..done + len];
            match self.record_at(&place::chunk_key(self.oid, &[number]))? {
                Some(record) => {
                    let got = self.object.read_at(self.offset(slots, &record)? + inside, part)?;
                    part[got..].fill(0);
                }
                None => part.copy_from_slice(&self.blank(block_bytes as usize)[inside as usize..inside as usize + len]),
            }
            done += len;
        }
        Ok(())
    }
    /// Writes a piece of a run.
    pub fn write_run(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let all = self.elements() * self.element_bytes;
        if offset.checked_add(bytes.len() as u64).is_none_or(|end| end > all) {
            return Err(Error::new(ErrorKind::InvalidInput, self.name()).because("the piece is outside of its extent"));
        }
        let Some(blocks) = self.blocks()? else {
            return self.core.shared.ahead().write(&self.object, &[(offset, bytes)]);
        };
        let (slots, block_bytes) = (blocks.slots(self), blocks.bytes(self));
        meta::transact(&self.core, |tx| {
            let mut done = 0;
            while done < bytes.len() {
                let at = offset + done as u64;
                let (number, inside) = (at / block_bytes, (at % block_bytes) as usize);
                let len = (block_bytes as usize - inside).min(bytes.len() - done);
                let (part, key) = (&bytes[done..done + len], place::chunk_key(self.oid, &[number]));
                let there = tx.get(&self.core.meta, &key)?.map(|bytes| self.record(&bytes)).transpose()?;
                if let Some(record) = there {
                    tx.write(&self.object, self.offset(slots, &record)? + inside as u64, part)?;
                } else {
                    let mut block = self.blank(block_bytes as usize);
                    block[inside..inside + len].copy_from_slice(part);
                    self.put_block(tx, slots, (&key, &[number]), None, &block)?;
                }
                done += len;
            }
            Ok(())
        })
    }
    /// Returns true if anything was ever written to a run, as far as known.
    pub fn run_was_written(&self) -> Result<bool> {
        if self.blocks()?.is_some() {
            return Ok(!self.chunks()?.is_empty());
        }
        Ok(self.object.stat()?.size > 0)
    }
    fn elements(&self) -> u64 {
        self.at_creation.npoints()
    }
    /// The blocks of a run with a fill value.
    fn blocks(&self) -> Result<Option<Blocks>> {
        if self.chunk.is_some() {
            return Err(Error::new(ErrorKind::InvalidInput, self.name()).because("it is chunked"));
        }
        let elements = self.elements();
        if self.fill.is_none() || elements == 0 {
            return Ok(None);
        }
        let block = (BLOCK_BYTES / self.element_bytes).clamp(1, elements);
        Ok(Some(Blocks { block: [block], elements: [elements] }))
    }
    /// Sets everything of a whole, unfiltered chunk outside the extent to fill. Returns true if that changed anything.
    pub fn clear_outside(&self, coords: &[u64], dims: &[u64], image: &mut [u8]) -> Result<bool> {
        let geometry = Geometry::new(dims, self.chunk_dims()?)?;
        let number = geometry.number(coords);
        if number.is_some_and(|number| geometry.elements_inside(number) == geometry.elements_per_chunk()) {
            return Ok(false);
        }
        let chunk = geometry.chunk();
        let keep: Vec<u64> =
            (0..dims.len()).map(|i| dims[i].saturating_sub(coords[i] * chunk[i]).min(chunk[i])).collect();
        let before = image.to_vec();
        super::resize::erase(image, chunk, &keep, self.element_bytes as usize, self.fill.as_deref());
        Ok(before != image)
    }
}

/// The layout of a run with a nonzero fill value: a row of chunks.
struct Blocks {
    block: [u64; 1],
    elements: [u64; 1],
}

impl Blocks {
    fn slots<'a>(&'a self, data: &'a PlainData) -> Slots<'a> {
        data.slots(&self.block, &self.elements)
    }
    fn bytes(&self, data: &PlainData) -> u64 {
        self.block[0] * data.element_bytes
    }
}

fn fill_of(core: &Core, oid: u64, props: &DatasetProps) -> Result<Option<Vec<u8>>> {
    if props.fill_time == H5D_FILL_TIME_NEVER || props.fill_status != H5D_FILL_VALUE_USER_DEFINED {
        return Ok(None);
    }
    let Some(stored) = &props.fill else { return Ok(None) };
    let element = if stored.heap.is_empty() {
        stored.elements.clone()
    } else {
        core.meta.get_one(&place::fill_key(oid))?.unwrap_or_default()
    };
    Ok(element.iter().any(|byte| *byte != 0).then_some(element))
}

/// Offset and length of a stored element's variable-length part in the dataset's heap; `None` if the part is empty.
pub fn part_of(element: &[u8]) -> Option<(u64, u64)> {
    let mut r = Reader::of("element with a variable-length part", element);
    let (_, at, len) = (r.u32().ok()?, r.u64().ok()?, r.u64().ok()?);
    (len > 0 && at != u64::MAX).then_some((at, len))
}

/// Reads bytes of a dataset's heap.
pub fn read_heap(core: &Core, oid: u64, at: u64, buf: &mut [u8]) -> Result<()> {
    let got = core.object(oid | place::HEAP_BIT).read_at(at, buf)?;
    if got == buf.len() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, format!("dataset {oid:016x} of file {}", core.path))
        .because("an element names bytes that are not in its heap")
        .try_next("run `cenote verify` on the store"))
}
