//! The client's side: a read-only view of the table, and the client's own file.
#![allow(unsafe_code, reason = "prefetching")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_host::process::started_of;
use cenote_model::{Error, ErrorKind, Result, StoreId};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::layout::{CONTROL_BYTES, EPOCH_AT, HeaderBytes, INSTANCE_AT, RINGS_AT, WORDS, WORDS_AT};
use super::{ClientCounters, ClientHeader, ControlHeader, ReaderSlots};
use crate::io::fail;
use crate::map::Mapping;

/// An atomic word of a mapping; the caller checked the mapping's size when it was created.
#[inline]
pub(super) fn word_at(map: &Mapping, offset: u64) -> &AtomicU64 {
    map.word(offset).expect("offsets are constants or masked, sizes were checked")
}

/// Maps `bytes` of a file (or the whole file, if 0) and returns its header.
pub(super) fn map_with_header(
    fd: impl AsFd,
    bytes: u64,
    writable: bool,
    subject: &str,
) -> Result<(Mapping, HeaderBytes)> {
    let size = rustix::fs::fstat(&fd).map_err(|errno| fail(subject, errno))?.st_size as u64;
    let wanted = if bytes == 0 { size } else { bytes };
    if size < wanted || size < RINGS_AT {
        return Err(Error::new(ErrorKind::Corrupt, subject).because(format!("the file has only {size} bytes")));
    }
    let len = usize::try_from(wanted).map_err(|_| fail(subject, Errno::FBIG))?;
    let map = Mapping::new(&fd, 0, len, writable).map_err(|errno| fail(subject, errno))?.watched();
    let mut header: HeaderBytes = [0; size_of::<HeaderBytes>()];
    map.copy_out(0, &mut header);
    Ok((map, header))
}

/// The control table as a client sees it: read-only. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControlView {
    pub(super) map: Arc<Mapping>,
    store: StoreId,
}

impl ControlView {
    /// Maps the table from a descriptor (a read-only one will do) and checks its header.
    pub fn map(fd: impl AsFd) -> Result<Self> {
        let subject = "control table";
        let (map, header) = map_with_header(fd, CONTROL_BYTES, false, subject)?;
        let header = ControlHeader::decode(&header, subject)?;
        Ok(Self { map: Arc::new(map), store: header.store })
    }
    /// The store of the table.
    pub fn store(&self) -> StoreId {
        self.store
    }
    /// The instance word. If it differs from the remembered value, another engine has the store: attach anew.
    #[inline]
    pub fn instance(&self) -> u64 {
        word_at(&self.map, INSTANCE_AT).load(Ordering::SeqCst)
    }
    /// The reader epoch, which a reader announces.
    #[inline]
    pub fn epoch(&self) -> u64 {
        word_at(&self.map, EPOCH_AT).load(Ordering::SeqCst)
    }
    /// The version word for objects whose key has this hash.
    #[inline]
    pub fn word(&self, hash: u64) -> u64 {
        word_at(&self.map, WORDS_AT + (hash % WORDS) * 8).load(Ordering::SeqCst)
    }
    /// Prefetches the version word into the cache.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: prefetching affects only caches; the address is in the mapping anyway.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let at = self.map.as_ptr().add((WORDS_AT + (hash % WORDS) * 8) as usize);
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = hash;
    }
}

/// A table and a client's file of this process alone, which belong to no store: for a client that has not attached yet.
pub fn unattached() -> Result<(OwnedFd, ClientFile)> {
    let make = |bytes: u64, header: &[u8]| {
        let fd = rustix::fs::memfd_create("cenote-unattached", rustix::fs::MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, bytes)?;
        rustix::io::pwrite(&fd, header, 0)?;
        Ok(fd)
    };
    let failed = |errno: Errno| fail("memory of a client that is not attached", errno);
    let (store, boot_id, pid) = (StoreId(0), [0; 16], std::process::id());
    let started = started_of(pid).unwrap_or(0);
    let header =
        ClientHeader { store, boot_id, number: 0, pid, started, ring_bytes: 0, log_bytes: 0, is_locked: false };
    let table = make(CONTROL_BYTES, &ControlHeader { store, boot_id }.encode()).map_err(failed)?;
    let file = make(header.file_bytes(), &header.encode()).map_err(failed)?;
    Ok((table, ClientFile::map(file)?))
}

/// A client's own file: its reader slots, its counters, and space for two rings and a redo log of pipelined changes.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientFile {
    pub(super) map: Arc<Mapping>,
    pub(super) fd: Arc<OwnedFd>,
    pub(super) header: ClientHeader,
    slots: ReaderSlots,
    counters: ClientCounters,
}

impl ClientFile {
    /// Maps the file from the descriptor that the engine's process created or sent.
    pub fn map(fd: OwnedFd) -> Result<Self> {
        Self::map_with(fd, None)
    }
    /// Like [`ClientFile::map`] in the client's process, with the lock on the file that proves the client alive. The
    /// lock is held until no mapping of the file is left in this process, or the process dies.
    pub fn map_held(fd: OwnedFd, lock: OwnedFd) -> Result<Self> {
        Self::map_with(fd, Some(lock))
    }
    fn map_with(fd: OwnedFd, lock: Option<OwnedFd>) -> Result<Self> {
        let subject = "client file";
        let (mut map, header) = map_with_header(&fd, 0, true, subject)?;
        if let Some(lock) = lock {
            map = map.with_companion(lock);
        }
        let header = ClientHeader::decode(&header, subject)?;
        if (map.len() as u64) < header.file_bytes() {
            return Err(Error::new(ErrorKind::Corrupt, subject).because("the file is shorter than its header says"));
        }
        let map = Arc::new(map);
        let slots = ReaderSlots::new(Arc::clone(&map));
        let counters = ClientCounters::new(Arc::clone(&map));
        Ok(Self { map, fd: Arc::new(fd), header, slots, counters })
    }
    /// Returns true while the file's client lives and may read slots, in whichever container it runs. The lock that the
    /// client holds decides, since process ids differ between containers. Do not ask this of a value that
    /// [`ClientFile::map_held`] returned with the same lock.
    pub fn is_held(&self) -> bool {
        if !self.header.is_locked {
            return started_of(self.header.pid) == Some(self.header.started);
        }
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
                false
            }
            Err(_) => true, // in doubt, the client counts as alive
        }
    }
    /// The client's number, unique among the live clients of the store.
    pub fn number(&self) -> u64 {
        self.header.number
    }
    /// The client's process.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }
    /// The file's descriptor, open for reading and writing.
    pub fn fd(&self) -> &Arc<OwnedFd> {
        &self.fd
    }
    /// The reader slots.
    #[inline]
    pub fn slots(&self) -> &ReaderSlots {
        &self.slots
    }
    /// The client's counters.
    #[inline]
    pub fn counters(&self) -> &ClientCounters {
        &self.counters
    }
    /// The mapping. Keep it while rings made over [`ClientFile::rings`] are in use.
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.map
    }
    /// Start and length of the memory of each ring, requests first; `None` if there are none.
    pub fn rings(&self) -> Option<[(*mut u8, usize); 2]> {
        let len = self.header.ring_bytes as usize;
        let requests = self.map.at(RINGS_AT, len)?;
        let responses = self.map.at(RINGS_AT + len as u64, len)?;
        (len > 0).then_some([(requests, len), (responses, len)])
    }
    /// Start and length of the memory of the redo log of pipelined changes; `None` if there is none.
    pub fn log(&self) -> Option<(*mut u8, usize)> {
        let len = self.header.log_bytes as usize;
        let memory = self.map.at(self.header.log_at(), len)?;
        (len > 0).then_some((memory, len))
    }
}
