//! Whether processes that records of a store name are alive.

use std::sync::Mutex;

use cenote_host::process::started_of;
use cenote_model::HomeId;

use crate::Store;

/// Bits of a stamp for a start time: clock ticks since boot.
const TIME_BITS: u32 = 48;

impl Store {
    /// Returns what tells this process from a later one with the same process id, for a record that others read: its start
    /// time in clock ticks since boot (0 if `/proc` does not show it) and, from bit 48 on, the home of its node in a cluster.
    pub fn process_stamp(&self) -> u64 {
        /// Number and start time of this process when last looked up: a forked child has another number.
        static KNOWN: Mutex<(u32, u64)> = Mutex::new((0, 0));
        let pid = std::process::id();
        // At a fork another thread may have held the lock.
        let known = KNOWN.try_lock().ok().map(|known| *known).filter(|known| known.0 == pid);
        let started = known.map_or_else(|| started_of(pid).unwrap_or(0), |known| known.1);
        if let Ok(mut known) = KNOWN.try_lock() {
            *known = (pid, started);
        }
        stamp(self.home(), started)
    }
    /// Returns false if the process with this id and stamp is known to be dead. From here only processes of the own node are
    /// seen, so that those of other nodes of a cluster may live.
    pub fn may_live(&self, pid: u32, its: u64) -> bool {
        may_live(self.home(), its, || started_of(pid))
    }
}

fn stamp(home: HomeId, started: u64) -> u64 {
    u64::from(home.0) << TIME_BITS | started & ((1 << TIME_BITS) - 1)
}

/// `started`: when the process began that has its number on this node, if there is one.
fn may_live(home: HomeId, its: u64, started: impl FnOnce() -> Option<u64>) -> bool {
    its >> TIME_BITS != u64::from(home.0) || started().is_some_and(|started| stamp(home, started) == its)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dead_of_this_node_are_told_from_the_living_and_others_may_live() {
        let (alone, second) = (HomeId(0), HomeId(2));
        for home in [alone, second] {
            let me = stamp(home, 77);
            assert!(may_live(home, me, || Some(77)));
            assert!(!may_live(home, me, || Some(78)) && !may_live(home, me, || None));
        }
        assert_eq!(stamp(alone, 77), 77, "as before there were clusters");
        assert!(may_live(second, stamp(HomeId(1), 77), || None));
    }
}
