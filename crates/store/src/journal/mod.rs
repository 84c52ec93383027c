//! The journal (write-ahead log): every applied request and internal change, in order, in preallocated log files.
//!
//! `docs/format.md` has the bytes. A record survives the death of the process as soon as it is appended, and power loss
//! once the file was synced after it. The journal must not know the state: `replay` applies its records.

mod header;
mod place;
mod read;
pub(crate) mod record;
#[cfg(test)]
mod tests;
pub(crate) mod two_phase;
mod update;

use std::sync::Arc;

use cenote_device::{LogFile, MetaDir};
use cenote_model::{Error, ErrorKind, Result, StoreId};

use crate::codec::ordinal_in_name;
use crate::sums::sum_of;
use crate::syncs::Log;

pub(crate) use header::Header;
pub(crate) use read::{Ended, Replayed, read_all, read_between};

/// Bytes of a file's header; records begin after it.
pub(crate) const HEADER_BYTES: u64 = 4096;
/// The part of the header that has content: a disk writes it as one sector.
const HEADER_USED: usize = 512;
/// Bytes before a record's payload: length, checksum, epoch, kind.
pub(crate) const RECORD_HEADER: usize = 17;
pub(crate) const RECORD_BYTES_MAX: usize = 1 << 30;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Kind {
    Apply = 1,
    SessionOpen = 2,
    SessionClose = 3,
    Lease = 4,
    Unlease = 5,
    Cut = 6,
    Mark = 7,
    /// [`Self::Place`] before version 4.
    PlaceOfOne = 8,
    Synced = 9,
    Continued = 10,
    Recut = 11,
    Pin = 12,
    Unpin = 13,
    Keep = 20,
    Spill = 21,
    GiveUp = 22,
    Place = 23,
    Prepared = 24,
    Decided = 25,
    Settled = 26,
    GivenUp = 27,
    Forgotten = 28,
}

impl Kind {
    pub fn from_code(code: u8) -> Option<Self> {
        use Kind as K;
        [
            K::Apply,
            K::SessionOpen,
            K::SessionClose,
            K::Lease,
            K::Unlease,
            K::Cut,
            K::Mark,
            K::PlaceOfOne,
            K::Place,
            K::Synced,
            K::Continued,
            K::Recut,
            K::Pin,
            K::Unpin,
            K::Keep,
            K::Spill,
            K::GiveUp,
            K::Prepared,
            K::Decided,
            K::Settled,
            K::GivenUp,
            K::Forgotten,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == code)
    }
}

/// Bytes reserved beside a record: for a `Synced` before it, a `Continued` at the end, and rounding.
const RECORD_ROOM: u64 = 96;
/// Bytes of a journal file on a disk without room for a whole one, and of files made without checkpoints between them.
pub(crate) const FILE_BYTES_SHORT: u64 = 256 << 10;

/// The position in a `Synced` record that says that the store was closed in good order.
pub(crate) const CLOSED: u64 = u64::MAX;

/// Returns the error for damage in a journal file.
#[cold]
pub(crate) fn corrupt(name: &str, offset: u64, why: &str) -> Error {
    crate::codec::unreadable(format!("journal file `{name}` at byte {offset}"), why)
}

pub(crate) fn file_name(sequence: u64) -> String {
    format!("journal-{sequence:06}")
}
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    ordinal_in_name(name, "journal-")
}

/// Returns the store of a log file; `None` if it was made ahead of need and holds nothing.
pub(crate) fn store_of(name: &str, log: &dyn LogFile) -> Result<Option<StoreId>> {
    let mut bytes = vec![0; HEADER_USED];
    log.read(0, &mut bytes)?;
    Ok(Header::decode(name, &bytes)?.map(|header| header.store))
}
/// Changes the store of a log file whose header [`store_of`] has checked.
pub(crate) fn change_store(log: &dyn LogFile, store: StoreId) -> Result<()> {
    let mut bytes = vec![0; HEADER_USED];
    log.read(0, &mut bytes)?;
    bytes[16..32].copy_from_slice(&store.0.to_le_bytes());
    bytes[12..16].fill(0);
    let sum = sum_of(&bytes);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    log.write(0, &bytes)?;
    log.sync()
}

/// The journal, open for appending.
pub(crate) struct Journal {
    meta: Arc<dyn MetaDir>,
    store: StoreId,
    pub open: OpenFile,
    pub next: Next,
    pub media: OnMedia,
    /// Checkpoints whose writing failed, but that may exist: they would hide later records of the journal.
    doubtful: Vec<String>,
    /// The buffer of the last record, for reuse.
    buffer: Vec<u8>,
}

/// The file that takes records.
pub(crate) struct OpenFile {
    file: Arc<Log>,
    pub sequence: u64,
    /// Offset of the next record in the file.
    offset: u64,
    base: u64,
    /// The file takes no more records: a write failed, or a successor may exist already.
    broken: bool,
}

pub(crate) struct Next {
    /// Highest number given to a file, even to one that was never begun.
    last_number: u64,
    /// A file made ahead of need.
    spare: Option<(u64, Arc<Log>)>,
    /// A file that a job is making.
    making: Option<u64>,
    pub file_bytes: u64,
}

/// The part of the journal that is on media.
pub(crate) struct OnMedia {
    /// Journal position up to which everything is on media.
    synced: u64,
    /// A sync has succeeded that no `Synced` record tells yet.
    proof_due: bool,
    /// Since when records wait for a sync that has not begun.
    pub dirty_since_ns: Option<u64>,
}

pub(crate) struct Draft {
    pub bytes: Vec<u8>,
}

impl Journal {
    /// Begins a journal with the file `sequence`, whose records begin at `position`. Fails if it cannot be made.
    pub fn begin(
        meta: Arc<dyn MetaDir>,
        store: StoreId,
        sequence: u64,
        (previous, previous_end): (u64, u64),
        position: u64,
        file_bytes: u64,
    ) -> Result<Self> {
        let base = position.saturating_sub(HEADER_BYTES);
        let file = Arc::new(Log::new(meta.create_log(&file_name(sequence), file_bytes)?));
        let header = Header { store, sequence, previous, previous_end, base, capacity: file.capacity(), term: 0 };
        write_header(&file, &header)?;
        Ok(Self {
            meta,
            store,
            open: OpenFile { file, sequence, offset: HEADER_BYTES, base, broken: false },
            next: Next { last_number: sequence, spare: None, making: None, file_bytes },
            media: OnMedia { synced: base + HEADER_BYTES, proof_due: false, dirty_since_ns: None },
            doubtful: Vec::new(),
            buffer: Vec::with_capacity(64 << 10),
        })
    }
    /// Position after the last record.
    pub fn position(&self) -> u64 {
        self.open.base + self.open.offset
    }
    /// Position up to which everything is on media.
    pub fn synced(&self) -> u64 {
        self.media.synced
    }
    /// Begins a record.
    pub fn draft(&mut self, kind: Kind) -> Draft {
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        bytes.resize(RECORD_HEADER, 0);
        bytes[16] = kind as u8;
        Draft { bytes }
    }
    /// Drops a record that was not appended.
    pub fn discard(&mut self, draft: Draft) {
        self.buffer = draft.bytes;
    }
    /// Appends a record. Fails if the record is too long or no file takes it; nothing of it will ever be replayed then.
    pub fn append(&mut self, mut draft: Draft, epoch: u64) -> Result<()> {
        let done = self.append_bytes(&mut draft.bytes, epoch);
        self.buffer = draft.bytes;
        if self.buffer.capacity() > 4 << 20 {
            self.buffer = Vec::with_capacity(64 << 10);
        }
        done
    }
    fn append_bytes(&mut self, bytes: &mut [u8], epoch: u64) -> Result<()> {
        if bytes.len() > RECORD_BYTES_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, "a transaction")
                .because(format!(
                    "its journal record would take {} bytes, the limit is {RECORD_BYTES_MAX}",
                    bytes.len()
                ))
                .try_next("split it"));
        }
        self.make_room(bytes.len() as u64 + RECORD_ROOM)?;
        if self.media.proof_due {
            let mut proof = [0u8; RECORD_HEADER + 8];
            proof[16] = Kind::Synced as u8;
            proof[RECORD_HEADER..].copy_from_slice(&self.media.synced.to_le_bytes());
            self.write_record(&mut proof, epoch)?;
            self.media.proof_due = false;
        }
        self.write_record(bytes, epoch)
    }
    fn write_record(&mut self, bytes: &mut [u8], epoch: u64) -> Result<()> {
        if let Err(e) = write_sealed(self.open.file.file(), self.open.offset, bytes, epoch) {
            // A partial record must not look like a damaged one: the next file says where this one ends.
            self.open.broken = true;
            return Err(e);
        }
        self.open.offset = (self.open.offset + bytes.len() as u64).next_multiple_of(8);
        Ok(())
    }
    /// Makes the file in which the journal goes on once a checkpoint has everything so far; it has no predecessor.
    /// Nothing goes into it before [`Journal::restart`]; readers skip it if that never happens. `bytes`: its length.
    pub fn prepare_restart(&mut self, bytes: u64) -> Result<(Header, Arc<Log>)> {
        let sequence = self.next_number();
        let file = self.create(sequence, bytes, 0)?;
        let base = self.position() - HEADER_BYTES;
        let (store, capacity) = (self.store, file.capacity());
        let header = Header { store, sequence, previous: 0, previous_end: 0, base, capacity, term: 0 };
        write_header(&file, &header)?;
        Ok((header, file))
    }
    /// Goes on in this file: a checkpoint on media has everything so far and names the file.
    pub fn restart(&mut self, header: &Header, file: Arc<Log>) {
        self.media.synced = self.position();
        self.doubtful.clear();
        self.next.spare = None;
        self.go_on_in(header, file);
    }
    /// Notes a checkpoint that could not be written but may exist. It is removed before anything else is appended.
    pub fn doubt(&mut self, checkpoint: String) {
        self.doubtful.push(checkpoint);
    }
    fn clear_doubt(&mut self) -> Result<()> {
        while let Some(name) = self.doubtful.last() {
            match self.meta.remove(name) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => self.doubtful.pop(),
            };
        }
        Ok(())
    }
    fn go_on_in(&mut self, header: &Header, file: Arc<Log>) {
        (self.open.file, self.open.sequence, self.open.base, self.open.offset) =
            (file, header.sequence, header.base, HEADER_BYTES);
        (self.media.proof_due, self.open.broken) = (false, false);
    }
    fn make_room(&mut self, need: u64) -> Result<()> {
        self.clear_doubt()?;
        if self.open.offset + need <= self.open.file.capacity() && !self.open.broken && !self.is_tainted() {
            return Ok(());
        }
        self.rotate(need)
    }
    /// Creates a file. If the disk has no room for all of it, creates a short one of at least `least` bytes: as long as
    /// anything fits, the journal takes changes, deletions among them.
    fn create(&self, sequence: u64, bytes: u64, least: u64) -> Result<Arc<Log>> {
        let name = file_name(sequence);
        let short = least.max(FILE_BYTES_SHORT);
        let made = match self.meta.create_log(&name, bytes) {
            Err(error) if error.kind() == ErrorKind::Full && short < bytes => self.meta.create_log(&name, short),
            made => made,
        };
        Ok(Arc::new(Log::new(made?)))
    }
    /// Goes on in a new file with room for `need` bytes. The old one is on media before the new one has a header.
    pub fn rotate(&mut self, need: u64) -> Result<()> {
        self.clear_doubt()?;
        self.open.file.sync()?;
        let capacity = self.next.file_bytes.max(need + HEADER_BYTES);
        // Readers take the begun file with the highest number for the last one.
        let last = self.next.last_number;
        let spare = self.next.spare.take().filter(|(number, file)| *number == last && file.capacity() >= capacity);
        let (sequence, file) = if let Some(spare) = spare {
            spare
        } else {
            let sequence = self.next_number();
            (sequence, self.create(sequence, capacity, need + HEADER_BYTES)?)
        };
        let position = self.position();
        let header = Header {
            store: self.store,
            sequence,
            previous: self.open.sequence,
            previous_end: self.open.offset,
            base: position - HEADER_BYTES,
            capacity: file.capacity(),
            term: 0,
        };
        // From here on a successor may exist that says where this file ends.
        self.open.broken = true;
        write_header(&file, &header)?;
        write_continued(self.open.file.file(), self.open.offset, sequence);
        self.media.synced = position;
        self.go_on_in(&header, file);
        Ok(())
    }
    /// Returns true if a sync failed, so that only a checkpoint can bring the records to media.
    pub fn is_tainted(&self) -> bool {
        self.open.file.has_failed()
    }
    /// Returns the file to be synced, and the position that is on media then.
    pub fn to_sync(&self) -> (Arc<Log>, u64) {
        (Arc::clone(&self.open.file), self.position())
    }
    /// Notes that a sync that began at `position` succeeded.
    pub fn note_synced(&mut self, position: u64) {
        if position > self.media.synced && !self.is_tainted() {
            self.media.synced = position;
            self.media.proof_due = true;
        }
    }
    /// Appends a record that the store was closed in good order, with no suspects.
    pub fn append_closed(&mut self, epoch: u64) -> Result<()> {
        let mut draft = self.draft(Kind::Synced);
        draft.bytes.extend_from_slice(&CLOSED.to_le_bytes());
        self.append(draft, epoch)
    }
    /// Syncs at once.
    pub fn sync(&mut self) -> Result<()> {
        let position = self.position();
        self.open.file.sync()?;
        self.note_synced(position);
        Ok(())
    }
    /// Returns a number that no file ever had.
    fn next_number(&mut self) -> u64 {
        self.next.last_number += 1;
        self.next.last_number
    }
    /// Returns the sequence number of a spare file that should be made now; a job makes it and [`Journal::give_spare`]
    /// takes it. `is_wanted`: even if the present file has room.
    pub fn make_spare(&mut self, is_wanted: bool) -> Option<u64> {
        let half_full = self.open.offset * 2 > self.open.file.capacity();
        if !(half_full || is_wanted) || self.next.spare.is_some() || self.next.making.is_some() {
            return None;
        }
        self.next.making = Some(self.next_number());
        self.next.making
    }
    /// Takes a spare file, or notes that it could not be made. Returns false if the file is of no use any more.
    pub fn give_spare(&mut self, sequence: u64, file: Option<Arc<Log>>) -> bool {
        self.next.making = None;
        let useful = sequence == self.next.last_number && sequence > self.open.sequence;
        if let (true, Some(file)) = (useful, file) {
            self.next.spare = Some((sequence, file));
        }
        useful
    }
    /// Returns true if the next file exists already.
    pub fn has_spare(&self) -> bool {
        self.next.spare.is_some()
    }
    /// Returns true if a job is making a file.
    pub fn is_making(&self) -> bool {
        self.next.making.is_some()
    }
}

fn write_header(file: &Log, header: &Header) -> Result<()> {
    file.write(0, &header.encode())?;
    file.sync()
}

/// Writes at the end of a file that the begun and synced file `sequence` follows: without this record nobody would
/// notice if that one were missing.
///
/// Nothing else depends on it: readers that find the successor stop before it. So a failure is ignored.
pub(crate) fn write_continued(file: &dyn LogFile, end: u64, sequence: u64) {
    let mut bytes = [0u8; RECORD_HEADER + 8];
    if end + bytes.len() as u64 > file.capacity() {
        return; // of an early version, which left no room for it
    }
    bytes[16] = Kind::Continued as u8;
    bytes[RECORD_HEADER..].copy_from_slice(&sequence.to_le_bytes());
    let _ = write_sealed(file, end, &mut bytes, 0);
}

/// Seals and writes a record, its length last: a death in between leaves a record of length zero, which is the end.
fn write_sealed(file: &dyn LogFile, at: u64, bytes: &mut [u8], epoch: u64) -> Result<()> {
    seal(bytes, epoch);
    file.write(at + 4, &bytes[4..])?;
    file.write(at, &bytes[..4])
}

/// Fills in a record's length, epoch and checksum.
pub(crate) fn seal(bytes: &mut [u8], epoch: u64) {
    let len = (bytes.len() - 8) as u32;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].fill(0);
    bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
    let sum = sum_of(bytes);
    bytes[4..8].copy_from_slice(&sum.to_le_bytes());
}
