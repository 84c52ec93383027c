//! Exclusive use of the store: while nobody else uses it, the kernel may cache everything, since all changes pass
//! through it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};

/// How long requests in progress may take to end when somebody else comes.
const PATIENCE: Duration = Duration::from_secs(1);
/// Time between an answer and the moment when the kernel has taken it in. Later, names that the kernel was told before
/// are invalid, and it looks them up again.
const TAKEN_IN: Duration = Duration::from_millis(20);

/// The exclusive state, and the answers that depend on it.
#[derive(Default)]
pub struct Alone {
    is_so: AtomicBool,
    /// Read-locked while a request is answered.
    answering: RwLock<()>,
}

impl Alone {
    /// Lets the kernel cache from now on.
    pub fn begin(&self) {
        self.is_so.store(true, Ordering::SeqCst);
    }
    pub fn is_so(&self) -> bool {
        self.is_so.load(Ordering::Relaxed)
    }
    /// Hold this from the first look at the answer's data until the answer is sent.
    pub fn answering(&self) -> RwLockReadGuard<'_, ()> {
        self.answering.read()
    }
    /// Ends the exclusive use: from now on the kernel asks, and `expire` tells it that its caches are invalid.
    pub fn end(&self, expire: impl Fn()) {
        if !self.is_so.swap(false, Ordering::SeqCst) {
            return;
        }
        // Wait until answers in progress are sent.
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
