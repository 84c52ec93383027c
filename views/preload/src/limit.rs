//! The process's limit on file sizes (`RLIMIT_FSIZE`), which the kernel would enforce.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::kernel;

static BYTES: AtomicU64 = AtomicU64::new(u64::MAX);

/// Reads the limit: at the start, and when the program may have changed it.
pub fn look() {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: 0 };
    kernel::simple(libc::SYS_getrlimit, &[u64::from(libc::RLIMIT_FSIZE), (&raw mut limit) as u64]);
    BYTES.store(limit.rlim_cur, Ordering::Relaxed);
}

/// How many of `len` bytes may be written at an offset, which is computed only if there is a limit; `EFBIG` and a
/// signal if none.
#[inline]
pub fn room(at: impl FnOnce() -> Result<u64, i32>, len: usize) -> Result<usize, i32> {
    let limit = BYTES.load(Ordering::Relaxed);
    if limit == u64::MAX || len == 0 {
        return Ok(len);
    }
    match limit.saturating_sub(at()?) {
        0 => Err(exceeded()),
        room => Ok(len.min(usize::try_from(room).unwrap_or(usize::MAX))),
    }
}

/// Checks a new size of a file in the same way.
pub fn size(bytes: u64) -> Result<(), i32> {
    if bytes > BYTES.load(Ordering::Relaxed) { Err(exceeded()) } else { Ok(()) }
}

#[cold]
fn exceeded() -> i32 {
    let thread = kernel::simple(libc::SYS_gettid, &[]) as u64;
    kernel::simple(libc::SYS_tgkill, &[kernel::pid() as u64, thread, libc::SIGXFSZ as u64]);
    libc::EFBIG
}
