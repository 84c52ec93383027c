//! A doorbell: one sleeper that waits on many rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_model::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::{Consumer, Spin};

/// Wakes the thread that sleeps in [`Poller::wait`]. The sleeper creates it and gives its descriptor to the peers.
/// Cheap to clone.
#[derive(Clone, Debug)]
pub struct Doorbell {
    event: Arc<OwnedFd>,
}

impl Doorbell {
    /// Creates a doorbell.
    pub fn new() -> Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|errno| Error::io("doorbell", &errno.into()))?;
        Ok(Self { event: Arc::new(event) })
    }
    /// The peer's end of a doorbell, from the descriptor that it received.
    pub fn from_fd(fd: OwnedFd) -> Self {
        Self { event: Arc::new(fd) }
    }
    /// Wakes the sleeper, or keeps it from falling asleep.
    #[cold]
    pub fn ring(&self) {
        // A full counter means that it is ringing already.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }
    fn silence(&self) {
        let _ = rustix::io::read(&*self.event, &mut [0; 8]);
    }
}

impl AsFd for Doorbell {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// How long to spin for an announced frame: the time of a large copy or a fast device.
const ANNOUNCED_FOR_NS: u64 = 250_000;

/// Waits on many rings at once: spins over them, then sleeps on the doorbell.
#[derive(Debug)]
pub struct Poller {
    bell: Doorbell,
    spin: Spin,
}

impl Poller {
    /// A poller that sleeps on this doorbell.
    pub fn new(bell: Doorbell) -> Self {
        Self { bell, spin: Spin::default() }
    }
    /// The doorbell, to give to producers and to ring for other work.
    pub fn bell(&self) -> &Doorbell {
        &self.bell
    }
    /// Returns when a ring has a frame or is closed, when the doorbell was rung, or when the time is over. Before
    /// the call, release what was taken from the rings.
    pub fn wait<'a>(&mut self, rings: impl Iterator<Item = &'a Consumer> + Clone, timeout: Duration) {
        let is_ready = || rings.clone().any(Consumer::is_ready);
        if timeout.is_zero() || self.spin.until(is_ready) {
            return;
        }
        // Ask every ring: an expired announcement must not count later.
        let announced = rings.clone().filter(|ring| ring.take_announcement()).count();
        if announced > 0 && self.spin.for_ns(ANNOUNCED_FOR_NS, is_ready) {
            return;
        }
        // Arm every ring. `all` stops early at a ring that is ready, which is as good.
        if rings.clone().all(Consumer::arm) {
            let begin = Instant::now();
            self.sleep(timeout);
            self.spin.slept(begin.elapsed());
        }
        rings.for_each(Consumer::disarm);
    }
    fn sleep(&self, timeout: Duration) {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
        let mut fds = [PollFd::new(&self.bell.event, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => self.bell.silence(),
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
