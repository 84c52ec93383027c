//! The stub of an open file, held open: one descriptor with its locks for each file and process, however often the process
//! has the file open.
//!
//! `H5Fget_vfd_handle` returns the descriptor; its locks tell other programs that the file is in use; and its times are
//! set when the last writer in this process closes the file. This module must not know containers.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use cenote::{Error, ErrorKind};
use cenote_host::fork::generation as fork_generation;
use parking_lot::Mutex;

use super::locks::{self, LockByte};
use crate::Result;
use crate::ffi::Api;
use crate::ffi::types::hid_t;

/// HDF5's variable that says whether files are locked; it overrides a program's access properties.
const LOCKING_ENV: &str = "HDF5_USE_FILE_LOCKING";

/// Device and inode number of the stub.
type Key = (u64, u64);

static IN_USE: LazyLock<Mutex<HashMap<Key, Weak<InUse>>>> = LazyLock::new(Mutex::default);

/// The use for which a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// Read.
    Read,
    /// Read while another process writes it (SWMR).
    ReadSwmr,
    /// Write.
    Write,
    /// Write while others read it (SWMR).
    WriteSwmr,
}

impl Use {
    /// From the flags of an open call.
    pub fn of(writable: bool, swmr: bool) -> Self {
        match (writable, swmr) {
            (false, false) => Self::Read,
            (false, true) => Self::ReadSwmr,
            (true, false) => Self::Write,
            (true, true) => Self::WriteSwmr,
        }
    }
    fn writes(self) -> bool {
        matches!(self, Self::Write | Self::WriteSwmr)
    }
}

/// Which other users an open call respects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// None: ranks of a parallel program, the store's own views, files in atomic checkpoints.
    Free,
    /// No locks, but a SWMR writer counts, as native HDF5 notes it in the file.
    Unlocked,
    /// HDF5's locks as well.
    Locked,
}

impl Rule {
    /// By HDF5's environment variable, else by the access properties.
    pub fn of(h5: &'static Api, fapl: hid_t, is_free: bool) -> Self {
        match is_free {
            true => Self::Free,
            false if is_locking(h5, fapl) => Self::Locked,
            false => Self::Unlocked,
        }
    }
}

/// The lock that this process has under the rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Default)]
enum Has {
    #[default]
    Nothing,
    Shared,
    Alone,
}

/// What this process has claimed.
#[derive(Clone, Copy, Default)]
struct Claimed {
    /// Whether anything is claimed.
    any: bool,
    has: Has,
    /// [`LockByte::Writes`].
    writes: bool,
    /// [`LockByte::Swmr`]: the lock is shared from then on.
    swmr: bool,
}

/// The stub of an open file with its locks.
pub struct InUse {
    /// The descriptor that has the locks.
    first: File,
    /// Open for writing, once the process has opened the file for writing.
    writable: Mutex<Option<Arc<File>>>,
    claimed: Mutex<Claimed>,
    /// The file was opened for writing, and not refused.
    is_written: AtomicBool,
    /// Fork generation of the process that took the locks: a forked child does not release them.
    generation: u64,
}

impl InUse {
    /// Holds an opened stub. `writable`: it is open for writing.
    pub fn new(file: File, writable: bool) -> io::Result<Arc<Self>> {
        let seen = file.metadata()?;
        Self::of(file, &seen, writable)
    }
    /// Holds an opened stub with known file status.
    pub fn of(file: File, seen: &Metadata, writable: bool) -> io::Result<Arc<Self>> {
        let key = (seen.dev(), seen.ino());
        let mut all = IN_USE.lock();
        all.retain(|_, weak| weak.strong_count() > 0);
        if let Some(in_use) = all.get(&key).and_then(Weak::upgrade) {
            if writable {
                in_use.writable.lock().get_or_insert_with(|| Arc::new(file));
            }
            return Ok(in_use);
        }
        locks::take(&file, LockByte::Open, false)?;
        let also = if writable { Some(Arc::new(file.try_clone()?)) } else { None };
        let in_use = Arc::new(Self {
            first: file,
            writable: Mutex::new(also),
            claimed: Mutex::default(),
            is_written: AtomicBool::new(false),
            generation: fork_generation(),
        });
        all.insert(key, Arc::downgrade(&in_use));
        Ok(in_use)
    }
    /// Takes the locks that the rule asks for this use, or reports the conflicting user.
    pub fn claim(&self, what: Use, rule: Rule, path: &Path) -> Result<()> {
        if rule == Rule::Free {
            return Ok(());
        }
        let mut claimed = self.claimed.lock();
        let before = *claimed;
        let done = self.claim_more(&mut claimed, what, rule, path);
        if done.is_err() && claimed.writes && !before.writes {
            locks::release(&self.first, LockByte::Writes);
            claimed.writes = false;
        }
        done
    }
    fn claim_more(&self, claimed: &mut Claimed, what: Use, rule: Rule, path: &Path) -> Result<()> {
        let refuse = |e: io::Error| super::stub::open_error(path, &e);
        if what.writes() && !claimed.writes {
            // Lock this before looking for a SWMR writer, who locks first and looks second too: at least one of the two
            // sees the other.
            locks::take(&self.first, LockByte::Writes, false).map_err(refuse)?;
            claimed.writes = true;
        }
        let asks = what.writes() || what == Use::Read && !claimed.any;
        if asks && locks::is_taken(&self.first, LockByte::Swmr) {
            let which = if what.writes() { "write/SWMR write" } else { "write" };
            return Err(in_use(
                path,
                &format!("file is already open for {which}: another program writes it for readers (SWMR)"),
                "readers beside it say so: H5F_ACC_SWMR_READ (h5py: swmr=True); else close it there",
            ));
        }
        let wanted = if what.writes() { Has::Alone } else { Has::Shared };
        if rule == Rule::Locked && claimed.has < wanted && !claimed.swmr {
            let shared = claimed.has == Has::Shared;
            if !locks::rule(&self.first, wanted == Has::Alone, shared).map_err(refuse)? {
                return Err(locked(path));
            }
            claimed.has = wanted;
        }
        claimed.any = true;
        if what == Use::WriteSwmr { self.share(claimed, path) } else { Ok(()) }
    }
    /// Starts SWMR writing: the writer lets SWMR readers in (`H5Fstart_swmr_write`).
    pub fn begin_swmr(&self, path: &Path) -> Result<()> {
        let mut claimed = self.claimed.lock();
        if claimed.swmr {
            return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", path.display()))
                .because("file already in SWMR writing mode"));
        }
        self.share(&mut claimed, path)
    }
    /// Returns true if this process is the SWMR writer.
    pub fn is_swmr(&self) -> bool {
        self.claimed.lock().swmr
    }
    fn share(&self, claimed: &mut Claimed, path: &Path) -> Result<()> {
        if !claimed.writes || claimed.swmr {
            return Ok(()); // no rule, or already done
        }
        let refuse = |e: io::Error| super::stub::open_error(path, &e);
        locks::take(&self.first, LockByte::Swmr, false).map_err(refuse)?;
        if locks::is_taken(&self.first, LockByte::Writes) {
            locks::release(&self.first, LockByte::Swmr);
            let why = "another program has it open for writing, and who writes for readers (SWMR) is the only writer";
            return Err(in_use(path, why, "close it there"));
        }
        claimed.swmr = true;
        if claimed.has == Has::Alone {
            locks::rule(&self.first, false, false).map_err(refuse)?;
            claimed.has = Has::Shared;
        }
        Ok(())
    }
    /// Notes that the file's state was raised, so that its times are set at closing.
    pub fn written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }
    /// A duplicate of the stub's descriptor for the program.
    pub fn descriptor(&self, writable: bool) -> io::Result<File> {
        match &*self.writable.lock() {
            Some(file) if writable => file.try_clone(),
            _ => self.first.try_clone(),
        }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if self.generation != fork_generation() {
            return; // the parent's locks, held through the same descriptors
        }
        if let Some(writable) = self.writable.lock().take()
            && self.is_written.load(Ordering::Relaxed)
        {
            touch(&writable); // the time of the last change, as a native file would have it
        }
        locks::end_rule(&self.first);
        for place in [LockByte::Swmr, LockByte::Writes, LockByte::Open] {
            locks::release(&self.first, place);
        }
    }
}

/// Sets both times of the stub to the same present moment: see [`super::kept`].
pub fn touch(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: a plain call with an open descriptor; null means now. Without permission the times stay.
    let _ = unsafe { libc::futimens(file.as_raw_fd(), std::ptr::null()) };
}

fn in_use(path: &Path, why: &str, next: &str) -> Error {
    Error::new(ErrorKind::Busy, format!("unable to lock file: name = '{}'", path.display()))
        .because(why.to_owned())
        .try_next(next.to_owned())
}

fn locked(path: &Path) -> Error {
    in_use(
        path,
        "unable to lock file, errno = 11, error message = 'Resource temporarily unavailable' (another program has it open)",
        "close it there; programs that write one file together ask for it: HDF5_USE_FILE_LOCKING=FALSE (h5py: locking=False)",
    )
}

/// Returns true if files are locked: by HDF5's environment variable, else by the access properties.
fn is_locking(h5: &'static Api, fapl: hid_t) -> bool {
    if let Some(said) = std::env::var_os(LOCKING_ENV) {
        match said.to_string_lossy().to_ascii_uppercase().as_str() {
            "FALSE" | "0" => return false,
            "TRUE" | "1" | "BEST_EFFORT" => return true,
            _ => {}
        }
    }
    let (mut uses, mut ignores) = (true, true);
    // SAFETY: the places are valid; the list is a file access property list.
    let known = h5.H5Pget_file_locking.map(|get| unsafe { get(fapl, &raw mut uses, &raw mut ignores) });
    known.is_none_or(|status| status < 0) || uses
}
