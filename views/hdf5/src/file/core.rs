//! The part of a file that needs no libhdf5: its records, its raw data, and what this process shares about it.
//!
//! An open [`File`](super::File) is a `Core` with libhdf5's view of it; the Zarr view and the command use a `Core` alone
//! ([`super::plain`]). Must not know HDF5's callbacks, identifiers and property lists.

use std::sync::Arc;

use cenote::{Container, Error, ErrorKind, Object, ObjectId, Store};

use super::identity::{self, STATE_SNAPSHOT};
use super::in_use::InUse;
use super::shared::Shared;
use crate::Result;
use crate::meta::records::Meta;

/// The part of an open file that needs no libhdf5.
pub struct Core {
    /// The store.
    pub store: Store,
    /// The file's container.
    pub container: Container,
    /// All metadata of the file; see [`crate::meta`] for the keys. Key tags from 0x40 on belong to [`crate::data`].
    pub meta: Meta,
    /// The incarnation of the file: creating a file over an old one begins a new generation.
    pub generation: u64,
    /// Identifies the file for its whole life, also under another name.
    pub uuid: u128,
    /// Absolute, normalised path.
    pub path: String,
    /// True if opened for writing.
    pub writable: bool,
    /// The state at opening, see [`super::identity`].
    pub state: u64,
    /// What this process shares about the file, however often it is open.
    pub shared: Arc<Shared>,
    /// The file's stub, held open; `None` for files without a stub of their own.
    pub in_use: Option<Arc<InUse>>,
}

impl Core {
    /// The id of the raw-data object number `id`. The generation is the upper half, so that the objects of one
    /// incarnation form one range, which truncation deletes.
    pub fn object_id(&self, id: u64) -> ObjectId {
        ObjectId(u128::from(self.generation) << 64 | u128::from(id))
    }
    /// The raw-data object number `id` (a dataset's own id is that of its main object).
    pub fn object(&self, id: u64) -> Object {
        self.container.object(self.object_id(id))
    }
    /// A fresh number for an HDF5 object and its raw-data object.
    pub fn new_id(&self) -> Result<u64> {
        self.shared.new_number()
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

impl Drop for Core {
    fn drop(&mut self) {
        self.shared.file_closed(self.writable);
        if self.writable && identity::keeps_states() {
            let kept = self.container.replace_snapshot(&format!("{STATE_SNAPSHOT}{}", self.state));
            if let Err(error) = kept {
                // Closing can return no error to HDF5 any more.
                eprintln!("cenote: the state of {} could not be kept for copies of its stub: {error}", self.path);
            }
        }
    }
}
