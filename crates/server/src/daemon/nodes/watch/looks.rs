//! Looks at the register that several beats share: one that begins after a beat came serves it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::service::lock;

/// See the module.
pub(super) struct Looks<T> {
    /// Looks that have begun.
    begun: AtomicU64,
    /// The last one that has ended, and what it found; held while one is under way.
    last: Mutex<(u64, Option<T>)>,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: Mutex::new((0, None)) }
    }
}

impl<T: Clone> Looks<T> {
    /// What a look found that began after this call did: its own, which begins after a pause for others to come, or that of
    /// another thread.
    pub fn find(&self, pause: Duration, look: impl FnOnce() -> T) -> T {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut last = lock(&self.last);
        if let (number, Some(found)) = &*last
            && *number > begun
        {
            return found.clone();
        }
        std::thread::sleep(pause);
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let found = look();
        *last = (number, Some(found.clone()));
        found
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Whatever was true when a thread called, what it is given knows of it.
    #[test]
    fn what_is_found_is_from_a_look_that_began_after_the_call() {
        let (looks, clock, made) = (Looks::default(), AtomicU64::new(0), AtomicU64::new(0));
        let (together, wrong) = (Barrier::new(8), Mutex::new(Vec::new())); // as beats come
        std::thread::scope(|scope| {
            for thread in 0..8_u64 {
                let (looks, clock, made, together, wrong) = (&looks, &clock, &made, &together, &wrong);
                scope.spawn(move || {
                    for call in 0..50 {
                        together.wait();
                        std::thread::sleep(Duration::from_micros((thread * 131 + call * 37) % 1500)); // some come late
                        let asked = clock.fetch_add(1, Ordering::SeqCst) + 1;
                        let began = looks.find(Duration::from_millis(1), || {
                            made.fetch_add(1, Ordering::SeqCst);
                            let began = clock.load(Ordering::SeqCst);
                            std::thread::sleep(Duration::from_micros(500));
                            began
                        });
                        if began < asked {
                            lock(wrong).push((asked, began));
                        }
                    }
                });
            }
        });
        let (made, wrong) = (made.into_inner(), wrong.into_inner().unwrap());
        assert!(wrong.is_empty(), "asked, and when the look began whose find was given: {wrong:?}");
        // Two for those of a round that come late, and some for threads that the machine holds up.
        assert!(made < 250, "{made} looks for 400 calls");
    }
}
