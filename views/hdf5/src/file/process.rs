//! Processes that have noted themselves in a file's records, and whether they still live.

use cenote::process_started;
use parking_lot::Mutex;

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
        /// Number and start of this process, as it was when that was looked up: a forked child has another number.
        static KNOWN: Mutex<(u32, u64)> = Mutex::new((0, 0));
        let pid = std::process::id();
        // Another thread may have had it locked when this process was forked.
        let known = KNOWN.try_lock().map(|known| *known).filter(|known| known.0 == pid);
        let started = known.map_or_else(|| process_started(pid).unwrap_or(0), |known| known.1);
        if let Some(mut known) = KNOWN.try_lock() {
            *known = (pid, started);
        }
        Ok(Self { pid, started, nonce: random_u64()? })
    }
    /// True unless it is dead.
    pub fn is_alive(&self) -> bool {
        process_started(self.pid) == Some(self.started)
    }
}
