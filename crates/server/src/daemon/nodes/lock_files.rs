//! The files by which the agent of this node and its processes meet: what the node has of locks, and the kernel's locks.

use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::control::{LOCK_GRACE, SharedControl, boot_ns};
use cenote_host::meeting::{Holder, LockKind, MeetingFile, meeting_dir};
use cenote_model::{Error, LOCK_END, LockMode, LockSpace, LockWish, Result};
use cenote_wire::{LockTokens, decode_lock_tokens, encode_lock_tokens};

use crate::locks::{Files, Probe};

/// Directories beside the memory of the node's home: the kernel's locks, and what the node has of locks.
const LOCKS: &str = "locks";
const TOKENS: &str = "lock-tokens";

/// See the module.
pub(super) struct LockFiles {
    /// The directory of the node's home in shared memory.
    memory: PathBuf,
    control: Arc<SharedControl>,
    files: u64,
    is_in_grace: bool,
    last: u64,
}

impl LockFiles {
    pub fn new(memory: &Path, control: Arc<SharedControl>) -> Self {
        Self { memory: memory.to_owned(), control, files: 0, is_in_grace: false, last: 0 }
    }
    /// What an earlier daemon of this node wrote.
    pub fn kept(&self) -> Result<Vec<(u64, LockTokens)>> {
        let dir = self.dir(TOKENS).map_err(|error| Error::io("what this node has of locks", &error))?;
        let fail = |error: io::Error| Error::io(dir.display().to_string(), &error);
        let mut kept = Vec::new();
        for entry in std::fs::read_dir(&dir).map_err(fail)? {
            let path = entry.map_err(fail)?.path();
            let number = path.file_name().and_then(|name| u64::from_str_radix(name.to_str()?, 16).ok());
            match (number, std::fs::read(&path).map_err(fail).and_then(|bytes| decode_lock_tokens(&bytes))) {
                (Some(number), Ok(tokens)) => kept.push((number, tokens)),
                // Of another version, or half written: no process trusts it either.
                _ => drop(std::fs::remove_file(&path)),
            }
        }
        Ok(kept)
    }
    /// Whether nodes may still claim locks of the own home, so that no process may lock its files without asking.
    pub fn set_grace(&mut self, is_in_grace: bool) {
        self.is_in_grace = is_in_grace;
        self.tell();
    }
    fn tell(&self) {
        let grace = if self.is_in_grace { LOCK_GRACE } else { 0 };
        self.control.set_lock_interest(self.files | grace);
    }
    fn dir(&self, sort: &str) -> io::Result<PathBuf> {
        meeting_dir(&self.memory, sort)
    }
    fn try_save(&self, file: u64, tokens: &LockTokens) -> io::Result<()> {
        let dir = self.dir(TOKENS)?;
        let (fresh, path) = (dir.join(".new"), dir.join(name(file)));
        let mut bytes = Vec::new();
        encode_lock_tokens(tokens, &mut bytes);
        let mut options = std::fs::OpenOptions::new();
        let mut made = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        io::Write::write_all(&mut made, &bytes)?;
        std::fs::rename(&fresh, &path)
    }
    fn try_probe(&self, file: u64, wish: &LockWish) -> io::Result<Probe> {
        let Some(here) = MeetingFile::find(&self.dir(LOCKS)?.join(name(file)), 0)? else { return Ok(Probe::Free) };
        let kind = if wish.mode == LockMode::Shared { LockKind::Shared } else { LockKind::Exclusive };
        if wish.space == LockSpace::Whole {
            return match here.lock_whole(Some(kind), false) {
                Ok(()) => Ok(Probe::Free), // the descriptor is closed, and the lock with it
                Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => Ok(Probe::Held(0, *wish)),
                Err(error) => Err(error),
            };
        }
        let len = if wish.last == LOCK_END { 0 } else { wish.last - wish.first + 1 };
        let held = here.blocking(Holder::Description, kind, wish.first, len)?;
        Ok(held.map_or(Probe::Free, |held| {
            let mode = if held.kind == LockKind::Shared { LockMode::Shared } else { LockMode::Exclusive };
            let last = if held.len == 0 { LOCK_END } else { (held.start + held.len - 1).min(LOCK_END) };
            let lock = LockWish { space: LockSpace::Ranges, first: held.start.min(last), last, mode };
            Probe::Held(held.pid.unwrap_or(0), lock)
        }))
    }
}

fn name(file: u64) -> String {
    format!("{file:016x}")
}

impl Files for LockFiles {
    fn save(&mut self, file: u64, tokens: &LockTokens) -> bool {
        let saved = self.try_save(file, tokens);
        if let Err(error) = &saved {
            tracing::error!(%error, "what this node has of the locks of a file cannot be written");
        }
        saved.is_ok()
    }
    fn remove(&mut self, file: u64) {
        let removed = self.dir(TOKENS).and_then(|dir| std::fs::remove_file(dir.join(name(file))));
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(%error, "what this node had of the locks of a file cannot be removed");
            }
            _ => {}
        }
    }
    fn probe(&mut self, file: u64, wish: &LockWish) -> Probe {
        self.try_probe(file, wish).unwrap_or_else(|error| {
            tracing::error!(%error, "whether a process of this node holds a lock is not known");
            Probe::Held(0, *wish)
        })
    }
    fn interest(&mut self, files: u64) {
        self.files = files;
        self.tell();
    }
    fn fresh(&mut self) -> u64 {
        self.last = boot_ns().max(self.last + 1);
        self.last
    }
}
