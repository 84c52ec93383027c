//! How much clients write just now. Copies that nobody waits for take cores and memory bandwidth from them: they are made
//! in the pauses between bursts, as long as such pauses come.
//!
//! What a burst has left in memory is copied as soon as the pause begins, so that the next burst finds room there and a
//! flush little to do. That is in vain where bytes are soon overwritten or deleted: such writers are known by the copies
//! that were given up while the original was still in memory.

use std::time::Duration;

use crate::Tuning;
use crate::engine::core::Core;

/// So long what was written is counted together…
const WINDOW_NS: u64 = 20_000_000;
/// …and for so long after a window with much there is no pause yet.
const CALM_NS: u64 = 50_000_000;
/// What a burst has left is copied after so short a pause, since the next one may come soon.
const CALM_EARLY_NS: u64 = 20_000_000;
/// What was copied and given up counts half after so long.
const IN_VAIN_HALF_NS: u64 = 5_000_000_000;

/// The pace of writers.
#[derive(Default)]
pub struct Pace {
    window_ns: u64,
    bytes: u64,
    /// Bytes of values put since those in memory were counted.
    pub values_put_bytes: u64,
    busy_until_ns: u64,
    in_vain: InVain,
    /// When all containers that wait for a cut were looked at last.
    pub looked_ns: u64,
    /// When the first of them that has much in memory was to be copied early.
    pub early_ns: Option<u64>,
}

/// How many of the copies that are made ahead are of use.
#[derive(Default)]
struct InVain {
    copied_bytes: u64,
    given_up_bytes: u64,
    /// What the store had copied and given up when it was looked at.
    seen: (u64, u64),
    halved_ns: u64,
}

impl InVain {
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
    pub fn is_most(&self) -> bool {
        self.given_up_bytes > self.copied_bytes / 2
    }
}

impl Pace {
    /// Until then there is no pause for copies of what a burst has left.
    pub fn burst_until_ns(&self) -> u64 {
        self.busy_until_ns.saturating_sub(CALM_NS - CALM_EARLY_NS)
    }
    /// Something was written.
    pub fn note(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
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
    pub fn look_at_pace(&mut self) {
        self.observed.pace.look(self.state.now.ns, &self.settings);
        self.observed.pace.in_vain.look(
            self.state.now.ns,
            self.observed.counting.moved_bytes,
            self.state.space.given_up_bytes,
        );
    }

    /// True if what a container has in memory alone, and is much, had better be copied now than when it is old: nobody
    /// writes much now, and copies are of use.
    pub fn may_copy_early(&self) -> bool {
        self.is_between_bursts() && !self.observed.pace.in_vain.is_most()
    }

    /// True if the last burst is over, though perhaps not for long.
    pub fn is_between_bursts(&self) -> bool {
        self.state.now.ns >= self.observed.pace.burst_until_ns()
    }

    /// In what time a tick is wanted though nobody asks for anything: what a burst has left in memory is to be copied then. None: it
    /// can wait as long as any.
    pub fn tick_due_in(&self) -> Option<Duration> {
        let now = self.state.now.ns;
        let due = self.observed.pace.early_ns?.max(self.observed.pace.burst_until_ns());
        (due > now && !self.observed.pace.in_vain.is_most()).then(|| Duration::from_nanos(due - now))
    }

    /// True if what could have been copied since `since_ns` had better be copied now: nobody writes much, or it has
    /// waited long enough for that.
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
        // Others that are of use come.
        in_vain.look(IN_VAIN_HALF_NS, 2000, 600);
        assert!(!in_vain.is_most());
        // Much later nothing is known.
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
