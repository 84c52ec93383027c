//! Calls in progress, so that a forking process can wait until there are none: a child has only the thread that forked, and another thread's
//! locks and half-done work would stay so for ever.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Number of locks, so that threads seldom contend.
const PARTS: usize = 16;

/// Two cache lines, since processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Part(RwLock<()>);

static GATE: [Part; PARTS] = [const { Part(RwLock::new(())) }; PARTS];

thread_local! {
    /// Index of this thread's lock.
    static MINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % PARTS
    };
    /// Depth of nested calls and nested forks.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// A call in progress.
pub struct Entered {
    _part: Option<RwLockReadGuard<'static, ()>>,
    _stays_here: PhantomData<*const ()>,
}

/// Begins a call; waits while the process forks.
#[inline]
pub fn enter() -> Entered {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    // A thread that is ending has no index any more: what it still drops uses the first lock.
    let part = || GATE[MINE.try_with(|mine| *mine).unwrap_or(0)].0.read().unwrap_or_else(PoisonError::into_inner);
    Entered { _part: (depth == 0).then(part), _stays_here: PhantomData }
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// While this lives, no other thread is in a call of this crate or begins one: held from before `fork` until after it, in parent and child.
#[must_use = "it is to live until the process has forked"]
pub struct Forking {
    _parts: Vec<RwLockWriteGuard<'static, ()>>,
    _stays_here: PhantomData<*const ()>,
}

/// Waits for all calls to end, and holds off new ones.
pub fn close() -> Forking {
    let depth = DEPTH.get();
    let all = if depth == 0 { &GATE[..] } else { &[] };
    let parts = all.iter().map(|part| part.0.write().unwrap_or_else(PoisonError::into_inner)).collect();
    DEPTH.set(depth + 1);
    Forking { _parts: parts, _stays_here: PhantomData }
}

impl Drop for Forking {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn calls_and_forks_wait_for_each_other() {
        let (begun, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _outer = enter();
                begun.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(50));
                let _inner = enter(); // does not wait, although another thread wants to fork
                is_over.store(true, Ordering::SeqCst);
            });
            while !begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let forking = close();
            assert!(is_over.load(Ordering::SeqCst));
            let (_again, _call) = (close(), enter());
            let waits = scope.spawn(|| drop(enter()));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished());
            drop(forking);
        });
    }
}
