//! Who this process is to others, and which others live.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::Mutex;
use cenote::{fork_generation, process_started};

use crate::records::Claimant;

/// A process that was seen alive is taken to be so for this long.
const LIVES_FOR: Duration = Duration::from_millis(500);

/// See [`crate::tree::Common`].
#[derive(Debug)]
pub struct Who {
    nonce: u64,
    me: Mutex<Option<(u64, Claimant)>>,
    seen: Mutex<HashMap<(u32, u64), (bool, Instant)>>,
}

impl Who {
    pub fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The hasher's keys are random: nonces of processes that were given one pid and one tick differ as well.
        let nonce = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
        Self { nonce, me: Mutex::default(), seen: Mutex::default() }
    }
    /// This file system in this process; another one in a forked child.
    pub fn me(&self) -> Claimant {
        let generation = fork_generation();
        let mut me = self.me.lock();
        match *me {
            Some((known, claimant)) if known == generation => claimant,
            _ => {
                let pid = std::process::id();
                let claimant = Claimant { pid, started: process_started(pid).unwrap_or(0), nonce: self.nonce };
                *me = Some((generation, claimant));
                claimant
            }
        }
    }
    /// True if its process lives.
    pub fn lives(&self, other: &Claimant) -> bool {
        let mut seen = self.seen.lock();
        let key = (other.pid, other.started);
        match seen.get(&key) {
            Some((lives, when)) if !lives || when.elapsed() < LIVES_FOR => *lives,
            _ => {
                let lives = process_started(other.pid) == Some(other.started);
                seen.insert(key, (lives, Instant::now()));
                lives
            }
        }
    }
}
