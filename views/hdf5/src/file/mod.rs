//! An open HDF5 file: its container, its metadata index, and what all handles of this process share about it.

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
mod revocation;
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

/// Returns true if the stub of a file of a store is at `path`.
pub fn is_stub(path: &std::path::Path) -> bool {
    matches!(stub::look(path), Ok(stub::Seen::Stub(_)))
}

/// The object with the bytes of the native file that is staged at `path`.
pub fn staged_object(store: &Store, path: &std::path::Path) -> Result<Object> {
    open::staged(store, path)
}

/// The upper half of ids of objects that hold the bytes of whole files; no generation has this value.
pub const IMAGES: u64 = u64::MAX;

pub use ahead::Ahead;
pub use core::Core;
pub use shared::Shared;
pub use stores::{STORE_ENV, store_for, store_path_default};
pub use superblock::SUPER_INDEX;

/// An HDF5 file that this process has open, one for each open call. Every handle of anything in it holds an `Arc` of this.
pub struct File {
    /// The libhdf5 that opened it.
    pub h5: &'static Api,
    /// The part that needs no libhdf5.
    pub core: Core,
    /// The native file, if it is one; then its records are made from it and the container does not exist.
    pub native: Option<Arc<Native>>,
    /// The name as the program gave it.
    pub name: Vec<u8>,
    /// What is at the path.
    pub at_path: AtPath,
    /// Value of `H5Fset_dset_no_attrs_hint`, kept only to be returned.
    pub no_attrs_hint: AtomicBool,
    /// `H5F_ACC_*` flags as `H5Fget_intent` reports them.
    pub intent: AtomicU32,
    /// Access properties.
    pub fapl: Hid,
    /// Creation properties as the program gave them, if this open made the file.
    pub fcpl: Option<Hid>,
    /// This connector's id in `h5`.
    pub connector: Hid,
    /// The value set with `H5Fset_mpi_atomicity`.
    pub is_atomic: AtomicBool,
    /// True if opened with the MPI-IO driver, by any number of ranks.
    pub is_parallel: bool,
    /// The ranks that opened the file together, if more than one did with the MPI-IO driver.
    pub team: Option<Arc<Team>>,
    /// State of old-style region references.
    pub regions: Regions,
    /// Set if open for writing in atomic checkpoints.
    writing: Option<Writing>,
    /// Addresses of the handles of this file that HDF5 has.
    handles: Mutex<Vec<usize>>,
}

impl File {
    /// Waits until all changes made through this process are carried out. Returns the first failure.
    pub fn settle(&self) -> Result<()> {
        if !self.writable {
            return Ok(());
        }
        let settled = self.shared.ahead().settle();
        self.shared.take_untold().map_or(settled, Err)
    }
    /// Settles before this handle of the file is closed. `is_last`: nothing else in this process uses the file.
    pub fn settle_to_close(&self, is_last: bool) -> Result<()> {
        if !self.writable || self.team.is_some() || !is_last || !self.shared.is_last_writer() {
            return self.settle();
        }
        let settled = self.shared.ahead().settle_and_leave();
        self.shared.take_untold().map_or(settled, Err)
    }
    /// The part of a flush that native HDF5 leaves to `fsync`: waits for media if [`stores::FLUSH_ENV`] asks for it.
    pub fn flush_to_media(&self) -> Result<()> {
        if self.writable && stores::flush_waits_for_media() { self.container.flush() } else { Ok(()) }
    }
    /// Publishes what was written so far to readers, if the file is written in atomic checkpoints. All ranks that have it
    /// open together call this after each has stored its data.
    pub fn publish(&self) -> Result<()> {
        match (&self.writing, &self.team) {
            (None, _) => Ok(()),
            (Some(writing), Some(team)) if team.is_together() => {
                team.once(&Call::new("file_publish"), |_| writing.publish())
            }
            (Some(writing), _) => writing.publish(),
        }
    }
    /// Notes that the program closed the file. `others`: objects of it are still open.
    pub fn closed(&self, others: bool) {
        if let Some(writing) = self.writing.as_ref().filter(|_| others) {
            writing.closed_early();
        }
    }
    /// Makes a change of metadata, once for all ranks that have the file open together, see [`crate::team`].
    pub fn once<T: Wire>(&self, call: &Call<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.team {
            None => work(),
            Some(team) => team.once_unless_independent(call, |_| work()),
        }
    }
    /// Like [`File::once`], for a change that may remove an object's last link: what any rank has open stays.
    pub fn once_unlinking<T: Wire>(&self, call: Call<'_>, work: impl FnOnce() -> Result<T>) -> Result<T> {
        match &self.team {
            None => work(),
            Some(team) => team.once_unless_independent(&call.marked(self.shared.open_marks()), |marks| {
                self.shared.with_elsewhere(marks, work)
            }),
        }
    }
    /// The file's size in the store, in bytes.
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
    /// Returns true if both are the same file.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
    /// What closing the file closes (`H5F_close_degree_t`).
    pub fn close_degree(&self) -> c_int {
        let mut degree = H5F_CLOSE_DEFAULT;
        // SAFETY: a plain query of our own list.
        unsafe { (self.h5.H5Pget_fclose_degree)(self.fapl.get(), &raw mut degree) };
        // The default of file drivers on disk.
        if degree == H5F_CLOSE_DEFAULT { H5F_CLOSE_WEAK } else { degree }
    }
    /// A handle of this file for HDF5: an existing one, or a new one.
    pub fn handle(self: &Arc<Self>) -> *mut Handle {
        let mut handles = self.handles.lock();
        if let Some(address) = handles.last() {
            return *address as *mut Handle;
        }
        let handle = Handle::new(self.h5, Body::File(self.clone()));
        handles.push(handle as usize);
        handle
    }
    /// Notes that HDF5 has released a handle.
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

/// A random number above 2^32 (small numbers are reserved for well-known objects).
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
