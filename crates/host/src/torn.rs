//! Mappings whose file another process truncates.
//!
//! Touching a page behind the end of the file raises SIGBUS, which kills a process. A client that truncates a file
//! shared with the daemon must not kill the daemon: the missing pages are replaced by empty ones of the daemon's own,
//! and the mapping is marked *torn*. A library must not take a signal from the program that loads it, so only processes
//! that ask for this get it.
#![allow(unsafe_code, reason = "a signal handler, and what it may call")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const PAGE: usize = 4096;
/// Upper bound of watched mappings: far more than a daemon has clients. Mappings beyond it are not watched.
const WATCHED_MAX: usize = 4096;

/// A watched mapping. A signal handler can neither lock nor allocate: hence a table of atomics.
struct Entry {
    /// 0: free. 1: being changed.
    base: AtomicUsize,
    len: AtomicUsize,
    torn: AtomicBool,
}

static TABLE: [Entry; WATCHED_MAX] =
    [const { Entry { base: AtomicUsize::new(0), len: AtomicUsize::new(0), torn: AtomicBool::new(false) } };
        WATCHED_MAX];
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// Lets this process survive truncated files from now on, for mappings that are watched from now on.
pub fn survive() {
    if INSTALLED.swap(true, Ordering::SeqCst) {
        return;
    }
    // SAFETY: `sigaction` is plain data, for which zeros are valid; the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut());
    }
}

/// A slot in the table, released when dropped.
#[derive(Debug)]
pub struct Watch(usize);

impl Watch {
    /// Watches a mapping, which must live as long as this value, if this process called [`survive`].
    pub fn new(base: *mut u8, len: usize) -> Option<Self> {
        if !INSTALLED.load(Ordering::Relaxed) {
            return None;
        }
        let take = |entry: &Entry| entry.base.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        let at = TABLE.iter().position(take)?;
        TABLE[at].torn.store(false, Ordering::SeqCst);
        TABLE[at].len.store(len, Ordering::SeqCst);
        TABLE[at].base.store(base as usize, Ordering::SeqCst);
        Some(Self(at))
    }
    /// True once a part of it was replaced.
    #[inline]
    pub fn is_torn(&self) -> bool {
        TABLE[self.0].torn.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        TABLE[self.0].base.store(0, Ordering::SeqCst);
    }
}

/// The handler: maps empty pages over the touched page and all behind it. A fault outside of watched mappings kills the
/// process, as without a handler.
extern "C" fn on_bus(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`; `mmap` and `signal` are system calls, and `errno` is preserved.
    // The replaced pages belong to a live mapping, since somebody just touched it.
    unsafe {
        let errno = *libc::__errno_location();
        let at = (*info).si_addr() as usize;
        let of = |entry: &&Entry| {
            let base = entry.base.load(Ordering::SeqCst);
            base > 1 && at >= base && at - base < entry.len.load(Ordering::SeqCst)
        };
        let replaced = TABLE.iter().find(of).filter(|_| (*info).si_code == libc::BUS_ADRERR).is_some_and(|entry| {
            let end = entry.base.load(Ordering::SeqCst) + entry.len.load(Ordering::SeqCst);
            let from = at & !(PAGE - 1);
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let fresh = libc::mmap(from as *mut libc::c_void, end - from, protection, flags, -1, 0);
            entry.torn.store(true, Ordering::SeqCst);
            fresh != libc::MAP_FAILED
        });
        if !replaced {
            libc::signal(signal, libc::SIG_DFL); // the access is retried and kills the process
        }
        *libc::__errno_location() = errno;
    }
}
