//! The stub of an open file, held open: its descriptor with the locks on it, one for each file and process, however often
//! the process has the file open.
//!
//! It is what `H5Fget_vfd_handle` gives, what tells other programs that the file is in use, and whose time is set when the
//! last writer of this process closes the file. This room must not know containers.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Weak};

use cenote::{Error, ErrorKind, fork_generation};
use parking_lot::Mutex;

use super::locks::{self, Place};
use crate::Result;
use crate::ffi::Api;
use crate::ffi::types::hid_t;

/// HDF5's variable that says whether files are locked, before what a program's access properties say.
const LOCKING_ENV: &str = "HDF5_USE_FILE_LOCKING";

/// Device and number of the stub.
type Key = (u64, u64);

static IN_USE: LazyLock<Mutex<HashMap<Key, Weak<InUse>>>> = LazyLock::new(Mutex::default);

/// What is asked of the rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// To read it.
    Read,
    /// To read it while it is written.
    ReadSwmr,
    /// To write it.
    Write,
    /// To write it while it is read.
    WriteSwmr,
}

impl Use {
    /// As the flags of an open call say.
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

/// Whom an open call asks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// Nobody: ranks of a parallel program, the store's own views, files in atomic checkpoints.
    Free,
    /// No locks, but there is one who writes for readers, as native HDF5 notes it in the file.
    Unlocked,
    /// HDF5's locks, too.
    Locked,
}

impl Rule {
    /// As HDF5's environment variable says, else the access properties.
    pub fn of(h5: &'static Api, fapl: hid_t, is_free: bool) -> Self {
        match is_free {
            true => Self::Free,
            false if is_locking(h5, fapl) => Self::Locked,
            false => Self::Unlocked,
        }
    }
}

/// What of the rule this process has.
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
    /// Anything.
    any: bool,
    has: Has,
    /// [`Place::Writes`].
    writes: bool,
    /// [`Place::Swmr`]: the rule is shared from then on.
    swmr: bool,
}

/// See the module.
pub struct InUse {
    /// Has the locks.
    first: File,
    /// Open for writing, once the process has the file open so.
    writable: Mutex<Option<Arc<File>>>,
    claimed: Mutex<Claimed>,
    /// Opened for writing, and not refused.
    is_written: AtomicBool,
    /// The process that took the locks: a child that was forked meanwhile does not give them back.
    generation: u64,
}

impl InUse {
    /// Holds a stub that was opened. `writable`: for writing.
    pub fn new(file: File, writable: bool) -> io::Result<Arc<Self>> {
        let seen = file.metadata()?;
        Self::of(file, &seen, writable)
    }
    /// The same, of a file of which this is known.
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
        locks::take(&file, Place::Open, false)?;
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
    /// Takes what the rule asks for this use, or says who is in the way.
    pub fn claim(&self, what: Use, rule: Rule, path: &Path) -> Result<()> {
        if rule == Rule::Free {
            return Ok(());
        }
        let mut claimed = self.claimed.lock();
        let before = *claimed;
        let done = self.claim_more(&mut claimed, what, rule, path);
        if done.is_err() && claimed.writes && !before.writes {
            locks::release(&self.first, Place::Writes);
            claimed.writes = false;
        }
        done
    }
    fn claim_more(&self, claimed: &mut Claimed, what: Use, rule: Rule, path: &Path) -> Result<()> {
        let refuse = |e: io::Error| super::stub::open_error(path, &e);
        if what.writes() && !claimed.writes {
            // Before the look at who writes for readers, who looks at this after saying so: one of both sees the other.
            locks::take(&self.first, Place::Writes, false).map_err(refuse)?;
            claimed.writes = true;
        }
        let asks = what.writes() || what == Use::Read && !claimed.any;
        if asks && locks::is_taken(&self.first, Place::Swmr) {
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
    /// Who writes lets readers in that know of it (`H5Fstart_swmr_write`).
    pub fn begin_swmr(&self, path: &Path) -> Result<()> {
        let mut claimed = self.claimed.lock();
        if claimed.swmr {
            return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", path.display()))
                .because("file already in SWMR writing mode"));
        }
        self.share(&mut claimed, path)
    }
    /// This process writes it for readers.
    pub fn is_swmr(&self) -> bool {
        self.claimed.lock().swmr
    }
    fn share(&self, claimed: &mut Claimed, path: &Path) -> Result<()> {
        if !claimed.writes || claimed.swmr {
            return Ok(()); // no rule, or done
        }
        let refuse = |e: io::Error| super::stub::open_error(path, &e);
        locks::take(&self.first, Place::Swmr, false).map_err(refuse)?;
        if locks::is_taken(&self.first, Place::Writes) {
            locks::release(&self.first, Place::Swmr);
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
    /// Its state was raised: the file is written from now on.
    pub fn written(&self) {
        self.is_written.store(true, Ordering::Relaxed);
    }
    /// A descriptor of the stub for the program.
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
            return; // the parent's locks, by the same descriptors
        }
        if let Some(writable) = self.writable.lock().take()
            && self.is_written.load(Ordering::Relaxed)
        {
            touch(&writable); // as of the last change that a native file would have had
        }
        locks::end_rule(&self.first);
        for place in [Place::Swmr, Place::Writes, Place::Open] {
            locks::release(&self.first, place);
        }
    }
}

/// Sets the stub's times to now, both to the same: see [`super::kept`].
pub fn touch(file: &File) {
    use std::os::fd::AsRawFd;
    // SAFETY: a plain call with an open descriptor; null means now. Where it may not be, times stay.
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

/// True if files are to be locked: by HDF5's environment variable, else by the access properties.
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
