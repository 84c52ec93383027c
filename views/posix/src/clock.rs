//! Source of file times.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Time;

/// Clock for file times. Tests supply their own.
pub trait Clock: Send + Sync + Debug {
    /// Returns the current time.
    fn now(&self) -> Time;
}

/// The system clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Time {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Time { s: since.as_secs() as i64, ns: since.subsec_nanos() },
            Err(_) => Time::default(),
        }
    }
}
