//! Measures devices for the engine, which takes no time itself.
//!
//! Never on anybody's path: what nobody asked for is measured when a store has been quiet for a while, with the least
//! priority, and broken off when a request comes; so a program that opens a store, works and leaves pays nothing, and
//! the store is measured the first time that somebody leaves it open and at rest, or asks. What is asked for
//! (`cenote tiers --measure`, `cenote init`, `cenote tier add`) is measured at once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use cenote_store::Measurement;

use crate::service::{Shared, lock};

/// So long nothing was asked of a store before its devices are measured.
pub(crate) const QUIET: Duration = Duration::from_millis(400);
/// About so long each device is measured then.
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
        let before = self.requests.load(Ordering::SeqCst);
        let stop = || {
            let disturbed = measurement.asked_ms.is_none() && self.requests.load(Ordering::Relaxed) != before;
            disturbed || self.stop.load(Ordering::Relaxed)
        };
        let budget_ms = measurement.asked_ms.unwrap_or(BUDGET_MS);
        let result = measurement.run(u64::from(budget_ms) * 1_000_000, &stop);
        if let Err(error) = &result {
            tracing::warn!(%error, "a tier could not be measured");
        }
        if let Some(engine) = lock(&self.engine).engine.as_mut() {
            engine.measured(measurement, result);
        }
        self.kick(); // whoever waits gets the answer
    }
    /// Wakes the measuring thread.
    pub(crate) fn profile_now(&self) {
        *lock(&self.profile_due) = true;
        self.profile_wake.notify_one();
    }
}
