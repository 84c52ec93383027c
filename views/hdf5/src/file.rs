//! An open HDF5 file: its container, its metadata index, and what it shares among all handles of this process.

use cenote::{Container, Error, ErrorKind, Index, Object, ObjectId, Store};

use crate::Result;
use crate::ffi::Api;

/// An HDF5 file that this process has open. Every handle of anything in it holds an `Arc` of this.
pub struct File {
    /// The libhdf5 that opened it.
    pub h5: &'static Api,
    /// The store.
    pub store: Store,
    /// The file's container.
    pub container: Container,
    /// All metadata of the file; see [`crate::meta`] for the keys. Key tags from 0x40 on belong to [`crate::data`].
    pub meta: Index,
    /// Which incarnation of the file this is: creating a file over an old one begins a new generation.
    pub generation: u64,
    /// Absolute, normalised path.
    pub path: String,
    /// Opened for writing.
    pub writable: bool,
}

impl File {
    /// The id of the raw-data object number `id`: the generation is its upper half, so that the objects of an
    /// incarnation are one range, which truncation deletes.
    pub fn object_id(&self, id: u64) -> ObjectId {
        ObjectId(u128::from(self.generation) << 64 | u128::from(id))
    }
    /// The raw-data object number `id` (a dataset's own id is that of its main object).
    pub fn object(&self, id: u64) -> Object {
        self.container.object(self.object_id(id))
    }
    /// A fresh number for an HDF5 object or a raw-data object: random, so that parallel creators need no coordination.
    pub fn new_id(&self) -> Result<u64> {
        random_u64()
    }
    /// Refuses what needs write access if the file was opened read-only.
    pub fn need_writable(&self, what: &str) -> Result<()> {
        if self.writable {
            return Ok(());
        }
        Err(Error::new(ErrorKind::PermissionDenied, format!("{what} in file {}", self.path))
            .because("no write intent on file: it is open read-only")
            .try_next("open it with H5F_ACC_RDWR (mode 'r+' or 'a')"))
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
        if id > u64::from(u32::MAX) {
            return Ok(id);
        }
    }
}
