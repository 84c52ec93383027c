//! Draining: moves bytes off devices that are too full or are being emptied.

use std::sync::Arc;

use cenote_model::{DeviceId, DeviceState, Durability, Error, ErrorKind};
use cenote_policy::{Candidate, excess_bytes, plan_drain};

use super::activity::{Activity, Ask, Urgency};
use super::core::{CopyPart, Core, Purpose, Reserved, Wait};
use crate::copying::{Copy, Piece};
use crate::map::{DeviceIndex, Ext};
use crate::objects::Presence;
use crate::persist::CutPhase;
use crate::placing::{Action, Placing, Target, identity};
use crate::work::Job;

/// Most objects inspected in one tick.
const SAMPLE_OBJECTS: u32 = 4096;
/// Most extents inspected in one tick.
const SAMPLE_EXTENTS: usize = 16_384;
/// Most evictions in one journal record.
const EVICT_MAX: usize = 4096;
/// Longest time for which moves wait for copies that free memory, before the next batch.
const GIVE_WAY_NS: u64 = 500_000_000;

/// Position of the search for cold objects, and the moves found.
#[derive(Default)]
pub struct Draining {
    /// The object slot at which the next sample begins.
    hand: u32,
    /// Extents to be moved, with the device that they leave.
    queue: Vec<(Target, DeviceIndex)>,
    moves_in_flight: u32,
    retry_ns: u64,
    /// Since when moves have waited for the copies of cuts.
    given_way_ns: Option<u64>,
}

impl Activity for Draining {
    fn tick(&mut self, core: &mut Core) {
        self.plan_moves(core);
    }
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency == Urgency::Copy { self.next_move(core) } else { None }
    }
}

impl Draining {
    /// Plans moves off devices that are too full.
    pub fn plan_moves(&mut self, core: &mut Core) {
        let now = core.state.now.ns;
        if self.moves_in_flight > 0 || !self.queue.is_empty() || self.retry_ns > now {
            return;
        }
        let full: Vec<DeviceIndex> = (0..core.state.space.slots.len() as DeviceIndex)
            .filter(|slot| {
                let it = core.state.space.get(*slot);
                let is_seen = it.device.is_some() || it.state == DeviceState::Draining;
                !it.removed && is_seen && excess_bytes(&it.view_to_come()) > 0
            })
            .collect();
        for dev in full {
            self.plan_device(core, dev);
        }
    }

    fn plan_device(&mut self, core: &mut Core, dev: DeviceIndex) {
        let slots = core.state.objects.slots();
        let mut candidates = Vec::new();
        let mut found = Vec::new();
        let mut looked = 0;
        let mut extents = 0;
        while looked < SAMPLE_OBJECTS.min(slots) && extents < SAMPLE_EXTENTS {
            let slot = self.hand % slots;
            self.hand = (slot + 1) % slots;
            looked += 1;
            let object = core.state.objects.get(slot);
            if object.presence != Presence::Live || !core.is_visible(object.container) {
                continue;
            }
            extents += object.map.extents() as usize;
            let (mut bytes, mut copied) = (0, true);
            for (offset, ext) in object.map.iter() {
                if (ext.dev == dev && !core.is_pinned_on(core.state.key_of(slot), offset, ext))
                    || ext.copy_on(dev).is_some()
                {
                    bytes += u64::from(ext.len);
                    copied &= ext.has_copy() && ext.dev == dev;
                }
            }
            if bytes == 0 {
                continue;
            }
            let idle_ms = u64::from(core.state.now.s.saturating_sub(object.last.touched)) * 1000;
            candidates.push(Candidate { object: core.state.key_of(slot), bytes, idle_ms, copied });
            found.push(slot);
        }
        let fruitless = &mut core.state.space.get_mut(dev).space.looked_in_vain;
        *fruitless = if found.is_empty() { fruitless.saturating_add(looked) } else { 0 };
        let view = core.state.space.get(dev).view_to_come();
        let excess = excess_bytes(&view);
        let plan = plan_drain(&view, &candidates);
        core.observed.move_reason = plan.reason;
        let mut evictions = Vec::new();
        let mut left = excess;
        for planned in &plan.moves {
            if left == 0 {
                break;
            }
            self.plan_object(core, dev, found[planned.candidate], &mut left, &mut evictions);
        }
        if core.state.space.shared.is_everywhere() {
            let mut seen = std::collections::HashSet::new();
            evictions.retain(|placing| seen.insert(placing.was)); // an eviction takes its twins along
        }
        evictions.retain(|placing| !core.is_held(placing));
        let (spare, evictions): (Vec<_>, Vec<_>) = evictions.into_iter().partition(|placing| placing.action.is_drop());
        core.asks.push(Ask::GiveUpCopies(spare));
        for batch in evictions.chunks(EVICT_MAX) {
            if core.place_all(batch).is_err() {
                return; // the journal does not take it: retry at the next tick
            }
        }
    }

    fn plan_object(
        &mut self,
        core: &mut Core,
        dev: DeviceIndex,
        slot: u32,
        left: &mut u64,
        evictions: &mut Vec<Placing>,
    ) {
        let key = core.state.key_of(slot);
        let object = core.state.objects.get(slot);
        let durability = core.state.containers.at(object.container).durability_of(key.object);
        let tracked = durability != Durability::Scratch;
        let leaving = core.state.space.get(dev);
        for (offset, ext) in object.map.iter() {
            if *left == 0 {
                return;
            }
            let target = Target::Live { key, offset };
            if ext.dev == dev && core.is_pinned_on(key, offset, ext) {
                continue;
            }
            let waits_for_cut = tracked && leaving.is_volatile() && !ext.has_copy();
            if let Some(action) = without_io(core, ext, dev, tracked) {
                evictions.push(Placing { target, was: identity(ext), action });
            } else if comes_back_soon(core, ext, dev, tracked) {
                continue;
            } else if ext.copy_on(dev).is_some() || (ext.dev == dev && !waits_for_cut) {
                self.queue.push((target, dev));
            } else {
                continue; // elsewhere, or a cut will copy it first
            }
            *left = left.saturating_sub(u64::from(ext.len));
        }
    }

    /// Returns true if moves should wait: a cut is copying, and the old versions kept for it fill memory, so that a
    /// move would evict what programs read. The wait is bounded: moves go on, if only slowly, beside writers that never
    /// rest.
    fn give_way(&mut self, core: &mut Core) -> bool {
        let now = core.state.now.ns;
        let is_copying = core.jobs.copying(|purpose| matches!(purpose, Purpose::Cut(_))) > 0
            || core.state.cuts.pending.values().any(|cut| {
                // A cut that failed copies nothing until its retry.
                cut.phase == CutPhase::Drain && !cut.queue.is_empty() && cut.tries.retry_ns <= now
            });
        let fills = |slot: &crate::space::DeviceSlot| {
            let view = slot.view_to_come();
            slot.is_volatile() && view.used_bytes.saturating_add(view.reserved_bytes) >= view.low_bytes()
        };
        if !is_copying || !core.state.space.present().any(fills) {
            self.given_way_ns = None;
            return false;
        }
        let since = *self.given_way_ns.get_or_insert(now);
        if now.saturating_sub(since) < GIVE_WAY_NS {
            return true;
        }
        self.given_way_ns = Some(now);
        false
    }

    /// Returns the next batch of moves that no cut waits for.
    pub fn next_move(&mut self, core: &mut Core) -> Option<Job> {
        if self.queue.is_empty() {
            return None;
        }
        let busy = core.jobs.copying(|purpose| matches!(purpose, Purpose::Cut(_) | Purpose::Leave(_)));
        // Half of the jobs at most, else copies for cuts, which free memory, would queue behind all of them.
        let is_half = self.moves_in_flight as usize >= core.settings.copy_jobs.div_ceil(2);
        // Ask this last: a move that has waited long enough gets one turn, and must be able to take it.
        if busy >= core.settings.copy_jobs || is_half || !core.is_within_budgets() || self.give_way(core) {
            return None;
        }
        let mut batch: Vec<(Target, Ext)> = Vec::new();
        let mut bytes = 0;
        let bytes_max = core.cut_job_bytes();
        let mut from = None;
        while let Some((target, dev)) = self.queue.pop() {
            let Some(ext) = core.state.target_mut(target).cloned() else { continue };
            if ext.dev != dev && ext.copy_on(dev).is_none() {
                continue;
            }
            let is_kept = durability_of(core, target) != Durability::Scratch;
            if comes_back_soon(core, &ext, dev, is_kept) {
                continue; // the next plan inspects it again
            }
            if let Some(action) = without_io(core, &ext, dev, is_kept) {
                // It moved since it was queued.
                let placing = Placing { target, was: identity(&ext), action };
                if placing.action.is_drop() {
                    core.asks.push(Ask::GiveUpCopies(vec![placing]));
                    continue;
                } else if core.place_all(&[placing]).is_ok() {
                    continue;
                }
            }
            // Jobs must be short: others wait for the device, and may have to go first.
            if u64::from(ext.len) >= 2 * bytes_max
                && let Some(second) = core.split(target, &ext, bytes_max)
            {
                self.queue.extend([(second, dev), (target, dev)]);
                continue;
            }
            let durability = durability_of(core, target);
            if from.is_some_and(|from| from != (dev, durability)) {
                self.queue.push((target, dev));
                break;
            }
            from = Some((dev, durability));
            bytes += u64::from(ext.len);
            batch.push((target, ext));
            if bytes >= bytes_max || batch.len() >= 1024 {
                break;
            }
        }
        let (leaving, durability) = from?;
        self.move_job(core, leaving, durability, &batch)
    }

    fn move_job(
        &mut self,
        core: &mut Core,
        leaving: DeviceIndex,
        durability: Durability,
        batch: &[(Target, Ext)],
    ) -> Option<Job> {
        let lens: Vec<u32> = batch.iter().map(|(_, ext)| ext.hull().len()).collect();
        let from: DeviceId = core.state.space.get(leaving).id;
        let (dev, places) = match core.room_for(&lens, Some((durability, from))) {
            Ok(found) => found,
            Err(error) => {
                let (target, ext) = batch.first()?;
                let Some(second) = core.split_for_room(*target, ext, Some((durability, from))) else {
                    self.moves_failed(core, &error, leaving);
                    return None;
                };
                self.queue.push((second, leaving));
                self.queue.extend(batch.iter().rev().map(|(target, _)| (*target, leaving)));
                return self.next_move(core);
            }
        };
        let device = core.state.space.get(dev).device.clone()?;
        let mut parts = Vec::new();
        let mut work = Vec::new();
        core.charge(leaving, dev, batch.iter().map(|(_, ext)| u64::from(ext.len)).sum());
        for ((target, ext), at) in batch.iter().zip(places) {
            let hull = ext.hull();
            let padded = core.state.space.get(dev).padded(u64::from(hull.len()));
            let Some(part) = core.part_of(ext) else {
                core.state.space.get_mut(dev).unreserve(at, padded);
                continue;
            };
            let base = at.wrapping_sub(u64::from(hull.begin));
            // If only the copy leaves, make a new copy.
            let packed = None;
            let action = if ext.dev == leaving {
                Action::Move { dev, base, packed }
            } else {
                Action::Copy { dev, base, packed, replaces: ext.copy_on(leaving).map(|copy| copy as u8) }
            };
            let placing = Placing { target: *target, was: identity(ext), action };
            parts.push(CopyPart { placing, reserved: Reserved { dev, offset: at, bytes: padded }, again: None });
            work.push(Piece { part, at, like: None });
        }
        if parts.is_empty() {
            let name = core.state.space.get(leaving).spec.name.clone();
            let error = Error::new(ErrorKind::Io, format!("emptying device `{name}`"))
                .because("it is not open, and some bytes are only there")
                .try_next("bring it back and open the store again, or delete what was only there");
            self.moves_failed(core, &error, leaving);
            return None;
        }
        self.moves_in_flight += 1;
        let slot = core.state.space.get(dev);
        let syncs = (!slot.is_volatile()).then(|| Arc::clone(&slot.trust.syncs));
        let copy = Copy { pieces: work, target: device, syncs, packing: core.packing_for(dev), read_back: false };
        Some(core.start_copies(
            Purpose::Leave(leaving),
            parts,
            copy,
            move |draining: &mut Self, core, parts, results| {
                draining.moves_in_flight = draining.moves_in_flight.saturating_sub(1);
                if let Some(error) = core.finish_copy(Purpose::Leave(leaving), parts, results) {
                    draining.moves_failed(core, &error, leaving);
                }
            },
        ))
    }

    /// Handles moves that cannot go on: fails the responses that wait until the device is empty, and schedules a retry.
    pub fn moves_failed(&mut self, core: &mut Core, error: &Error, leaving: DeviceIndex) {
        self.retry_ns = core.state.now.ns + core.settings.retry_ns;
        // Devices that are only too full are planned anew: their load, or that of the others, may have changed.
        let emptied = |slot: &crate::space::DeviceSlot| slot.state == DeviceState::Draining;
        let slots = &core.state.space.slots;
        self.queue.retain(|(_, dev)| *dev != leaving && slots.get(*dev as usize).is_some_and(emptied));
        core.fail_waiters(error, |what| matches!(what, Wait::Drained { dev } if *dev == leaving));
    }
}

/// Returns how an extent leaves a device without any I/O, if it can. `is_kept`: it must survive power loss.
fn without_io(core: &Core, ext: &Ext, dev: DeviceIndex, is_kept: bool) -> Option<Action> {
    let space = &core.state.space;
    let has_copy = space.has_readable_copy(ext);
    let first = space.get(ext.dev);
    match (ext.dev == dev, ext.copy_on(dev)) {
        (true, _) if has_copy => Some(space.eviction(ext)),
        // The first place survives all that it must: the extent needs no copy.
        (_, Some(copy)) if !(first.is_volatile() && is_kept) && space.is_well(ext.dev) => {
            Some(Action::DropCopy { copy: copy as u8 })
        }
        // Only the copy can be read: it becomes the first place, which is moved then.
        (_, Some(_)) if !space.is_well(ext.dev) && has_copy => Some(space.eviction(ext)),
        _ => None,
    }
}

/// Returns true if a copy on `dev` becomes superfluous once the device of the first place, which is open but failed of
/// late, is trusted again. Another copy made now could land on that very device, if it is the only one left.
fn comes_back_soon(core: &Core, ext: &Ext, dev: DeviceIndex, is_kept: bool) -> bool {
    let first = core.state.space.get(ext.dev);
    let needs_none = !(first.is_volatile() && is_kept);
    ext.dev != dev
        && ext.copy_on(dev).is_some()
        && needs_none
        && first.device.is_some()
        && first.trust.trouble.is_some()
}

fn durability_of(core: &Core, target: Target) -> Durability {
    match target {
        Target::Live { key, .. } => {
            core.state.containers.get(key.container).map_or(Durability::Async, |c| c.durability_of(key.object))
        }
        _ => Durability::Async,
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::{ObjectId, ObjectKey};

    use super::*;
    use crate::engine::Engine;
    use crate::engine::filled::filled_before_a_file;

    /// When moves off one device fail, moves off another one stay queued if that is being emptied.
    #[test]
    fn what_leaves_another_device_still_does_when_moves_fail() {
        let mut engine = filled_before_a_file(&Arc::<MemClock>::default(), 1);
        let key = ObjectKey { container: engine.core.state.containers.ids()[0], object: ObjectId(1) };
        let queued: Vec<_> = (0..4).map(|n| (Target::Live { key, offset: u64::from(n) }, n % 2)).collect();
        let left = |engine: &mut Engine| {
            engine.activities.draining.queue.clone_from(&queued);
            engine.activities.draining.moves_failed(&mut engine.core, &Error::new(ErrorKind::Full, "a test"), 0);
            engine.activities.draining.queue.iter().map(|(_, dev)| *dev).collect::<Vec<_>>()
        };
        assert!(left(&mut engine).is_empty(), "none of them is to be emptied");
        for dev in [0, 1] {
            engine.core.state.space.get_mut(dev).state = DeviceState::Draining;
        }
        assert_eq!(left(&mut engine), [1, 1]);
        assert!(engine.activities.draining.retry_ns > engine.core.state.now.ns);
    }
}
