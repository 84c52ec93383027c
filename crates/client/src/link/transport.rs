//! What carries requests to the engine: the seam between a channel and the two ways to reach an engine.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use cenote_device::SegmentFile;
use cenote_model::{DeviceId, Request, Response, Result};
use cenote_server::Host;

use crate::sync::lock;

/// Called once with the response.
pub(super) type Done = Box<dyn FnOnce(Response) + Send>;

/// A request that was not taken, because the transport no longer leads anywhere. A channel attaches again and repeats.
pub(super) struct Unsent {
    pub request: Request,
    pub done: Done,
}

/// A request on its way whose response has not come.
pub(super) struct Pending {
    pub seq: u64,
    /// Encoded, to be sent again as it is.
    pub message: Vec<u8>,
    pub done: Done,
}

/// Where the response to a question comes to rest.
pub(super) type Slot = Arc<Mutex<Option<Response>>>;

/// What became of a request that a thread waits for.
pub(super) enum RequestOutcome {
    /// It is answered already.
    Answered(Response),
    /// The answer comes later, to be found here.
    Later(Slot),
    /// It was not taken: submit it.
    NotTaken(Request),
}

/// What identifies a link to its engines, and how its requests are numbered and answers noticed.
#[derive(Clone)]
pub(super) struct Traffic {
    pub nonce: u128,
    /// Number of the next request.
    pub seq: Arc<AtomicU64>,
    pub arrivals: Arc<Arrivals>,
}

impl Traffic {
    /// That of a link which no engine knows yet.
    pub fn begin() -> Self {
        Self { nonce: crate::ids::random(), seq: Arc::new(AtomicU64::new(1)), arrivals: Arc::default() }
    }
}

/// One way to an engine.
pub(super) trait Transport: Send + Sync {
    /// Sends a request; requests reach the engine in the order of these calls. `done` may be called before this returns.
    fn submit(&self, request: Request, done: Done) -> Result<(), Unsent>;
    /// The same for a thread that has nothing else to do than to wait, where that is quicker.
    fn ask(&self, request: Request) -> RequestOutcome {
        RequestOutcome::NotTaken(request)
    }
    /// A request is about to be submitted: the other end may wake for it meanwhile.
    fn announce(&self) {}
    /// Takes in what came. If nothing came since `seen` (a value of [`Arrivals::count`]), waits up to `patience`.
    /// False if the other end is gone.
    fn progress(&self, seen: u64, patience: Duration) -> bool;
    /// A segment of a device, and whether it may be written.
    fn segment(&self, device: DeviceId, number: u64) -> Result<(SegmentFile, bool)>;
    /// Stops taking requests and gives up those without a response, to be sent elsewhere.
    fn retire(&self) -> Vec<Pending>;
    /// Ends the engine's session: space that it holds may go back. Waits for nothing.
    fn close(&self) -> Result<()>;
    /// Sends again what another transport had no response to.
    fn resend(&self, pending: Vec<Pending>);
    /// Nothing that was sent and not taken is needed any more: it was sent elsewhere.
    fn take_back(&self) {}
    /// True if the other end is known to be gone. Asks nobody.
    fn is_gone(&self) -> bool {
        false
    }
    /// The engine's host, if it is in this process.
    fn host(&self) -> Option<&Host>;
}

/// Counts responses, so that threads can sleep until one comes; and chooses the one thread that reads.
#[derive(Default)]
pub(super) struct Arrivals {
    count: AtomicU64,
    sleepers: AtomicUsize,
    /// True while a thread reads.
    led: Mutex<bool>,
    wake: Condvar,
}

impl Arrivals {
    /// Responses so far. Read it, look whether what you wait for is there, and only then wait.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
    /// Something came.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.led));
            self.wake.notify_all();
        }
    }
    /// Sleeps until the count is not `seen`, for at most `patience`.
    pub fn wait(&self, seen: u64, patience: Duration) {
        self.sleep(lock(&self.led), seen, patience);
    }
    fn sleep(&self, guard: MutexGuard<'_, bool>, seen: u64, patience: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        if self.count() == seen {
            drop(self.wake.wait_timeout(guard, patience));
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
    /// True if the caller shall read, and then call [`Arrivals::end_leading`]. If another thread does, sleeps until
    /// something came, or until it stopped reading.
    pub fn begin_leading(&self, seen: u64, patience: Duration) -> bool {
        let mut led = lock(&self.led);
        if !*led {
            *led = true;
            return true;
        }
        if !patience.is_zero() {
            self.sleep(led, seen, patience);
        }
        false
    }
    /// The caller reads no longer: another one may.
    pub fn end_leading(&self) {
        *lock(&self.led) = false;
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake.notify_all();
        }
    }
}
