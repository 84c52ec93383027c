//! Measures devices for the engine, which does not spend time on it itself.
//!
//! Measuring delays nobody: without a request, it starts when a store has been quiet for a while, runs at the lowest
//! priority, and stops when a request comes. So a program that opens a store, works and exits pays nothing, and the
//! store is measured the first time that somebody leaves it open and at rest. Explicit requests
//! (`cenote tiers --measure`, `cenote init`, `cenote tier add`) are measured at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cenote_device::aligned::release_kept;
use cenote_host::memory;
use cenote_store::Measurement;

use crate::service::{Shared, lock};

/// Time without requests before a store's devices are measured.
pub(crate) const QUIET: Duration = Duration::from_millis(400);
/// Approximate time for each device then.
const BUDGET_MS: u32 = 400;

impl Shared {
    /// The body of the measuring thread.
    pub(crate) fn profile_loop(&self) {
        let _ = rustix::process::nice(19); // of this thread
        loop {
            {
                let mut due = lock(&self.profile_due);
                while !*due && !self.stop.load(Ordering::SeqCst) {
                    due = self.profile_wake.wait(due).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                *due = false;
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let quiet = self.quiet.load(Ordering::SeqCst);
            let next = lock(&self.engine).engine.as_mut().and_then(|engine| engine.measure_next(quiet));
            if let Some(measurement) = next {
                self.measure(&measurement);
            }
        }
    }
    fn measure(&self, measurement: &Measurement) {
        let before = self.requests_seen();
        let stop = || {
            let disturbed = measurement.asked_ms.is_none() && self.requests_seen() != before;
            disturbed || self.stop.load(Ordering::Relaxed)
        };
        let budget_ms = measurement.asked_ms.unwrap_or(BUDGET_MS);
        let result = measurement.run(u64::from(budget_ms) * 1_000_000, &stop);
        if let Err(error) = &result {
            tracing::warn!(%error, "a tier could not be measured");
        }
        for tenant in self.tenants() {
            if let Ok(Some(profile)) = &result {
                let _ = tenant.with_engine(|engine| engine.set_profile(measurement.device(), profile.clone()));
            }
        }
        let _ = self.with_engine(|engine| engine.measured(measurement, result));
        // The store is at rest, and measuring takes more buffers than most programs do.
        release_kept();
        memory::release();
        self.kick(); // delivers the answer to whoever waits
    }
    /// Wakes the measuring thread.
    pub(crate) fn profile_now(&self) {
        *lock(&self.profile_due) = true;
        self.profile_wake.notify_one();
    }
}
