//! The record of the processes that write a file, and whether its only writer launches its changes ([`super::ahead`]).
//!
//! This module must not know how changes are made.

use cenote::{Error, ErrorKind, Index, IndexVersion, Store, Transaction};
use parking_lot::Mutex;

use crate::Result;
use crate::meta::bytes::{Encode, Reader};

use super::process::Process;

/// The record with the writers' names, beside the superblock record.
pub(super) const WRITERS_KEY: &[u8] = b"launching";
const VERSION: u8 = 1;
/// Number of settled dead writers that this process remembers.
const SETTLED_MAX: usize = 256;

pub(super) fn put_name(w: &mut Vec<u8>, name: &Process) {
    w.put_u64(name.nonce);
    w.put_u64(u64::from(name.pid));
    w.put_u64(name.started);
}

fn name(r: &mut Reader<'_>) -> Result<Process> {
    Ok(Process { nonce: r.u64()?, pid: r.u64()? as u32, started: r.u64()? })
}

/// The record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Writers {
    /// True if the one named writer launches its changes.
    pub is_sole: bool,
    pub names: Vec<Process>,
}

impl Writers {
    pub fn sole(name: Process) -> Self {
        Self { is_sole: true, names: vec![name] }
    }
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.put_u8(VERSION);
        w.put_u8(u8::from(self.is_sole));
        for name in &self.names {
            put_name(&mut w, name);
        }
        w
    }
    pub fn decode(record: Option<&[u8]>) -> Result<Self> {
        let Some(record) = record else { return Ok(Self::default()) };
        let mut r = Reader::of("record of an HDF5 file's writers", record);
        if r.u8()? != VERSION {
            return Err(Error::new(ErrorKind::VersionMismatch, "record of an HDF5 file's writers")
                .because("a newer version of the cenote connector has it open for writing")
                .try_next("use that version here too"));
        }
        let mut writers = Self { is_sole: r.u8()? != 0, names: Vec::new() };
        while !r.is_empty() {
            writers.names.push(name(&mut r)?);
        }
        Ok(writers)
    }
}

pub(super) fn requester(record: &[u8]) -> Option<Process> {
    name(&mut Reader::of("request to revoke a lease", record)).ok()
}

/// Waits until all that this record's dead writers have launched is in the store.
pub(super) fn settle_dead(store: &Store, record: Option<&[u8]>) -> Result<()> {
    static SETTLED: Mutex<Vec<u64>> = Mutex::new(Vec::new());
    // An invalid record is reported by whoever needs it.
    let Ok(writers) = Writers::decode(record) else { return Ok(()) };
    let is_settled = |name: &Process| SETTLED.lock().contains(&name.nonce) || name.is_alive(store);
    if writers.names.iter().all(is_settled) {
        return Ok(());
    }
    store.settle_dead()?;
    let dead = writers.names.iter().filter(|name| !name.is_alive(store));
    let mut settled = SETTLED.lock();
    settled.extend(dead.map(|name| name.nonce));
    let surplus = settled.len().saturating_sub(SETTLED_MAX);
    settled.drain(..surplus);
    Ok(())
}

/// For [`crate::fuzz`].
pub(crate) fn fuzz(record: &[u8]) {
    if let Ok(writers) = Writers::decode(Some(record)) {
        assert_eq!(Writers::decode(Some(&writers.encode())).ok(), Some(writers));
    }
}

/// This process as a new file's first writer.
#[derive(Clone, Copy)]
pub struct First {
    pub(super) name: Process,
    is_sole: bool,
    since: Since,
}

/// When the record that names it was put.
#[derive(Clone, Copy)]
enum Since {
    /// Unknown.
    Unknown,
    /// With the next change after this version.
    After(IndexVersion),
    /// With this version.
    Version(IndexVersion),
}

impl First {
    /// A first writer whose record is put with a new file. `is_sole`: it may launch its changes.
    pub fn new(store: &Store, is_sole: bool) -> Result<Self> {
        Ok(Self { name: Process::this(store)?, is_sole, since: Since::Unknown })
    }
    /// Puts the record into the transaction that makes the file.
    pub fn put(tx: &mut Transaction, supers: &Index, is_sole: bool) -> Result<Self> {
        let first = Self { since: Since::After(supers.version()?), ..Self::new(supers.store(), is_sole)? };
        tx.put(supers, WRITERS_KEY, &first.record())?;
        Ok(first)
    }
    /// Notes the version that the record's index had when the record was put.
    #[must_use]
    pub fn made(self, version: Option<IndexVersion>) -> Self {
        Self { since: version.map_or(Since::Unknown, Since::Version), ..self }
    }
    /// The record.
    pub fn record(&self) -> Vec<u8> {
        self.writers().encode()
    }
    pub(super) fn was_last(&self, seen: IndexVersion) -> bool {
        match self.since {
            Since::Unknown => false,
            Since::After(before) => before.is_right_before(seen),
            Since::Version(version) => version == seen,
        }
    }
    pub(super) fn writers(&self) -> Writers {
        Writers { is_sole: self.is_sole, names: vec![self.name] }
    }
}
