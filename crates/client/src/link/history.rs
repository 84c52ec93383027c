//! The reads of this process through a link, for the policies of the engine's tiers. This file must not know how they
//! are reported.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use cenote_model::{ContainerId, Touch};
use cenote_policy::prefetch::{AccessProfile, Prefetcher};

/// The history; see the module.
pub(crate) struct ReadHistory {
    began: Instant,
    /// Time of the first unreported read, and the unreported reads.
    pub touches: Mutex<(u64, Vec<Touch>)>,
    pub streams: Mutex<HashMap<ContainerId, ReadSequence>>,
}

/// The reads of a container by this process.
pub(crate) struct ReadSequence {
    pub prefetcher: Prefetcher,
    /// The profile from earlier runs of the program.
    pub learned: AccessProfile,
}

impl Default for ReadHistory {
    fn default() -> Self {
        Self { began: Instant::now(), touches: Mutex::default(), streams: Mutex::default() }
    }
}

impl ReadHistory {
    /// Returns the milliseconds since the start of the history.
    pub fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }
}
