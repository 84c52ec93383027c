//! The threads that read requests and carry them out.
//!
//! A request wakes one thread that waits in the kernel, mostly on another processor, which costs more than most
//! requests do. So one thread reads, and after an answer it polls for some microseconds before it waits: a caller that
//! makes one call after the other finds it awake. Other threads join when requests queue up, or when it has been busy
//! with one request for too long (a watching thread checks that), and leave when there is nothing for them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::device::{Device, Read};
use super::in_flight::{RequestInFlight, RequestsInFlight};
use super::reply::Reply;
use super::request::Request;
use crate::kernel::abi::op;

/// How long a thread polls for the next request: about the time of a wake-up.
const LOOK: Duration = Duration::from_micros(20);
/// This many requests in a row, without a pause, are a queue.
const QUEUE: u32 = 6;
/// A thread that is busy with one request for this long does not count.
const STUCK_US: u64 = 1000;
/// Interval of the check for stuck threads, with requests and without.
const WATCH: Duration = Duration::from_millis(2);
const WATCH_IDLE: Duration = Duration::from_millis(100);
/// Space for a request beside the bytes that it carries.
const HEADER_ROOM: usize = 4096;

/// Carries requests out.
pub trait Serve: Send + Sync {
    /// Answers a request, through `reply`.
    fn serve(self: &Arc<Self>, request: &Request<'_>, context: &RequestContext<'_>, scratch: &mut Vec<u8>);
}

/// The way back to the kernel.
pub struct RequestContext<'a> {
    pub reply: &'a Reply,
    pub in_flight: &'a RequestInFlight,
    pub requests: &'a Arc<RequestsInFlight>,
}

/// Limits of the workers.
#[derive(Clone, Copy, Debug)]
pub struct Numbers {
    /// Upper bound of the threads.
    pub threads: usize,
    /// Upper bound of the threads that work because of a queue; more only if others are stuck.
    pub at_work: usize,
    /// Upper bound of the bytes in a request.
    pub request_bytes: usize,
}

#[derive(Default)]
struct WorkersState {
    /// Number of threads.
    started: usize,
    /// Threads that rest.
    resting: usize,
    /// Resting threads that were called.
    called: usize,
    /// Requests queue up, and no thread rests.
    is_wanted: bool,
    is_over: bool,
    failure: Option<io::Error>,
}

impl WorkersState {
    /// Threads that read, carry out requests, or are about to.
    fn reading(&self) -> usize {
        self.started - self.resting + self.called
    }
}

struct Workers<S> {
    serve: Arc<S>,
    mount: Arc<Device>,
    numbers: Numbers,
    requests: Arc<RequestsInFlight>,
    /// Number of requests read, which shows whether there are any.
    taken: AtomicU64,
    state: Mutex<WorkersState>,
    rested: Condvar,
    /// Wakes the watching thread.
    watched: Condvar,
}

/// Serves until the mount is over.
pub fn run<S: Serve + 'static>(serve: Arc<S>, mount: Device, numbers: Numbers) -> io::Result<()> {
    let workers = Arc::new(Workers {
        serve,
        mount: Arc::new(mount),
        numbers,
        requests: Arc::new(RequestsInFlight::new(numbers.threads)),
        taken: AtomicU64::new(0),
        state: Mutex::default(),
        rested: Condvar::new(),
        watched: Condvar::new(),
    });
    let mut threads = Vec::new();
    workers.call(&mut threads)?;
    workers.watch(&mut threads);
    for thread in threads {
        let _ = thread.join();
    }
    let failure = workers.state.lock().failure.take();
    failure.map_or(Ok(()), Err)
}

/// The descriptors that a thread reads from.
struct Eyes {
    waiting: Arc<Device>,
    /// `None` where the device cannot be cloned: only root may, and another user mounted by the helper.
    looking: Option<Arc<Device>>,
    /// Above zero if polling has found requests recently.
    luck: i32,
    queue: u32,
}

impl Eyes {
    const LUCK_MAX: i32 = 16;

    fn new(mount: &Arc<Device>) -> Self {
        let another = |waits| mount.another(waits).ok().map(Arc::new);
        let looking = another(false);
        Self { waiting: another(true).unwrap_or_else(|| mount.clone()), looking, luck: Self::LUCK_MAX, queue: 0 }
    }
    /// A request that exists, or comes soon.
    fn look(&mut self, buffer: &mut [u8]) -> io::Result<Option<(Read, Arc<Device>)>> {
        let Some(device) = &self.looking else { return Ok(None) };
        let mut begun = None;
        loop {
            match device.read(buffer)? {
                Read::Nothing => {}
                read => {
                    self.queue = if begun.is_none() { self.queue + 1 } else { 0 };
                    self.luck = (self.luck + 1).min(Self::LUCK_MAX);
                    return Ok(Some((read, device.clone())));
                }
            }
            self.queue = 0;
            // Poll again now and then.
            if self.luck <= -Self::LUCK_MAX {
                self.luck = 1;
            }
            if self.luck <= 0 {
                self.luck -= 1;
                return Ok(None);
            }
            if begun.get_or_insert_with(Instant::now).elapsed() > LOOK {
                self.luck -= 2;
                return Ok(None);
            }
            std::hint::spin_loop();
        }
    }
}

impl<S: Serve + 'static> Workers<S> {
    /// Adds a reading thread: a resting one, or a new one.
    fn call(self: &Arc<Self>, threads: &mut Vec<JoinHandle<()>>) -> io::Result<()> {
        let number = {
            let mut state = self.state.lock();
            if state.resting > state.called {
                state.called += 1;
                self.rested.notify_one();
                return Ok(());
            }
            if state.started == self.numbers.threads || state.is_over {
                return Ok(());
            }
            state.started += 1;
            state.started - 1
        };
        let workers = self.clone();
        let thread = std::thread::Builder::new().name(format!("cenote-fuse-{number}"));
        threads.push(thread.spawn(move || workers.work(number))?);
        Ok(())
    }
    /// Handles stuck threads, until the mount is over.
    fn watch(self: &Arc<Self>, threads: &mut Vec<JoinHandle<()>>) {
        let mut seen = 0;
        loop {
            let taken = self.taken.load(Ordering::Relaxed);
            let period = if taken == seen && self.requests.stuck(0) == 0 { WATCH_IDLE } else { WATCH };
            seen = taken;
            let (reading, is_wanted) = {
                let mut state = self.state.lock();
                if !state.is_over && !state.is_wanted {
                    self.watched.wait_for(&mut state, period);
                }
                if state.is_over {
                    return;
                }
                (state.reading(), std::mem::take(&mut state.is_wanted))
            };
            let stuck = self.requests.stuck(STUCK_US);
            if stuck > 0 {
                self.requests.look_again();
            }
            if (is_wanted || stuck >= reading)
                && let Err(error) = self.call(threads)
            {
                tracing::warn!(%error, "no thread more for requests");
            }
        }
    }
    fn work(self: Arc<Self>, number: usize) {
        let mut eyes = Eyes::new(&self.mount);
        let (mut buffer, mut scratch) = (vec![0; HEADER_ROOM + self.numbers.request_bytes], Vec::new());
        loop {
            match self.take(&mut eyes, &mut buffer) {
                Ok(Some((len, device))) => self.carry_out(number, &buffer[..len], &device, &mut scratch),
                Ok(None) => {
                    if !self.rest() {
                        return;
                    }
                    eyes.luck = Eyes::LUCK_MAX;
                }
                Err(error) => return self.finish(Some(error)),
            }
        }
    }
    /// The next request; `None` if this thread is not needed for it, or the mount is over.
    fn take(&self, eyes: &mut Eyes, buffer: &mut [u8]) -> io::Result<Option<(usize, Arc<Device>)>> {
        let found = match eyes.look(buffer)? {
            None if self.is_one_too_many() => return Ok(None),
            None => (eyes.waiting.read(buffer)?, eyes.waiting.clone()),
            Some(found) => found,
        };
        let Read::Request(len) = found.0 else {
            self.finish(None);
            return Ok(None);
        };
        self.taken.fetch_add(1, Ordering::Relaxed);
        if eyes.queue >= QUEUE {
            eyes.queue = 0;
            self.queue_up();
        }
        Ok(Some((len, found.1)))
    }
    /// Handles a queue: adds a thread, unless all permitted ones are at work.
    fn queue_up(&self) {
        let mut state = self.state.lock();
        if state.reading() >= self.numbers.at_work {
            return;
        }
        if state.resting > state.called {
            state.called += 1;
            self.rested.notify_one();
        } else {
            state.is_wanted = true;
            self.watched.notify_one();
        }
    }
    fn carry_out(&self, number: usize, bytes: &[u8], device: &Arc<Device>, scratch: &mut Vec<u8>) {
        let Some(request) = Request::parse(bytes) else {
            tracing::error!(len = bytes.len(), "the kernel sent what is no request");
            return;
        };
        let reply = Reply::new(device, request.unique);
        if request.op == op::INTERRUPT {
            let is_known = request.args().u64().is_ok_and(|unique| self.requests.interrupt(unique));
            if !is_known {
                // Another thread has read it but not registered it yet; the kernel asks again, or finds it answered.
                reply.cut_short(libc::EAGAIN);
            }
            return;
        }
        self.requests.begin(number, &request, device);
        let context =
            RequestContext { reply: &reply, in_flight: &self.requests.each[number], requests: &self.requests };
        self.serve.serve(&request, &context, scratch);
        self.requests.end(number);
    }
    /// Returns true if enough other threads read and are not stuck: this thread then counts as resting.
    fn is_one_too_many(&self) -> bool {
        let stuck = self.requests.stuck(STUCK_US);
        let mut state = self.state.lock();
        let is_so = state.reading() > 1 + stuck;
        if is_so {
            state.resting += 1;
        }
        is_so || state.is_over
    }
    /// Waits until this thread is needed again. Returns false when the mount is over.
    fn rest(&self) -> bool {
        let mut state = self.state.lock();
        while state.called == 0 && !state.is_over {
            self.rested.wait(&mut state);
        }
        if state.is_over {
            return false;
        }
        state.called -= 1;
        state.resting -= 1;
        true
    }
    fn finish(&self, failure: Option<io::Error>) {
        let mut state = self.state.lock();
        state.is_over = true;
        state.failure = state.failure.take().or(failure);
        self.rested.notify_all();
        self.watched.notify_all();
    }
}
