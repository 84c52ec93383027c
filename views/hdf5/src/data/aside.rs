//! Write buffer for parts of filtered chunks (*put aside*): a program that writes row by row has each chunk filtered
//! once, not once per row.
//!
//! A buffered chunk is stored when it is whole, when it is read or asked about, when the buffer is full, and at the
//! latest when the dataset or the file is flushed or closed. All handles of a dataset in a process share the buffer. A
//! forked child forgets the buffer of its parent, which stores it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::chunked::{Chunked, Facts, Group};
use super::geometry::{Geometry, Piece};
use super::memory::Memory;
use super::place::DatasetRef;
use crate::Result;
use crate::file::File;

/// Most bytes of buffered chunks per dataset.
const ASIDE_BYTES_MAX: u64 = 32 << 20;

/// A chunk of which some elements were written.
struct Part {
    coords: Vec<u64>,
    image: Vec<u8>,
    /// Ranges of written elements, ascending and disjoint.
    written: Vec<Range<u64>>,
}

/// The write buffer of one dataset.
#[derive(Default)]
pub struct Dirty {
    process: u32,
    /// Oldest first.
    parts: Vec<Part>,
}

impl Dirty {
    /// The buffered chunks; a forked child forgets its parent's.
    fn own(&mut self) -> &mut Vec<Part> {
        let process = std::process::id();
        if self.process != process {
            self.process = process;
            self.parts.clear();
        }
        &mut self.parts
    }
}

/// Adds a range to ascending, disjoint ranges.
fn insert(ranges: &mut Vec<Range<u64>>, new: Range<u64>) {
    let from = ranges.partition_point(|r| r.end < new.start);
    let to = ranges.partition_point(|r| r.start <= new.end);
    let joined = ranges[from..to].iter().fold(new, |a, b| a.start.min(b.start)..a.end.max(b.end));
    ranges.splice(from..to, [joined]);
}

/// The open datasets with filters of this process, by the address of the file's shared state (valid while the dataset
/// is open) and the dataset's number.
type Open = HashMap<(usize, u64), Weak<Chunked>>;
static OPEN: Mutex<Option<Open>> = Mutex::new(None);

fn open_datasets<T>(body: impl FnOnce(&mut Open) -> T) -> T {
    body(OPEN.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert_default())
}

/// The chunks of a dataset; handles of a dataset with filters share them.
pub fn shared(place: DatasetRef, facts: Facts, dims: &[u64]) -> Result<Arc<Chunked>> {
    if facts.pipeline.is_empty() {
        return Chunked::new(place, facts, dims).map(Arc::new);
    }
    let key = (Arc::as_ptr(&place.file.shared) as usize, place.oid);
    open_datasets(|open| {
        if let Some(chunks) = open.get(&key).and_then(Weak::upgrade)
            && chunks.place.file.writable >= place.file.writable
        {
            return Ok(chunks);
        }
        open.retain(|_, chunks| chunks.strong_count() > 0);
        let chunks = Arc::new(Chunked::new(place, facts, dims)?);
        open.insert(key, Arc::downgrade(&chunks));
        Ok(chunks)
    })
}

/// Closed datasets with buffered chunks that could not be stored.
static KEPT: Mutex<Vec<Arc<Chunked>>> = Mutex::new(Vec::new());

/// Keeps a dataset's chunks after the dataset is closed.
pub fn keep(chunks: &Arc<Chunked>) {
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if !kept.iter().any(|other| Arc::ptr_eq(other, chunks)) {
        kept.push(chunks.clone());
    }
}

/// Releases the kept chunks of a file.
pub fn give_up(file: &File) {
    let is_of = |chunks: &Arc<Chunked>| Arc::ptr_eq(&chunks.place.file.shared, &file.shared);
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    let (gone, left) = std::mem::take(&mut *kept).into_iter().partition::<Vec<_>, _>(is_of);
    *kept = left;
    drop(kept);
    drop(gone); // without the lock: dropping tries to store once more, and reports what is lost
}

/// Stores the buffered chunks of all datasets of a file.
pub fn flush_file(file: &File) -> Result<()> {
    let mine: Vec<Arc<Chunked>> = open_datasets(|open| {
        let of_file = |key: &(usize, u64)| key.0 == Arc::as_ptr(&file.shared) as usize;
        open.iter().filter(|(key, _)| of_file(key)).filter_map(|(_, chunks)| chunks.upgrade()).collect()
    });
    mine.iter().try_for_each(|chunks| chunks.flush_aside())?;
    give_up(file); // nothing is left to store
    Ok(())
}

impl Chunked {
    /// Buffers pieces of a chunk; stores the chunk if that makes it whole.
    pub(super) fn put_aside(&self, geometry: &Geometry, number: u64, pieces: &[Piece], mem: Memory) -> Result<()> {
        let coords = geometry.coords(number);
        let mut dirty = self.dirty.lock();
        let parts = dirty.own();
        let at = if let Some(at) = parts.iter().position(|part| part.coords == coords) {
            at
        } else {
            while !parts.is_empty() && (parts.len() as u64 + 1) * self.facts.chunk_bytes > ASIDE_BYTES_MAX {
                self.store_part(geometry, &parts[0])?;
                parts.remove(0);
            }
            parts.push(Part { coords, image: self.blank(), written: Vec::new() });
            parts.len() - 1
        };
        let part = &mut parts[at];
        self.paste(&mut part.image, pieces, mem);
        for piece in pieces {
            insert(&mut part.written, piece.at..piece.at + piece.count);
        }
        if part.written.iter().map(|r| r.end - r.start).sum::<u64>() == geometry.elements_inside(number) {
            self.store_part(geometry, part)?;
            parts.remove(at);
        }
        Ok(())
    }

    fn store_part(&self, geometry: &Geometry, part: &Part) -> Result<()> {
        let Some(number) = geometry.number(&part.coords) else {
            return Ok(()); // the dataset was shrunk meanwhile
        };
        let count: u64 = part.written.iter().map(|r| r.end - r.start).sum();
        let whole = count == geometry.elements_inside(number) && self.is_final(geometry, number);
        self.store_image(geometry, number, part.image.clone(), (!whole).then_some(&part.written[..]))
    }

    /// Forgets the buffered part of a chunk that is overwritten whole.
    pub(super) fn drop_aside(&self, coords: &[u64]) {
        self.dirty.lock().own().retain(|part| part.coords != coords);
    }

    /// Stores the buffered parts of the chunks in `groups`.
    pub(super) fn flush_touching(&self, geometry: &Geometry, groups: &[Group]) -> Result<()> {
        let mut dirty = self.dirty.lock();
        let parts = dirty.own();
        let mut i = 0;
        while i < parts.len() {
            let number = geometry.number(&parts[i].coords);
            if number.is_some_and(|number| groups.binary_search_by_key(&number, |g| g.number).is_ok()) {
                self.store_part(geometry, &parts[i])?;
                parts.remove(i);
            } else {
                i += 1;
            }
        }
        Ok(())
    }

    /// Returns true if chunks are buffered.
    pub fn has_aside(&self) -> bool {
        !self.dirty.lock().own().is_empty()
    }
    /// Stores all buffered chunks.
    pub fn flush_aside(&self) -> Result<()> {
        let mut dirty = self.dirty.lock();
        let parts = dirty.own();
        if parts.is_empty() {
            return Ok(());
        }
        let geometry = self.geometry()?;
        while let Some(part) = parts.first() {
            let stored = self.store_part(&geometry, part);
            stored.map_err(|error| super::named(error, &self.place.file, || self.place.name()))?;
            parts.remove(0);
        }
        Ok(())
    }
}

impl Drop for Chunked {
    fn drop(&mut self) {
        if let Err(error) = self.flush_aside() {
            // Closing reports errors; this is the last handle, dropped without having been closed.
            eprintln!("cenote: {}: data could not be stored: {error}", self.place.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::insert;

    #[test]
    fn ranges_join() {
        let mut ranges = vec![];
        for new in [10..12, 20..25, 0..1, 12..14, 15..16, 14..15, 18..22, 0..30] {
            insert(&mut ranges, new.clone());
            assert!(ranges.windows(2).all(|w| w[0].end < w[1].start), "{ranges:?} after {new:?}");
        }
        assert_eq!((ranges.len(), &ranges[0]), (1, &(0..30)));
        insert(&mut ranges, 31..32);
        insert(&mut ranges, 30..31);
        assert_eq!((ranges.len(), &ranges[0]), (1, &(0..32)));
    }
}
