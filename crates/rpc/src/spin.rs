//! How long to spin before sleeping.

use std::time::{Duration, Instant};

/// Spinning pays while the answer comes within the time that waking a sleeper takes, and burns a core otherwise.
/// The budget follows what happened lately: it grows when spinning helped or a sleep turned out short, and shrinks
/// when it was in vain.
#[derive(Debug)]
pub struct Spin {
    budget_ns: u64,
    max_ns: u64,
}

/// About half of what waking a thread on another core costs; measured in FACTS as the best bound.
const MAX_NS: u64 = 18_000;
const MIN_NS: u64 = 1_000;

impl Default for Spin {
    fn default() -> Self {
        let alone = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
        Self::new(Duration::from_nanos(if alone { 0 } else { MAX_NS }))
    }
}

impl Spin {
    /// Spins for at most so long at a time.
    pub fn new(max: Duration) -> Self {
        let max_ns = u64::try_from(max.as_nanos()).unwrap_or(u64::MAX);
        Self { budget_ns: max_ns, max_ns }
    }
    /// Spins until `ready` or the budget is used up; true if ready.
    #[inline]
    pub fn until(&mut self, mut ready: impl FnMut() -> bool) -> bool {
        if ready() {
            return true;
        }
        let begin = Instant::now();
        loop {
            for _ in 0..16 {
                std::hint::spin_loop();
                if ready() {
                    self.budget_ns = (self.budget_ns * 2).clamp(MIN_NS.min(self.max_ns), self.max_ns);
                    return true;
                }
            }
            if begin.elapsed().as_nanos() as u64 >= self.budget_ns {
                self.budget_ns = (self.budget_ns * 3 / 4).max(MIN_NS.min(self.max_ns));
                return false;
            }
        }
    }
    /// A sleep after vain spinning took so long; if a little more spinning would have done, allow it.
    pub fn slept(&mut self, time: Duration) {
        // The sleeper pays the wake-up on top of the wait, hence the factor.
        if time.as_nanos() as u64 <= self.max_ns * 3 {
            self.budget_ns = self.max_ns;
        }
    }
}
