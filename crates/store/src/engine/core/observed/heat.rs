//! Access statistics of ranges: one entry of 64 bytes for each MiB of an object that was read or written of
//! late.

use cenote_model::ObjectKey;
use cenote_policy::{Heat, is_tracking};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::engine::core::Core;

/// Bytes of an object per entry, as a power of two: 1 MiB.
const REGION_SHIFT: u8 = 20;
/// Most entries: 64 MiB of memory.
const ENTRIES_MAX: usize = 1 << 20;
/// One in [`SAMPLED`] of the writes shorter than this is counted, for all of them.
const SAMPLED_BELOW: u32 = 64 << 10;
const SAMPLED: u32 = 16;

/// Slot and generation of an object, and the number of its region.
pub type Region = (u32, u32, u32);

/// Heat by region.
#[derive(Default)]
pub struct Heats {
    table: HashMap<Region, Heat, FixedState>,
    short_writes: u32,
    /// Regions read or written since the last plan, in order; some occur more than once.
    pub fresh: Vec<(u32, u32, u32)>,
}

/// Most fresh regions kept for the next plan.
const FRESH_MAX: usize = 4096;

impl Heats {
    /// Returns the entry of a region, and lists the region as fresh. Drops the longest unused entries if the
    /// table is full.
    pub fn entry(&mut self, region: Region, now_ms: u64) -> &mut Heat {
        if self.table.len() >= ENTRIES_MAX && !self.table.contains_key(&region) {
            // Drop the longest unused entries: halve the age limit until there is room.
            let mut idle_max = 3_600_000;
            while self.table.len() >= ENTRIES_MAX - ENTRIES_MAX / 8 && idle_max > 0 {
                self.table.retain(|_, heat| heat.idle_ms(now_ms).is_some_and(|idle| idle < idle_max));
                idle_max /= 2;
            }
        }
        if self.fresh.len() < FRESH_MAX && self.fresh.last() != Some(&region) {
            self.fresh.push(region);
        }
        self.table.entry(region).or_default()
    }
    /// Returns the heat of the region of an offset; the default if the region has no entry.
    pub fn of(&self, slot: u32, generation: u32, offset: u64) -> Heat {
        self.table.get(&(slot, generation, region_of(offset))).copied().unwrap_or_default()
    }
}

/// Returns the region of an offset. Objects are shorter than 2^63 bytes; beyond 4 PiB regions share entries.
pub fn region_of(offset: u64) -> u32 {
    (offset >> REGION_SHIFT) as u32
}

/// Returns the begin and end of a region.
pub fn region_bounds(region: u32) -> (u64, u64) {
    let from = u64::from(region) << REGION_SHIFT;
    (from, from + (1 << REGION_SHIFT))
}

/// Returns the regions that a range touches, as offsets with the bytes of the range in each.
pub fn regions(offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        let to = ((at >> REGION_SHIFT) + 1).checked_shl(u32::from(REGION_SHIFT)).unwrap_or(end).min(end);
        let begin = std::mem::replace(&mut at, to);
        (begin < end).then(|| (begin, to - begin))
    })
}

impl Core {
    /// Milliseconds of the clock that heat uses.
    pub fn now_ms(&self) -> u64 {
        self.state.now.ns / 1_000_000
    }

    /// Notes a write of a range.
    pub fn note_written(&mut self, key: ObjectKey, offset: u64, len: u32) {
        let Some(container) = self.state.containers.get(key.container) else { return };
        if !is_tracking(&container.spec.policy) {
            return;
        }
        let mut weight = 1;
        if len < SAMPLED_BELOW {
            self.observed.heats.short_writes = self.observed.heats.short_writes.wrapping_add(1);
            if !self.observed.heats.short_writes.is_multiple_of(SAMPLED) {
                return;
            }
            weight = u64::from(SAMPLED);
        }
        let now_ms = self.now_ms();
        let bytes = u64::from(len) * weight;
        self.observed.rhythms.wrote(key, now_ms, bytes);
        let Some(slot) = self.state.find_object(key) else { return };
        let generation = self.state.objects.get(slot).generation;
        for (at, bytes) in regions(offset, u64::from(len)) {
            self.observed.heats.entry((slot, generation, region_of(at)), now_ms).write(now_ms, bytes * weight);
        }
    }

    /// Notes a read of a range.
    pub fn note_read(&mut self, key: ObjectKey, offset: u64, len: u64) {
        let Some(container) = self.state.containers.get(key.container) else { return };
        if !is_tracking(&container.spec.policy) {
            return;
        }
        let now_ms = self.now_ms();
        let Some(slot) = self.state.find_object(key) else { return };
        let now_s = self.state.now.s;
        let object = self.state.objects.get_mut(slot);
        object.last.touched = now_s;
        let (generation, size) = (object.generation, object.size);
        for (at, bytes) in regions(offset, len.min(size.saturating_sub(offset))) {
            self.observed.counting.counts_mut().prefetch_used_bytes +=
                self.observed.prefetched.used((slot, generation, region_of(at)));
            let heat = self.observed.heats.entry((slot, generation, region_of(at)), now_ms);
            self.observed.rhythms.read(key, now_ms, heat);
            heat.read(now_ms, bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_64_bytes_and_ranges_fall_into_regions() {
        assert!(size_of::<(Region, Heat)>() <= 64, "{}", size_of::<(Region, Heat)>());
        let all: Vec<_> = regions((1 << 20) - 10, (1 << 20) + 20).collect();
        assert_eq!(all, [((1 << 20) - 10, 10), (1 << 20, 1 << 20), (2 << 20, 10)]);
        assert_eq!(regions(5, 0).count(), 0);
        assert_eq!(regions((1 << 63) - 1, 1).collect::<Vec<_>>(), [((1 << 63) - 1, 1)]);
    }

    #[test]
    fn the_table_stays_small() {
        let mut heats = Heats::default();
        for region in 0..(ENTRIES_MAX + 1000) as u32 {
            heats.entry((1, 1, region), u64::from(region)).read(u64::from(region), 1);
        }
        assert!(heats.table.len() <= ENTRIES_MAX);
        let last = (ENTRIES_MAX + 999) as u64;
        assert!(heats.of(1, 1, last << REGION_SHIFT).idle_ms(last).is_some(), "the newest stay");
    }
}
