use std::sync::atomic::{AtomicU64, Ordering};

use crate::Clock;

/// A clock that stands still until told.
#[derive(Debug)]
pub struct MemClock {
    now_ns: AtomicU64,
}

impl Default for MemClock {
    fn default() -> Self {
        Self { now_ns: AtomicU64::new(1_000_000_000) }
    }
}

impl MemClock {
    /// Lets time pass.
    pub fn advance_ns(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for MemClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }
    fn unix_ms(&self) -> u64 {
        1_700_000_000_000 + self.now_ns() / 1_000_000
    }
}
