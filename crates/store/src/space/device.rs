//! The devices of a store with their space.

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceInfo, DeviceSpec, DeviceState, Learner, Profile, Speed};
use cenote_policy::DeviceView;

use super::retired::Tag;
use super::{Bitmap, RetiredQueue, Shared, unit_at};
use crate::map::{Ext, NO_DEVICE};
use crate::sums::UNIT;
use crate::syncs::Syncs;

/// Bytes at the begin of every device that belong to the engine: its stamp.
pub(crate) const STAMP_BYTES: u64 = 4096;
/// Devices that a store may have had in its life.
pub(crate) const DEVICES_MAX: usize = NO_DEVICE as usize;
/// Runs in one lease.
const LEASE_RUNS_MAX: usize = 1024;

/// A device of the store. Its slot (place in [`Space`]) is what extents name in memory.
pub(crate) struct DeviceSlot {
    pub id: DeviceId,
    pub spec: DeviceSpec,
    pub state: DeviceState,
    /// It was removed: only its id is remembered.
    pub removed: bool,
    /// None if it could not be opened.
    pub device: Option<Arc<dyn Device>>,
    /// Why it could not be opened, or what failed.
    pub failure: String,
    pub unit_bytes: u32,
    pub segment_bytes: u64,
    /// Changes whenever the content is lost; also written on the device itself.
    pub incarnation: u64,
    pub map: Bitmap,
    pub retired: RetiredQueue,
    /// Bytes leased to sessions, or taken for copies under way.
    pub reserved_bytes: u64,
    /// Of what extents hold here the bytes that have a copy elsewhere: they can leave without I/O.
    pub copied_bytes: u64,
    /// It failed of late.
    pub trouble: Option<crate::engine::Trouble>,
    /// Something was written since the last sync began.
    pub unsynced: bool,
    /// Through which it is synced.
    pub syncs: Arc<Syncs>,
    /// Syncs that had failed when the engine last looked.
    pub failed_syncs: u64,
    /// During replay: what was given up and may still be looked at.
    pub replay_retired: Option<Bitmap>,
    /// As measured, and as seen since.
    pub speed: Option<Speed>,
    /// What it is being taught by what is seen.
    pub learner: Option<Learner>,
    /// What was measured last; empty if nothing was.
    pub profile: Profile,
}

/// All devices, and which units are shared.
#[derive(Default)]
pub(crate) struct Space {
    pub slots: Vec<DeviceSlot>,
    pub shared: Shared,
    /// The journal is being replayed: it may speak of devices that were removed since.
    pub replaying: bool,
}

impl DeviceSlot {
    pub fn is_volatile(&self) -> bool {
        !self.spec.kind.is_persistent()
    }
    /// True if what was written and not synced is gone with the process. Nothing may name it before it is synced; and a
    /// sync that failed dropped nothing, as long as the process lives.
    pub fn forgets_unsynced(&self) -> bool {
        self.spec.kind.is_object()
    }
    pub fn used_bytes(&self) -> u64 {
        let taken = (self.map.units() - self.map.free_units()) * u64::from(self.unit_bytes);
        taken.saturating_sub(self.reserved_bytes + self.retired.bytes() + self.stamp_bytes())
    }
    fn stamp_bytes(&self) -> u64 {
        STAMP_BYTES.min(self.map.units() * u64::from(self.unit_bytes))
    }
    pub fn capacity_bytes(&self) -> u64 {
        (self.map.units() * u64::from(self.unit_bytes)).saturating_sub(self.stamp_bytes())
    }
    pub fn view(&self) -> DeviceView {
        DeviceView {
            state: self.state,
            used_bytes: self.used_bytes(),
            reserved_bytes: self.reserved_bytes + self.retired.bytes(),
            evictable_bytes: self.copied_bytes.min(self.used_bytes()),
            watermark_high_permille: self.spec.watermark_high_permille,
            watermark_low_permille: self.spec.watermark_low_permille,
            speed: self.speed.unwrap_or_else(|| cenote_policy::speed_preset(self.spec.kind)),
            is_cache: self.spec.options.get("use") == Some("cache"),
            ..DeviceView::new(self.id, &self.spec.name, self.spec.kind, self.capacity_bytes())
        }
    }
    pub fn info(&self) -> DeviceInfo {
        DeviceInfo {
            id: self.id,
            spec: self.spec.clone(),
            state: self.state,
            used_bytes: self.used_bytes(),
            reserved_bytes: self.reserved_bytes + self.retired.bytes(),
            evictable_bytes: self.copied_bytes.min(self.used_bytes()),
            unit_bytes: self.unit_bytes,
            segment_bytes: self.segment_bytes,
            speed: self.speed,
            note: match (&self.device, &self.trouble) {
                (None, _) => self.failure.clone(),
                (Some(_), Some(trouble)) => {
                    format!("it fails, and takes new bytes only if no other tier does: {}", trouble.why)
                }
                (Some(device), None) => device.note(),
            },
        }
    }
    /// True if the range is made of whole units of the device.
    pub fn has_units(&self, offset: u64, len: u64) -> bool {
        let unit = u64::from(self.unit_bytes);
        let end = offset.checked_add(len);
        let inside = end.is_some_and(|end| end.div_ceil(unit) <= self.map.units());
        inside && len > 0 && offset.is_multiple_of(unit) && len.is_multiple_of(unit)
    }
    /// `bytes` in whole allocation units.
    pub fn padded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(u64::from(self.unit_bytes))
    }
    /// Takes space: (offset, bytes) of each run.
    pub fn take(&mut self, bytes: u64, run_min: u64) -> Vec<(u64, u64)> {
        let unit = u64::from(self.unit_bytes);
        if self.is_volatile() {
            // Memory that was used before is present; what never was has to be zeroed page by page first.
            self.map.rewind();
        }
        let runs = self.map.take(bytes.div_ceil(unit), run_min.div_ceil(unit), LEASE_RUNS_MAX);
        let runs: Vec<_> = runs.into_iter().map(|(first, len)| (first * unit, len * unit)).collect();
        self.reserved_bytes += runs.iter().map(|(_, len)| len).sum::<u64>();
        runs
    }
    /// The longest stretch of free space in one segment, if it has at least `bytes_min`.
    pub fn longest_free(&self, bytes_min: u64) -> Option<u64> {
        let unit = u64::from(self.unit_bytes);
        self.map.longest(bytes_min.div_ceil(unit)).map(|units| units * unit)
    }
    /// Marks space as in use; gives the bytes that were in use already.
    pub fn mark(&mut self, offset: u64, bytes: u64) -> u64 {
        let unit = u64::from(self.unit_bytes);
        self.map.mark(offset / unit, bytes.div_ceil(unit)) * unit
    }
    /// Gives back space that nobody can be reading and that was counted as reserved.
    pub fn give_back(&mut self, offset: u64, bytes: u64) {
        let unit = u64::from(self.unit_bytes);
        let wrong = self.map.clear(offset / unit, bytes.div_ceil(unit));
        debug_assert_eq!(wrong, 0, "space at {offset} was free already");
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
    }
    /// Frees what readers and the journal have let go of. True if anything became free.
    pub fn release_retired(&mut self, readers_min: u64, journal_synced: u64) -> bool {
        let synced = if self.is_volatile() { u64::MAX } else { journal_synced };
        let unit = u64::from(self.unit_bytes);
        let mut any = false;
        let tidies = self.device.as_ref().filter(|_| !self.spec.kind.is_shareable());
        while let Some(retired) = self.retired.pop_free(readers_min, synced) {
            if let Some(device) = tidies {
                // Of these kinds it changes a map in memory. Before the space is free: what is written there later must
                // not be thrown away. If it fails, the space is used all the same.
                let _ = device.discard(retired.offset, retired.len);
            }
            let wrong = self.map.clear(retired.offset / unit, retired.len / unit);
            debug_assert_eq!(wrong, 0, "retired space at {} was free already", retired.offset);
            any = true;
        }
        any
    }
}

impl DeviceSlot {
    /// Tells the device what of it is in use: what it was told to discard before a crash it may have forgotten.
    pub fn retain_used(&self) {
        let Some(device) = self.device.as_ref().filter(|_| !self.spec.kind.is_shareable()) else { return };
        let unit = u64::from(self.unit_bytes);
        let mut at = 0;
        let mut used = std::iter::from_fn(|| {
            let (first, len) = self.map.used_run(at)?;
            at = first + len;
            Some((first * unit, len * unit))
        });
        let _ = device.retain(&mut used); // a hint
    }
    /// Keeps what was given up during replay from being used while readers of an earlier engine may look at it.
    pub fn quarantine(&mut self, tag: Tag) {
        let Some(given_up) = self.replay_retired.take() else { return };
        let unit = u64::from(self.unit_bytes);
        let mut at = 0;
        while let Some((first, len)) = given_up.used_run(at) {
            at = first + len;
            let mut inner = first;
            while let Some((free, free_len)) = self.map.free_run(inner, at) {
                self.map.mark(free, free_len);
                self.retired.push(tag, free * unit, free_len * unit);
                inner = free + free_len;
            }
        }
    }
}

impl Space {
    pub fn slot_of(&self, id: DeviceId) -> Option<u8> {
        self.slots.iter().position(|slot| slot.id == id && (self.replaying || !slot.removed)).map(|slot| slot as u8)
    }
    pub fn get(&self, slot: u8) -> &DeviceSlot {
        &self.slots[slot as usize]
    }
    pub fn get_mut(&mut self, slot: u8) -> &mut DeviceSlot {
        &mut self.slots[slot as usize]
    }
    pub fn is_volatile(&self, slot: u8) -> bool {
        self.slots[slot as usize].is_volatile()
    }
    /// Devices that are there, in order of slots.
    pub fn present(&self) -> impl Iterator<Item = &DeviceSlot> {
        self.slots.iter().filter(|slot| !slot.removed)
    }
    pub fn views(&self) -> Vec<DeviceView> {
        self.present().map(DeviceSlot::view).collect()
    }
    /// True if there is a copy, on a device that is open: one that is away is no place to fall back to.
    pub fn has_readable_copy(&self, ext: &Ext) -> bool {
        ext.copy != NO_DEVICE && self.slots[ext.copy as usize].device.is_some()
    }
    /// True if the bytes are on volatile devices only.
    pub fn at_risk(&self, ext: &Ext) -> bool {
        ext.copy == NO_DEVICE && self.is_volatile(ext.dev)
    }
    /// An extent is there, one more beside others if it was cloned: what has a copy is counted.
    pub fn count_copied(&mut self, ext: &Ext) {
        if ext.copy != NO_DEVICE {
            let slot = &mut self.slots[ext.dev as usize];
            slot.copied_bytes = slot.copied_bytes.saturating_add(u64::from(ext.len));
        }
    }
    /// The opposite: an extent, or a piece of one, is no longer where it was.
    pub fn discount_copied(&mut self, ext: &Ext) {
        if ext.copy != NO_DEVICE {
            let slot = &mut self.slots[ext.dev as usize];
            slot.copied_bytes = slot.copied_bytes.saturating_sub(u64::from(ext.len));
        }
    }
    /// An extent is no longer needed: retires the units that no other extent touches, at both places.
    pub fn drop_ext(&mut self, ext: &Ext, tag: Tag) {
        self.discount_copied(ext);
        self.drop_place(ext, ext.dev, ext.run_offset, tag);
        if ext.copy != NO_DEVICE {
            self.drop_place(ext, ext.copy, ext.copy_base, tag);
        }
    }
    /// Retires the space at one of an extent's places.
    pub fn drop_place(&mut self, ext: &Ext, dev: u8, base: u64, tag: Tag) {
        if self.shared.is_everywhere() {
            self.drop_units(ext, dev, base, tag);
        } else if let Some((begin, end)) = self.sole_bytes(ext, dev, base) {
            self.retire(dev, begin, end, tag);
        }
    }
    fn retire(&mut self, dev: u8, begin: u64, end: u64, tag: Tag) {
        let slot = &mut self.slots[dev as usize];
        let unit = u64::from(slot.unit_bytes);
        match &mut slot.replay_retired {
            Some(map) => drop(map.mark(begin / unit, (end - begin) / unit)),
            None => slot.retired.push(tag, begin, end - begin),
        }
    }
    /// The same unit by unit, since any of them may be shared.
    #[cold]
    fn drop_units(&mut self, ext: &Ext, dev: u8, base: u64, tag: Tag) {
        let hull = ext.hull();
        let mut sole: Option<(u32, u32)> = None;
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            if self.shared.release(dev, unit_at(base, at)) {
                let end = at.saturating_add(UNIT).min(hull.end);
                sole = Some((sole.map_or(at, |(begin, _)| begin), end));
            } else if let Some(run) = sole.take() {
                self.retire_run(dev, base, run, tag);
            }
        }
        if let Some(run) = sole {
            self.retire_run(dev, base, run, tag);
        }
    }
    fn retire_run(&mut self, dev: u8, base: u64, (begin, end): (u32, u32), tag: Tag) {
        let (begin, end) = (base.wrapping_add(u64::from(begin)), base.wrapping_add(u64::from(end)));
        let end = self.slots[dev as usize].padded(end);
        self.retire(dev, begin, end, tag);
    }
    /// Gives up the extent's claim on the units at one place; the space that becomes free by that, if any.
    fn sole_bytes(&mut self, ext: &Ext, dev: u8, base: u64) -> Option<(u64, u64)> {
        let hull = ext.hull();
        let (mut begin, mut end) = (u64::from(hull.begin), u64::from(hull.end));
        let (first_inside, last_inside) = (ext.begins_inside(), ext.ends_inside());
        let unit = u64::from(UNIT);
        if first_inside || last_inside {
            let single = end - begin <= unit;
            let last_at = ext.end() - 1;
            if single {
                if !self.shared.release(dev, unit_at(base, last_at)) {
                    return None;
                }
            } else {
                if first_inside && !self.shared.release(dev, unit_at(base, ext.skip)) {
                    begin += unit;
                }
                if last_inside && !self.shared.release(dev, unit_at(base, last_at)) {
                    end = u64::from(last_at) / unit * unit;
                }
            }
        }
        if begin >= end {
            return None;
        }
        let slot = &self.slots[dev as usize];
        Some((base.wrapping_add(begin), slot.padded(base.wrapping_add(end))))
    }
}
