//! Reads the journal back, and tells its end from damage.

use cenote_device::{LogFile, MetaDir};
use cenote_model::{Error, ErrorKind, Result, StoreId};

use super::{CLOSED, HEADER_BYTES, Header, Kind, RECORD_BYTES_MAX, RECORD_HEADER, corrupt, file_name};
use crate::codec::Decoder;
use crate::sums::sum_of;

const CHUNK_BYTES: usize = 4 << 20;

/// Where the journal ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ended {
    /// The last file.
    pub sequence: u64,
    /// End of its last record.
    pub offset: u64,
    /// That end as a position in the whole journal.
    pub position: u64,
    /// True if an unfinished record follows.
    pub torn: bool,
    /// A `Synced` record proves that the file was on media up to here.
    pub proven: u64,
    /// Number of files of the journal.
    pub files: usize,
}

/// A record as it was read.
pub(crate) struct Replayed<'a> {
    pub kind: Kind,
    pub epoch: u64,
    pub payload: &'a [u8],
    /// Its file, and its offset there.
    pub name: &'a str,
    pub offset: u64,
}

/// What was found at an offset.
enum RecordRead {
    Record {
        kind: Kind,
        epoch: u64,
        len: usize,
    },
    /// No whole record.
    Nothing,
}

/// Calls `each` with every record of the journal, in order. `sequences`: all files that exist; `first`: the file in
/// which the journal goes on after the checkpoint.
///
/// Each file names its predecessor, and a file gets records only when nothing goes into its predecessor any more. So
/// the newest file is the last one, and files outside the chain of predecessors were never begun and are skipped.
///
/// `power_lost`: unsynced bytes may be missing or torn in any order. Otherwise nothing that was written is missing, so
/// that whatever is not a record and not the very end is damage.
pub(crate) fn read_all(
    meta: &dyn MetaDir,
    store: StoreId,
    sequences: &[u64],
    first: u64,
    power_lost: bool,
    each: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
) -> Result<Ended> {
    let chain = chain_from(meta, store, sequences, first)?;
    let mut ended = None;
    for (i, log) in chain.iter().enumerate() {
        let next = chain.get(i + 1).map(|log| &log.header);
        ended = Some(read_file(&log.name, log.file.as_ref(), &log.header, next, power_lost, each)?);
    }
    let ended = ended.ok_or_else(|| missing(first))?;
    Ok(Ended { files: chain.len(), ..ended })
}

/// Calls `each` with every record of the journal from the file `first` on and before the file `until`, which may be
/// taking records meanwhile. Returns the position in the whole journal at which `until` begins. Fails if anything is
/// missing or damaged.
pub(crate) fn read_between(
    meta: &dyn MetaDir,
    store: StoreId,
    (first, until): (u64, u64),
    each: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
) -> Result<u64> {
    let mut sequences: Vec<u64> = meta.list()?.iter().filter_map(|name| super::sequence_of(name)).collect();
    sequences.retain(|sequence| *sequence <= until);
    sequences.sort_unstable();
    let chain = chain_from(meta, store, &sequences, first)?;
    for pair in chain.windows(2) {
        let [log, next] = pair else { continue };
        read_file(&log.name, log.file.as_ref(), &log.header, Some(&next.header), false, each)?;
    }
    let last = chain.last().map(|log| &log.header).filter(|header| header.sequence == until);
    last.map(|header| header.base + HEADER_BYTES).ok_or_else(|| missing(until))
}

/// Opens the files of the journal from `first` to the newest of these, in order.
fn chain_from(meta: &dyn MetaDir, store: StoreId, sequences: &[u64], first: u64) -> Result<Vec<LogRead>> {
    let mut chain: Vec<LogRead> = Vec::new();
    for sequence in sequences.iter().rev().copied().filter(|sequence| *sequence >= first) {
        let wanted = chain.last().map(|log: &LogRead| log.header.previous);
        if wanted.is_some_and(|wanted| sequence > wanted) {
            continue; // it was never begun
        }
        if let Some(wanted) = wanted.filter(|wanted| sequence < *wanted) {
            return Err(missing(wanted));
        }
        if let Some(log) = open_file(meta, store, sequence, first, wanted.is_some())? {
            chain.push(log);
            if sequence == first {
                break;
            }
        } else if let Some(wanted) = wanted {
            return Err(missing(wanted));
        }
    }
    match chain.last() {
        None => return Err(missing(first)),
        Some(log) if log.header.sequence != first => return Err(missing(log.header.previous.max(first))),
        Some(_) => chain.reverse(),
    }
    Ok(chain)
}

#[cold]
fn missing(sequence: u64) -> Error {
    corrupt(&file_name(sequence), 0, "it is missing, or damaged").try_next(crate::RESTORE)
}

/// A file of the journal, opened for reading.
struct LogRead {
    name: String,
    file: Box<dyn LogFile>,
    header: Header,
}

/// Opens a file of the journal. `None`: it never got a record, and no successor names it (`named`).
fn open_file(meta: &dyn MetaDir, store: StoreId, sequence: u64, first: u64, named: bool) -> Result<Option<LogRead>> {
    let name = file_name(sequence);
    let file = meta.open_log(&name)?;
    let cut_short = || Err(corrupt(&name, file.capacity(), "it is shorter than it was made"));
    if file.capacity() < HEADER_BYTES {
        return cut_short();
    }
    let mut page = vec![0; HEADER_BYTES as usize];
    file.read(0, &mut page)?;
    let header = match Header::decode(&name, &page) {
        Ok(Some(header)) => header,
        // It was made and not begun, or a death or power loss interrupted the write of its header.
        Ok(None) if holds_nothing(file.as_ref())? => return Ok(None),
        Ok(None) => return Err(corrupt(&name, 0, "its header is gone")),
        Err(error) if !named && error.kind() == ErrorKind::Corrupt && holds_nothing(file.as_ref())? => return Ok(None),
        Err(error) => return Err(error),
    };
    if header.store != store || header.sequence != sequence {
        return Err(corrupt(&name, 0, "it belongs to another store or place in the journal")
            .try_next("put the right file in its place"));
    }
    if file.capacity() < header.capacity {
        return cut_short();
    }
    if header.previous == 0 && sequence != first {
        // It was to follow a checkpoint that was never completed.
        return if holds_nothing(file.as_ref())? {
            Ok(None)
        } else {
            Err(corrupt(&name, 0, "it follows a checkpoint that is not there"))
        };
    }
    Ok(Some(LogRead { name, file, header }))
}

fn read_file(
    name: &str,
    file: &dyn LogFile,
    header: &Header,
    next: Option<&Header>,
    power_lost: bool,
    each: &mut dyn FnMut(Replayed<'_>) -> Result<()>,
) -> Result<Ended> {
    let limit = next.map_or(file.capacity(), |next| next.previous_end);
    if limit > file.capacity() || limit < HEADER_BYTES {
        return Err(corrupt(name, 0, "the next file says that this one ends outside of itself"));
    }
    let mut window = FilePart { file, limit, begin: HEADER_BYTES, bytes: Vec::new() };
    let mut at = HEADER_BYTES;
    let mut proven = HEADER_BYTES;
    while at < limit {
        let RecordRead::Record { kind, epoch, len } = window.record_at(at)? else {
            if next.is_some() {
                return Err(corrupt(name, at, "a record is damaged"));
            }
            let torn = judge_end(name, &mut window, header, at, power_lost)?;
            return Ok(Ended {
                sequence: header.sequence,
                offset: at,
                position: header.base + at,
                torn,
                proven,
                files: 1,
            });
        };
        let end = (at + len as u64).next_multiple_of(8);
        let payload = &window.slice(at, len)?[RECORD_HEADER..];
        if kind == Kind::Synced {
            let position = Decoder::new(payload).u64().unwrap_or(CLOSED);
            if position != CLOSED {
                proven = proven.max(position.saturating_sub(header.base));
            }
        }
        if kind == Kind::Continued {
            // A file with a successor ends before this record; so the successor is missing.
            return Err(missing(Decoder::new(payload).u64().unwrap_or(0)));
        }
        each(Replayed { kind, epoch, payload, name, offset: at })?;
        at = end;
    }
    Ok(Ended { sequence: header.sequence, offset: at, position: header.base + at, torn: false, proven, files: 1 })
}

/// Returns true if nothing was ever written after the header.
fn holds_nothing(file: &dyn LogFile) -> Result<bool> {
    let mut window = FilePart { file, limit: file.capacity(), begin: HEADER_BYTES, bytes: Vec::new() };
    let mut at = HEADER_BYTES;
    while let Some(from) = file.data_from(at).filter(|from| *from < window.limit) {
        at = from;
        let take = (window.limit - at).min(CHUNK_BYTES as u64) as usize;
        if window.slice(at, take)?.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        at += take as u64;
    }
    Ok(true)
}

/// Judges an offset without a record: the end (true: of an unfinished record), or damage.
fn judge_end(name: &str, window: &mut FilePart<'_>, header: &Header, at: u64, power_lost: bool) -> Result<bool> {
    let mut position = at;
    let mut any = false;
    while let Some(from) = window.file.data_from(position).filter(|from| from + 8 <= window.limit) {
        position = from;
        let take = (window.limit - position).min(CHUNK_BYTES as u64) as usize;
        if window.slice(position, take)?.iter().all(|byte| *byte == 0) {
            position += take as u64;
            continue;
        }
        any = true;
        break;
    }
    if !any {
        return Ok(false);
    }
    let len = u32::from_le_bytes(window.slice(at, 4)?.try_into().unwrap_or_default());
    if !power_lost && len != 0 {
        // The length is written after the rest of the record.
        return Err(corrupt(name, at, "a record is damaged"));
    }
    let mut later = at + 8;
    while later + RECORD_HEADER as u64 <= window.limit {
        if let RecordRead::Record { kind, len, .. } = window.record_at(later)? {
            let payload = &window.slice(later, len)?[RECORD_HEADER..];
            let proven = kind == Kind::Synced && Decoder::new(payload).u64().is_ok_and(|p| p > header.base + at);
            if proven || !power_lost {
                return Err(corrupt(name, at, "a record is damaged, and later ones are whole"));
            }
        }
        later += 8;
    }
    Ok(true)
}

/// A part of a log file in memory.
struct FilePart<'a> {
    file: &'a dyn LogFile,
    limit: u64,
    begin: u64,
    bytes: Vec<u8>,
}

impl FilePart<'_> {
    /// Returns `len` bytes from `at`; the caller ensures that they are within the limit.
    fn slice(&mut self, at: u64, len: usize) -> Result<&[u8]> {
        let inside = at >= self.begin && at + len as u64 <= self.begin + self.bytes.len() as u64;
        if !inside {
            let take = (len.max(CHUNK_BYTES) as u64).min(self.limit.saturating_sub(at)) as usize;
            if take < len {
                return Err(Error::new(ErrorKind::Internal, "reading the journal").because("past the end of a file"));
            }
            self.bytes.resize(take, 0);
            self.begin = at;
            self.file.read(at, &mut self.bytes)?;
        }
        let from = (at - self.begin) as usize;
        Ok(&self.bytes[from..from + len])
    }
    fn record_at(&mut self, at: u64) -> Result<RecordRead> {
        if at + RECORD_HEADER as u64 > self.limit {
            return Ok(RecordRead::Nothing);
        }
        let head = self.slice(at, RECORD_HEADER)?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize + 8;
        let Some(kind) = Kind::from_code(head[16]) else { return Ok(RecordRead::Nothing) };
        if !(RECORD_HEADER..=RECORD_BYTES_MAX).contains(&len) || at + len as u64 > self.limit {
            return Ok(RecordRead::Nothing);
        }
        let record = self.slice(at, len)?;
        let sum = u32::from_le_bytes([record[4], record[5], record[6], record[7]]);
        let epoch = u64::from_le_bytes(record[8..16].try_into().unwrap_or_default());
        if sum_without_field(record) == sum {
            Ok(RecordRead::Record { kind, epoch, len })
        } else {
            Ok(RecordRead::Nothing)
        }
    }
}

/// Returns the checksum of a record with its checksum field as zeros.
fn sum_without_field(record: &[u8]) -> u32 {
    let mut head = [0; 8];
    head[..4].copy_from_slice(&record[..4]);
    crate::sums::combine(sum_of(&head), sum_of(&record[8..]), (record.len() - 8) as u32)
}
