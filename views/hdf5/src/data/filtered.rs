//! Chunks with filters: rewritten whole, record and bytes in one transaction that detects conflicts with other writers.

use std::ops::Range;
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use super::batch::Batch;
use super::chunked::{Chunked, Decoded, Group};
use super::geometry::{Geometry, Piece};
use super::memory::Memory;
use super::place::{self, ChunkRecord};
use super::transfer;
use crate::Result;

/// Bytes of decoded chunks cached per handle.
const DECODED_BYTES_MAX: usize = 4 << 20;
/// Bytes of filtered chunks read by one vectored call.
const BATCH_BYTES: u64 = 8 << 20;
/// Attempts of a reader before a conflict with writers becomes an error.
const READS_MAX: u32 = 1000;

impl Chunked {
    /// Writes pieces of chunks: whole chunks at once; others are buffered until they are whole, read, or flushed.
    pub(super) fn write_filtered(
        &self,
        geometry: &Geometry,
        pieces: &[Piece],
        groups: &[Group],
        mem: Memory,
    ) -> Result<()> {
        let mut batch = Batch::default();
        for g in groups {
            let pieces = &pieces[g.first..g.end];
            let inside = geometry.elements_inside(g.number);
            let ascending = pieces.windows(2).all(|w| w[0].at + w[0].count <= w[1].at);
            let all = pieces.iter().map(|p| p.count).sum::<u64>() >= inside;
            if !ascending || !all || !self.is_final(geometry, g.number) {
                self.put_aside(geometry, g.number, pieces, mem)?;
                continue;
            }
            let mut image = if inside == geometry.elements_per_chunk() {
                vec![0; self.facts.chunk_bytes as usize]
            } else {
                self.blank()
            };
            self.paste(&mut image, pieces, mem);
            self.drop_aside(&geometry.coords(g.number));
            if batch.add(g.number, image) {
                self.store_batch(geometry, &mut batch)?;
            }
        }
        self.store_batch(geometry, &mut batch)
    }

    /// Returns true if no other process can write more of the chunk than its part inside the present extent. Only then
    /// may that part replace the stored chunk; otherwise it is merged, since the extent may grow meanwhile.
    pub(super) fn is_final(&self, geometry: &Geometry, number: u64) -> bool {
        geometry.elements_inside(number) == geometry.elements_per_chunk() || geometry.dims() == self.facts.max_dims
    }

    /// Stores a chunk: all of `image`, or only the elements in `written`, merged with the stored chunk.
    pub(super) fn store_image(
        &self,
        geometry: &Geometry,
        number: u64,
        image: Vec<u8>,
        written: Option<&[Range<u64>]>,
    ) -> Result<()> {
        let key = self.place.chunk_key(&geometry.coords(number));
        let whole = match written {
            None => Some(self.encode(&image)?),
            Some(_) => None,
        };
        let known = self.find_slots(geometry, &[number])?[0];
        if let (Some((stored, mask)), Some(slot)) = (&whole, known) {
            let record = self.store_chunk(None, &key, slot, stored, *mask)?;
            self.keep_written(number, record, image);
            return Ok(());
        }
        let mut new_slot = None;
        let mut merged = None;
        let record = self.place.transact(|tx| {
            let old = tx.get(self.place.index(), &key)?.map(|bytes| self.record(&bytes)).transpose()?;
            let slot = match (old, new_slot) {
                (Some(old), _) => old.slot,
                (None, Some(slot)) => slot,
                (None, None) => *new_slot.insert(self.new_slot(geometry, number)?),
            };
            if let Some((stored, mask)) = &whole {
                return self.put_chunk(tx, old, &key, slot, stored, *mask);
            }
            let base = match &old {
                Some(old) => self.load_for_edit(number, old, &key)?,
                None => self.blank(),
            };
            let base = merged.insert(base);
            let size = self.facts.element_bytes;
            for range in written.unwrap_or_default() {
                let bytes = range.start as usize * size..range.end as usize * size;
                base[bytes.clone()].copy_from_slice(&image[bytes]);
            }
            let (stored, mask) = self.encode(base)?;
            self.put_chunk(tx, old, &key, slot, &stored, mask)
        })?;
        self.state.lock().slots.insert(number, record.slot);
        self.keep_written(number, record, merged.unwrap_or(image));
        Ok(())
    }

    /// Applies the filters. Returns an error if the result exceeds a slot.
    pub(super) fn encode(&self, image: &[u8]) -> Result<(Vec<u8>, u32)> {
        let (stored, mask) = match &self.facts.native {
            Some(native) => native.encode(image)?,
            None => self.facts.pipeline.encode(image, 0)?,
        };
        if stored.len() as u64 > self.slot_bytes() {
            return Err(Error::new(ErrorKind::LimitExceeded, self.place.name()).because(format!(
                "a chunk of {} bytes grew to {} in its filters",
                image.len(),
                stored.len()
            )));
        }
        Ok((stored, mask))
    }

    /// Adds a chunk's bytes and record to a transaction.
    pub(super) fn put_chunk(
        &self,
        tx: &mut cenote::Transaction,
        old: Option<ChunkRecord>,
        key: &[u8],
        slot: u64,
        stored: &[u8],
        mask: u32,
    ) -> Result<ChunkRecord> {
        let offset = self.slot_offset(slot)?;
        let record = ChunkRecord { slot, bytes: stored.len() as u64, mask, edit: place::nonce() };
        self.place.wait_for_others(&self.object, offset, record.bytes)?;
        tx.write(&self.object, offset, stored)?;
        if let Some(old) = old.filter(|old| old.bytes > record.bytes) {
            tx.punch(&self.object, offset + record.bytes, old.bytes - record.bytes)?;
        }
        tx.put(self.place.index(), key, &record.encode())?;
        Ok(record)
    }

    /// Writes a chunk's bytes and record in one transaction of its own.
    pub(super) fn store_chunk(
        &self,
        old: Option<ChunkRecord>,
        key: &[u8],
        slot: u64,
        stored: &[u8],
        mask: u32,
    ) -> Result<ChunkRecord> {
        let mut tx = self.place.store().begin();
        let record = self.put_chunk(&mut tx, old, key, slot, stored, mask)?;
        tx.commit()?;
        Ok(record)
    }

    /// Reads a chunk that will be changed. Returns a conflict if another writer changed it between reading record and
    /// bytes.
    pub(super) fn load_for_edit(&self, number: u64, record: &ChunkRecord, key: &[u8]) -> Result<Vec<u8>> {
        if let Some(bytes) = self.kept(number, record, true) {
            return Ok(bytes.to_vec());
        }
        let mut stored = vec![0; record.bytes as usize];
        transfer::read_range(&self.object, self.slot_offset(record.slot)?, &mut stored)?;
        self.decode(stored, record.mask, false).or_else(|error| {
            let now = self.place.index().get_one(key)?.map(|bytes| self.record(&bytes)).transpose()?;
            if now == Some(*record) { Err(self.damaged(&error)) } else { Err(self.vanished()) }
        })
    }

    fn decode(&self, stored: Vec<u8>, mask: u32, skip_checksums: bool) -> Result<Vec<u8>> {
        let raw_len = self.facts.chunk_bytes as usize;
        match &self.facts.native {
            Some(native) => native.decode(stored, mask, raw_len, skip_checksums),
            None => self.facts.pipeline.decode(stored, mask, raw_len, skip_checksums),
        }
    }

    fn damaged(&self, error: &Error) -> Error {
        Error::new(error.kind(), format!("a chunk of {}", self.place.name())).because(error.to_string())
    }

    pub(super) fn read_filtered(
        &self,
        geometry: &Geometry,
        pieces: &[Piece],
        groups: &[Group],
        mem: Memory,
        skip_checksums: bool,
    ) -> Result<()> {
        self.flush_touching(geometry, groups)?;
        let mut todo = groups;
        while !todo.is_empty() {
            let count = (BATCH_BYTES / self.facts.chunk_bytes.max(1)).clamp(1, 256).min(todo.len() as u64) as usize;
            let (batch, rest) = todo.split_at(count);
            todo = rest;
            let numbers: Vec<u64> = batch.iter().map(|g| g.number).collect();
            let images = self.load(geometry, &numbers, skip_checksums)?;
            for (g, image) in batch.iter().zip(images) {
                match image {
                    Some(image) => self.scatter(&image, &pieces[g.first..g.end], mem),
                    None => self.fill_memory(&pieces[g.first..g.end], mem),
                }
            }
        }
        Ok(())
    }

    /// Reads decoded chunks. Record and bytes are read separately, so the records are read again afterwards: if one has
    /// changed, a writer came between, and everything is read again.
    fn load(&self, geometry: &Geometry, numbers: &[u64], skip_checksums: bool) -> Result<Vec<Option<Arc<Vec<u8>>>>> {
        for _ in 0..READS_MAX {
            let records = self.records(geometry, numbers)?;
            let mut images: Vec<Option<Arc<Vec<u8>>>> = numbers
                .iter()
                .zip(&records)
                .map(|(n, record)| record.as_ref().and_then(|record| self.kept(*n, record, false)))
                .collect();
            let wanted: Vec<usize> =
                (0..numbers.len()).filter(|i| records[*i].is_some() && images[*i].is_none()).collect();
            if wanted.is_empty() {
                return Ok(images);
            }
            let stored = self.read_stored(wanted.iter().filter_map(|i| records[*i].as_ref()))?;
            let asked: Vec<u64> = wanted.iter().map(|i| numbers[*i]).collect();
            let again = self.records(geometry, &asked)?;
            if wanted.iter().zip(&again).any(|(i, now)| *now != records[*i]) {
                continue;
            }
            for (i, stored) in wanted.into_iter().zip(stored) {
                let Some(record) = records[i] else { continue };
                let image = self.decode(stored, record.mask, skip_checksums).map_err(|error| self.damaged(&error))?;
                images[i] = Some(self.keep(numbers[i], record, image));
            }
            return Ok(images);
        }
        Err(Error::new(ErrorKind::Busy, self.place.name())
            .because("its chunks were rewritten faster than they could be read"))
    }

    fn read_stored<'a>(&self, records: impl Iterator<Item = &'a ChunkRecord>) -> Result<Vec<Vec<u8>>> {
        let mut stored = Vec::new();
        let mut offsets = Vec::new();
        for record in records {
            stored.push(vec![0u8; record.bytes as usize]);
            offsets.push(self.slot_offset(record.slot)?);
        }
        let mut calls: Vec<(u64, &mut [u8])> =
            offsets.into_iter().zip(&mut stored).map(|(offset, bytes)| (offset, &mut bytes[..])).collect();
        self.object.readv(&mut calls)?;
        Ok(stored)
    }

    fn kept(&self, number: u64, record: &ChunkRecord, to_change: bool) -> Option<Arc<Vec<u8>>> {
        let state = self.state.lock();
        let fits = |d: &&Decoded| d.number == number && d.record == *record && (to_change || d.is_as_read);
        state.decoded.iter().find(fits).map(|d| d.bytes.clone())
    }

    /// Caches a chunk just stored. A filter that is not in this library may be lossy: edits then start from the bytes as
    /// written, lest the loss accumulate, but reads return the chunk as others read it.
    pub(super) fn keep_written(&self, number: u64, record: ChunkRecord, image: Vec<u8>) {
        self.keep_bytes(number, record, image, self.facts.native.is_none());
    }

    fn keep(&self, number: u64, record: ChunkRecord, image: Vec<u8>) -> Arc<Vec<u8>> {
        self.keep_bytes(number, record, image, true)
    }

    fn keep_bytes(&self, number: u64, record: ChunkRecord, image: Vec<u8>, is_as_read: bool) -> Arc<Vec<u8>> {
        let bytes = Arc::new(image);
        let mut state = self.state.lock();
        state.decoded.retain(|d| d.number != number);
        state.decoded.push_back(Decoded { number, record, bytes: bytes.clone(), is_as_read });
        let most = (DECODED_BYTES_MAX / bytes.len().max(1)).max(1);
        while state.decoded.len() > most {
            state.decoded.pop_front();
        }
        bytes
    }
}
