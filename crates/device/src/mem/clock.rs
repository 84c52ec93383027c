//! A [`Clock`] for tests: it moves when it is told to.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use crate::Clock;

/// A clock that stands still until a test advances it.
#[derive(Debug)]
pub struct MemClock {
    now_ns: AtomicU64,
    /// Sum of the calendar changes, forward or back.
    shifted_ms: AtomicI64,
}

impl Default for MemClock {
    fn default() -> Self {
        Self { now_ns: AtomicU64::new(1_000_000_000), shifted_ms: AtomicI64::new(0) }
    }
}

impl MemClock {
    /// Advances the clock.
    pub fn advance_ns(&self, ns: u64) {
        self.now_ns.fetch_add(ns, Ordering::SeqCst);
    }
    /// Shifts the calendar ([`Clock::unix_ms`]) by `ms`, forward or back.
    pub fn shift_calendar_ms(&self, ms: i64) {
        self.shifted_ms.fetch_add(ms, Ordering::SeqCst);
    }
    /// Reboots the machine: the monotonic clock begins again, as after each boot; the calendar goes on.
    pub fn boot(&self) {
        let before_ms = self.unix_ms();
        self.now_ns.store(1_000_000_000, Ordering::SeqCst);
        self.shift_calendar_ms(before_ms as i64 - self.unix_ms() as i64);
    }
}

impl Clock for MemClock {
    fn now_ns(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }
    fn unix_ms(&self) -> u64 {
        (1_700_000_000_000 + self.now_ns() / 1_000_000).saturating_add_signed(self.shifted_ms.load(Ordering::SeqCst))
    }
}
