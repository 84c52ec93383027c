//! Sessions: their users, leases, and recorded responses.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cenote_model::{ContainerId, KeyCode, Run};

use crate::engine::SessionCounts;
use crate::map::DeviceIndex;
use crate::{SessionId, SessionInfo};

/// Responses recorded for each session.
pub(crate) const OUTCOMES_MAX: usize = 4096;

/// Nonce of the session that the engine opens for writes of its own; clients draw theirs at random.
pub(crate) const OWN_NONCE: u128 = u128::from_be_bytes(*b"cenote: densify.");

/// The response to a change, so that it can be repeated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Recorded {
    pub seq: u64,
    pub epoch: u64,
    /// Only for responses that hold more than the epoch.
    pub detail: Option<Box<Detail>>,
}

/// The rest of a response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Detail {
    Applied { codes: Vec<KeyCode>, created: Option<ContainerId> },
    Leased { runs: Vec<Run> },
}

/// A session.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub info: SessionInfo,
    /// Bytes of each leased range by device slot and offset.
    pub leases: BTreeMap<(DeviceIndex, u64), u64>,
    /// Snapshots that it pins.
    pub pins: BTreeSet<ContainerId>,
    /// Counters for telemetry.
    pub counts: SessionCounts,
    outcomes: VecDeque<Recorded>,
    seq_max: u64,
}

impl Session {
    /// Returns true if it may do everything: it writes, and no modes of containers bind it.
    pub fn is_trusted(&self) -> bool {
        self.info.write && self.info.bound.is_none()
    }
    pub fn new(info: SessionInfo) -> Self {
        Self { info, ..Self::default() }
    }
    /// Returns true for the session of the engine itself.
    pub fn is_own(&self) -> bool {
        self.info.nonce == OWN_NONCE
    }
    /// Returns true if its process writes into mapped segments, so that the engine sees none of the bytes.
    pub fn maps_segments(&self) -> bool {
        self.info.bound.is_none() && self.info.node.is_none() && !self.is_own()
    }
    /// Returns true if the session leases all of a range.
    pub fn leases_all(&self, dev: DeviceIndex, offset: u64, len: u64) -> bool {
        let before = self.leases.range(..=(dev, offset)).next_back();
        before.is_some_and(|((of, from), bytes)| {
            *of == dev && offset.checked_add(len).is_some_and(|end| end <= from + bytes)
        })
    }
    /// Takes a range out of the leases. Returns false if the session does not lease all of it.
    pub fn consume(&mut self, dev: DeviceIndex, offset: u64, len: u64) -> bool {
        let Some((key, lease_len)) = self.leases.range(..=(dev, offset)).next_back().map(|(key, len)| (*key, *len))
        else {
            return false;
        };
        let Some(end) = offset.checked_add(len) else { return false };
        let lease_end = key.1 + lease_len;
        if key.0 != dev || end > lease_end {
            return false;
        }
        if key.1 == offset {
            self.leases.remove(&key);
        } else {
            self.leases.insert(key, offset - key.1);
        }
        if end < lease_end {
            self.leases.insert((dev, end), lease_end - end);
        }
        true
    }
    /// Adds a range to the leases.
    pub fn lease(&mut self, dev: DeviceIndex, mut offset: u64, mut len: u64) {
        if let Some((key, before)) = self.leases.range(..(dev, offset)).next_back().map(|(key, len)| (*key, *len))
            && key.0 == dev
            && key.1 + before == offset
        {
            self.leases.remove(&key);
            offset = key.1;
            len += before;
        }
        if let Some(after) = self.leases.remove(&(dev, offset + len)) {
            len += after;
        }
        self.leases.insert((dev, offset), len);
    }
    /// Records a response.
    pub fn record(&mut self, recorded: Recorded) {
        if recorded.seq == 0 {
            return;
        }
        self.seq_max = self.seq_max.max(recorded.seq);
        if self.outcomes.len() == OUTCOMES_MAX {
            self.outcomes.pop_front();
        }
        self.outcomes.push_back(recorded);
    }
    /// Returns the recorded response to a request, if there is one.
    pub fn recorded(&self, seq: u64) -> Option<&Recorded> {
        if seq == 0 || seq > self.seq_max {
            return None;
        }
        self.outcomes.iter().rev().find(|recorded| recorded.seq == seq)
    }
    pub fn outcomes(&self) -> impl ExactSizeIterator<Item = &Recorded> {
        self.outcomes.iter()
    }
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub open: BTreeMap<SessionId, Session>,
    pub next_id: u64,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { open: BTreeMap::new(), next_id: 1 }
    }
}

impl Sessions {
    pub fn by_nonce(&self, nonce: u128) -> Option<SessionId> {
        self.open.iter().find(|(_, session)| session.info.nonce == nonce).map(|(id, _)| *id)
    }
    /// Bytes that all sessions lease of each device, by slot.
    /// `more`: those of sessions that are not open, for prepared transactions.
    pub fn leased_bytes<'a>(&'a self, slots: usize, more: impl Iterator<Item = &'a Session>) -> Vec<u64> {
        let mut leased = vec![0; slots];
        for ((dev, _), len) in self.open.values().chain(more).flat_map(|session| &session.leases) {
            leased[usize::from(*dev)] += len;
        }
        leased
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_consumed_from_any_place_and_join_again() {
        let mut session = Session::default();
        session.lease(1, 1000, 500);
        assert!(!session.consume(1, 900, 200) && !session.consume(1, 1400, 200) && !session.consume(0, 1000, 1));
        assert!(session.consume(1, 1100, 100));
        assert!(!session.consume(1, 1050, 100));
        assert_eq!(session.leases.len(), 2);
        session.lease(1, 1100, 100);
        assert_eq!(session.leases.iter().map(|(k, v)| (k.1, *v)).collect::<Vec<_>>(), [(1000, 500)]);
        assert!(session.consume(1, 1000, 500) && session.leases.is_empty());
        assert!(!session.consume(1, u64::MAX, 1));
    }

    #[test]
    fn outcomes_are_found_until_4096_later() {
        let mut session = Session::default();
        for seq in 1..=5000 {
            session.record(Recorded { seq, epoch: seq * 10, detail: None });
        }
        assert_eq!(session.recorded(5000).map(|r| r.epoch), Some(50_000));
        assert_eq!(session.recorded(905).map(|r| r.epoch), Some(9050));
        assert!(session.recorded(904).is_none() && session.recorded(5001).is_none() && session.recorded(0).is_none());
    }
}
