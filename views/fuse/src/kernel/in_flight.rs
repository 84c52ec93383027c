//! Requests in progress, and the answers for callers that no longer wait.
//!
//! The kernel releases a caller only when its request is answered, even a caller that was killed. So a request whose
//! caller is being killed is answered on behalf of the thread that carries it out, which may take as long as the store
//! is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::device::Device;
use super::reply::Reply;
use super::request::Request;

/// The request of one thread.
#[derive(Default)]
pub struct RequestInFlight {
    state: Mutex<Option<Under>>,
    /// Start time, in microseconds since the mount, plus one; 0: no request.
    since_us: AtomicU64,
}

struct Under {
    unique: u64,
    pid: u32,
    device: Arc<Device>,
    is_interrupted: bool,
}

/// The requests of all threads.
pub struct RequestsInFlight {
    pub each: Vec<RequestInFlight>,
    /// Requests that were handed on to threads of their own.
    waiting: Mutex<Vec<Arc<RequestInFlight>>>,
    begun: Instant,
}

impl RequestInFlight {
    /// Returns true for the first answer to the request.
    pub fn complete(&self, unique: u64) -> bool {
        let mut state = self.state.lock();
        let is_mine = state.as_ref().is_some_and(|under| under.unique == unique);
        if is_mine {
            *state = None;
        }
        is_mine
    }
    /// Returns true as long as the caller got no signal.
    pub fn goes_on(&self, unique: u64) -> bool {
        self.state.lock().as_ref().is_some_and(|under| under.unique == unique && !under.is_interrupted)
    }
    /// Answers the request with `EINTR` if its caller is being killed.
    fn answer_killed(state: &mut Option<Under>) {
        if let Some(under) = state
            && is_being_killed(under.pid)
        {
            Reply::new(&under.device, under.unique).cut_short(libc::EINTR);
            *state = None;
        }
    }
}

impl RequestsInFlight {
    pub fn new(threads: usize) -> Self {
        Self {
            each: (0..threads).map(|_| RequestInFlight::default()).collect(),
            waiting: Mutex::default(),
            begun: Instant::now(),
        }
    }
    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64 + 1
    }
    /// Registers the request that a thread begins to carry out.
    pub fn begin(&self, thread: usize, request: &Request<'_>, device: &Arc<Device>) {
        let in_flight = &self.each[thread];
        let under = Under { unique: request.unique, pid: request.pid, device: device.clone(), is_interrupted: false };
        *in_flight.state.lock() = Some(under);
        in_flight.since_us.store(self.now_us(), Ordering::Relaxed);
    }
    /// Ends the thread's request.
    pub fn end(&self, thread: usize) {
        self.each[thread].since_us.store(0, Ordering::Relaxed);
    }
    /// Hands a request on to a thread of its own, which may take any time. `None` if nobody waits for it any more.
    pub fn hand_on(&self, in_flight: &RequestInFlight) -> Option<Arc<RequestInFlight>> {
        let mut waiting = self.waiting.lock();
        let under = in_flight.state.lock().take()?;
        let own = Arc::new(RequestInFlight { state: Mutex::new(Some(under)), since_us: AtomicU64::new(0) });
        waiting.push(own.clone());
        Some(own)
    }
    /// Ends a request that was handed on.
    pub fn forget(&self, own: &Arc<RequestInFlight>) {
        self.waiting.lock().retain(|other| !Arc::ptr_eq(own, other));
    }
    /// Number of requests that were handed on and are not done.
    pub fn handed_on(&self) -> usize {
        self.waiting.lock().len()
    }
    /// Number of threads that have worked on one request for longer than `us`.
    pub fn stuck(&self, us: u64) -> usize {
        let before = self.now_us().saturating_sub(us);
        let is_stuck = |since: u64| since != 0 && since < before;
        self.each.iter().filter(|in_flight| is_stuck(in_flight.since_us.load(Ordering::Relaxed))).count()
    }
    /// Handles the kernel's notice that the caller got a signal. Returns false if the request is not in progress.
    pub fn interrupt(&self, unique: u64) -> bool {
        let mark = |in_flight: &RequestInFlight| {
            let mut state = in_flight.state.lock();
            let Some(under) = state.as_mut().filter(|under| under.unique == unique) else { return false };
            under.is_interrupted = true;
            RequestInFlight::answer_killed(&mut state);
            true
        };
        // This order finds a request that is just being handed on.
        self.each.iter().any(mark) || self.waiting.lock().iter().any(|in_flight| mark(in_flight))
    }
    /// Checks interrupted callers again: the kernel sends no notice when a second signal kills.
    pub fn look_again(&self) {
        let look = |in_flight: &RequestInFlight| {
            let mut state = in_flight.state.lock();
            if state.as_ref().is_some_and(|under| under.is_interrupted) {
                RequestInFlight::answer_killed(&mut state);
            }
        };
        self.each.iter().for_each(look);
    }
}

/// Returns true if SIGKILL is pending for the thread: the kernel's form of every signal that ends a process.
fn is_being_killed(pid: u32) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let Ok(status) = std::fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let pending = |line: &str| {
        let set = line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:"))?;
        u64::from_str_radix(set.trim(), 16).ok()
    };
    status.lines().filter_map(pending).any(|set| set & KILL != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_process_is_not_answered_early() {
        assert!(!is_being_killed(std::process::id()));
        // A process that is not visible here cannot be judged.
        assert!(!is_being_killed(0));
    }
}
