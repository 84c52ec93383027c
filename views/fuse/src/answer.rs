//! How failures are answered.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cenote_posix::FsError;

/// Seconds between two lines in the log about failures of the store.
const QUIET_S: u64 = 1;

/// The number for the kernel. What the store has to say goes to the log, once a second at most: programs get no more than the number.
pub fn errno(error: &FsError) -> i32 {
    static LAST_S: AtomicU64 = AtomicU64::new(0);
    if error.cause.is_some() {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if now_s >= LAST_S.load(Ordering::Relaxed) + QUIET_S {
            LAST_S.store(now_s, Ordering::Relaxed);
            tracing::warn!("{error}");
        }
    }
    error.errno
}
