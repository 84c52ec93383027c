//! The thread that looks after pipelined operations while no other thread waits: it sends batches that have waited long
//! enough, takes in responses, and notices the loss of an engine. It sleeps when nothing is under way; in a link with
//! leased space it wakes up now and then to check for tiers that are being emptied.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::queue::LINGER;
use crate::sync::lock;

/// Time of further checks after the last operation.
const AWAKE: Duration = Duration::from_millis(50);

/// Interval of the checks for tiers that are being emptied; each is one load from memory.
const LOOK: Duration = Duration::from_millis(250);

/// The duties of the thread.
pub(super) trait LooksAfter: Send + Sync {
    /// Does one round of the work under way. Returns true if nothing is under way.
    fn look_after(&self) -> bool;
    /// Checks for tiers that are being emptied.
    fn look_at_devices(&self);
}

/// The keeper; see the module.
pub(super) struct Keeper {
    shared: Arc<KeeperState>,
    of: Weak<dyn LooksAfter>,
}

#[derive(Default)]
struct KeeperState {
    started: AtomicBool,
    /// True while the thread runs by itself; otherwise it needs a wake-up.
    awake: AtomicBool,
    /// Set by every pipelined operation.
    touched: AtomicBool,
    stop: AtomicBool,
    /// The link has leased space.
    watches: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Keeper {
    pub fn new(of: Weak<dyn LooksAfter>) -> Self {
        Self { shared: Arc::default(), of }
    }
    /// Wakes the thread after a pipelined operation.
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
            // Without a thread, pipelined operations make progress only while another thread waits.
            let _ = std::thread::Builder::new().name("cenote-keeper".into()).spawn(move || shared.run(&of));
        }
        self.shared.wake.notify_one();
    }
    /// Starts the checks for tiers that are being emptied, since the link has leased space.
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
            drop(link); // before the sleep, so that this thread does not keep the last handle alive
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
