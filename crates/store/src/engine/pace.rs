//! How much clients write just now. Copies that nobody waits for take cores and memory bandwidth from them: they are made
//! in the pauses between bursts, as long as such pauses come.

use super::Engine;
use crate::Tuning;

/// So long what was written is counted together…
const WINDOW_NS: u64 = 20_000_000;
/// …and for so long after a window with much there is no pause yet.
const CALM_NS: u64 = 50_000_000;

/// The pace of writers.
#[derive(Default)]
pub(super) struct Pace {
    window_ns: u64,
    bytes: u64,
    busy_until_ns: u64,
}

impl Pace {
    /// Something was written.
    pub fn note(&mut self, bytes: u64) {
        self.bytes += bytes;
    }
    fn look(&mut self, now_ns: u64, settings: &Tuning) {
        if self.bytes >= settings.burst_bytes {
            self.busy_until_ns = now_ns + CALM_NS;
        }
        if self.bytes >= settings.burst_bytes || now_ns.saturating_sub(self.window_ns) >= WINDOW_NS {
            (self.window_ns, self.bytes) = (now_ns, 0);
        }
    }
}

impl Engine {
    pub(super) fn look_at_pace(&mut self) {
        self.pace.look(self.state.now_ns, &self.settings);
    }

    /// True if what could have been copied since `since_ns` had better be copied now: nobody writes much, or it has
    /// waited long enough for that.
    pub(super) fn may_copy(&self, since_ns: u64) -> bool {
        let now = self.state.now_ns;
        now >= self.pace.busy_until_ns || now.saturating_sub(since_ns) >= self.settings.write_back_wait_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
