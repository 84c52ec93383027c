//! Requests that are being carried out: who may be told that its caller does not wait any more.
//!
//! The kernel lets a caller go only when its request is answered, even a caller that was killed. So a request whose caller is being killed is answered
//! in place of whoever carries it out, which may take as long as the store is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::device::Device;
use super::reply::Reply;
use super::request::Request;

/// What one thread carries out.
#[derive(Default)]
pub struct Flight {
    state: Mutex<Option<Under>>,
    /// When it began, in microseconds since the mount did, plus one; 0: nothing is under way.
    since_us: AtomicU64,
}

struct Under {
    unique: u64,
    pid: u32,
    device: Arc<Device>,
    is_interrupted: bool,
}

/// What all threads carry out.
pub struct Flights {
    pub each: Vec<Flight>,
    /// What threads of their own wait for.
    waiting: Mutex<Vec<Arc<Flight>>>,
    begun: Instant,
}

impl Flight {
    /// True for the first answer to the request.
    pub fn land(&self, unique: u64) -> bool {
        let mut state = self.state.lock();
        let is_mine = state.as_ref().is_some_and(|under| under.unique == unique);
        if is_mine {
            *state = None;
        }
        is_mine
    }
    /// True as long as no signal came for whoever waits for the request.
    pub fn goes_on(&self, unique: u64) -> bool {
        self.state.lock().as_ref().is_some_and(|under| under.unique == unique && !under.is_interrupted)
    }
    /// Answers it with `EINTR` if its caller is being killed.
    fn let_go(state: &mut Option<Under>) {
        if let Some(under) = state
            && is_being_killed(under.pid)
        {
            Reply::new(&under.device, under.unique).cut_short(libc::EINTR);
            *state = None;
        }
    }
}

impl Flights {
    pub fn new(threads: usize) -> Self {
        Self {
            each: (0..threads).map(|_| Flight::default()).collect(),
            waiting: Mutex::default(),
            begun: Instant::now(),
        }
    }
    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64 + 1
    }
    /// A thread begins to carry a request out.
    pub fn begin(&self, thread: usize, request: &Request<'_>, device: &Arc<Device>) {
        let flight = &self.each[thread];
        let under = Under { unique: request.unique, pid: request.pid, device: device.clone(), is_interrupted: false };
        *flight.state.lock() = Some(under);
        flight.since_us.store(self.now_us(), Ordering::Relaxed);
    }
    /// The thread is done with it.
    pub fn end(&self, thread: usize) {
        self.each[thread].since_us.store(0, Ordering::Relaxed);
    }
    /// Hands a request on to a thread of its own, which may take as long as it likes. None: nobody waits for it any more.
    pub fn hand_on(&self, flight: &Flight) -> Option<Arc<Flight>> {
        let mut waiting = self.waiting.lock();
        let under = flight.state.lock().take()?;
        let own = Arc::new(Flight { state: Mutex::new(Some(under)), since_us: AtomicU64::new(0) });
        waiting.push(own.clone());
        Some(own)
    }
    /// What was handed on is done.
    pub fn forget(&self, own: &Arc<Flight>) {
        self.waiting.lock().retain(|other| !Arc::ptr_eq(own, other));
    }
    /// Requests that were handed on and are not done.
    pub fn handed_on(&self) -> usize {
        self.waiting.lock().len()
    }
    /// Threads that have been at one request for longer than `us`.
    pub fn stuck(&self, us: u64) -> usize {
        let before = self.now_us().saturating_sub(us);
        let is_stuck = |since: u64| since != 0 && since < before;
        self.each.iter().filter(|flight| is_stuck(flight.since_us.load(Ordering::Relaxed))).count()
    }
    /// The kernel says that a signal came for whoever waits for the request. False: it is not under way.
    pub fn interrupt(&self, unique: u64) -> bool {
        let mark = |flight: &Flight| {
            let mut state = flight.state.lock();
            let Some(under) = state.as_mut().filter(|under| under.unique == unique) else { return false };
            under.is_interrupted = true;
            Flight::let_go(&mut state);
            true
        };
        // In this order a request that is just being handed on is found.
        self.each.iter().any(mark) || self.waiting.lock().iter().any(|flight| mark(flight))
    }
    /// Looks again at those who got a signal: the kernel says no more when a second one kills.
    pub fn look_again(&self) {
        let look = |flight: &Flight| {
            let mut state = flight.state.lock();
            if state.as_ref().is_some_and(|under| under.is_interrupted) {
                Flight::let_go(&mut state);
            }
        };
        self.each.iter().for_each(look);
    }
}

/// True if the thread has a SIGKILL before it: what the kernel makes of every signal that ends a process.
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
    fn a_living_process_is_not_let_go() {
        assert!(!is_being_killed(std::process::id()));
        // Who is not seen from here is nobody to judge.
        assert!(!is_being_killed(0));
    }
}
