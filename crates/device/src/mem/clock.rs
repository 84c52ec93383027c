use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::Clock;

/// A clock that stands still until told.
#[derive(Debug)]
pub struct MemClock {
    now_ns: AtomicU64,
    /// How far the wall's clock was set off, in milliseconds.
    set_off_ms: AtomicI64,
}

impl Default for MemClock {
    fn default() -> Self {
        Self { now_ns: AtomicU64::new(1_000_000_000), set_off_ms: AtomicI64::new(0) }
    }
}

impl MemClock {
    /// Lets time pass.
    pub fn advance_ns(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
    }
    /// Somebody sets the wall's clock.
    pub fn jump_unix_ms(&self, ms: i64) {
        self.set_off_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for MemClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }
    fn unix_ms(&self) -> u64 {
        (1_700_000_000_000 + self.now_ns() / 1_000_000).saturating_add_signed(self.set_off_ms.load(Ordering::SeqCst))
    }
}
