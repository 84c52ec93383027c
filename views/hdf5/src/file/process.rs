//! Processes recorded as writers of a file, and whether they live.

use cenote::Store;

use super::random_u64;
use crate::Result;

/// A process, during one period of writing a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: u32,
    /// Its stamp ([`Store::process_stamp`]), which tells the process from a later one with the same number; without a
    /// time if `/proc` does not show it.
    pub started: u64,
    /// Tells the periods of writing apart.
    pub nonce: u64,
}

impl Process {
    /// This process.
    pub fn this(store: &Store) -> Result<Self> {
        Ok(Self { pid: std::process::id(), started: store.process_stamp(), nonce: random_u64()? })
    }
    /// Returns true unless the process is known to be dead: those of another node are not.
    pub fn is_alive(&self, store: &Store) -> bool {
        store.may_live(self.pid, self.started)
    }
}
