//! Identity of this process to others, and liveness of others.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::Store;
use cenote_host::fork::generation as fork_generation;

use crate::records::Claimant;
use crate::sync::Mutex;

/// How long a process seen alive is assumed to live.
const LIVES_FOR: Duration = Duration::from_millis(500);

/// Identity and liveness; see [`crate::tree::Common`].
#[derive(Debug)]
pub struct Who {
    store: Store,
    nonce: u64,
    me: Mutex<Option<(u64, Claimant)>>,
    seen: Mutex<HashMap<(u32, u64), (bool, Instant)>>,
}

impl Who {
    pub fn new(store: &Store) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        // The hasher's keys are random, so nonces differ even between processes with the same pid and start
        // tick.
        let nonce = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
        Self { store: store.clone(), nonce, me: Mutex::default(), seen: Mutex::default() }
    }
    /// Returns the identity of this file system in this process; a forked child has another one.
    pub fn me(&self) -> Claimant {
        let generation = fork_generation();
        let mut me = self.me.lock();
        match *me {
            Some((known, claimant)) if known == generation => claimant,
            _ => {
                let (pid, started) = (std::process::id(), self.store.process_stamp());
                let claimant = Claimant { pid, started, nonce: self.nonce };
                *me = Some((generation, claimant));
                claimant
            }
        }
    }
    /// Returns true if the process of a claimant lives, or may live on another node.
    pub fn lives(&self, other: &Claimant) -> bool {
        let mut seen = self.seen.lock();
        let key = (other.pid, other.started);
        match seen.get(&key) {
            Some((lives, when)) if !lives || when.elapsed() < LIVES_FOR => *lives,
            _ => {
                let lives = self.store.may_live(other.pid, other.started);
                seen.insert(key, (lives, Instant::now()));
                lives
            }
        }
    }
}
