//! Background thread: publishes gathered names, and deletes files whose last name others removed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cenote_host::fork::generation as fork_generation;

use crate::gate;
use crate::inner::Inner;
use crate::sync::RwLock;

/// Time between rounds.
pub const ROUND: Duration = Duration::from_millis(50);
/// Rounds between checks for processes that died.
const ROUNDS_PER_DEATH: u32 = 20;

/// Wakes the thread before its round is over. Only calls in progress use it, so nobody holds the lock when a process forks.
#[derive(Debug, Default)]
pub struct Bell(RwLock<Option<(u64, std::thread::Thread)>>);

impl Bell {
    /// Wakes the thread; returns false if this process has none.
    pub fn ring(&self) -> bool {
        match &*self.0.read() {
            Some((generation, thread)) if *generation == fork_generation() => {
                thread.unpark();
                true
            }
            _ => false,
        }
    }
    fn is_heard(&self) {
        let _in = gate::enter();
        *self.0.write() = Some((fork_generation(), std::thread::current()));
    }
}

/// The thread, started at the first open, and again in a forked child.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Fork generation, plus one, of the process that it runs in.
    started: AtomicU64,
}

impl Keeper {
    /// Starts the thread if it does not run.
    pub fn start(&self, fs: &Arc<Inner>) {
        let me = fork_generation() + 1;
        if self.started.swap(me, Ordering::AcqRel) == me || fs.common.options.is_read_only {
            return;
        }
        let fs = Arc::downgrade(fs);
        // Without the thread, removed files stay until another process comes: no reason to fail.
        let _ = std::thread::Builder::new().name("cenote-files".into()).spawn(move || run(&fs));
    }
}

fn run(fs: &Weak<Inner>) {
    if let Some(fs) = fs.upgrade() {
        fs.common.bell.is_heard();
    }
    let (mut round, mut begun) = (0u32, Instant::now());
    loop {
        std::thread::park_timeout(ROUND.saturating_sub(begun.elapsed()));
        let Some(fs) = fs.upgrade() else { return };
        let _in = gate::enter();
        if begun.elapsed() < ROUND {
            fs.known_trees().iter().for_each(|tree| tree.publish());
            continue;
        }
        begun = Instant::now();
        round = round.wrapping_add(1);
        for tree in fs.known_trees() {
            tree.publish();
            // The store may be closed, or its daemon unreachable: the next round retries.
            let is_thorough = round.is_multiple_of(ROUNDS_PER_DEATH);
            let _ = tree.sweep(is_thorough);
            if is_thorough {
                let _ = tree.sweep_page_caches();
                tree.reserved.sweep(&tree);
            }
        }
    }
}
