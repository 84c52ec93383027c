//! Syncs that cannot be trusted after one has failed.
//!
//! An operating system reports a failed write once, to one caller, and may then count the page as written. So all syncs
//! of one file or device pass through here, one at a time, and each learns whether any failed before it.

use std::sync::{Mutex, PoisonError};

use cenote_device::{Device, LogFile};
use cenote_model::{Error, ErrorKind, Result};

/// A log file, and whether a sync of it failed.
pub(crate) struct Log {
    file: Box<dyn LogFile>,
    /// Why the first sync that failed did so.
    failed: Mutex<Option<String>>,
}

impl Log {
    pub fn new(file: Box<dyn LogFile>) -> Self {
        Self { file, failed: Mutex::new(None) }
    }
    pub fn capacity(&self) -> u64 {
        self.file.capacity()
    }
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write(offset, bytes)
    }
    /// Returns the file itself, for content that no sync has to bring to media.
    pub fn file(&self) -> &dyn LogFile {
        self.file.as_ref()
    }
    /// Syncs it. Fails from the first failure on.
    pub fn sync(&self) -> Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cause) = failed.as_ref() {
            return Err(Error::new(ErrorKind::Io, "the journal")
                .because(format!("a sync of it failed ({cause}), and no checkpoint could be written since"))
                .try_next("check the file system or the pool that the store's journal is in"));
        }
        let done = self.file.sync();
        *failed = done.as_ref().err().map(|error| error.cause().to_owned());
        done
    }
    /// Returns true if a sync failed: what it was to bring to media may be nowhere.
    pub fn has_failed(&self) -> bool {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }
}

/// Counts the syncs of one device that failed.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    failed: Mutex<u64>,
}

impl Syncs {
    /// Syncs the device.
    pub fn sync(&self, device: &dyn Device) -> Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let done = device.sync();
        *failed += u64::from(done.is_err());
        done
    }
    /// Number of failed syncs. Data written before a failed sync, and not synced before it, must be written again.
    pub fn failed(&self) -> u64 {
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
