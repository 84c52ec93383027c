//! A client's counts of its own reads and writes, in its file: the engine reads them without asking.
//!
//! Nothing on the data path locks or contends: a reading thread has a reader slot to itself, and with it that slot's
//! counters. Few operations are timed; all threads of the client share the counts of those. The numbers are the
//! client's word: a hostile client can make them anything, so they are only ever shown.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cenote_model::{DeviceId, HISTOGRAM_BUCKETS, Histogram, Timed, histogram_bucket};

use super::layout::{
    COUNTER_ROWS, COUNTERS_AT, HISTOGRAM_BUCKETS_AT, HISTOGRAM_STRIDE, HISTOGRAMS_AT, READER_SLOTS, ROWS_AT,
    SLOT_COUNTERS_AT, SLOT_COUNTERS_STRIDE, SLOT_STRIDE, SLOTS_AT,
};
use crate::map::Mapping;

/// Sampling period: one of this many reads of a thread is timed, and reported to policies on behalf of all of them.
pub const READS_SAMPLED_IN: u32 = 64;
/// Sampling period: one of this many messages with writes is timed, from its first write to the answer.
pub const WRITES_TIMED_IN: u32 = 16;
/// Environment variable that turns counting off in a process when set to 0.
const VARIABLE: &str = "CENOTE_TELEMETRY";

/// Returns true unless this process's environment has `CENOTE_TELEMETRY=0`. Read once.
pub fn is_counting() -> bool {
    static COUNTING: OnceLock<bool> = OnceLock::new();
    *COUNTING.get_or_init(|| std::env::var_os(VARIABLE).is_none_or(|value| value != "0"))
}

/// Row of the tiers that have no row of their own.
const OTHERS: usize = COUNTER_ROWS - 1;

/// The counters of one client. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ClientCounters {
    map: Arc<Mapping>,
}

/// Counts of one client, and who it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientCounts {
    /// Number of the client's session; 0 for all clients that left.
    pub session: u64,
    /// The client's process.
    pub pid: u32,
    /// Name of the client's program.
    pub program: String,
    /// Tier (none: unknown), reads, bytes.
    pub reads: Vec<(Option<DeviceId>, u64, u64)>,
    /// [`Timed::Get`] and [`Timed::Put`] by tier.
    pub latencies: Vec<(Timed, Option<DeviceId>, Histogram)>,
}

impl ClientCounts {
    /// Adds another client's counts.
    pub fn add(&mut self, other: &Self) {
        for (tier, reads, bytes) in &other.reads {
            if let Some(known) = self.reads.iter_mut().find(|known| known.0 == *tier) {
                known.1 = known.1.saturating_add(*reads);
                known.2 = known.2.saturating_add(*bytes);
            } else {
                self.reads.push((*tier, *reads, *bytes));
            }
        }
        for (what, tier, histogram) in &other.latencies {
            match self.latencies.iter_mut().find(|known| (known.0, known.1) == (*what, *tier)) {
                Some(known) => known.2.add(histogram),
                None => self.latencies.push((*what, *tier, histogram.clone())),
            }
        }
    }
}

impl ClientCounters {
    /// The caller has checked that the mapping is a client file's.
    pub(super) fn new(map: Arc<Mapping>) -> Self {
        Self { map }
    }
    #[inline]
    fn word(&self, offset: u64) -> &AtomicU64 {
        self.map.word(offset).expect("offsets are bounded, the size was checked")
    }
    /// Records the session that owns the file.
    pub fn set_session(&self, session: u64) {
        self.word(COUNTERS_AT).store(session, Ordering::Relaxed);
    }
    /// The session that owns the file; 0 if none was recorded.
    pub fn session(&self) -> u64 {
        self.word(COUNTERS_AT).load(Ordering::Relaxed)
    }
    /// The row in which a tier is counted. A tier keeps its row for good.
    #[inline]
    fn row(&self, device: DeviceId) -> usize {
        let first = device.0 as usize % OTHERS;
        if self.word(ROWS_AT + first as u64 * 8).load(Ordering::Relaxed) == u64::from(device.0) + 1 {
            return first;
        }
        self.row_elsewhere(first, u64::from(device.0) + 1)
    }
    #[cold]
    fn row_elsewhere(&self, first: usize, name: u64) -> usize {
        let rows = (0..OTHERS).map(|i| (first + i) % OTHERS);
        for row in rows {
            let word = self.word(ROWS_AT + row as u64 * 8);
            match word.compare_exchange(0, name, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return row,
                Err(there) if there == name => return row,
                Err(_) => {}
            }
        }
        OTHERS
    }
    /// Begins a read of the thread that holds reader slot `slot`; true if this read stands for [`READS_SAMPLED_IN`]
    /// reads.
    #[inline]
    pub fn is_sampled(&self, slot: usize) -> bool {
        let word = self.word(SLOTS_AT + (slot % READER_SLOTS) as u64 * SLOT_STRIDE + 8);
        let begun = word.load(Ordering::Relaxed);
        word.store(begun.wrapping_add(1), Ordering::Relaxed);
        begun.is_multiple_of(u64::from(READS_SAMPLED_IN))
    }
    /// Counts bytes read from a tier by the thread that holds reader slot `slot`.
    #[inline]
    pub fn read(&self, slot: usize, device: DeviceId, bytes: u64) {
        let at = row_at(slot % READER_SLOTS, self.row(device));
        // Nobody else writes these words while the slot is held: no locked instruction is needed.
        let (reads, sum) = (self.word(at), self.word(at + 8));
        reads.store(reads.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(bytes), Ordering::Relaxed);
    }
    /// Counts the duration of a [`Timed::Get`] or [`Timed::Put`].
    pub fn took(&self, what: Timed, device: DeviceId, ns: u64) {
        let Some(at) = histogram_at(what, self.row(device)) else { return };
        self.word(at).fetch_add(ns, Ordering::Relaxed);
        let bucket = at + HISTOGRAM_BUCKETS_AT + histogram_bucket(ns) as u64 * 8;
        self.word(bucket).fetch_add(1, Ordering::Relaxed);
    }
    /// The counts so far.
    pub fn counts(&self) -> ClientCounts {
        let load = |offset: u64| self.word(offset).load(Ordering::Relaxed);
        let mut counts = ClientCounts { session: self.session(), ..ClientCounts::default() };
        for row in 0..COUNTER_ROWS {
            let name = load(ROWS_AT + row as u64 * 8);
            if name == 0 && row != OTHERS {
                continue;
            }
            // A hostile client can name any device in a row, or none of the store: it falsifies only its own numbers.
            let tier = (name > 0).then(|| DeviceId((name - 1) as u16));
            let (mut reads, mut bytes) = (0u64, 0u64);
            for slot in 0..READER_SLOTS {
                reads = reads.saturating_add(load(row_at(slot, row)));
                bytes = bytes.saturating_add(load(row_at(slot, row) + 8));
            }
            if reads > 0 {
                counts.reads.push((tier, reads, bytes));
            }
            for what in [Timed::Get, Timed::Put] {
                let Some(at) = histogram_at(what, row) else { continue };
                let buckets = (0..HISTOGRAM_BUCKETS as u64).map(|bucket| load(at + HISTOGRAM_BUCKETS_AT + bucket * 8));
                let histogram = Histogram::from_counts(buckets, load(at));
                if !histogram.counts.is_empty() {
                    counts.latencies.push((what, tier, histogram));
                }
            }
        }
        counts
    }
}

/// Offset of a row's counters for a slot.
#[inline]
fn row_at(slot: usize, row: usize) -> u64 {
    SLOT_COUNTERS_AT + slot as u64 * SLOT_COUNTERS_STRIDE + row as u64 * 16
}

/// Offset of a row's histogram.
fn histogram_at(what: Timed, row: usize) -> Option<u64> {
    let which = match what {
        Timed::Get => 0,
        Timed::Put => 1,
        _ => return None,
    };
    Some(HISTOGRAMS_AT + (which * COUNTER_ROWS + row) as u64 * HISTOGRAM_STRIDE)
}
