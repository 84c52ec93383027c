//! Chunks: the slot of each in the dataset's object, and reading and writing parts of them.
//!
//! A chunk exists once its record does. Chunks without filters take writes of any part directly in their slot. Chunks with
//! filters are rewritten whole (see `filtered` and `aside`). A contiguous dataset whose fill value is not zero is kept as
//! one row of chunks, so that unwritten parts are known.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use cenote::{Error, ErrorKind, KeyCode, Object};
use parking_lot::Mutex;

use crate::Result;
use crate::meta::bytes::Reader;
use crate::space::Extent;

use super::aside::Dirty;
use super::filter::Pipeline;
use super::geometry::{Geometry, Piece, group};
use super::memory::Memory;
use super::native::NativeChunk;
use super::place::{ChunkRecord, DatasetRef};
use super::runs::Pair;
use super::slots::Slots;
use super::transfer::{self, Part};

/// The constant properties of a dataset's chunks.
pub struct Facts {
    /// Bytes of an element.
    pub element_bytes: usize,
    /// Dimensions of a chunk.
    pub chunk: Vec<u64>,
    /// Greatest dimensions of the dataset; `u64::MAX` is unlimited.
    pub max_dims: Vec<u64>,
    /// Filters.
    pub pipeline: Pipeline,
    /// HDF5's filter pipeline, if some filters are not in this library.
    pub native: Option<NativeChunk>,
    /// The value of an unwritten element; `None` for zeros.
    pub fill: Option<Vec<u8>>,
    /// True if the extent is in a record and may change.
    pub resizable: bool,
    /// Bytes of a whole chunk without filters.
    pub chunk_bytes: u64,
}

/// Records asked for or made by one call.
const KEYS_MAX: usize = 4096;
/// Most slots leased at a time.
const LEASE_MAX: u64 = 4096;

pub(super) struct Decoded {
    pub(super) number: u64,
    pub(super) record: ChunkRecord,
    pub(super) bytes: Arc<Vec<u8>>,
    /// True if reading the chunk from the store would give the same bytes.
    pub(super) is_as_read: bool,
}

pub(super) struct ChunkedState {
    generation: u64,
    geometry: Arc<Geometry>,
    /// Slots of chunks known to exist; a slot stays until the generation changes.
    pub(super) slots: HashMap<u64, u64>,
    lease: Range<u64>,
    lease_count: u64,
    pub(super) decoded: VecDeque<Decoded>,
}

/// The chunks of one open dataset.
pub struct Chunked {
    pub(super) place: DatasetRef,
    pub(super) object: Object,
    pub(super) facts: Facts,
    pub(super) state: Mutex<ChunkedState>,
    /// The write buffer for parts of filtered chunks.
    pub(super) dirty: Mutex<Dirty>,
}

/// The pieces of one chunk: `pieces[first..end]`.
pub(super) struct Group {
    pub(super) number: u64,
    pub(super) first: usize,
    pub(super) end: usize,
}

impl Chunked {
    /// The chunks of the dataset at `place`. `dims`: its dimensions at creation.
    pub fn new(place: DatasetRef, facts: Facts, dims: &[u64]) -> Result<Self> {
        let geometry = Arc::new(Geometry::new(dims, &facts.chunk)?);
        let state = ChunkedState {
            generation: 0,
            geometry,
            slots: HashMap::new(),
            lease: 0..0,
            lease_count: 8,
            decoded: VecDeque::new(),
        };
        Ok(Self { object: place.object(), place, facts, state: Mutex::new(state), dirty: Mutex::default() })
    }

    fn slots(&self) -> Slots<'_> {
        let Facts { chunk, max_dims, chunk_bytes, pipeline, .. } = &self.facts;
        Slots { chunk, max_dims, chunk_bytes: *chunk_bytes, is_filtered: !pipeline.is_empty() }
    }
    /// Bytes of a slot.
    pub(super) fn slot_bytes(&self) -> u64 {
        self.slots().bytes()
    }

    /// Offset of slot `slot` in the object, in bytes.
    pub(super) fn slot_offset(&self, slot: u64) -> Result<u64> {
        self.slots().offset(slot).ok_or_else(|| past_room(self.place.name()))
    }

    /// The present extent; other processes may have changed it.
    pub fn geometry(&self) -> Result<Arc<Geometry>> {
        if !self.facts.resizable {
            return Ok(self.state.lock().geometry.clone());
        }
        let (generation, dims) = self.extent_now()?;
        let mut state = self.state.lock();
        if state.generation != generation || state.geometry.dims() != dims {
            let geometry = Arc::new(Geometry::new(&dims, &self.facts.chunk)?);
            // Chunk numbers are row-major: they stay valid when only the slowest dimension grows.
            if generation != state.generation || geometry.grid()[1..] != state.geometry.grid()[1..] {
                state.slots.clear();
                state.decoded.clear();
            }
            state.geometry = geometry;
            state.generation = generation;
        }
        Ok(state.geometry.clone())
    }

    /// Generation and dimensions, straight from the index.
    fn extent_now(&self) -> Result<(u64, Vec<u64>)> {
        let (extent, generation) = (self.place.extent_key(), self.place.generation_key());
        let held = self.place.file.shared.held_extent(self.place.oid);
        let values = self.place.index().get(&[&extent[..], &generation[..]])?;
        let [Some(extent), generation] = &values[..] else {
            return Err(Error::new(ErrorKind::NotFound, self.place.name())
                .because("it was deleted, or the file was truncated, by another process"));
        };
        let dims = held.map_or_else(|| self.dims(extent), |held| Ok(held.dims().to_vec()))?;
        Ok((self.place.count(generation.as_deref())?, dims))
    }

    /// Dimensions from an extent record.
    pub(super) fn dims(&self, record: &[u8]) -> Result<Vec<u64>> {
        let extent = Extent::decode(&mut Reader::of("extent record", record))?;
        if extent.dims().len() != self.facts.chunk.len() {
            return Err(self.place.corrupt("its extent and its chunks differ in rank"));
        }
        Ok(extent.dims().to_vec())
    }

    /// Cuts `pairs` into pieces by chunk. `dims`: the extent of the caller's selection.
    fn cut(&self, geometry: &Geometry, pairs: &[Pair], dims: &[u64]) -> Result<(Vec<Piece>, Vec<Group>)> {
        let mut pieces = Vec::with_capacity(pairs.len());
        if dims == geometry.dims() {
            for pair in pairs {
                geometry.cut(pair.file, pair.mem, pair.count, &mut pieces);
            }
        } else {
            self.cut_in_other_extent(geometry, pairs, dims, &mut pieces)?;
        }
        group(&mut pieces);
        let mut groups: Vec<Group> = Vec::new();
        for (i, piece) in pieces.iter().enumerate() {
            match groups.last_mut() {
                Some(last) if last.number == piece.chunk => last.end = i + 1,
                _ => groups.push(Group { number: piece.chunk, first: i, end: i + 1 }),
            }
        }
        Ok((pieces, groups))
    }

    /// Cuts pairs selected in an extent that another process has changed since: same coordinates, other numbers.
    fn cut_in_other_extent(
        &self,
        geometry: &Geometry,
        pairs: &[Pair],
        dims: &[u64],
        pieces: &mut Vec<Piece>,
    ) -> Result<()> {
        let theirs = Geometry::new(dims, &self.facts.chunk)?;
        for pair in pairs {
            theirs.cut(pair.file, pair.mem, pair.count, pieces);
        }
        for piece in pieces {
            let coords = theirs.coords(piece.chunk);
            piece.chunk = geometry.number(&coords).ok_or_else(|| {
                Error::new(ErrorKind::InvalidInput, self.place.name())
                    .because("the selection lies outside of its present extent")
                    .try_next("refresh the dataset and select again")
            })?;
        }
        Ok(())
    }

    /// Writes the elements of `pairs` from `mem`.
    pub fn write(&self, pairs: &[Pair], dims: &[u64], mem: Memory) -> Result<()> {
        let geometry = self.geometry()?;
        let (pieces, groups) = self.cut(&geometry, pairs, dims)?;
        if self.facts.pipeline.is_empty() {
            return self.write_plain(&geometry, &pieces, &groups, mem);
        }
        self.write_filtered(&geometry, &pieces, &groups, mem)
    }

    /// Reads the elements of `pairs` into `mem`. `apart`: no two pairs overlap in memory.
    pub fn read(&self, pairs: &[Pair], dims: &[u64], mem: Memory, apart: bool, skip_checksums: bool) -> Result<()> {
        let geometry = self.geometry()?;
        let (pieces, groups) = self.cut(&geometry, pairs, dims)?;
        if !self.facts.pipeline.is_empty() {
            return self.read_filtered(&geometry, &pieces, &groups, mem, skip_checksums);
        }
        let numbers: Vec<u64> = groups.iter().map(|g| g.number).collect();
        let slots = self.find_slots(&geometry, &numbers)?;
        let mut parts = Vec::with_capacity(pieces.len());
        for (g, slot) in groups.iter().zip(slots) {
            match slot {
                Some(slot) => self.parts(slot, &pieces[g.first..g.end], &mut parts)?,
                None => self.fill_memory(&pieces[g.first..g.end], mem),
            }
        }
        if parts.is_empty() { Ok(()) } else { transfer::read(&self.place, &self.object, &parts, mem, apart) }
    }

    pub(super) fn fill_memory(&self, pieces: &[Piece], mem: Memory) {
        for piece in pieces {
            fill_bytes(mem.get_mut(piece.mem, piece.count), self.facts.fill.as_deref());
        }
    }

    /// A whole chunk of fill values.
    pub(super) fn blank(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.facts.chunk_bytes as usize];
        if let Some(fill) = &self.facts.fill {
            fill_bytes(&mut bytes, Some(fill));
        }
        bytes
    }

    fn parts(&self, slot: u64, pieces: &[Piece], parts: &mut Vec<Part>) -> Result<()> {
        let base = self.slot_offset(slot)?;
        let size = self.facts.element_bytes as u64;
        for piece in pieces {
            let part = Part { offset: base + piece.at * size, mem: piece.mem, count: piece.count };
            match parts.last_mut() {
                // Chunks whose slots are adjacent, with adjacent memory.
                Some(last) if last.offset + last.count * size == part.offset && last.mem + last.count == part.mem => {
                    last.count += part.count;
                }
                _ => parts.push(part),
            }
        }
        Ok(())
    }

    fn write_plain(&self, geometry: &Geometry, pieces: &[Piece], groups: &[Group], mem: Memory) -> Result<()> {
        let numbers: Vec<u64> = groups.iter().map(|g| g.number).collect();
        let mut slots = self.find_slots(geometry, &numbers)?;
        let missing: Vec<usize> = (0..groups.len()).filter(|i| slots[*i].is_none()).collect();
        let mut done = vec![false; groups.len()];
        if !missing.is_empty() {
            if self.facts.fill.is_none() {
                let numbers: Vec<u64> = missing.iter().map(|i| groups[*i].number).collect();
                for (i, slot) in missing.iter().zip(self.make_zero_chunks(geometry, &numbers)?) {
                    slots[*i] = Some(slot);
                }
            } else {
                let new: Vec<&Group> = missing.iter().map(|i| &groups[*i]).collect();
                for (i, made) in missing.iter().zip(self.make_chunks(geometry, &new, pieces, mem)?) {
                    done[*i] = made;
                    slots[*i] = self.find_slots(geometry, &[groups[*i].number])?[0];
                }
            }
        }
        let mut parts = Vec::with_capacity(pieces.len());
        for ((g, slot), _) in groups.iter().zip(slots).zip(done).filter(|(_, done)| !done) {
            let slot = slot.ok_or_else(|| self.vanished())?;
            self.parts(slot, &pieces[g.first..g.end], &mut parts)?;
        }
        if parts.is_empty() {
            return Ok(());
        }
        transfer::write(&self.place, &self.object, &parts, mem)
    }

    pub(super) fn vanished(&self) -> Error {
        Error::new(ErrorKind::Conflict, self.place.name())
            .because("it was shrunk by another process while it was written")
    }

    /// The slots of chunks; `None` for chunks that do not exist. Asks the index only for chunks that this handle has not
    /// seen.
    pub(super) fn find_slots(&self, geometry: &Geometry, numbers: &[u64]) -> Result<Vec<Option<u64>>> {
        let mut slots: Vec<Option<u64>> = {
            let state = self.state.lock();
            numbers.iter().map(|n| state.slots.get(n).copied()).collect()
        };
        let unknown: Vec<usize> = (0..numbers.len()).filter(|i| slots[*i].is_none()).collect();
        if unknown.is_empty() {
            return Ok(slots);
        }
        let asked: Vec<u64> = unknown.iter().map(|i| numbers[*i]).collect();
        let records = self.records(geometry, &asked)?;
        let mut state = self.state.lock();
        for (i, record) in unknown.into_iter().zip(records) {
            if let Some(record) = record {
                slots[i] = Some(record.slot);
                state.slots.insert(numbers[i], record.slot);
            }
        }
        Ok(slots)
    }

    /// The records of chunks, straight from the index.
    pub(super) fn records(&self, geometry: &Geometry, numbers: &[u64]) -> Result<Vec<Option<ChunkRecord>>> {
        let mut found = Vec::with_capacity(numbers.len());
        for numbers in numbers.chunks(KEYS_MAX) {
            let keys: Vec<Vec<u8>> = numbers.iter().map(|n| self.place.chunk_key(&geometry.coords(*n))).collect();
            let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
            for value in self.place.index().get(&keys)? {
                found.push(value.map(|bytes| self.record(&bytes)).transpose()?);
            }
        }
        Ok(found)
    }

    pub(super) fn record(&self, bytes: &[u8]) -> Result<ChunkRecord> {
        ChunkRecord::decode(bytes)
            .filter(|record| record.bytes <= self.slot_bytes())
            .ok_or_else(|| self.place.corrupt("a chunk record is damaged"))
    }

    /// A slot for a chunk that does not exist yet: computed if the maximum dimensions allow, else leased.
    pub(super) fn new_slot(&self, geometry: &Geometry, number: u64) -> Result<u64> {
        if let Some(slot) = self.slots().fixed(&geometry.coords(number)) {
            return Ok(slot);
        }
        {
            let mut state = self.state.lock();
            if let Some(slot) = state.lease.next() {
                return Ok(slot);
            }
        }
        let count = self.state.lock().lease_count;
        let first = self.place.lease(&self.place.slot_key(), count)?;
        let mut state = self.state.lock();
        state.lease_count = (count * 4).min(LEASE_MAX);
        state.lease = first + 1..first + count;
        Ok(first)
    }

    /// Makes chunks of zeros and returns their slots; where another process was first, its slots.
    fn make_zero_chunks(&self, geometry: &Geometry, numbers: &[u64]) -> Result<Vec<u64>> {
        for numbers in numbers.chunks(KEYS_MAX) {
            let mut records = Vec::with_capacity(numbers.len());
            for number in numbers {
                let slot = self.new_slot(geometry, *number)?;
                self.slot_offset(slot)?;
                let record = ChunkRecord { slot, bytes: self.facts.chunk_bytes, mask: 0, edit: 0 };
                records.push((self.place.chunk_key(&geometry.coords(*number)), record.encode()));
            }
            let puts: Vec<(&[u8], &[u8])> = records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
            let codes = self.place.index().put_new(&puts)?;
            if let Some(code) = codes.into_iter().find(|code| !matches!(code, KeyCode::Ok | KeyCode::Exists)) {
                return Err(Error::new(ErrorKind::LimitExceeded, self.place.name())
                    .because(format!("the record of a chunk was refused: {code:?}")));
            }
        }
        self.find_slots(geometry, numbers)?.into_iter().map(|slot| slot.ok_or_else(|| self.vanished())).collect()
    }

    /// Makes one chunk from fill values and `pieces`. Returns false if another process was first, and nothing was written.
    pub(super) fn make_chunk(&self, geometry: &Geometry, number: u64, pieces: &[Piece], mem: Memory) -> Result<bool> {
        let mut image = self.blank();
        self.paste(&mut image, pieces, mem);
        let slot = self.new_slot(geometry, number)?;
        let record = ChunkRecord { slot, bytes: self.facts.chunk_bytes, mask: 0, edit: 0 };
        let mut tx = self.place.store().begin();
        tx.write(&self.object, self.slot_offset(slot)?, &image)?;
        tx.put_new(self.place.index(), &self.place.chunk_key(&geometry.coords(number)), &record.encode())?;
        match tx.commit() {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::Exists | ErrorKind::Conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Copies pieces from memory into the bytes of their chunk.
    pub(super) fn paste(&self, image: &mut [u8], pieces: &[Piece], mem: Memory) {
        for piece in pieces {
            let from = mem.get(piece.mem, piece.count);
            let at = piece.at as usize * self.facts.element_bytes;
            image[at..at + from.len()].copy_from_slice(from);
        }
    }

    /// Copies pieces out of the bytes of their chunk.
    pub(super) fn scatter(&self, image: &[u8], pieces: &[Piece], mem: Memory) {
        for piece in pieces {
            let to = mem.get_mut(piece.mem, piece.count);
            let at = piece.at as usize * self.facts.element_bytes;
            to.copy_from_slice(&image[at..at + to.len()]);
        }
    }
}

/// The error for a chunk beyond an object's greatest size.
pub(super) fn past_room(dataset: String) -> Error {
    Error::new(ErrorKind::LimitExceeded, dataset)
        .because("a chunk would lie past 2^63 bytes")
        .try_next("use larger chunks or smaller greatest dimensions")
}

/// Fills `bytes` with copies of an element, or with zeros.
pub(super) fn fill_bytes(bytes: &mut [u8], element: Option<&[u8]>) {
    match element {
        None => bytes.fill(0),
        Some(element) => {
            for to in bytes.chunks_exact_mut(element.len()) {
                to.copy_from_slice(element);
            }
        }
    }
}
