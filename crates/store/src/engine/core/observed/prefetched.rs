//! Prefetched bytes and what became of them: read, or evicted unread.

use std::collections::HashSet;

use cenote_policy::Coming;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::heat::{Region, region_of, regions};
use crate::engine::core::Core;
use crate::placing::{Placing, Target};

/// Readers are expected to read announced ranges within this many milliseconds.
pub const AHEAD_MS: u32 = 200;
/// Probability that an announced range is read, unless the client knows better.
pub const AHEAD_CONFIDENCE: f32 = 0.75;
/// A prefetched region unread for this long is not expected to be read any more.
const EXPECTED_MS: u64 = 10_000;
/// Most regions that are neither read nor evicted yet.
const OPEN_MAX: usize = 1 << 16;

/// Prefetched bytes that nobody has read yet.
#[derive(Default)]
pub struct Prefetched {
    /// Prefetches in the batch that is being put into the map.
    ahead: HashSet<Target>,
    open: HashMap<Region, Open, FixedState>,
}

#[derive(Clone, Copy)]
struct Open {
    bytes: u64,
    /// When it was prefetched.
    at_ms: u64,
}

impl Prefetched {
    /// Notes a read of a region. Returns the bytes that were prefetched for it.
    pub fn used(&mut self, region: Region) -> u64 {
        if self.open.is_empty() { 0 } else { self.open.remove(&region).map_or(0, |open| open.bytes) }
    }
    /// Returns the read that a region was prefetched for, while it may still come. Without it plans would evict the
    /// region before it is read.
    pub fn coming(&self, region: Region, now_ms: u64) -> Option<Coming> {
        let open = self.open.get(&region)?;
        let waited_ms = now_ms.saturating_sub(open.at_ms);
        let confidence = AHEAD_CONFIDENCE * (1.0 - waited_ms as f32 / EXPECTED_MS as f32);
        (waited_ms < EXPECTED_MS).then_some(Coming { in_ms: AHEAD_MS, confidence })
    }
}

impl Core {
    /// Notes the prefetches that are about to be put into the map.
    pub fn begin_prefetched(&mut self, targets: impl Iterator<Item = Target>) {
        let ahead = &mut self.observed.prefetched.ahead;
        ahead.clear();
        ahead.extend(targets);
    }

    /// Notes a promotion. Returns true if it is a prefetch.
    pub fn note_prefetched(&mut self, placing: &Placing) -> bool {
        if !self.observed.prefetched.ahead.remove(&placing.target) {
            return false;
        }
        let bytes = u64::from(placing.was.len);
        let at_ms = self.now_ms();
        self.observed.counting.counts_mut().prefetched_bytes += bytes;
        for (region, bytes) in self.regions_of(placing) {
            let open = &mut self.observed.prefetched.open;
            if open.len() < OPEN_MAX || open.contains_key(&region) {
                open.entry(region).or_insert(Open { bytes: 0, at_ms }).bytes += bytes;
            }
        }
        true
    }

    /// Notes that an extent leaves its first place. Prefetched bytes that nobody has read count as wasted.
    pub fn note_left(&mut self, placing: &Placing) {
        if self.observed.prefetched.open.is_empty() {
            return;
        }
        for (region, _) in self.regions_of(placing) {
            let wasted = self.observed.prefetched.used(region);
            self.observed.counting.counts_mut().prefetch_wasted_bytes += wasted;
        }
    }

    /// Returns the regions of a placing with its bytes in each. Empty if the placing is not of a live object.
    pub fn regions_of(&mut self, placing: &Placing) -> Vec<(Region, u64)> {
        let Target::Live { key, offset } = placing.target else { return Vec::new() };
        let Some(slot) = self.state.find_object(key) else { return Vec::new() };
        let generation = self.state.objects.get(slot).generation;
        regions(offset, u64::from(placing.was.len))
            .map(|(at, bytes)| ((slot, generation, region_of(at)), bytes))
            .collect()
    }
}
