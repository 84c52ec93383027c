//! SIGTERM, SIGINT and SIGHUP ask the daemon to exit.
#![allow(unsafe_code, reason = "signal masks have no safe interface")]

use std::mem::MaybeUninit;

fn set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: sigemptyset initialises the set that sigaddset then changes.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

/// Blocks the signals; threads started later inherit the mask.
pub(super) fn block() {
    // SAFETY: the set is initialised; the old mask is not requested.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set(), std::ptr::null_mut()) };
}

/// Calls `stop` at the first such signal, from a thread of its own.
pub(super) fn on_stop(stop: impl FnOnce() + Send + 'static) {
    let wait = move || {
        let (set, mut signal) = (set(), 0);
        // SAFETY: the set is initialised and its signals are blocked; `signal` is ours.
        while unsafe { libc::sigwait(&raw const set, &raw mut signal) } != 0 {}
        stop();
    };
    if let Err(error) = std::thread::Builder::new().name("cenote-signals".into()).spawn(wait) {
        tracing::warn!(%error, "no thread for signals: only SIGKILL will end this daemon");
    }
}
