//! The thread that looks after launched operations while no other thread waits: sends batches that waited long enough,
//! takes in responses, notices that an engine is gone. It sleeps when there is nothing to look after; a session that leases space
//! is woken now and then to look whether a tier is to be emptied.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::{Duration, Instant};

use super::Session;
use crate::data::leaving;
use crate::data::queue::LINGER;
use crate::sync::lock;

/// Goes on looking so long after the last operation.
const AWAKE: Duration = Duration::from_millis(50);

/// Between looks for tiers that are to be emptied: each is a load from memory.
const LOOK: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    started: AtomicBool,
    /// True while the thread looks by itself; else it needs a wake.
    awake: AtomicBool,
    /// Raised by every launch.
    touched: AtomicBool,
    stop: AtomicBool,
    /// The session leases space.
    watches: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Keeper {
    /// Something was launched.
    #[inline]
    pub fn wake(&self, session: &Session) {
        let shared = &*self.shared;
        if !shared.touched.load(Ordering::Relaxed) {
            shared.touched.store(true, Ordering::SeqCst);
        }
        if !shared.awake.load(Ordering::SeqCst) {
            self.rouse(session);
        }
    }
    #[cold]
    fn rouse(&self, session: &Session) {
        let _guard = lock(&self.shared.lock);
        self.shared.awake.store(true, Ordering::SeqCst);
        if !self.shared.started.swap(true, Ordering::SeqCst) {
            let (shared, session) = (self.shared.clone(), session.myself());
            // Without a thread, launched operations are looked after when something waits for them.
            let _ = std::thread::Builder::new().name("cenote-keeper".into()).spawn(move || shared.run(&session));
        }
        self.shared.wake.notify_one();
    }
    /// The session leases space: from now on it looks for tiers that are to be emptied.
    #[inline]
    pub fn watch(&self, session: &Session) {
        if !self.shared.watches.swap(true, Ordering::Relaxed) {
            self.rouse(session);
        }
    }
    /// Ends the thread, soon.
    pub fn stop(&self) {
        let _guard = lock(&self.shared.lock);
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn run(&self, session: &Weak<Session>) {
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
            let Some(session) = session.upgrade() else { return };
            if looked_at.is_none_or(|at| at.elapsed() >= LOOK) {
                looked_at = Some(Instant::now());
                if leaving::is_due(&session) {
                    leaving::look_aside(&session);
                }
            }
            if !self.awake.load(Ordering::SeqCst) {
                touched_at = Instant::now();
                continue;
            }
            let idle = look_after(&session);
            drop(session); // before sleeping, so that the last handle is not kept alive by this thread
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

/// One look. True if nothing is under way.
fn look_after(session: &Session) -> bool {
    session.queue.seal_stale(session);
    session.unlease_now();
    let attachment = session.attachment.load_full();
    if !attachment.transport.progress(session.arrivals.count(), Duration::ZERO) {
        let _ = session.attach_again(&attachment);
    }
    session.queue.is_idle()
}
