//! What is at a file's path: the stub or a native file, after its user block.

use std::ffi::c_int;
use std::fs::{File as PlainFile, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::Path;

use cenote::Error;
use parking_lot::Mutex;

use super::in_use::InUse;
use crate::Result;

/// What is at a file's path.
#[derive(Default)]
pub struct AtPath {
    /// Length of the user block, in bytes: the program's own bytes before the stub.
    pub user_block: u64,
    /// The descriptor and its owner, once a program has asked for it.
    open: Mutex<Option<Box<(Descriptor, PlainFile)>>>,
}

/// A descriptor as programs read it: HDF5 says it is an `int`, but PyTables reads a word of eight
/// bytes.
type Descriptor = i64;

impl AtPath {
    /// With a user block of this many bytes.
    pub fn new(user_block: u64) -> Self {
        Self { user_block, open: Mutex::default() }
    }

    /// Address of the descriptor, valid as long as `self`.
    pub fn descriptor(&self, in_use: Option<&InUse>, path: &Path, writable: bool) -> Result<*mut c_int> {
        let mut open = self.open.lock();
        let kept = if let Some(kept) = open.take() {
            kept
        } else {
            let plain = match in_use {
                Some(in_use) => in_use.descriptor(writable),
                None => OpenOptions::new().read(true).write(writable).open(path),
            };
            let plain = plain.map_err(|e| Error::io(format!("file {}", path.display()), &e))?;
            Box::new((Descriptor::from(plain.as_raw_fd()), plain))
        };
        Ok((&raw mut open.insert(kept).0).cast())
    }
}
