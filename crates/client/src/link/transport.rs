//! The transport of requests to an engine: the seam between a channel and the two ways to reach an engine.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use cenote_device::SegmentFile;
use cenote_model::{DeviceId, Request, Response, Result};
use cenote_server::Host;

use crate::sync::lock;

/// Called once with the response.
pub(super) type Done = Box<dyn FnOnce(Response) + Send>;

/// A refused request, because the transport is closed. The channel attaches again and repeats it.
pub(super) struct Unsent {
    pub request: Request,
    pub done: Done,
}

/// A request in flight without a response.
pub(super) struct Pending {
    pub seq: u64,
    /// Encoded, for an identical repetition.
    pub message: Vec<u8>,
    pub done: Done,
}

/// The slot for the response to a request.
pub(super) type Slot = Arc<Mutex<Option<Response>>>;

/// The state of a request with a waiting thread.
pub(super) enum RequestOutcome {
    /// It is answered already.
    Answered(Response),
    /// The answer will be in this slot.
    Later(Slot),
    /// It was not accepted: submit it.
    NotTaken(Request),
}

/// The identity of a link towards its engines, the numbers of its requests, and the arrivals of responses.
#[derive(Clone)]
pub(super) struct Traffic {
    pub nonce: u128,
    /// Number of the next request.
    pub seq: Arc<AtomicU64>,
    pub arrivals: Arc<Arrivals>,
}

impl Traffic {
    /// The traffic of a new link, which no engine knows yet.
    pub fn begin() -> Self {
        Self { nonce: crate::ids::random(), seq: Arc::new(AtomicU64::new(1)), arrivals: Arc::default() }
    }
}

/// One way to an engine.
pub(super) trait Transport: Send + Sync {
    /// Sends a request; requests reach the engine in the order of these calls. `done` may be called before this
    /// returns.
    fn submit(&self, request: Request, done: Done) -> Result<(), Unsent>;
    /// The same for a thread that only waits, where that is quicker.
    fn ask(&self, request: Request) -> RequestOutcome {
        RequestOutcome::NotTaken(request)
    }
    /// Announces a request, so that the other end may wake up in the meantime.
    fn announce(&self) {}
    /// Takes in responses. If nothing has come since `seen` (a value of [`Arrivals::count`]), waits up to `patience`.
    /// Returns false if the other end is gone.
    fn progress(&self, seen: u64, patience: Duration) -> bool;
    /// Returns a segment of a device, and whether it may be written.
    fn segment(&self, device: DeviceId, number: u64) -> Result<(SegmentFile, bool)>;
    /// Stops accepting requests, and returns the pending ones, to be sent elsewhere.
    fn retire(&self) -> Vec<Pending>;
    /// Ends the engine's session, without waiting: its space may be reused.
    fn close(&self) -> Result<()>;
    /// Resends the pending requests of another transport.
    fn resend(&self, pending: Vec<Pending>);
    /// Removes sent messages that the other end has not taken: they were sent elsewhere.
    fn take_back(&self) {}
    /// Returns true if the other end is known to be gone. Sends nothing.
    fn is_gone(&self) -> bool {
        false
    }
    /// Returns the engine's host, if it is in this process.
    fn host(&self) -> Option<&Host>;
}

/// Counts responses, so that threads can sleep until one comes, and elects the one thread that reads.
#[derive(Default)]
pub(super) struct Arrivals {
    count: AtomicU64,
    sleepers: AtomicUsize,
    /// True while a thread reads.
    led: Mutex<bool>,
    wake: Condvar,
}

impl Arrivals {
    /// Returns the number of responses so far. Load it, then check the condition, and only then wait.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }
    /// Notes an arrival.
    pub fn note(&self) {
        self.count.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&self.led));
            self.wake.notify_all();
        }
    }
    /// Sleeps until the count differs from `seen`, for at most `patience`.
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
    /// Returns true if the caller shall read and then call [`Arrivals::end_leading`]. If another thread reads, sleeps
    /// until an arrival, or until that thread stops reading.
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
    /// The caller stops reading: another thread may start.
    pub fn end_leading(&self) {
        *lock(&self.led) = false;
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake.notify_all();
        }
    }
}
