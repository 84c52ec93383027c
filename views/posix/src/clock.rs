//! Where times come from.

use std::fmt::Debug;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::Time;

/// Tells the time that files get. Tests have one of their own.
pub trait Clock: Send + Sync + Debug {
    /// Now.
    fn now(&self) -> Time;
}

/// The machine's.
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
