//! What this process has read through a link, for the policies of the engine's tiers. This file must not know how it is told.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use cenote_model::{ContainerId, Touch};
use cenote_policy::prefetch::{AccessProfile, Prefetcher};

/// See the module.
pub(crate) struct ReadHistory {
    began: Instant,
    /// Reads that were not told yet, and when the first of them was.
    pub touches: Mutex<(u64, Vec<Touch>)>,
    pub streams: Mutex<HashMap<ContainerId, Stream>>,
}

/// The reads of a container by this process.
pub(crate) struct Stream {
    pub prefetcher: Prefetcher,
    /// What earlier runs of the program had learned.
    pub learned: AccessProfile,
}

impl Default for ReadHistory {
    fn default() -> Self {
        Self { began: Instant::now(), touches: Mutex::default(), streams: Mutex::default() }
    }
}

impl ReadHistory {
    /// Milliseconds since it began.
    pub fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}
