//! Adaptive spinning before sleeping.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Spinning pays while the answer comes within the time that waking a sleeper takes, and burns a core otherwise. The
/// budget follows the recent outcomes: full while spinning helps, less and less while it is in vain.
///
/// Two sides that sleep on each other can get stuck in that state: each wait lasts as long as waking the other, which
/// exceeds the bound on spinning, so both go on sleeping between answers that take no time. Hence the *boost*: after a
/// short sleep, now and then spin for longer than a wake-up; if the peer is awake then, both stay awake.
#[derive(Debug)]
pub struct Spin {
    budget_ns: u64,
    max_ns: u64,
    is_boosted: bool,
    /// Short sleeps left before the next boost.
    boost_wait: u32,
    /// Short sleeps to wait after the next boost that fails.
    boost_backoff: u32,
}

/// About half of the cost of waking a thread on another core; the best bound by measurement.
const MAX_NS: u64 = 18_000;
const MIN_NS: u64 = 1_000;
/// Longer than a wake-up on another core.
const BOOST_NS: u64 = 90_000;
/// A longer sleep has another cause than the peer's wake-up.
const SHORT_SLEEP_NS: u64 = 150_000;
const BACKOFF_MAX: u32 = 256;

impl Default for Spin {
    fn default() -> Self {
        // Queried once: the answer takes a dozen files of `/proc` and `/sys`.
        static ALONE: OnceLock<bool> = OnceLock::new();
        let alone = ALONE.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1));
        Self::new(Duration::from_nanos(if *alone { 0 } else { MAX_NS }))
    }
}

impl Spin {
    /// Spins at most this long at a time, boosts excepted; not at all if zero.
    pub fn new(max: Duration) -> Self {
        let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Self { budget_ns: max_ns, max_ns, is_boosted: false, boost_wait: 0, boost_backoff: 1 }
    }
    /// Spins until `ready` or until the budget is used up; returns true if ready.
    #[inline]
    pub fn until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        if self.max_ns == 0 {
            return false;
        }
        let is_ready = self.for_ns(self.budget_ns, ready);
        if is_ready {
            self.helped();
        } else {
            self.was_vain();
        }
        is_ready
    }
    /// Spins until `ready` or for this long, without effect on the budget. Does not spin where spinning never pays.
    #[inline]
    pub fn for_ns(&self, time_ns: u64, mut ready: impl FnMut() -> bool) -> bool {
        if self.max_ns == 0 {
            return false;
        }
        let begin = Instant::now();
        loop {
            for _ in 0..16 {
                std::hint::spin_loop();
                if ready() {
                    return true;
                }
            }
            if begin.elapsed().as_nanos() as u64 >= time_ns {
                return false;
            }
        }
    }
    #[inline]
    fn helped(&mut self) {
        if self.is_boosted {
            self.is_boosted = false;
            self.boost_backoff = 1;
        }
        self.budget_ns = self.max_ns;
    }
    fn was_vain(&mut self) {
        if self.is_boosted {
            self.is_boosted = false;
            self.boost_wait = self.boost_backoff;
            self.boost_backoff = (self.boost_backoff * 2).min(BACKOFF_MAX);
            self.budget_ns = self.max_ns;
        } else {
            self.budget_ns = (self.budget_ns * 3 / 4).max(MIN_NS.min(self.max_ns));
        }
    }
    /// Records the duration of a sleep after vain spinning.
    pub fn slept(&mut self, time: Duration) {
        if time.as_nanos() as u64 > SHORT_SLEEP_NS || self.max_ns == 0 {
            return;
        }
        if self.boost_wait > 0 {
            self.boost_wait -= 1;
        } else {
            self.is_boosted = true;
            self.budget_ns = BOOST_NS.max(self.max_ns);
        }
    }
}
