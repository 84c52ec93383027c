//! Processes recorded as writers of a file, and whether they live.

use cenote_host::process::started_of as process_started;
use parking_lot::Mutex;

use super::random_u64;
use crate::Result;

/// A process, during one period of writing a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process {
    pub pid: u32,
    /// Start time in kernel ticks since boot, which tells the process from a later one with the same number; 0 if `/proc`
    /// does not show it.
    pub started: u64,
    /// Tells the periods of writing apart.
    pub nonce: u64,
}

impl Process {
    /// This process.
    pub fn this() -> Result<Self> {
        /// Number and start time of this process when last looked up: a forked child has another number.
        static KNOWN: Mutex<(u32, u64)> = Mutex::new((0, 0));
        let pid = std::process::id();
        // At a fork another thread may have held the lock.
        let known = KNOWN.try_lock().map(|known| *known).filter(|known| known.0 == pid);
        let started = known.map_or_else(|| process_started(pid).unwrap_or(0), |known| known.1);
        if let Some(mut known) = KNOWN.try_lock() {
            *known = (pid, started);
        }
        Ok(Self { pid, started, nonce: random_u64()? })
    }
    /// Returns true unless the process is dead.
    pub fn is_alive(&self) -> bool {
        process_started(self.pid) == Some(self.started)
    }
}
