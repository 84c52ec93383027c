//! Atomic checkpoints: what readers see of a file while others write it, and what remains when its writers die.
//!
//! Such a file has a snapshot, [`PUBLISHED`], which each flush and each close by a writer replaces in one transaction. A process
//! that opens the file read-only reads the snapshot; writers work on the container itself. A record lists the writing processes:
//! when all of them are dead, the next writer first rolls the container back to the snapshot.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Container, ContainerId, Error, ErrorKind, Index, Store};
use parking_lot::Mutex;

use super::process::Process;
use super::superblock::SUPER_INDEX;
use crate::Result;
use crate::meta::bytes::{Encode, Reader};

/// The environment variable that asks for atomic checkpoints (`1`) or, for readers, for the file's present state (`0`).
const ATOMIC_ENV: &str = "CENOTE_HDF5_ATOMIC";
/// The snapshot that readers see.
pub const PUBLISHED: &str = "checkpoint";
/// The record of writing processes, in the superblock's index. A file that has it is written in atomic checkpoints.
pub const WRITERS_KEY: &[u8] = b"writers";
/// Attempts before a conflict with other processes becomes an error.
const TRIES: usize = 100;

/// Returns true if the environment asks for atomic checkpoints of what this program writes.
fn is_wanted() -> bool {
    static WANTED: LazyLock<bool> = LazyLock::new(|| std::env::var_os(ATOMIC_ENV).is_some_and(|value| value == "1"));
    *WANTED
}

/// Returns true if a program wants to see whole checkpoints of what it opens, whoever else has it open. `asks`: its access
/// properties.
pub fn is_asked(asks: Option<bool>) -> bool {
    asks.is_some() || is_wanted() || reads_head()
}

/// Returns true if the environment asks to read what is being written.
fn reads_head() -> bool {
    static HEAD: LazyLock<bool> = LazyLock::new(|| std::env::var_os(ATOMIC_ENV).is_some_and(|value| value == "0"));
    *HEAD
}

/// This process, in the form by which others can tell whether it lives.
fn this_process(store: &Store) -> Result<Process> {
    let me = Process::this(store)?;
    if !me.is_alive(store) {
        return Err(Error::new(ErrorKind::Io, "this process")
            .because(format!("/proc/{}/stat does not say when it was started", me.pid))
            .try_next("mount /proc, or unset CENOTE_HDF5_ATOMIC"));
    }
    Ok(me)
}

fn decode(record: &[u8]) -> Result<Vec<Process>> {
    let mut r = Reader::of("record of the writers of an HDF5 file", record);
    (0..record.len() / 20).map(|_| Ok(Process { pid: r.u32()?, started: r.u64()?, nonce: r.u64()? })).collect()
}

fn encode(writers: &[Process]) -> Vec<u8> {
    let mut w = Vec::new();
    for writer in writers {
        w.put_u32(writer.pid);
        w.put_u64(writer.started);
        w.put_u64(writer.nonce);
    }
    w
}

/// Store directory and container.
type Key = (PathBuf, ContainerId);

/// For each file: how often this process has it open for writing in atomic checkpoints, and the process as the record names it.
static WRITING: LazyLock<Mutex<HashMap<Key, (usize, Process)>>> = LazyLock::new(Mutex::default);

/// A file that is open for writing in atomic checkpoints.
pub struct Writing {
    store: Store,
    container: Container,
    key: Key,
    /// Objects stayed open when the file was closed, so there may be more to publish.
    late: AtomicBool,
}

impl Writing {
    /// Publishes: readers see from now on what was written so far, by any process.
    pub fn publish(&self) -> Result<()> {
        self.container.replace_snapshot(PUBLISHED)
    }
    /// Notes that the file was closed while objects of it are open.
    pub fn closed_early(&self) {
        self.late.store(true, Ordering::Relaxed);
    }
    /// Counts another opening of the file.
    pub fn again(&self) -> Self {
        if let Some((count, _)) = WRITING.lock().get_mut(&self.key) {
            *count += 1;
        }
        Self {
            store: self.store.clone(),
            container: self.container.clone(),
            key: self.key.clone(),
            late: AtomicBool::new(false),
        }
    }
    fn leave(&self) -> Result<()> {
        let mut writing = WRITING.lock();
        let Some((count, me)) = writing.get_mut(&self.key) else { return Ok(()) };
        *count -= 1;
        let (left, me) = (*count, *me);
        if left == 0 {
            writing.remove(&self.key);
        }
        if me.pid != std::process::id() {
            return Ok(()); // in a forked child: the parent writes
        }
        if self.late.load(Ordering::Relaxed) {
            self.publish()?;
        }
        if left > 0 {
            return Ok(());
        }
        let supers = self.container.index(SUPER_INDEX);
        change_writers(&self.store, &supers, |writers| writers.retain(|writer| *writer != me))
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Err(error) = self.leave() {
            // Closing can return no error to HDF5 any more. The record of this process is resolved when the process is dead.
            eprintln!("cenote: closing an HDF5 file that is written in atomic checkpoints: {error}");
        }
    }
}

/// Changes the record of writers, retrying on conflicts.
fn change_writers(store: &Store, supers: &Index, change: impl Fn(&mut Vec<Process>)) -> Result<()> {
    for _ in 0..TRIES {
        let mut tx = store.begin();
        tx.detect_conflicts(true);
        let mut writers = decode(&tx.get(supers, WRITERS_KEY)?.unwrap_or_default())?;
        change(&mut writers);
        tx.put(supers, WRITERS_KEY, &encode(&writers))?;
        match tx.commit() {
            Err(error) if error.kind() == ErrorKind::Conflict => {}
            result => return result.map(|_| ()),
        }
    }
    Err(busy())
}

fn busy() -> Error {
    Error::new(ErrorKind::Busy, "the writers of an HDF5 file")
        .because(format!("{TRIES} times another process came or went first"))
        .try_next("try again")
}

/// Prepares to open a file for writing. `marked`: the file is known to be written in atomic checkpoints. If so, or if the
/// program asks for them, this process is recorded as a writer; if all earlier writers are dead, the file is rolled back to the
/// last published state.
pub fn enter(
    store: &Store,
    store_path: &Path,
    container: &Container,
    marked: bool,
    asks: Option<bool>,
) -> Result<Option<Writing>> {
    if !marked && !asks.unwrap_or_else(is_wanted) {
        return Ok(None);
    }
    let key = (store_path.to_path_buf(), container.id());
    // Held until the end: threads of one process count as one writer.
    let mut writing = WRITING.lock();
    let this = || Writing {
        store: store.clone(),
        container: container.clone(),
        key: key.clone(),
        late: AtomicBool::new(false),
    };
    if let Some((count, me)) = writing.get_mut(&key)
        && me.pid == std::process::id()
    {
        *count += 1;
        return Ok(Some(this()));
    }
    let supers = container.open_index(SUPER_INDEX)?;
    recover(store, container, &supers)?;
    let me = this_process(store)?;
    change_writers(store, &supers, |writers| {
        writers.retain(|writer| writer.is_alive(store));
        writers.push(me);
    })?;
    writing.insert(key.clone(), (1, me));
    Ok(Some(this()))
}

/// Rolls the file back to the published snapshot if a writer died and none lives. Publishes the present state if nothing was
/// published yet.
fn recover(store: &Store, container: &Container, supers: &Index) -> Result<()> {
    for _ in 0..TRIES {
        let seen = supers.get_one(WRITERS_KEY)?;
        let writers = decode(seen.as_deref().unwrap_or_default())?;
        if !writers.is_empty() && !writers.iter().any(|writer| writer.is_alive(store)) {
            // Only if no other process has become a writer meanwhile.
            match container.roll_back_if(PUBLISHED, supers, WRITERS_KEY, seen.as_deref()) {
                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => {} // nothing was ever published
                result => return result,
            }
        }
        return match container.snapshot(PUBLISHED) {
            Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
            result => result,
        };
    }
    Err(busy())
}

/// The snapshot that a reader of a file in atomic checkpoints reads; `None`: it reads the container itself.
pub fn published(store_path: &Path, container: &Container, asks: Option<bool>) -> Result<Option<Container>> {
    let writes_itself = WRITING.lock().contains_key(&(store_path.to_path_buf(), container.id()));
    if writes_itself || asks.map_or_else(reads_head, |asks| !asks) {
        return Ok(None);
    }
    match container.open_snapshot(PUBLISHED) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        result => result.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_are_read_back() {
        let one = Process { pid: 3, started: 7 << 48 | 5, nonce: 9 };
        let other = Process { started: 6, ..one };
        assert!(decode(&encode(&[one, other])).unwrap() == [one, other]);
        assert!(decode(&[]).unwrap().is_empty());
    }
}
