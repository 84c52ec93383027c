//! Signals meant for the watched program: received here, and passed on.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::mem::MaybeUninit;
use std::time::Duration;

/// Signals passed on. Stop and continue keep their effect on this process.
const PASSED_ON: [i32; 6] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Blocks the signals while it lives, so that they can be waited for.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

/// Result of a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// Timeout, or a child changed its state.
    Nothing,
    /// Somebody sent this signal to this process alone.
    Sent(i32),
    /// The terminal sent a signal to all its processes: the program has it already.
    ToAll,
}

impl Signals {
    /// Blocks the signals from now on.
    pub fn hold() -> Self {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset initialises the set that the others change and read; the call writes the old mask.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in PASSED_ON.into_iter().chain([libc::SIGCHLD]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            libc::sigemptyset(before.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, before.as_mut_ptr());
            Self { set, before: before.assume_init() }
        }
    }
    /// Waits for a signal, at most this long.
    pub fn next(&self, time: Duration) -> Came {
        let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised; the other pointers are to local variables.
        let signal = unsafe { libc::sigtimedwait(&raw const self.set, info.as_mut_ptr(), &raw const time) };
        if signal <= 0 || signal == libc::SIGCHLD {
            return Came::Nothing;
        }
        // SAFETY: zeroed above, and written by the call.
        let code = unsafe { info.assume_init() }.si_code;
        // Codes above 0 mean that the kernel itself sent it.
        if code > 0 { Came::ToAll } else { Came::Sent(signal) }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: restores the previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
