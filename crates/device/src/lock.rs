//! The lock that says which process has a store's engine.

use std::os::fd::OwnedFd;
use std::path::Path;

use cenote_host::fork::CloseInChild;
use cenote_model::{Error, Result};
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::store_dir::{Purpose, StoreDir};

/// Name of the lock file in the store's directory.
pub const LOCK_FILE: &str = "lock";

/// Held by the one process whose engine has the store. Released on drop or when the process dies, in whatever way.
/// Forked children do not hold it.
#[derive(Debug)]
pub struct StoreLock {
    _in_child: Option<CloseInChild>, // before the descriptor: fields drop in order
    file: OwnedFd,
}

impl StoreLock {
    /// Takes the lock of the store in `dir`; `None` if another process (or another engine in this one) holds it.
    pub fn acquire(dir: &Path) -> Result<Option<Self>> {
        Self::acquire_file(dir, LOCK_FILE)
    }
    /// Takes the lock of something else in `dir`, by a file of its own.
    pub fn acquire_file(dir: &Path, name: &str) -> Result<Option<Self>> {
        let fail = |errno: Errno| {
            Error::io(format!("lock file {}", dir.join(name).display()), &errno.into())
                .try_next("check that the directory exists and that you may write to it")
        };
        let opened = StoreDir::open(dir)?.file_or_new(name, Purpose::Write, Mode::RUSR | Mode::WUSR);
        let file = OwnedFd::from(opened?);
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _in_child: CloseInChild::new(&file), file })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(fail(errno)),
        }
    }
}

/// Held by the one process that starts a daemon for a store, so that other processes wait for that daemon instead of
/// starting theirs. Advisory: a process that does not get it may start a daemon all the same, and [`StoreLock`]
/// decides.
#[derive(Debug)]
pub struct StartLock {
    _in_child: Option<CloseInChild>, // before the descriptor: fields drop in order
    dir: OwnedFd,
}

impl StartLock {
    /// Takes the lock; `Ok(None)` if another process holds it. Locks the directory itself and creates no file.
    pub fn acquire(dir: &Path) -> Result<Option<Self>> {
        let fail = |errno: Errno| Error::io(format!("directory {}", dir.display()), &errno.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(dir, flags, Mode::empty()).map_err(fail)?;
        match rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _in_child: CloseInChild::new(&dir), dir })),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(fail(errno)),
        }
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.dir, FlockOperation::Unlock);
    }
}

impl Drop for StoreLock {
    fn drop(&mut self) {
        // Closing alone would not do: a child forked a moment ago may still hold its copy.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}
