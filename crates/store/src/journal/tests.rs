//! Files change while I/O fails: whatever happens, the journal reads back what was appended, in order.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_device::LogFile;
use cenote_device::mem::MemMetaDir;

use super::*;
use crate::codec::{Decoder, Encode};

const STORE: StoreId = StoreId(7);

/// A directory that carries an operation out and then reports a failure.
#[derive(Clone, Default)]
struct Failing {
    inner: MemMetaDir,
    sync_fails: Arc<AtomicBool>,
    remove_fails: Arc<AtomicBool>,
    removed: Arc<Mutex<Vec<String>>>,
    /// Longer files find no room; 0: all do.
    room: Arc<AtomicU64>,
}

fn refused() -> Error {
    Error::new(ErrorKind::Io, "a test").because("it was told to fail")
}

impl MetaDir for Failing {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        let room = self.room.load(Ordering::Relaxed);
        if room != 0 && capacity > room {
            return Err(Error::new(ErrorKind::Full, "a test"));
        }
        let inner = self.inner.create_log(name, capacity)?;
        Ok(Box::new(FailingLog { inner, fails: Arc::clone(&self.sync_fails) }))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        self.inner.open_log(name)
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.inner.write_file(name, bytes)
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        self.inner.read_file(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }
    fn remove(&self, name: &str) -> Result<()> {
        if self.remove_fails.load(Ordering::Relaxed) {
            return Err(refused());
        }
        self.removed.lock().unwrap().push(name.to_owned());
        self.inner.remove(name)
    }
}

struct FailingLog {
    inner: Box<dyn LogFile>,
    fails: Arc<AtomicBool>,
}

impl LogFile for FailingLog {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.inner.write(offset, bytes)
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.read(offset, buf)
    }
    fn sync(&self) -> Result<()> {
        if self.fails.load(Ordering::Relaxed) { Err(refused()) } else { self.inner.sync() }
    }
}

fn journal(meta: &Failing) -> Journal {
    Journal::begin(Arc::new(meta.clone()), STORE, 1, (0, 0), HEADER_BYTES, 8192).unwrap()
}

fn append(journal: &mut Journal, n: u64) -> Result<()> {
    let mut draft = journal.draft(Kind::SessionClose);
    draft.bytes.put_u64(n);
    journal.append(draft, 0)
}

/// The numbers that were appended.
fn replayed(meta: &Failing, first: u64) -> Result<Vec<u64>> {
    let mut sequences: Vec<u64> = meta.list()?.iter().filter_map(|name| sequence_of(name)).collect();
    sequences.sort_unstable();
    let mut found = Vec::new();
    read_all(meta, STORE, &sequences, first, false, &mut |record| {
        if record.kind == Kind::SessionClose {
            found.push(Decoder::new(record.payload).u64().unwrap());
        }
        Ok(())
    })?;
    Ok(found)
}

#[test]
fn a_new_file_that_came_to_nothing_hides_no_later_record() {
    let meta = Failing::default();
    let mut journal = journal(&meta);
    append(&mut journal, 1).unwrap();
    // The new file, whose sync fails after its header was written, says where the first file ends.
    let position = journal.position();
    let old = journal.to_sync().0;
    old.sync().unwrap();
    journal.open.broken = true;
    meta.sync_fails.store(true, Ordering::Relaxed);
    let header = Header {
        store: STORE,
        sequence: 2,
        previous: 1,
        previous_end: position,
        base: position - HEADER_BYTES,
        capacity: 8192,
        term: 0,
    };
    journal.next.last_number = 2;
    let file = Log::new(meta.create_log(&file_name(2), 8192).unwrap());
    assert!(write_header(&file, &header).is_err());
    meta.sync_fails.store(false, Ordering::Relaxed);
    for n in 2..5 {
        append(&mut journal, n).unwrap();
    }
    assert_eq!(journal.open.sequence, 3, "neither the old file nor the one that came to nothing");
    assert_eq!(replayed(&meta, 1).unwrap(), [1, 2, 3, 4]);
}

#[test]
fn a_spare_file_is_not_used_after_one_of_a_higher_number() {
    let meta = Failing::default();
    let mut journal = journal(&meta);
    for n in 0..80 {
        append(&mut journal, n).unwrap();
    }
    let spare = journal.make_spare(false).unwrap();
    journal.rotate(0).unwrap();
    assert!(journal.open.sequence > spare, "the spare was not there yet");
    let file = Arc::new(Log::new(meta.create_log(&file_name(spare), 8192).unwrap()));
    assert!(!journal.give_spare(spare, Some(file)));
    append(&mut journal, 80).unwrap();
    assert_eq!(replayed(&meta, 1).unwrap(), (0..=80).collect::<Vec<_>>());
}

/// A disk without room for a whole file still takes changes, also after a checkpoint, until nothing fits.
#[test]
fn on_a_disk_that_is_nearly_full_files_are_short() {
    let meta = Failing::default();
    let mut journal = journal(&meta);
    journal.next.file_bytes = 64 << 20;
    meta.room.store(FILE_BYTES_SHORT, Ordering::Relaxed);
    for n in 0..20_000 {
        append(&mut journal, n).unwrap();
    }
    assert!(journal.open.sequence > 2 && journal.open.file.capacity() == FILE_BYTES_SHORT, "{}", journal.open.sequence);
    assert_eq!(replayed(&meta, 1).unwrap(), (0..20_000).collect::<Vec<_>>());
    let (header, file) = journal.prepare_restart(64 << 20).unwrap();
    journal.restart(&header, file);
    append(&mut journal, 7).unwrap();
    assert_eq!(replayed(&meta, header.sequence).unwrap(), [7]);
    meta.room.store(FILE_BYTES_SHORT - 1, Ordering::Relaxed);
    let refused = (0..20_000).find_map(|n| append(&mut journal, n).err()).unwrap();
    assert_eq!(refused.kind(), ErrorKind::Full);
}

#[test]
fn a_file_whose_sync_failed_is_never_trusted_again() {
    let meta = Failing::default();
    let mut journal = journal(&meta);
    append(&mut journal, 1).unwrap();
    let synced = journal.synced();
    meta.sync_fails.store(true, Ordering::Relaxed);
    assert!(journal.sync().is_err());
    meta.sync_fails.store(false, Ordering::Relaxed);
    assert!(journal.is_tainted());
    assert!(journal.sync().is_err() && journal.rotate(0).is_err() && append(&mut journal, 2).is_err());
    journal.note_synced(journal.position());
    assert_eq!(journal.synced(), synced, "a sync that ended well says nothing of what an earlier one dropped");
    // A checkpoint helps.
    let (header, file) = journal.prepare_restart(8192).unwrap();
    journal.restart(&header, file);
    append(&mut journal, 2).unwrap();
    assert_eq!(replayed(&meta, header.sequence).unwrap(), [2]);
}

#[test]
fn a_restart_that_came_to_nothing_is_passed_over_and_its_checkpoint_removed_first() {
    let meta = Failing::default();
    let mut journal = journal(&meta);
    append(&mut journal, 1).unwrap();
    let _ = journal.prepare_restart(8192).unwrap();
    meta.write_file("checkpoint-000009", b"perhaps").unwrap();
    journal.doubt("checkpoint-000009".to_owned());
    meta.remove_fails.store(true, Ordering::Relaxed);
    assert!(append(&mut journal, 2).is_err(), "the checkpoint would hide it");
    meta.remove_fails.store(false, Ordering::Relaxed);
    append(&mut journal, 2).unwrap();
    assert_eq!(meta.removed.lock().unwrap().as_slice(), ["checkpoint-000009"]);
    assert_eq!(replayed(&meta, 1).unwrap(), [1, 2]);
    journal.rotate(0).unwrap();
    append(&mut journal, 3).unwrap();
    assert_eq!(replayed(&meta, 1).unwrap(), [1, 2, 3]);
}

#[test]
fn a_missing_file_is_named() {
    let meta = Failing::default();
    let mut journal = journal(&meta);
    for n in 1..4 {
        append(&mut journal, n).unwrap();
        journal.rotate(0).unwrap();
    }
    let newest = file_name(journal.open.sequence);
    let kept = meta.read_file(&newest).unwrap();
    meta.remove(&newest).unwrap();
    assert!(replayed(&meta, 1).unwrap_err().to_string().contains(&newest), "nothing follows that would name it");
    meta.write_file(&newest, &kept).unwrap();
    assert_eq!(replayed(&meta, 1).unwrap(), [1, 2, 3]);
    meta.remove(&file_name(2)).unwrap();
    assert!(replayed(&meta, 1).unwrap_err().to_string().contains(&file_name(2)));
    meta.remove(&file_name(1)).unwrap();
    assert!(replayed(&meta, 1).is_err() && replayed(&meta, 3).is_ok());
}

/// A journal of the numbers 1 to 3 in one file of 12 MiB, with `harm` done to its bytes; its arguments are the begin of
/// the second record and the end of the last.
fn journal_after(harm: impl FnOnce(&mut [u8], [usize; 2])) -> Failing {
    let meta = Failing::default();
    let mut journal = Journal::begin(Arc::new(meta.clone()), STORE, 1, (0, 0), HEADER_BYTES, 12 << 20).unwrap();
    append(&mut journal, 1).unwrap();
    let second = journal.position();
    append(&mut journal, 2).unwrap();
    append(&mut journal, 3).unwrap();
    let places = [second, journal.position()].map(|at| at as usize);
    let file = meta.inner.open_log(&file_name(1)).unwrap();
    let mut bytes = vec![0; file.capacity() as usize];
    file.read(0, &mut bytes).unwrap();
    harm(&mut bytes, places);
    file.write(0, &bytes).unwrap();
    meta
}

fn is_torn(meta: &Failing) -> Result<bool> {
    Ok(read_all(meta, STORE, &[1], 1, false, &mut |_| Ok(()))?.torn)
}

/// An unfinished record after the last one is found, however many zeros lie between.
#[test]
fn an_unfinished_record_is_found_behind_any_zeros() {
    assert!(!is_torn(&journal_after(|_, _| {})).unwrap());
    assert!(is_torn(&journal_after(|bytes, [_, end]| bytes[end + 100] = 7)).unwrap());
    assert!(is_torn(&journal_after(|bytes, [_, end]| bytes[end + (9 << 20)] = 7)).unwrap());
}

#[test]
fn a_record_that_is_gone_before_one_that_is_whole_is_damage() {
    let meta = journal_after(|bytes, [second, _]| bytes[second..second + 8].fill(0));
    let error = is_torn(&meta).unwrap_err();
    assert!(error.to_string().contains("later ones are whole"), "{error}");
    // The later one may be far behind.
    let meta = journal_after(|bytes, [second, end]| {
        let moved = bytes[second..end].to_vec();
        bytes[second..end].fill(0);
        bytes[second + (9 << 20)..end + (9 << 20)].copy_from_slice(&moved);
    });
    assert_eq!(is_torn(&meta).unwrap_err().kind(), ErrorKind::Corrupt);
}
