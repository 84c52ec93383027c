//! Processes that have noted themselves in a file's records, and whether they still live.

use cenote::process_started;

use super::random_u64;
use crate::Result;

/// A process, in one of its times of writing a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: u32,
    /// When it was started, in kernel ticks since boot: tells it from a later one with the same number. 0 if `/proc` does
    /// not say.
    pub started: u64,
    /// Tells its times of writing apart.
    pub nonce: u64,
}

impl Process {
    /// This process.
    pub fn this() -> Result<Self> {
        let pid = std::process::id();
        Ok(Self { pid, started: process_started(pid).unwrap_or(0), nonce: random_u64()? })
    }
    /// True unless it is dead.
    pub fn is_alive(&self) -> bool {
        process_started(self.pid) == Some(self.started)
    }
}
