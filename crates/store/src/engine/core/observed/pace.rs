//! Pace (back-pressure): how much clients write just now. Copies that nobody waits for take cores and memory bandwidth
//! from clients, so they are made in the pauses between bursts, as long as such pauses come.
//!
//! What a burst has left in memory is copied as soon as the pause begins, so that the next burst finds room there and a
//! flush has little to do. Such copies are useless where bytes are soon overwritten or deleted. The engine recognises
//! such writers by copies that are given up while the original is still in memory.

use std::time::Duration;

use crate::Tuning;
use crate::engine::core::Core;

/// Writes are summed over this time…
const WINDOW_NS: u64 = 20_000_000;
/// …and a pause begins only this long after a busy window.
const CALM_NS: u64 = 50_000_000;
/// What a burst has left is copied after this shorter pause, since the next burst may come soon.
const CALM_EARLY_NS: u64 = 20_000_000;
/// Half-life of the counts of copies made and given up.
const IN_VAIN_HALF_NS: u64 = 5_000_000_000;

/// Pace of writers.
#[derive(Default)]
pub struct Pace {
    window_ns: u64,
    bytes: u64,
    /// Bytes of values put since the values in memory were last counted.
    pub values_put_bytes: u64,
    busy_until_ns: u64,
    in_vain: InVain,
    /// When all containers that wait for a cut were last inspected.
    pub looked_ns: u64,
    /// When the first container with much in memory was to be copied early.
    pub early_ns: Option<u64>,
}

/// Share of early copies that turn out to be useless.
#[derive(Default)]
struct InVain {
    copied_bytes: u64,
    given_up_bytes: u64,
    /// Bytes that the store had copied and given up at the last update.
    seen: (u64, u64),
    halved_ns: u64,
}

impl InVain {
    /// Updates the counts from the totals of the store.
    pub fn look(&mut self, now_ns: u64, copied: u64, given_up: u64) {
        let halves = now_ns.saturating_sub(self.halved_ns) / IN_VAIN_HALF_NS;
        if halves > 0 {
            self.halved_ns += halves * IN_VAIN_HALF_NS;
            self.copied_bytes >>= halves.min(63);
            self.given_up_bytes >>= halves.min(63);
        }
        self.copied_bytes += copied.saturating_sub(self.seen.0);
        self.given_up_bytes += given_up.saturating_sub(self.seen.1);
        self.seen = (copied, given_up);
    }
    /// Returns true if more than half of the copied bytes were given up.
    pub fn is_most(&self) -> bool {
        self.given_up_bytes > self.copied_bytes / 2
    }
}

impl Pace {
    /// End of the burst for early copies: copies of what it left may begin then.
    pub fn burst_until_ns(&self) -> u64 {
        self.busy_until_ns.saturating_sub(CALM_NS - CALM_EARLY_NS)
    }
    /// Notes a write.
    pub fn note(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
    /// Closes the current window if it is over or busy.
    pub fn look(&mut self, now_ns: u64, settings: &Tuning) {
        if self.bytes >= settings.burst_bytes {
            self.busy_until_ns = now_ns + CALM_NS;
        }
        if self.bytes >= settings.burst_bytes || now_ns.saturating_sub(self.window_ns) >= WINDOW_NS {
            (self.window_ns, self.bytes) = (now_ns, 0);
        }
    }
}

impl Core {
    /// Updates the pace at a tick.
    pub fn look_at_pace(&mut self) {
        self.observed.pace.look(self.state.now.ns, &self.settings);
        self.observed.pace.in_vain.look(
            self.state.now.ns,
            self.observed.counting.moved_bytes,
            self.state.space.given_up_bytes,
        );
    }

    /// Returns true if a container with much in memory should be copied now rather than when it is old: nobody writes
    /// much, and early copies are useful.
    pub fn may_copy_early(&self) -> bool {
        self.is_between_bursts() && !self.observed.pace.in_vain.is_most()
    }

    /// Returns true if the last burst is over, even if only just.
    pub fn is_between_bursts(&self) -> bool {
        self.state.now.ns >= self.observed.pace.burst_until_ns()
    }

    /// Time until a tick is needed to copy what a burst has left in memory. `None` if no such copy is due.
    pub fn tick_due_in(&self) -> Option<Duration> {
        let now = self.state.now.ns;
        let due = self.observed.pace.early_ns?.max(self.observed.pace.burst_until_ns());
        (due > now && !self.observed.pace.in_vain.is_most()).then(|| Duration::from_nanos(due - now))
    }

    /// Returns true if a copy possible since `since_ns` should be made now: nobody writes much, or it has waited long
    /// enough.
    pub fn may_copy(&self, since_ns: u64) -> bool {
        let now = self.state.now.ns;
        now >= self.observed.pace.busy_until_ns || now.saturating_sub(since_ns) >= self.settings.write_back_wait_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_given_up_count_for_a_while() {
        let mut in_vain = InVain::default();
        in_vain.look(0, 1000, 0);
        assert!(!in_vain.is_most());
        in_vain.look(1, 1000, 600);
        assert!(in_vain.is_most());
        // More copies are made, and these are useful.
        in_vain.look(IN_VAIN_HALF_NS, 2000, 600);
        assert!(!in_vain.is_most());
        // Much later the old counts have decayed.
        in_vain.look(100 * IN_VAIN_HALF_NS, 2000, 601);
        assert!(in_vain.is_most() && in_vain.copied_bytes == 0);
        in_vain.look(101 * IN_VAIN_HALF_NS, 2000, 601);
        assert!(!in_vain.is_most());
    }

    #[test]
    fn bursts_end_some_time_after_their_last_bytes() {
        const MS: u64 = 1_000_000;
        let settings = Tuning { burst_bytes: 1000, ..Tuning::default() };
        let mut pace = Pace::default();
        let mut busy_at = |ms: u64, bytes: u64| {
            pace.note(bytes);
            pace.look(ms * MS, &settings);
            pace.busy_until_ns > ms * MS
        };
        assert!(!busy_at(100, 400), "little");
        assert!(!busy_at(125, 400), "little in two windows");
        assert!(busy_at(130, 1100), "much in one");
        assert!(busy_at(170, 0), "not over yet");
        assert!(!busy_at(181, 0));
        assert!(busy_at(182, 5000));
    }
}
