//! Where a dataset is in the store, and the keys and records of its chunks.
//!
//! A dataset has one object for its elements and, if it has variable-length parts, one for those. Its records in the
//! file's metadata index are one per existing chunk, and counters.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Object, ObjectId, Store, Transaction};

use crate::Result;
use crate::file::File;
use crate::meta::keys;
use crate::meta::records::Meta;

/// One record per chunk: tag, dataset, grid coordinates.
const TAG_CHUNK: u8 = keys::TAG_DATA;
/// Number of times that chunks were dropped.
const TAG_GENERATION: u8 = keys::TAG_DATA + 1;
/// Next free slot.
const TAG_SLOT: u8 = keys::TAG_DATA + 2;
/// Next free byte of the heap.
const TAG_HEAP: u8 = keys::TAG_DATA + 3;
/// Fill value whose variable-length parts are in the heap.
const TAG_FILL: u8 = keys::TAG_DATA + 4;
/// Set if chunks existed that were dropped.
const TAG_HAD: u8 = keys::TAG_DATA + 5;
/// Numbers of datasets have this bit clear; their heaps have it set.
pub const HEAP_BIT: u64 = 1 << 63;
/// Attempts of a transaction before a conflict is reported: each failure means that another writer made progress.
const TRIES_MAX: u32 = 10_000;

/// Key of the number of times that chunks of a dataset were dropped.
pub fn generation_key(oid: u64) -> Vec<u8> {
    keys::of(TAG_GENERATION, oid)
}
/// Key of the counter of slots.
pub fn slot_key(oid: u64) -> Vec<u8> {
    keys::of(TAG_SLOT, oid)
}
/// Key of the counter of heap bytes.
pub fn heap_key(oid: u64) -> Vec<u8> {
    keys::of(TAG_HEAP, oid)
}
/// Key of a fill value with variable-length parts.
pub fn fill_key(oid: u64) -> Vec<u8> {
    keys::of(TAG_FILL, oid)
}
/// Key of the record that says that dropped chunks existed.
pub fn had_key(oid: u64) -> Vec<u8> {
    keys::of(TAG_HAD, oid)
}
/// Prefix of the keys of all chunk records.
pub fn chunk_prefix(oid: u64) -> Vec<u8> {
    keys::of(TAG_CHUNK, oid)
}
/// Key of the record of the chunk at these grid coordinates; keys sort as chunks do, row-major.
pub fn chunk_key(oid: u64, coords: &[u64]) -> Vec<u8> {
    let mut key = Vec::with_capacity(9 + coords.len() * 8);
    key.push(TAG_CHUNK);
    key.extend_from_slice(&oid.to_be_bytes());
    for c in coords {
        key.extend_from_slice(&c.to_be_bytes());
    }
    key
}

/// The place of one dataset.
#[derive(Clone)]
pub struct DatasetRef {
    /// The file.
    pub file: Arc<File>,
    /// The dataset's number.
    pub oid: u64,
}

impl DatasetRef {
    /// The object that holds the elements.
    pub fn object(&self) -> Object {
        self.file.object(self.oid)
    }
    /// The id of the object that holds the elements.
    pub fn object_id(&self) -> ObjectId {
        self.file.object_id(self.oid)
    }
    /// The object that holds variable-length parts.
    pub fn heap(&self) -> Object {
        self.file.object(self.oid | HEAP_BIT)
    }
    /// The id of the object that holds variable-length parts.
    pub fn heap_id(&self) -> ObjectId {
        self.file.object_id(self.oid | HEAP_BIT)
    }
    /// The file's records.
    pub fn index(&self) -> &Meta {
        &self.file.meta
    }
    /// Writes bytes to one of its objects.
    pub fn write(&self, object: &Object, parts: &[(u64, &[u8])]) -> Result<()> {
        self.file.shared.ahead().write(object, parts)
    }
    /// Waits until what other ranks of a parallel program have launched into these bytes can be read.
    pub fn wait_for_others(&self, object: &Object, offset: u64, len: u64) -> Result<()> {
        self.wait_for_others_at(object, std::iter::once((offset, len)))
    }
    /// Waits for other ranks' writes into several ranges (offset, length).
    pub fn wait_for_others_at(&self, object: &Object, ranges: impl Iterator<Item = (u64, u64)> + Clone) -> Result<()> {
        let ranges = ranges.map(|(offset, len)| offset..offset.saturating_add(len));
        self.file.shared.ahead().wait_for_others(object, &ranges)
    }
    /// Waits for everything that other ranks have launched.
    pub fn wait_for_all_others(&self) -> Result<()> {
        self.file.shared.ahead().wait_for_all_others()
    }
    /// The store.
    pub fn store(&self) -> &Store {
        &self.file.store
    }
    /// The dataset's name for errors.
    pub fn name(&self) -> String {
        format!("dataset {:016x} of file {}", self.oid, self.file.path)
    }

    /// Key of the extent record.
    pub fn extent_key(&self) -> Vec<u8> {
        keys::extent(self.oid)
    }
    /// Key of the number of times that chunks were dropped.
    pub fn generation_key(&self) -> Vec<u8> {
        generation_key(self.oid)
    }
    /// Key of the counter of slots.
    pub fn slot_key(&self) -> Vec<u8> {
        slot_key(self.oid)
    }
    /// Key of the counter of heap bytes.
    pub fn heap_key(&self) -> Vec<u8> {
        heap_key(self.oid)
    }
    /// Key of a fill value with variable-length parts.
    pub fn fill_key(&self) -> Vec<u8> {
        fill_key(self.oid)
    }
    /// Key of the record that says that dropped chunks existed.
    pub fn had_key(&self) -> Vec<u8> {
        had_key(self.oid)
    }
    /// Prefix of the keys of all chunk records.
    pub fn chunk_prefix(&self) -> Vec<u8> {
        chunk_prefix(self.oid)
    }
    /// Key of the record of the chunk at these grid coordinates; keys sort as chunks do, row-major.
    pub fn chunk_key(&self, coords: &[u64]) -> Vec<u8> {
        chunk_key(self.oid, coords)
    }
    /// Grid coordinates from the key of a chunk record.
    pub fn chunk_coords(&self, key: &[u8], rank: usize) -> Result<Vec<u64>> {
        let (words, rest) = key.get(9..).unwrap_or_default().as_chunks::<8>();
        if words.len() != rank || !rest.is_empty() {
            return Err(self.corrupt("a chunk record has a key of the wrong length"));
        }
        Ok(words.iter().map(|word| u64::from_be_bytes(*word)).collect())
    }

    /// An error about damaged records of this dataset.
    pub fn corrupt(&self, cause: &str) -> Error {
        Error::new(ErrorKind::Corrupt, self.name()).because(cause).try_next("run `cenote verify` on the store")
    }

    /// Runs `body` in a transaction that detects changes of what it read, and repeats it until it commits. Also
    /// repeats a `body` that fails with a conflict.
    pub fn transact<T>(&self, mut body: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let ahead = self.file.shared.ahead();
        ahead.with(|precondition| match precondition {
            Some(precondition) => {
                let mut tx = self.store().begin();
                let done = body(&mut tx)?;
                ahead.send(tx, precondition).map(|()| done)
            }
            None => self.transact_awaited(&mut body),
        })
    }
    fn transact_awaited<T>(&self, body: &mut impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        let mut tries = 0;
        loop {
            let mut tx = self.store().begin();
            tx.detect_conflicts(true);
            let done = (*body)(&mut tx).and_then(|done| tx.commit().map(|_| done));
            match done {
                Err(error) if error.kind() == ErrorKind::Conflict && tries < TRIES_MAX => {
                    tries += 1;
                    if tries > 4 {
                        std::thread::yield_now();
                    }
                }
                done => return done,
            }
        }
    }

    /// A counter's value; 0 if there is no record.
    pub fn count(&self, record: Option<&[u8]>) -> Result<u64> {
        record.map_or(Ok(0), |bytes| {
            bytes.try_into().map(u64::from_le_bytes).map_err(|_| self.corrupt("a counter has the wrong length"))
        })
    }

    /// Takes `count` consecutive numbers from the counter at `key`; nobody else gets them. The counter starts at 0.
    pub fn lease(&self, key: &[u8], count: u64) -> Result<u64> {
        self.transact(|tx| {
            let next = self.count(tx.get(self.index(), key)?.as_deref())?;
            let after = next.checked_add(count).filter(|after| *after < 1 << 62).ok_or_else(|| {
                Error::new(ErrorKind::LimitExceeded, self.name()).because("one of its counters is used up")
            })?;
            tx.put(self.index(), key, &after.to_le_bytes())?;
            Ok(next)
        })
    }
}

/// The record of an existing chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChunkRecord {
    /// The slot of the object that has its bytes.
    pub slot: u64,
    /// Number of stored bytes.
    pub bytes: u64,
    /// Filters left out, one bit each.
    pub mask: u32,
    /// Changes with each rewrite of a filtered chunk: tells a reader that record and bytes belong together.
    pub edit: u64,
}

const RECORD_VERSION: u8 = 1;

impl ChunkRecord {
    /// Encodes the record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(29);
        out.push(RECORD_VERSION);
        out.extend_from_slice(&self.slot.to_le_bytes());
        out.extend_from_slice(&self.bytes.to_le_bytes());
        out.extend_from_slice(&self.mask.to_le_bytes());
        out.extend_from_slice(&self.edit.to_le_bytes());
        out
    }

    /// Decodes a record; `None` if the bytes are not a chunk record.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 29] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].iter().rev().fold(0, |sum, b| sum << 8 | u64::from(*b));
        let mask = bytes[17..21].iter().rev().fold(0, |sum, b| sum << 8 | u32::from(*b));
        (bytes[0] == RECORD_VERSION).then(|| Self { slot: word(1), bytes: word(9), mask, edit: word(21) })
    }
}

/// Counts chunks from records, see [`super::stored_chunks`].
pub fn stored_chunks(meta: &cenote::Index, oid: u64) -> Result<(u64, u64)> {
    let (mut count, mut bytes) = (0, 0);
    for record in meta.iter(&keys::of(TAG_CHUNK, oid)) {
        let stored = ChunkRecord::decode(&record?.1).ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("dataset {oid:016x}"))
                .because("a chunk record is damaged")
                .try_next("run `cenote verify` on the store")
        })?;
        count += 1;
        bytes += stored.bytes;
    }
    Ok((count, bytes))
}

/// A number that most likely no other call in any process gets.
pub fn nonce() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    static SEED: OnceLock<RandomState> = OnceLock::new();
    // The process id is hashed in because forked children have the same seed and count.
    SEED.get_or_init(RandomState::new).hash_one((COUNT.fetch_add(1, Ordering::Relaxed), std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_damaged_ones_do_not() {
        let record = ChunkRecord { slot: 3, bytes: u64::MAX - 1, mask: 0x8000_0001, edit: 77 };
        let bytes = record.encode();
        assert_eq!(ChunkRecord::decode(&bytes), Some(record));
        assert_eq!(ChunkRecord::decode(&bytes[1..]), None);
        assert_eq!(ChunkRecord::decode(&[9; 29]), None);
    }

    #[test]
    fn nonces_differ() {
        assert_ne!(nonce(), nonce());
    }
}
