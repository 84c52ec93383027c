//! An open HDF5 file: its container, its metadata index, and what it shares among all handles of this process.

pub mod ahead;
mod at_path;
pub mod beside;
mod brought;
mod checkpoint;
pub mod copying;
mod core;
pub mod creation;
pub mod given;
mod held;
mod identity;
mod in_use;
pub mod incoming;
pub mod kept;
mod knocking;
mod locks;
pub mod making;
pub mod mounts;
pub mod native;
mod numbers;
pub mod open;
pub mod opening;
mod parallel;
pub mod path;
pub mod plain;
mod process;
pub mod search;
pub mod shared;
mod snapshot;
mod stores;
mod stub;
mod superblock;
pub mod writers;

use std::ffi::c_int;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use cenote::{Error, Object, Store};
use parking_lot::Mutex;

use crate::Result;
use crate::ffi::types::{H5F_CLOSE_DEFAULT, H5F_CLOSE_WEAK};
use crate::ffi::{Api, Hid};
use crate::foreign::Native;
use crate::object::{Body, Handle};
use crate::regions::Regions;
use crate::team::wire::Wire;
use crate::team::{Call, Team};
use at_path::AtPath;
use checkpoint::Writing;

/// True if the stub of a file of a store is at `path`.
pub fn is_stub(path: &std::path::Path) -> bool {
    matches!(stub::look(path), Ok(stub::Seen::Stub(_)))
}

/// The bytes of the native file that is staged as the file at `path`.
pub fn staged_object(store: &Store, path: &std::path::Path) -> Result<Object> {
    open::staged(store, path)
}

/// The upper half of the ids of objects that have the bytes of whole files; no generation is this.
pub const STREAMS: u64 = u64::MAX;

pub use ahead::Ahead;
pub use core::Core;
pub use shared::Shared;
pub use stores::{STORE_ENV, store_for, store_path_default};
pub use superblock::SUPER_INDEX;

/// An HDF5 file that this process has open: one for each open call. Every handle of anything in it holds an `Arc` of this.
pub struct File {
    /// The libhdf5 that opened it.
    pub h5: &'static Api,
    /// What of it needs no libhdf5.
    pub core: Core,
    /// The native file that this is, if it is one; then the records are made from it and the container is none.
    pub native: Option<Arc<Native>>,
    /// The name as the program gave it.
    pub name: Vec<u8>,
    /// What stands at the path.
    pub at_path: AtPath,
    /// `H5Fset_dset_no_attrs_hint`: kept for the program's eyes.
    pub no_attrs_hint: AtomicBool,
    /// `H5F_ACC_*` as `H5Fget_intent` tells them.
    pub intent: AtomicU32,
    /// Access properties.
    pub fapl: Hid,
    /// Creation properties as the program gave them, if this open made the file.
    pub fcpl: Option<Hid>,
    /// This connector's id in `h5`.
    pub connector: Hid,
    /// What was set with `H5Fset_mpi_atomicity`.
    pub is_atomic: AtomicBool,
    /// Opened with the MPI-IO driver, by however many ranks.
    pub is_parallel: bool,
    /// The ranks that have opened it together, if it was opened with the MPI-IO driver by more than one.
    pub team: Option<Arc<Team>>,
    /// What region references of the old kind need.
    pub regions: Regions,
    /// Open for writing in atomic checkpoints.
    writing: Option<Writing>,
    /// Handles of this file that HDF5 has, as addresses.
    handles: Mutex<Vec<usize>>,
}

impl File {
    /// Returns when all changes made through this process are carried out; with the first that could not be.
    pub fn settle(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let settled = self.shared.ahead().settle();
        self.shared.take_untold().map_or(settled, Err)
    }
    /// The same, before this handle of the file is closed. `is_last`: nothing else of this process has to do with it.
    pub fn settle_to_close(&self, is_last: bool) -> Result<()> {
        if !self.writable || self.team.is_some() || !is_last || !self.shared.is_last_writer() {
            return self.settle();
        }
        let settled = self.shared.ahead().settle_and_leave();
        self.shared.take_untold().map_or(settled, Err)
    }
    /// The part of a flush that native HDF5 leaves to `fsync`: waits for media if flushes are to ([`stores::FLUSH_ENV`]).
    pub fn flush_to_media(&self) -> Result<()> {
        if self.writable && stores::flush_waits_for_media() { self.container.flush() } else { Ok(()) }
    }
    /// If the file is written in atomic checkpoints: what was written so far is what readers see from now on. Called by all
    /// ranks that have it open together, when what each of them had is stored.
    pub fn publish(&self) -> Result<()> {
        match (&self.writing, &self.team) {
            (None, _) => Ok(()),
            (Some(writing), Some(team)) if team.is_together() => {
                team.once(&Call::new("file_publish"), |_| writing.publish())
            }
            (Some(writing), _) => writing.publish(),
        }
    }
    /// The program closed the file; `others`: and has objects of it open.
    pub fn closed(&self, others: bool) {
        if let Some(writing) = self.writing.as_ref().filter(|_| others) {
            writing.closed_early();
        }
    }
    /// A change of metadata: made once for all ranks that have the file open together, see [`crate::team`].
    pub fn once<T: Wire>(&self, call: &Call<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.team {
            None => work(),
            Some(team) => team.once_unless_independent(call, |_| work()),
        }
    }
    /// Like [`File::once`], for a change that may take an object's last link away: what any rank has open stays.
    pub fn once_unlinking<T: Wire>(&self, call: Call<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.team {
            None => work(),
            Some(team) => team.once_unless_independent(&call.marked(self.shared.open_marks()), |marks| {
                self.shared.with_elsewhere(marks, work)
            }),
        }
    }
    /// Bytes that the file takes.
    pub fn stored_bytes(&self) -> Result<u64> {
        if self.native.is_some() {
            let seen = std::fs::metadata(path::of_label(&self.path))
                .map_err(|e| Error::io(format!("file {}", self.path), &e))?;
            return Ok(seen.len());
        }
        Ok(self.container.info()?.stored_bytes)
    }
    /// A number for `H5O_info2_t::fileno`: equal for equal files.
    pub fn fileno(&self) -> u64 {
        (self.uuid as u64 ^ (self.uuid >> 64) as u64) >> 1
    }
    /// True if both are the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
    /// What closing it closes (`H5F_close_degree_t`).
    pub fn close_degree(&self) -> c_int {
        let mut degree = H5F_CLOSE_DEFAULT;
        // SAFETY: a plain query of our own list.
        unsafe { (self.h5.H5Pget_fclose_degree)(self.fapl.get(), &raw mut degree) };
        // What files on a disk have if the program says nothing.
        if degree == H5F_CLOSE_DEFAULT { H5F_CLOSE_WEAK } else { degree }
    }
    /// A handle of this file for HDF5: one that it has already, or a new one.
    pub fn handle(self: &Arc<Self>) -> *mut Handle {
        let mut handles = self.handles.lock();
        if let Some(address) = handles.last() {
            return *address as *mut Handle;
        }
        let handle = Handle::new(self.h5, Body::File(self.clone()));
        handles.push(handle as usize);
        handle
    }
    /// Notes that HDF5 gives a handle back.
    pub fn handle_closed(&self, handle: *mut Handle) {
        self.handles.lock().retain(|address| *address != handle as usize);
    }
}

impl Deref for File {
    type Target = Core;
    fn deref(&self) -> &Core {
        &self.core
    }
}

/// A random number above 2^32 (small numbers are kept for well-known objects).
pub fn random_u64() -> Result<u64> {
    loop {
        let mut bytes = [0u8; 8];
        // SAFETY: the buffer is 8 bytes long.
        let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), 8, 0) };
        if n != 8 {
            return Err(Error::io("the system's random numbers", &std::io::Error::last_os_error()));
        }
        let id = u64::from_le_bytes(bytes) & (u64::MAX >> 1);
        if id >> 48 != 0 {
            return Ok(id);
        }
    }
}
