//! Batches of chunks: a call that writes many whole chunks stores many of them in one transaction.

use cenote::ErrorKind;

use super::chunked::{Chunked, Group};
use super::geometry::{Geometry, Piece};
use super::memory::Memory;
use super::place::ChunkRecord;
use crate::Result;

/// Most chunks of one transaction.
const CHUNKS_MAX: usize = 128;
/// Most bytes of their elements, if there is more than one chunk.
const BYTES_MAX: usize = 1 << 20;

/// Whole chunks, with their numbers, that wait to be filtered and stored together.
#[derive(Default)]
pub(super) struct Batch {
    chunks: Vec<(u64, Vec<u8>)>,
    bytes: usize,
}

impl Batch {
    /// Adds a chunk. Returns true if the batch is full.
    pub(super) fn add(&mut self, number: u64, image: Vec<u8>) -> bool {
        self.bytes += image.len();
        self.chunks.push((number, image));
        self.chunks.len() >= CHUNKS_MAX || self.bytes >= BYTES_MAX
    }
}

impl Chunked {
    /// Stores whole chunks with filters, bytes and records, in one transaction that detects conflicts with other
    /// writers.
    pub(super) fn store_batch(&self, geometry: &Geometry, batch: &mut Batch) -> Result<()> {
        batch.bytes = 0;
        let chunks = std::mem::take(&mut batch.chunks);
        if chunks.len() <= 1 {
            return chunks.into_iter().try_for_each(|(number, image)| self.store_image(geometry, number, image, None));
        }
        let numbers: Vec<u64> = chunks.iter().map(|(number, _)| *number).collect();
        let keys: Vec<Vec<u8>> = numbers.iter().map(|n| self.place.chunk_key(&geometry.coords(*n))).collect();
        let encoded = chunks.iter().map(|(_, image)| self.encode(image)).collect::<Result<Vec<_>>>()?;
        let mut slots = self.find_slots(geometry, &numbers)?;
        let known: Vec<bool> = slots.iter().map(Option::is_some).collect();
        let records = self.place.transact(|tx| {
            let mut records: Vec<ChunkRecord> = Vec::with_capacity(chunks.len());
            for (i, (stored, mask)) in encoded.iter().enumerate() {
                // A known slot's chunk is replaced whatever it holds.
                let old = if known[i] { None } else { tx.get(self.place.index(), &keys[i])? };
                let old = old.map(|bytes| self.record(&bytes)).transpose()?;
                let slot = match (old, slots[i]) {
                    (Some(old), _) => old.slot,
                    (None, Some(slot)) => slot,
                    (None, None) => *slots[i].insert(self.new_slot(geometry, numbers[i])?),
                };
                records.push(self.put_chunk(tx, old, &keys[i], slot, stored, *mask)?);
            }
            Ok(records)
        })?;
        for ((number, image), record) in chunks.into_iter().zip(records) {
            self.state.lock().slots.insert(number, record.slot);
            self.keep_written(number, record, image);
        }
        Ok(())
    }

    /// Makes chunks without filters, from the fill value and the written pieces, for `groups`, whose pieces are in
    /// `pieces`. For each group: false if another process was first, and nothing was written.
    pub(super) fn make_chunks(
        &self,
        geometry: &Geometry,
        groups: &[&Group],
        pieces: &[Piece],
        mem: Memory,
    ) -> Result<Vec<bool>> {
        let at_once = (BYTES_MAX / (self.facts.chunk_bytes as usize).max(1)).clamp(1, CHUNKS_MAX);
        let mut made = Vec::with_capacity(groups.len());
        for groups in groups.chunks(at_once) {
            if groups.len() > 1 && self.make_all(geometry, groups, pieces, mem)? {
                made.resize(made.len() + groups.len(), true);
                continue;
            }
            for g in groups {
                made.push(self.make_chunk(geometry, g.number, &pieces[g.first..g.end], mem)?);
            }
        }
        Ok(made)
    }

    /// Makes all of these chunks or none. Returns false if some exist already.
    fn make_all(&self, geometry: &Geometry, groups: &[&Group], pieces: &[Piece], mem: Memory) -> Result<bool> {
        let mut tx = self.place.store().begin();
        for g in groups {
            let mut image = self.blank();
            self.paste(&mut image, &pieces[g.first..g.end], mem);
            let slot = self.new_slot(geometry, g.number)?;
            let record = ChunkRecord { slot, bytes: self.facts.chunk_bytes, mask: 0, edit: 0 };
            tx.write(&self.object, self.slot_offset(slot)?, &image)?;
            tx.put_new(self.place.index(), &self.place.chunk_key(&geometry.coords(g.number)), &record.encode())?;
        }
        match tx.commit() {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
