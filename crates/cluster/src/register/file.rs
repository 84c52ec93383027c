//! The first node's register: a record in a file of the node's directory, which one process has at a time.

use std::path::Path;
use std::sync::Arc;

use cenote_device::{StoreDir, StoreLock};
use cenote_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::Stamp;
use super::cell::{Cell, Stored};
use super::record::{self, RECORD_BYTES_MAX};

/// Name of the file with the record, in the directory of the first node.
pub const VIEW_FILE: &str = "view";
/// Name of the file whose lock says which process has the register.
pub const VIEW_LOCK_FILE: &str = "view.lock";

/// A record in a file. Each swap writes a new file, makes it durable, gives it the name of the old one, and makes that durable.
///
/// One process has it, for as long as it or a clone lives; others ask that process ([`super::RemoteRegister`]). So nobody reads a
/// record that is not durable yet. Clones are the same register.
#[derive(Clone)]
pub struct FileRegister {
    inner: Arc<Inner>,
}

struct Inner {
    dir: StoreDir,
    _lock: StoreLock,
    /// False while the file may be one that a power failure takes back.
    is_durable: Mutex<bool>,
}

impl FileRegister {
    /// Opens the register in a node's directory. `Busy` if another process has it.
    pub fn open(dir: &Path) -> Result<Self> {
        let Some(lock) = StoreLock::acquire_file(dir, VIEW_LOCK_FILE)? else {
            return Err(Error::new(ErrorKind::Busy, subject(dir)).because("another process has it").try_next(
                "ask that process for the view: the daemon of this node, which others reach by its address",
            ));
        };
        // Whoever had it before may have died between its two steps.
        let inner = Inner { dir: StoreDir::open(dir)?, _lock: lock, is_durable: Mutex::new(false) };
        Ok(Self { inner: Arc::new(inner) })
    }
    fn bytes(&self) -> Result<Option<Vec<u8>>> {
        let bytes = self.inner.dir.read_bytes(VIEW_FILE, RECORD_BYTES_MAX)?;
        match bytes {
            // One that is too long is none of ours: it is not written again below.
            Some(bytes) if bytes.len() > RECORD_BYTES_MAX => Err(record::corrupt(&self.subject(), "it is too long")),
            bytes => Ok(bytes),
        }
    }
    /// The bytes, durable. A file whose fate is unknown is written anew: after a failed `fsync` a second one may
    /// succeed without a write.
    fn durable_bytes(&self, is_durable: &mut bool) -> Result<Option<Vec<u8>>> {
        let bytes = self.bytes()?;
        if let Some(bytes) = bytes.as_ref().filter(|_| !*is_durable) {
            self.inner.dir.prepare(VIEW_FILE, bytes)?;
            self.inner.dir.put_in_place(VIEW_FILE)?;
        }
        *is_durable = true;
        Ok(bytes)
    }
    fn stamp(&self, is_durable: &mut bool) -> Result<Option<Stamp>> {
        let Some(bytes) = self.durable_bytes(is_durable)? else { return Ok(None) };
        record::decode(&self.subject(), &bytes).map(|(_, token)| Some(token.stamp()))
    }
}

fn subject(dir: &Path) -> String {
    format!("the register in {}", dir.join(VIEW_FILE).display())
}

impl Cell for FileRegister {
    fn subject(&self) -> String {
        subject(self.inner.dir.path())
    }
    fn load(&self) -> Result<Option<Vec<u8>>> {
        self.durable_bytes(&mut self.inner.is_durable.lock())
    }
    fn store(&self, seen: Option<Stamp>, _: Stamp, bytes: &[u8]) -> Stored {
        let mut is_durable = self.inner.is_durable.lock();
        match self.stamp(&mut is_durable) {
            Err(error) => return Stored::Failed(error),
            Ok(present) if present != seen => return Stored::Other,
            Ok(_) => {}
        }
        if let Err(error) = self.inner.dir.prepare(VIEW_FILE, bytes) {
            return Stored::Failed(error);
        }
        match self.inner.dir.put_in_place(VIEW_FILE) {
            Ok(()) => Stored::Done,
            Err(error) => {
                *is_durable = false;
                Stored::Unknown(error)
            }
        }
    }
}
