//! Answers for failures.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cenote_posix::FsError;

/// Least seconds between two log lines about failures of the store.
const QUIET_S: u64 = 1;

/// The error number for the kernel. The store's message goes to the log, at most once a second: programs see only the
/// number.
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
