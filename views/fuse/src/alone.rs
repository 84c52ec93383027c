//! Whether anybody else may use the store: as long as nobody does, the kernel may remember everything, since all changes pass through it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

/// Requests that are being answered have so long to end when somebody comes.
const PATIENCE: Duration = Duration::from_secs(1);
/// Between an answer and the moment that the kernel has taken it in. What it takes in later it is told anew when it looks: names that were told before
/// count no more then.
const TAKEN_IN: Duration = Duration::from_millis(20);

/// The state, and the answers that depend on it.
#[derive(Default)]
pub struct Alone {
    is_so: AtomicBool,
    /// Read while a request is answered.
    answering: RwLock<()>,
}

impl Alone {
    /// From now on the kernel remembers.
    pub fn begin(&self) {
        self.is_so.store(true, Ordering::SeqCst);
    }
    pub fn is_so(&self) -> bool {
        self.is_so.load(Ordering::Relaxed)
    }
    /// To be held from the first look at what is answered until the answer is sent.
    pub fn answering(&self) -> RwLockReadGuard<'_, ()> {
        self.answering.read()
    }
    /// Somebody comes: from now on the kernel asks, and by `expire` it is told that what it has counts no more.
    pub fn end(&self, expire: impl Fn()) {
        if !self.is_so.swap(false, Ordering::SeqCst) {
            return;
        }
        // Answers that were begun before are sent.
        drop(self.answering.try_write_for(PATIENCE));
        expire();
        std::thread::sleep(TAKEN_IN);
        expire();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_was_begun_is_sent_before_the_kernel_is_told_to_forget() {
        let (alone, told) = (Alone::default(), AtomicBool::new(false));
        alone.begin();
        std::thread::scope(|scope| {
            let answering = alone.answering();
            let ending = scope.spawn(|| alone.end(|| told.store(true, Ordering::SeqCst)));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!alone.is_so() && !told.load(Ordering::SeqCst));
            drop(answering);
            ending.join().unwrap();
        });
        assert!(told.load(Ordering::SeqCst));
        // Once is enough.
        told.store(false, Ordering::SeqCst);
        alone.end(|| told.store(true, Ordering::SeqCst));
        assert!(!told.load(Ordering::SeqCst));
    }
}
