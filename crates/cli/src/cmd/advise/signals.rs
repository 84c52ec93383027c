//! Signals that are meant for the program: they are waited for, and passed on.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::mem::MaybeUninit;
use std::time::Duration;

/// What is passed on. Stopping and going on is left as it is.
const PASSED_ON: [i32; 6] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGUSR1, libc::SIGUSR2];

/// Signals wait to be asked for while this lives.
pub struct Signals {
    set: libc::sigset_t,
    before: libc::sigset_t,
}

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Came {
    /// Nothing, until the time was over; or a child changed its state.
    Nothing,
    /// Somebody sent this signal to this process, and only to it.
    Sent(i32),
    /// The terminal sent a signal to everybody in it: the program has it already.
    ToAll,
}

impl Signals {
    /// From now on.
    pub fn hold() -> Self {
        let (mut set, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: sigemptyset initialises the set that the others change and read; the old mask is written by the call.
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
    /// Waits for one, so long at most.
    pub fn next(&self, time: Duration) -> Came {
        let time = libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, the others are ours.
        let signal = unsafe { libc::sigtimedwait(&raw const self.set, info.as_mut_ptr(), &raw const time) };
        if signal <= 0 || signal == libc::SIGCHLD {
            return Came::Nothing;
        }
        // SAFETY: zeroed above, and written by the call.
        let code = unsafe { info.assume_init() }.si_code;
        // Above 0 the kernel speaks by itself.
        if code > 0 { Came::ToAll } else { Came::Sent(signal) }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // SAFETY: the mask is the one from before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut()) };
    }
}
