//! The devices of a store with their space.

use std::collections::BTreeSet;
use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceInfo, DeviceKind, DeviceSpec, DeviceState, Learner, NodeId, Profile, Speed};
use cenote_policy::{Compress, DeviceView};

use super::retired::Tag;
use super::{Births, Bitmap, RetiredQueue, Shared};
use crate::kin::Kin;
use crate::map::{DeviceIndex, Ext, ExtentPlace};
use crate::persist::DeviceSet;
use crate::placing::Action;
use crate::sums::UNIT;
use crate::syncs::Syncs;

/// Bytes at the begin of every device that belong to the engine: its stamp.
pub(crate) const STAMP_BYTES: u64 = 4096;
/// Most devices that a store may ever have had. More would fit into a [`DeviceIndex`].
pub(crate) const DEVICES_MAX: usize = 4096;
/// The node of all devices: a store is on one node yet.
const HERE: NodeId = NodeId(0);
/// Most runs in one lease.
const LEASE_RUNS_MAX: usize = 1024;

/// A device of the store. Extents in memory name it by its slot (place in [`Space`]).
pub(crate) struct DeviceSlot {
    pub id: DeviceId,
    pub spec: DeviceSpec,
    pub state: DeviceState,
    /// It was removed: only its id is remembered.
    pub removed: bool,
    /// `None` if it could not be opened.
    pub device: Option<Arc<dyn Device>>,
    /// Why it could not be opened, or what failed.
    pub failure: String,
    /// Changes whenever the content is lost; also written on the device itself.
    pub incarnation: u64,
    pub space: SlotSpace,
    pub trust: Trust,
    pub pace: Pace,
}

/// The space of a device.
pub(crate) struct SlotSpace {
    /// Bytes of an allocation unit.
    pub unit_bytes: u32,
    pub segment_bytes: u64,
    /// Ranges (offset, bytes) that are not this engine's: the stamp, and what the landlord did not lend it.
    pub withheld: Vec<(u64, u64)>,
    pub map: Bitmap,
    pub retired: RetiredQueue,
    /// During replay: retired space, which readers may still look at.
    pub replay_retired: Option<Bitmap>,
    /// Bytes leased to sessions, or taken for running copies.
    pub reserved_bytes: u64,
    /// Bytes of extents here that have a copy elsewhere: they can leave without I/O.
    pub copied_bytes: u64,
    /// Stored bytes of compressed units on the device, and their plain bytes.
    pub packed_bytes: u64,
    pub unpacked_bytes: u64,
    /// Object slots inspected since anything was found on it that could leave.
    pub looked_in_vain: u32,
}

/// How far a device is trusted, and what a sync of it has to bring to media.
#[derive(Default)]
pub(crate) struct Trust {
    /// It failed of late.
    pub trouble: Option<crate::engine::Trouble>,
    /// Bytes on it were found bad of late: until then its copies are verified before they are trusted.
    pub damaged_until_ns: Option<u64>,
    /// Something was written since the last sync began.
    pub unsynced: bool,
    /// Syncs the device and counts failures.
    pub syncs: Arc<Syncs>,
    /// Failed syncs when the engine last looked.
    pub failed_syncs: u64,
}

/// Speed of a device.
#[derive(Default)]
pub(crate) struct Pace {
    /// The measured speed, updated by observation.
    pub speed: Option<Speed>,
    /// Learns the speed from observations.
    pub learner: Option<Learner>,
    /// The last measurement; empty if there was none.
    pub profile: Profile,
}

/// All devices, and which units are shared.
#[derive(Default)]
pub(crate) struct Space {
    pub slots: Vec<DeviceSlot>,
    pub shared: Shared,
    /// The journal is being replayed: it may name devices that were removed since.
    pub replaying: bool,
    /// Total bytes in memory that had a copy when they were overwritten or deleted.
    pub given_up_bytes: u64,
    /// Checksum units of copies that were found bad: device slot, and offset on it.
    bad_copies: BTreeSet<(DeviceIndex, u64)>,
    /// On one of the devices bytes were found bad of late.
    pub any_damaged: bool,
    /// Extents in all maps.
    pub extents: u64,
    /// Numbers of runs.
    pub births: Births,
    /// Where shared bytes are. Not kept on media.
    pub kin: Kin,
}

impl DeviceSlot {
    pub fn is_volatile(&self) -> bool {
        !self.spec.kind.is_persistent()
    }
    /// Returns true if unsynced writes are gone with the process. Nothing may name them before they are synced; and a
    /// failed sync drops nothing while the process lives.
    pub fn forgets_unsynced(&self) -> bool {
        self.spec.kind.is_object()
    }
    /// Returns how copies here are compressed, if they are. Memory never is: it is read by reference.
    pub fn compresses(&self) -> Option<Compress> {
        let is_memory = matches!(self.spec.kind, DeviceKind::SharedMemory | DeviceKind::PersistentMemory);
        Compress::from_option(self.spec.options.get("compress")).filter(|_| !is_memory)
    }
    pub fn used_bytes(&self) -> u64 {
        let taken = (self.space.map.units() - self.space.map.free_units()) * u64::from(self.space.unit_bytes);
        taken.saturating_sub(self.space.reserved_bytes + self.space.retired.bytes() + self.withheld_bytes())
    }
    fn withheld_bytes(&self) -> u64 {
        let bytes = self.space.withheld.iter().map(|(_, bytes)| bytes).sum();
        self.space.map.units().saturating_mul(u64::from(self.space.unit_bytes)).min(bytes)
    }
    pub fn capacity_bytes(&self) -> u64 {
        (self.space.map.units() * u64::from(self.space.unit_bytes)).saturating_sub(self.withheld_bytes())
    }
    pub fn view(&self) -> DeviceView {
        DeviceView {
            state: self.state,
            used_bytes: self.used_bytes(),
            reserved_bytes: self.space.reserved_bytes + self.space.retired.bytes(),
            evictable_bytes: self.space.copied_bytes.min(self.used_bytes()),
            watermark_high_permille: self.spec.watermark_high_permille,
            watermark_low_permille: self.spec.watermark_low_permille,
            speed: self.pace.speed.unwrap_or_else(|| cenote_policy::speed_preset(self.spec.kind)),
            is_cache: self.spec.options.get("use") == Some("cache"),
            ..DeviceView::new(self.id, &self.spec.name, self.spec.kind, self.capacity_bytes())
        }
    }
    /// Returns the view after retired space is free, for decisions on how much more is to leave.
    pub fn view_to_come(&self) -> DeviceView {
        DeviceView { reserved_bytes: self.space.reserved_bytes, ..self.view() }
    }
    /// `leased_bytes`: bytes that sessions lease of it.
    pub fn info(&self, leased_bytes: u64) -> DeviceInfo {
        DeviceInfo {
            id: self.id,
            spec: self.spec.clone(),
            state: self.state,
            used_bytes: self.used_bytes(),
            reserved_bytes: self.space.reserved_bytes + self.space.retired.bytes(),
            leased_bytes,
            evictable_bytes: self.space.copied_bytes.min(self.used_bytes()),
            unit_bytes: self.space.unit_bytes,
            segment_bytes: self.space.segment_bytes,
            speed: self.pace.speed,
            note: match (&self.device, &self.trust.trouble) {
                (None, _) => self.failure.clone(),
                (Some(_), Some(trouble)) => {
                    format!("it fails, and takes new bytes only if no other tier does: {}", trouble.why)
                }
                (Some(device), None) => device.note(),
            },
            packed_bytes: self.space.packed_bytes,
            unpacked_bytes: self.space.unpacked_bytes,
        }
    }
    /// Returns true if the range consists of whole units of the device.
    pub fn has_units(&self, offset: u64, len: u64) -> bool {
        let unit = u64::from(self.space.unit_bytes);
        let end = offset.checked_add(len);
        let inside = end.is_some_and(|end| end.div_ceil(unit) <= self.space.map.units());
        inside && len > 0 && offset.is_multiple_of(unit) && len.is_multiple_of(unit)
    }
    /// Rounds `bytes` up to whole allocation units.
    pub fn padded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(u64::from(self.space.unit_bytes))
    }
    /// Takes space: (offset, bytes) of each run.
    pub fn take(&mut self, bytes: u64, run_min: u64) -> Vec<(u64, u64)> {
        let unit = u64::from(self.space.unit_bytes);
        if self.is_volatile() || self.compresses().is_some() {
            // Memory that was used before is present; fresh memory has to be zeroed page by page first. And compressed
            // copies took less than was reserved: the next one begins where the last ends.
            self.space.map.rewind();
        }
        let runs = self.space.map.take(bytes.div_ceil(unit), run_min.div_ceil(unit), LEASE_RUNS_MAX);
        let runs: Vec<_> = runs.into_iter().map(|(first, len)| (first * unit, len * unit)).collect();
        self.space.reserved_bytes += runs.iter().map(|(_, len)| len).sum::<u64>();
        runs
    }
    /// Returns the longest piece of free space in one segment, if it has at least `bytes_min`.
    pub fn longest_free(&self, bytes_min: u64) -> Option<u64> {
        let unit = u64::from(self.space.unit_bytes);
        self.space.map.longest(bytes_min.div_ceil(unit)).map(|units| units * unit)
    }
    /// Marks space as used; returns the bytes that were used already.
    pub fn mark(&mut self, offset: u64, bytes: u64) -> u64 {
        let unit = u64::from(self.space.unit_bytes);
        self.space.map.mark(offset / unit, bytes.div_ceil(unit)) * unit
    }
    /// Returns true if all of `[begin, end)` is marked as used.
    pub fn is_taken(&self, begin: u64, end: u64) -> bool {
        let unit = u64::from(self.space.unit_bytes);
        self.space.map.free_run(begin / unit, end.div_ceil(unit)).is_none()
    }
    /// Frees reserved space that nobody can be reading.
    pub fn unreserve(&mut self, offset: u64, bytes: u64) {
        let unit = u64::from(self.space.unit_bytes);
        let wrong = self.space.map.clear(offset / unit, bytes.div_ceil(unit));
        debug_assert_eq!(wrong, 0, "space at {offset} was free already");
        self.space.reserved_bytes = self.space.reserved_bytes.saturating_sub(bytes);
    }
    /// Frees retired space that readers and the journal have let go of. Returns true if anything became free.
    pub fn release_retired(&mut self, readers_min: u64, journal_synced: u64) -> bool {
        let synced = if self.is_volatile() { u64::MAX } else { journal_synced };
        let unit = u64::from(self.space.unit_bytes);
        let mut any = false;
        let tidies = self.device.as_ref().filter(|_| !self.spec.kind.is_shareable());
        while let Some(retired) = self.space.retired.pop_free(readers_min, synced) {
            if let Some(device) = tidies {
                // For these kinds a discard changes a map in memory. Do it before the space is free, or it could drop
                // later writes. If it fails, the space is used all the same.
                let _ = device.discard(retired.offset, retired.len);
            }
            let wrong = self.space.map.clear(retired.offset / unit, retired.len / unit);
            debug_assert_eq!(wrong, 0, "retired space at {} was free already", retired.offset);
            any = true;
        }
        any
    }
}

impl DeviceSlot {
    /// Tells the device which of its space is in use: after a crash it may have forgotten discards.
    pub fn retain_used(&self) {
        let Some(device) = self.device.as_ref().filter(|_| !self.spec.kind.is_shareable()) else { return };
        let _ = device.retain(&mut self.used()); // a hint
    }
    /// The ranges that are not free (offset, bytes), ascending.
    pub fn used(&self) -> impl Iterator<Item = (u64, u64)> {
        let unit = u64::from(self.space.unit_bytes);
        let mut at = 0;
        std::iter::from_fn(move || {
            let (first, len) = self.space.map.used_run(at)?;
            at = first + len;
            Some((first * unit, len * unit))
        })
    }
    /// Retires space given up during replay, while readers of an earlier engine may look at it.
    pub fn quarantine(&mut self, tag: Tag) {
        let Some(given_up) = self.space.replay_retired.take() else { return };
        let unit = u64::from(self.space.unit_bytes);
        let mut at = 0;
        while let Some((first, len)) = given_up.used_run(at) {
            at = first + len;
            let mut inner = first;
            while let Some((free, free_len)) = self.space.map.free_run(inner, at) {
                self.space.map.mark(free, free_len);
                self.space.retired.push(tag, free * unit, free_len * unit);
                inner = free + free_len;
            }
        }
    }
}

impl Space {
    pub fn slot_of(&self, id: DeviceId) -> Option<DeviceIndex> {
        self.slots
            .iter()
            .position(|slot| slot.id == id && (self.replaying || !slot.removed))
            .map(|slot| slot as DeviceIndex)
    }
    /// Returns the node and the id of a device.
    pub fn address(&self, slot: DeviceIndex) -> (NodeId, DeviceId) {
        (HERE, self.get(slot).id)
    }
    pub fn get(&self, slot: DeviceIndex) -> &DeviceSlot {
        &self.slots[slot as usize]
    }
    pub fn get_mut(&mut self, slot: DeviceIndex) -> &mut DeviceSlot {
        &mut self.slots[slot as usize]
    }
    pub fn is_volatile(&self, slot: DeviceIndex) -> bool {
        self.slots[slot as usize].is_volatile()
    }
    /// The devices that were not removed, in order of slots.
    pub fn present(&self) -> impl Iterator<Item = &DeviceSlot> {
        self.slots.iter().filter(|slot| !slot.removed)
    }
    pub fn views(&self) -> Vec<DeviceView> {
        self.present().map(DeviceSlot::view).collect()
    }
    /// Returns the first copy on a device that is well. A device that is away is no place to fall back to.
    pub fn readable_copy(&self, ext: &Ext) -> Option<usize> {
        let is_readable = |copy: &usize| {
            ext.device_of_copy(*copy).is_some_and(|dev| self.is_well(dev)) && !self.is_bad_copy(ext, *copy)
        };
        (0..ext.copy_count()).find(is_readable)
    }
    /// Returns true if there is a copy on a device that is well.
    pub fn has_readable_copy(&self, ext: &Ext) -> bool {
        self.readable_copy(ext).is_some()
    }
    /// Returns the eviction of an extent to its best copy.
    pub fn eviction(&self, ext: &Ext) -> Action {
        Action::Evict { copy: self.readable_copy(ext).unwrap_or(0) as u8 }
    }
    /// The units of one of an extent's copies.
    fn copy_units(ext: &Ext, copy: usize) -> impl Iterator<Item = (DeviceIndex, u64)> {
        let (place, hull) = (ext.copy_place(copy), ext.hull());
        let units = (hull.begin..hull.end).step_by(UNIT as usize);
        place.into_iter().flat_map(move |place| units.clone().map(move |at| (place.dev, place.unit_at(at))))
    }
    /// Notes that a copy was read and found bad.
    pub fn mark_bad_copy(&mut self, ext: &Ext, copy: usize) {
        self.bad_copies.extend(Self::copy_units(ext, copy));
    }
    /// Notes that the copy is good again.
    pub fn unmark_bad_copy(&mut self, ext: &Ext, copy: usize) {
        for unit in Self::copy_units(ext, copy) {
            self.bad_copies.remove(&unit);
        }
    }
    /// Returns true if part of a copy was found bad.
    pub fn is_bad_copy(&self, ext: &Ext, copy: usize) -> bool {
        !self.bad_copies.is_empty() && Self::copy_units(ext, copy).any(|unit| self.bad_copies.contains(&unit))
    }
    /// Returns the first copy that was found bad.
    pub fn bad_copy(&self, ext: &Ext) -> Option<usize> {
        (0..ext.copy_count()).find(|copy| self.is_bad_copy(ext, *copy))
    }
    /// Returns true if a device is open and did not fail of late.
    pub fn is_well(&self, slot: DeviceIndex) -> bool {
        let slot = &self.slots[slot as usize];
        slot.device.is_some() && slot.trust.trouble.is_none()
    }
    /// The slots of devices that were not removed, as a set.
    pub fn present_set(&self) -> DeviceSet {
        let mut all = DeviceSet::default();
        let slots = self.slots.iter().enumerate().filter(|(_, slot)| !slot.removed);
        for (dev, _) in slots {
            all.add(dev as DeviceIndex);
        }
        all
    }
    /// Returns true if the bytes are on volatile devices only.
    pub fn at_risk(&self, ext: &Ext) -> bool {
        !ext.has_copy() && self.is_volatile(ext.dev)
    }
    /// Counts an extent that was added or cloned, if it has a copy.
    pub fn count_copied(&mut self, ext: &Ext) {
        if ext.has_copy() {
            let slot = &mut self.slots[ext.dev as usize];
            slot.space.copied_bytes = slot.space.copied_bytes.saturating_add(u64::from(ext.len));
        }
    }
    /// Takes back [`Self::count_copied`] for an extent, or a piece of one, that is gone.
    pub fn discount_copied(&mut self, ext: &Ext) {
        if ext.has_copy() {
            let slot = &mut self.slots[ext.dev as usize];
            slot.space.copied_bytes = slot.space.copied_bytes.saturating_sub(u64::from(ext.len));
        }
    }
    /// Counts bytes in memory that are overwritten or deleted after they were copied: that copy was useless.
    pub fn count_given_up(&mut self, ext: &Ext) {
        if ext.has_copy() && self.is_volatile(ext.dev) {
            self.given_up_bytes += u64::from(ext.len);
        }
    }
    /// Drops an extent: retires the units that no other extent touches, at both places.
    pub fn drop_ext(&mut self, ext: &Ext, tag: Tag) {
        self.discount_copied(ext);
        self.count_given_up(ext);
        ext.places().for_each(|place| self.drop_place(ext, place, tag));
    }
    /// Retires the space at one of an extent's places.
    pub fn drop_place(&mut self, ext: &Ext, place: ExtentPlace<'_>, tag: Tag) {
        if self.shared.is_everywhere() {
            self.drop_units(ext, place, tag);
        } else if let Some(run) = self.sole_bytes(ext, place) {
            self.retire(place, run, tag);
        }
    }
    /// Counts the units of a compressed place that an extent was given.
    pub fn count_packed(&mut self, place: ExtentPlace<'_>, (begin, end): (u32, u32)) {
        if place.packed().is_some() {
            let slot = self.get_mut(place.dev);
            slot.space.packed_bytes += place.end_at(end).wrapping_sub(place.unit_at(begin));
            slot.space.unpacked_bytes += u64::from(end - begin);
        }
    }
    /// Retires whole units at a place: positions `begin` up to `end` of the run.
    fn retire(&mut self, place: ExtentPlace<'_>, (plain_begin, plain_end): (u32, u32), tag: Tag) {
        let slot = &mut self.slots[place.dev as usize];
        let (begin, end) = (place.unit_at(plain_begin), slot.padded(place.end_at(plain_end)));
        if place.packed().is_some() {
            slot.space.packed_bytes = slot.space.packed_bytes.saturating_sub(end.wrapping_sub(begin));
            slot.space.unpacked_bytes = slot.space.unpacked_bytes.saturating_sub(u64::from(plain_end - plain_begin));
        }
        let unit = u64::from(slot.space.unit_bytes);
        if !self.bad_copies.is_empty() {
            self.bad_copies.retain(|(dev, at)| *dev != place.dev || *at < begin || *at >= end);
        }
        match &mut slot.space.replay_retired {
            Some(map) => drop(map.mark(begin / unit, (end - begin) / unit)),
            None => slot.space.retired.push(tag, begin, end - begin),
        }
    }
    /// Retires unit by unit, since any of them may be shared.
    #[cold]
    fn drop_units(&mut self, ext: &Ext, place: ExtentPlace<'_>, tag: Tag) {
        let hull = ext.hull();
        let mut sole: Option<(u32, u32)> = None;
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            if self.shared.release(place.dev, place.unit_at(at)) {
                let end = at.saturating_add(UNIT).min(hull.end);
                sole = Some((sole.map_or(at, |(begin, _)| begin), end));
            } else if let Some(run) = sole.take() {
                self.retire(place, run, tag);
            }
        }
        if let Some(run) = sole {
            self.retire(place, run, tag);
        }
    }
    /// Gives up the extent's claim on the units at one place. Returns the positions in the run of those that become
    /// free, if any.
    fn sole_bytes(&mut self, ext: &Ext, place: ExtentPlace<'_>) -> Option<(u32, u32)> {
        let hull = ext.hull();
        let (mut begin, mut end) = (hull.begin, hull.end);
        let (first_inside, last_inside) = (ext.begins_inside(), ext.ends_inside());
        if first_inside || last_inside {
            let single = end - begin <= UNIT;
            let last_at = ext.end() - 1;
            if single {
                if !self.shared.release(place.dev, place.unit_at(last_at)) {
                    return None;
                }
            } else {
                if first_inside && !self.shared.release(place.dev, place.unit_at(ext.skip)) {
                    begin += UNIT;
                }
                if last_inside && !self.shared.release(place.dev, place.unit_at(last_at)) {
                    end = last_at & !(UNIT - 1);
                }
            }
        }
        (begin < end).then_some((begin, end))
    }
}

#[cfg(test)]
mod tests;
