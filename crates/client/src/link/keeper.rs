//! The thread that looks after launched operations while no other thread waits: sends batches that waited long enough,
//! takes in responses, notices that an engine is gone. It sleeps when there is nothing to look after; a link that leases space
//! is woken now and then to look whether a tier is to be emptied.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::queue::LINGER;
use crate::sync::lock;

/// Goes on looking so long after the last operation.
const AWAKE: Duration = Duration::from_millis(50);

/// Between looks for tiers that are to be emptied: each is a load from memory.
const LOOK: Duration = Duration::from_millis(250);

/// What the thread looks after.
pub(super) trait LooksAfter: Send + Sync {
    /// One look at what is under way. True if nothing is.
    fn look_after(&self) -> bool;
    /// Notices tiers that are to be emptied.
    fn look_at_devices(&self);
}

/// See the module.
pub(super) struct Keeper {
    shared: Arc<KeeperState>,
    of: Weak<dyn LooksAfter>,
}

#[derive(Default)]
struct KeeperState {
    started: AtomicBool,
    /// True while the thread looks by itself; else it needs a wake.
    awake: AtomicBool,
    /// Raised by every launch.
    touched: AtomicBool,
    stop: AtomicBool,
    /// Space is leased.
    watches: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Keeper {
    pub fn new(of: Weak<dyn LooksAfter>) -> Self {
        Self { shared: Arc::default(), of }
    }
    /// Something was launched.
    #[inline]
    pub fn wake(&self) {
        let shared = &*self.shared;
        if !shared.touched.load(Ordering::Relaxed) {
            shared.touched.store(true, Ordering::SeqCst);
        }
        if !shared.awake.load(Ordering::SeqCst) {
            self.rouse();
        }
    }
    #[cold]
    fn rouse(&self) {
        let _guard = lock(&self.shared.lock);
        self.shared.awake.store(true, Ordering::SeqCst);
        if !self.shared.started.swap(true, Ordering::SeqCst) {
            let (shared, of) = (self.shared.clone(), self.of.clone());
            // Without a thread, launched operations are looked after when something waits for them.
            let _ = std::thread::Builder::new().name("cenote-keeper".into()).spawn(move || shared.run(&of));
        }
        self.shared.wake.notify_one();
    }
    /// Space is leased: from now on it looks for tiers that are to be emptied.
    #[inline]
    pub fn watch(&self) {
        if !self.shared.watches.swap(true, Ordering::Relaxed) {
            self.rouse();
        }
    }
    /// Ends the thread, soon.
    pub fn stop(&self) {
        let _guard = lock(&self.shared.lock);
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake.notify_one();
    }
}

impl KeeperState {
    fn run(&self, of: &Weak<dyn LooksAfter>) {
        let mut touched_at = Instant::now();
        let mut looked_at = None::<Instant>;
        loop {
            {
                let mut guard = lock(&self.lock);
                while !self.awake.load(Ordering::SeqCst) && !self.stop.load(Ordering::SeqCst) {
                    if self.watches.load(Ordering::Relaxed) {
                        let waited = self.wake.wait_timeout(guard, LOOK);
                        guard = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0;
                        break;
                    }
                    guard = self.wake.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
                drop(guard);
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let Some(link) = of.upgrade() else { return };
            if looked_at.is_none_or(|at| at.elapsed() >= LOOK) {
                looked_at = Some(Instant::now());
                link.look_at_devices();
            }
            if !self.awake.load(Ordering::SeqCst) {
                touched_at = Instant::now();
                continue;
            }
            let idle = link.look_after();
            drop(link); // before sleeping, so that the last handle is not kept alive by this thread
            if self.touched.swap(false, Ordering::SeqCst) || !idle {
                touched_at = Instant::now();
            } else if touched_at.elapsed() > AWAKE {
                self.awake.store(false, Ordering::SeqCst);
                if self.touched.load(Ordering::SeqCst) {
                    self.awake.store(true, Ordering::SeqCst);
                }
                continue;
            }
            std::thread::sleep(LINGER);
        }
    }
}
