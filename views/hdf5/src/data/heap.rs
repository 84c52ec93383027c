//! The heap of a dataset: variable-length parts, appended and never changed.
//!
//! While elements are converted, HDF5 calls back for each part ([`put`], [`get`]); a [`Session`] on this thread says which
//! dataset is meant. Bytes are stored before the elements that name them, so that an element never names missing bytes. Space
//! is leased from a counter, so that writers in several processes never conflict.
//!
//! A blob id is offset and length, 64 bits each, little-endian; all zeros is null, and offset `u64::MAX` is empty.

use std::cell::RefCell;
use std::ops::Range;

use cenote::{Error, ErrorKind, Object};

use super::place::DatasetRef;
use crate::Result;
use crate::blob::ID_BYTES;

/// Start of the heap, so that no id is all zeros.
const START: u64 = 16;
const EMPTY: u64 = u64::MAX;
/// Bytes leased at first, and at most (more for one larger blob).
const LEASE_FIRST: u64 = 64 << 10;
const LEASE_MAX: u64 = 16 << 20;
/// Bytes gathered before they are written.
const PENDING_MAX: usize = 4 << 20;
/// Bytes read around a blob: at first, and at most during sequential reads.
const READ_AHEAD_FIRST: usize = 4 << 10;
const READ_AHEAD_MAX: usize = 1 << 20;

/// Space leased by a handle and not yet used.
#[derive(Default)]
pub struct Lease {
    range: Range<u64>,
    next_bytes: u64,
}

/// A conversion in progress.
pub struct Session {
    place: DatasetRef,
    heap: Object,
    lease: Lease,
    pending: Vec<u8>,
    pending_at: u64,
    read_ahead: Vec<u8>,
    read_ahead_at: u64,
    read_ahead_bytes: usize,
    /// Why a part could not be kept: reported after the conversion.
    failed: Option<Error>,
}

thread_local! {
    static CURRENT: RefCell<Option<Session>> = const { RefCell::new(None) };
}

impl Session {
    /// A session on the heap of the dataset at `place`, with the rest of an earlier lease.
    pub fn new(place: &DatasetRef, lease: Lease) -> Self {
        Self {
            heap: place.heap(),
            place: place.clone(),
            lease,
            pending: Vec::new(),
            pending_at: 0,
            read_ahead: Vec::new(),
            read_ahead_at: 0,
            read_ahead_bytes: READ_AHEAD_FIRST,
            failed: None,
        }
    }

    /// Runs `convert` with this session on this thread.
    pub fn run<T>(self, convert: impl FnOnce() -> Result<T>) -> (Result<T>, Self) {
        let outer = CURRENT.replace(Some(self));
        let done = convert();
        let this = CURRENT.replace(outer);
        match this {
            Some(mut this) => match this.failed.take() {
                Some(error) => (Err(error), this),
                None => (done, this),
            },
            None => unreachable!("only `run` takes the session away"),
        }
    }

    /// Writes the parts that were put; returns the rest of the lease.
    pub fn finish(mut self) -> Result<Lease> {
        self.flush()?;
        Ok(self.lease)
    }

    /// The parts that were put, their offset, and the lease, for a caller that writes them in its own transaction.
    pub fn into_parts(self) -> (u64, Vec<u8>, u64) {
        (self.pending_at, self.pending, self.lease.range.start)
    }

    /// A session for a heap that does not exist yet, with room for `bytes`.
    pub fn fresh(place: &DatasetRef) -> Self {
        let mut this = Self::new(place, Lease { range: START..u64::MAX >> 2, next_bytes: LEASE_FIRST });
        this.pending_at = START;
        this
    }

    fn flush(&mut self) -> Result<()> {
        if !self.pending.is_empty() {
            self.heap.write_at(self.pending_at, &self.pending)?;
            self.pending_at += self.pending.len() as u64;
            self.pending.clear();
        }
        Ok(())
    }

    /// Keeps a part. An error is only noted: if this failed, HDF5 would free the elements converted so far as if they were
    /// memory, which they are not, and the program would crash.
    fn put(&mut self, bytes: &[u8]) -> [u8; ID_BYTES] {
        let kept = if self.failed.is_some() { None } else { self.keep(bytes).map_err(|e| self.failed = Some(e)).ok() };
        kept.unwrap_or(id(EMPTY, 0))
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<[u8; ID_BYTES]> {
        let len = bytes.len() as u64;
        if len == 0 {
            return Ok(id(EMPTY, 0));
        }
        if self.lease.range.end - self.lease.range.start < len {
            self.flush()?;
            let want = self.lease.next_bytes.max(LEASE_FIRST).max(len);
            let at = START + self.place.lease(&self.place.heap_key(), want)?;
            self.lease = Lease { range: at..at + want, next_bytes: (want * 4).min(LEASE_MAX) };
            self.pending_at = at;
        } else if self.pending.is_empty() {
            self.pending_at = self.lease.range.start;
        } else if self.pending.len() + bytes.len() > PENDING_MAX {
            self.flush()?;
        }
        let at = self.lease.range.start;
        self.pending.extend_from_slice(bytes);
        self.lease.range.start += len;
        Ok(id(at, len))
    }

    fn get(&mut self, (at, len): (u64, u64), buf: &mut [u8]) -> Result<()> {
        if len != buf.len() as u64 {
            return Err(self
                .place
                .corrupt(&format!("a variable-length part has {len} bytes where its element says {}", buf.len())));
        }
        if buf.is_empty() {
            return Ok(());
        }
        if let Some(from) = at.checked_sub(self.pending_at).map(|from| from as usize)
            && let Some(bytes) = self.pending.get(from..from.saturating_add(buf.len()))
        {
            buf.copy_from_slice(bytes);
            return Ok(());
        }
        if !self.in_read_ahead(at, buf) {
            self.fetch(at, buf.len())?;
            if !self.in_read_ahead(at, buf) {
                return Err(self.place.corrupt("an element names variable-length bytes that were never written"));
            }
        }
        Ok(())
    }

    fn in_read_ahead(&self, at: u64, buf: &mut [u8]) -> bool {
        let bytes = at
            .checked_sub(self.read_ahead_at)
            .and_then(|from| usize::try_from(from).ok())
            .and_then(|from| self.read_ahead.get(from..from.checked_add(buf.len())?));
        bytes.map(|bytes| buf.copy_from_slice(bytes)).is_some()
    }

    fn fetch(&mut self, at: u64, len: usize) -> Result<()> {
        let end = self.read_ahead_at + self.read_ahead.len() as u64;
        let in_order = at >= self.read_ahead_at && at <= end + self.read_ahead_bytes as u64;
        self.read_ahead_bytes =
            if in_order { (self.read_ahead_bytes * 4).min(READ_AHEAD_MAX) } else { READ_AHEAD_FIRST };
        self.read_ahead.clear();
        self.read_ahead.resize(len.max(self.read_ahead_bytes), 0);
        self.read_ahead_at = at;
        let got = self.heap.read_at(at, &mut self.read_ahead)?;
        self.read_ahead.truncate(got);
        Ok(())
    }
}

fn id(at: u64, len: u64) -> [u8; ID_BYTES] {
    let mut id = [0; ID_BYTES];
    id[..8].copy_from_slice(&at.to_le_bytes());
    id[8..].copy_from_slice(&len.to_le_bytes());
    id
}

fn with<T>(body: impl FnOnce(&mut Session) -> Result<T>) -> Result<T> {
    CURRENT.with_borrow_mut(|session| match session {
        Some(session) => body(session),
        None => Err(Error::new(ErrorKind::Internal, "variable-length data")
            .because("HDF5 asked for it outside of a read or write of the cenote connector")),
    })
}

/// Keeps the bytes of one variable-length part.
pub fn put(bytes: &[u8]) -> Result<[u8; ID_BYTES]> {
    with(|session| Ok(session.put(bytes)))
}

/// Reads the bytes of one variable-length part.
pub fn get(id: [u8; ID_BYTES], buf: &mut [u8]) -> Result<()> {
    let (at, len) = id.split_at(8);
    let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    with(|session| session.get((word(at), word(len)), buf))
}
