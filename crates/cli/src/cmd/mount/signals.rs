//! SIGTERM, SIGINT and SIGHUP ask a mount to end.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::mem::MaybeUninit;
use std::time::Duration;

/// The signals, blocked from now on so that they can be waited for.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals, so that they do not end the process; threads started later inherit this.
    pub fn hold() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that the others change and read; the old mask is not requested.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            Self { set }
        }
    }
    /// Waits for the first signal.
    pub fn wait(&self) {
        while !self.next(Duration::from_hours(1)) {}
    }
    /// Waits at most this long; returns true if a signal arrived.
    pub fn next(&self, time: Duration) -> bool {
        let time = libc::timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
        // SAFETY: the set is initialised and its signals are blocked; only the number is requested.
        unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time) > 0 }
    }
}
