//! Values of records in value logs: which leave memory, and how they are read.
//!
//! Keys stay in memory, and values as long as there is room for them (`Tuning::value_bytes`). Beyond that, values
//! leave (spill) that nobody has read since the clock's hand last passed them. They leave in the order of their keys,
//! so that neighbours lie together.

mod reading;
mod spilling;

use reading::Reading;

use std::collections::{HashSet, VecDeque};

use cenote_model::{ContainerId, IndexId, Response};

use super::activity::{Activity, Urgency};
use super::core::Core;
use crate::index::Key;
use crate::work::Job;
use crate::{Outcome, Ticket};

/// Shortest time between two counts of the bytes in memory.
const COUNTED_NS: u64 = 20_000_000;
/// Longest time that a response to a change waits for room.
const WAIT_NS: u64 = 500_000_000;
/// Bits that remember which records were read: a power of two.
const RECENT_BITS: usize = 1 << 18;

/// See the module.
#[derive(Default)]
pub struct Values {
    /// Bytes of values in memory that may leave it, at the last count.
    here_bytes: u64,
    counted_ns: u64,
    /// The epoch of that count. While nothing changes there is nothing to count anew.
    counted_epoch: u64,
    /// Values to be read.
    reads: VecDeque<Reading>,
    /// Responses to changes that wait for room, each with its deadline.
    waiting: Vec<(Ticket, u64, Response)>,
    spill: Spill,
    recent: Recent,
}

/// State of the spilling of values.
#[derive(Default)]
struct Spill {
    /// Values are leaving until less than the budget is in memory.
    is_on: bool,
    /// Jobs that write to logs, and the bytes that these write.
    jobs: usize,
    in_flight_bytes: u64,
    /// The clock's hand: the search for values that may leave continues in this index, after this key.
    hand: Hand,
    /// Batches found in this round of the hand, and whether the last round found none.
    found: u64,
    fruitless: bool,
    /// Batches of which little is needed: that part is to be written anew with others.
    sparse: HashSet<(ContainerId, u64)>,
    sparse_ns: u64,
    /// There was no room, or a device failed: not before then.
    retry_ns: u64,
    /// When unneeded batches were last searched for.
    swept_ns: u64,
}

impl Activity for Values {
    fn tick(&mut self, core: &mut Core) {
        self.answer_those_with_room(core);
    }
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        match urgency {
            Urgency::Awaited => self.next_values(core),
            Urgency::Housekeeping => self.next_spill(core),
            _ => None,
        }
    }
}

/// Position of a search.
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

/// Records that were read of late, by hash, kept only while memory is short.
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

impl Values {
    /// Counts the values in memory, if the last count is old, much was put since, or `now` is set.
    fn count_values(&mut self, core: &mut Core, now: bool) {
        let many = core.observed.pace.values_put_bytes > core.settings.value_bytes / 16;
        let is_old = core.state.now.ns.saturating_sub(self.counted_ns) >= COUNTED_NS;
        let is_changed = self.counted_epoch != core.state.epoch;
        if !(now || many || is_old && is_changed) {
            return;
        }
        let indices = core.state.containers.iter().flat_map(|container| container.content.indices.values());
        self.here_bytes = indices.map(|index| index.spillable).sum();
        (core.observed.pace.values_put_bytes, self.counted_ns) = (0, core.state.now.ns);
        self.counted_epoch = core.state.epoch;
    }

    /// Bytes of values in memory, except those that are leaving it.
    fn values_here(&self, core: &Core) -> u64 {
        (self.here_bytes + core.observed.pace.values_put_bytes).saturating_sub(self.spill.in_flight_bytes)
    }

    /// Returns true if values may stay in memory for now, or have nowhere to go.
    pub fn has_room_for_values(&self, core: &Core) -> bool {
        let here = self.here_bytes + core.observed.pace.values_put_bytes;
        here <= core.settings.value_bytes + core.settings.value_bytes / 4
            || self.spill.retry_ns > core.state.now.ns
            || self.spill.fruitless
    }

    /// Delays the response to a change while values come faster than they can leave memory.
    pub fn when_values_fit(&mut self, core: &mut Core, outcome: Outcome) -> Outcome {
        let most = core.settings.value_bytes + core.settings.value_bytes / 2;
        if core.txn.touched.is_empty() || self.here_bytes + core.observed.pace.values_put_bytes <= most {
            return outcome;
        }
        self.count_values(core, true);
        let Outcome::Ready(response) = outcome else { return outcome };
        if self.here_bytes <= most || self.has_room_for_values(core) {
            return Outcome::Ready(response);
        }
        let ticket = core.ticket();
        let until_ns = core.state.now.ns + WAIT_NS;
        self.waiting.push((ticket, until_ns, response));
        Outcome::Wait(ticket)
    }

    /// Answers those who waited for room, or long enough.
    fn answer_those_with_room(&mut self, core: &mut Core) {
        let (now, has_room) = (core.state.now.ns, self.waiting.is_empty() || self.has_room_for_values(core));
        let over = self.waiting.extract_if(.., |(_, until_ns, _)| has_room || now >= *until_ns);
        core.answers.finished.extend(over.map(|(ticket, _, response)| (ticket, response)));
    }
}
