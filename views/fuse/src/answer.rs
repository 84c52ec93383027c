//! How failures are answered, and what becomes of a panic.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use cenote_posix::FsError;
use fuser::Errno;

/// Seconds between two lines in the log about failures of the store.
const QUIET_S: u64 = 1;

/// Runs what answers a request. A panic goes no further: the reply that it unwinds through is sent as `EIO`.
pub fn contain(answer: impl FnOnce()) {
    // What a panic can leave half done is behind locks that do not poison; a request is done with, whatever became of it.
    if catch_unwind(AssertUnwindSafe(answer)).is_err() {
        tracing::error!("a request failed by a panic and was answered with EIO; this is a bug");
    }
}

/// The number for the kernel. What the store has to say goes to the log, once a second at most: programs get no more than the number.
pub fn errno(error: &FsError) -> Errno {
    static LAST_S: AtomicU64 = AtomicU64::new(0);
    if error.cause.is_some() {
        let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        if now_s >= LAST_S.load(Ordering::Relaxed) + QUIET_S {
            LAST_S.store(now_s, Ordering::Relaxed);
            tracing::warn!("{error}");
        }
    }
    Errno::from_i32(error.errno)
}

/// Sends what came of a request: each kind of reply in its own way.
macro_rules! answer {
    ($reply:ident, $result:expr, |$value:pat_param| $send:expr) => {
        match $result {
            Ok($value) => $send,
            Err(error) => $reply.error($crate::answer::errno(&error)),
        }
    };
}
pub(crate) use answer;
