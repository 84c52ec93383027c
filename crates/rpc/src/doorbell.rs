//! A doorbell: one sleeper that waits on many rings.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_model::{Error, Result};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use smallvec::{SmallVec, smallvec};

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

/// While it spins, one look in so many is at the sockets, by a system call.
const LOOK_EVERY: usize = 16;
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
        self.wait_also(rings, &[], timeout);
    }
    /// The same, but also returns when one of the `others` is ready, and which of them are.
    pub fn wait_also<'a>(
        &mut self,
        rings: impl Iterator<Item = &'a Consumer> + Clone,
        others: &[(BorrowedFd<'_>, PollFlags)],
        timeout: Duration,
    ) -> Vec<usize> {
        let (mut ready, mut looks) = (Vec::new(), 0);
        let mut is_ready = || {
            if rings.clone().any(Consumer::is_ready) {
                return true;
            }
            let mut is_rung = false;
            looks = (looks + 1) % LOOK_EVERY;
            if !others.is_empty() && looks == 1 {
                (is_rung, ready) = look(&self.bell, others, Duration::ZERO);
            }
            is_rung || !ready.is_empty()
        };
        if timeout.is_zero() || self.spin.until(&mut is_ready) {
            return ready;
        }
        // Ask every ring: an expired announcement must not count later.
        let announced = rings.clone().filter(|ring| ring.take_announcement()).count();
        if announced > 0 && self.spin.for_ns(ANNOUNCED_FOR_NS, is_ready) {
            return ready;
        }
        // Arm every ring. `all` stops early at a ring that is ready, which is as good.
        if rings.clone().all(Consumer::arm) {
            let begin = Instant::now();
            (_, ready) = look(&self.bell, others, timeout);
            self.spin.slept(begin.elapsed());
        }
        rings.for_each(Consumer::disarm);
        ready
    }
}

/// Waits until the bell was rung, one of the `others` is ready or the time is over; returns whether it was rung, which is
/// told once, and which of the others are ready.
fn look(bell: &Doorbell, others: &[(BorrowedFd<'_>, PollFlags)], timeout: Duration) -> (bool, Vec<usize>) {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    let mut fds: SmallVec<[PollFd<'_>; 8]> = smallvec![PollFd::new(&bell.event, PollFlags::IN)];
    fds.extend(others.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)));
    match poll(&mut fds, Some(&timeout)) {
        Ok(0) | Err(Errno::INTR) => {}
        Ok(_) => {
            let is_rung = !fds[0].revents().is_empty();
            if is_rung {
                bell.silence();
            }
            let ready = (0..others.len()).filter(|at| !fds[at + 1].revents().is_empty());
            return (is_rung, ready.collect());
        }
        Err(_) => std::thread::sleep(Duration::from_millis(1)),
    }
    (false, Vec::new())
}
