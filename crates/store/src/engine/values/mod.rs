//! Values of records in value logs: which leave memory, and how they are read.
//!
//! Keys stay in memory, values as long as there is room for them (`Tuning::value_bytes`). Beyond that those move that
//! nobody has asked for since the hand of the clock came by last, in the order of their keys: neighbours lie together.

mod reading;
mod spilling;

pub(super) use reading::Reading;
pub(super) use spilling::Spilling;

use std::collections::{HashSet, VecDeque};

use cenote_model::{ContainerId, IndexId};

use super::Engine;
use super::flush::{Wait, Waiter};
use super::jobs::What;
use crate::Outcome;
use crate::index::Key;

/// So often the bytes in memory are counted at most.
const COUNTED_NS: u64 = 20_000_000;
/// An answer to a change waits so long at most for room.
const WAIT_NS: u64 = 500_000_000;
/// Bits that remember which records were asked for: a power of two.
const RECENT_BITS: usize = 1 << 18;

/// What is known of values.
#[derive(Default)]
pub(super) struct Values {
    /// Bytes of values put since memory was counted.
    pub put_bytes: u64,
    /// Bytes of values in memory that may leave it, when they were counted last.
    here_bytes: u64,
    counted_ns: u64,
    /// The epoch of that count: as long as nothing is changed there is nothing to count anew.
    counted_epoch: u64,
    /// Values to be read.
    reads: VecDeque<Reading>,
    /// Values are leaving memory until less than the budget is there.
    spills: bool,
    /// Bytes that jobs are writing to logs.
    in_flight_bytes: u64,
    /// Where the search for values that may leave goes on: in this index, behind this key.
    hand: Hand,
    /// Batches found since the hand began its round, and whether it found none in the last one.
    found: u64,
    fruitless: bool,
    /// Batches of which little is needed: what is, is to be written anew with others.
    sparse: HashSet<(ContainerId, u64)>,
    sparse_ns: u64,
    /// Not before then: there was no room, or a device failed.
    retry_ns: u64,
    /// When batches that nobody needs were looked for last.
    swept_ns: u64,
    recent: Recent,
}

/// Where a search is.
#[derive(Clone, Debug)]
struct Hand {
    container: ContainerId,
    index: IndexId,
    after: Option<Key>,
}

impl Default for Hand {
    fn default() -> Self {
        Self { container: ContainerId(0), index: IndexId(0), after: None }
    }
}

/// Which records were asked for of late, by hash, if memory is short.
#[derive(Default)]
struct Recent {
    bits: Vec<u64>,
    set: usize,
}

impl Recent {
    fn place(key: &[u8]) -> (usize, u64) {
        let bit = crate::index::digest(key) as usize % RECENT_BITS;
        (bit / 64, 1 << (bit % 64))
    }
    fn note(&mut self, key: &[u8]) {
        self.bits.resize(RECENT_BITS / 64, 0);
        let (word, bit) = Self::place(key);
        self.set += usize::from(self.bits[word] & bit == 0);
        self.bits[word] |= bit;
        if self.set > RECENT_BITS / 4 {
            self.forget();
        }
    }
    fn has(&self, key: &[u8]) -> bool {
        let (word, bit) = Self::place(key);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }
    fn forget(&mut self) {
        self.bits.fill(0);
        self.set = 0;
    }
}

impl Engine {
    /// Counts values in memory, if that was long ago, much was put since, or `now` is wanted.
    fn count_values(&mut self, now: bool) {
        let many = self.values.put_bytes > self.settings.value_bytes / 16;
        let is_old = self.state.now_ns.saturating_sub(self.values.counted_ns) >= COUNTED_NS;
        let is_changed = self.values.counted_epoch != self.state.epoch;
        if !(now || many || is_old && is_changed) {
            return;
        }
        let indices = self.state.containers.iter().flat_map(|container| container.indices.values());
        self.values.here_bytes = indices.map(|index| index.spillable).sum();
        (self.values.put_bytes, self.values.counted_ns) = (0, self.state.now_ns);
        self.values.counted_epoch = self.state.epoch;
    }

    /// Bytes of values in memory beyond those that are leaving it.
    fn values_here(&self) -> u64 {
        (self.values.here_bytes + self.values.put_bytes).saturating_sub(self.values.in_flight_bytes)
    }

    /// True if values may stay in memory for now, or there is nowhere to go.
    pub(super) fn has_room_for_values(&self) -> bool {
        let here = self.values.here_bytes + self.values.put_bytes;
        here <= self.settings.value_bytes + self.settings.value_bytes / 4
            || self.values.retry_ns > self.state.now_ns
            || self.values.fruitless
    }

    /// The answer to a change: while values come faster than they can leave memory, it waits until some have.
    pub(super) fn when_values_fit(&mut self, outcome: Outcome) -> Outcome {
        let most = self.settings.value_bytes + self.settings.value_bytes / 2;
        if self.txn.touched.is_empty() || self.values.here_bytes + self.values.put_bytes <= most {
            return outcome;
        }
        self.count_values(true);
        let Outcome::Ready(response) = outcome else { return outcome };
        if self.values.here_bytes <= most || self.has_room_for_values() {
            return Outcome::Ready(response);
        }
        let ticket = self.ticket();
        let until_ns = self.state.now_ns + WAIT_NS;
        self.waiting.push(Waiter { ticket, what: Wait::Values { until_ns }, response });
        Outcome::Wait(ticket)
    }

    fn spilling_jobs(&self) -> usize {
        self.jobs.count(|what| matches!(what, What::Spill(_)))
    }
}
