//! SIGTERM, SIGINT and SIGHUP ask a mount to end.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::mem::MaybeUninit;
use std::time::Duration;

/// The signals, which wait to be asked for from now on.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Keeps them from ending the process; threads started later inherit it.
    pub fn hold() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set that the others change and read; the old mask is not asked for.
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
    /// Waits for the first.
    pub fn wait(&self) {
        while !self.next(Duration::from_hours(1)) {}
    }
    /// Waits so long at most; true if one came.
    pub fn next(&self, time: Duration) -> bool {
        let time = libc::timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: i64::from(time.subsec_nanos()) };
        // SAFETY: the set is initialised and its signals are blocked; nobody asks for more than the number.
        unsafe { libc::sigtimedwait(&raw const self.set, std::ptr::null_mut(), &raw const time) > 0 }
    }
}
