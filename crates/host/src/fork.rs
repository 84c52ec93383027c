//! What happens to descriptors and sessions when the process forks.
//!
//! A child inherits open files. For most that is harmless, but a lock or a connection that a child keeps open would
//! outlive its owner. In every child, `/dev/null` replaces registered descriptors before anything else runs there.
#![allow(unsafe_code, reason = "pthread_atfork, and dup2 on descriptors that other code owns")]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

const TABLE_LEN: usize = 1024;

static GENERATION: AtomicU64 = AtomicU64::new(0);
static NULL_FD: AtomicI32 = AtomicI32::new(-1);
/// Registered descriptors; -1 where free. Fixed, because the handler may neither lock nor allocate.
static TABLE: [AtomicI32; TABLE_LEN] = [const { AtomicI32::new(-1) }; TABLE_LEN];

extern "C" fn in_child() {
    GENERATION.fetch_add(1, Ordering::SeqCst);
    let null = NULL_FD.load(Ordering::SeqCst);
    for slot in &TABLE {
        let fd = slot.swap(-1, Ordering::SeqCst);
        if fd >= 0 && null >= 0 {
            // SAFETY: dup2 is async-signal-safe; the number stays taken, so its owner's later close affects only this
            // process's copy.
            unsafe { libc::dup3(null, fd, libc::O_CLOEXEC) };
        }
    }
}

fn set_up() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
            NULL_FD.store(std::os::fd::IntoRawFd::into_raw_fd(null), Ordering::SeqCst);
        }
        // SAFETY: the handler only touches atomics and calls dup3.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// Number of forks between this process and the ancestor that first called this function. A value stored with a session
/// tells a child that the session is its parent's.
pub fn generation() -> u64 {
    set_up();
    GENERATION.load(Ordering::Relaxed)
}

/// Keeps a descriptor out of forked children until dropped. Drop it before the descriptor is closed.
#[derive(Debug)]
pub struct CloseInChild {
    slot: usize,
    fd: i32,
}

impl CloseInChild {
    /// Registers a descriptor. `None` if more than 1,024 are registered: then children keep it.
    pub fn new(fd: impl AsFd) -> Option<Self> {
        set_up();
        let fd = fd.as_fd().as_raw_fd();
        let free = |slot: &AtomicI32| slot.compare_exchange(-1, fd, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        TABLE.iter().position(free).map(|slot| Self { slot, fd })
    }
}

impl Drop for CloseInChild {
    fn drop(&mut self) {
        // In a child the slot may have been given to another descriptor already.
        let _ = TABLE[self.slot].compare_exchange(self.fd, -1, Ordering::SeqCst, Ordering::SeqCst);
    }
}
