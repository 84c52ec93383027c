//! Plans: at intervals, policies inspect a sample of the data and decide what should be elsewhere.

use std::collections::HashSet;
use std::sync::Arc;

use cenote_policy::{Action as Planned, Limits, Plan, Policy, is_tracking};

use super::Tiering;
use super::relocate::{How, Relocation};
use super::view::Sampled;
use crate::engine::activity::Ask;
use crate::engine::core::Core;
use crate::engine::core::observed::heat::region_bounds;
use crate::map::DeviceIndex;
use crate::objects::Presence;
use crate::placing::{Action, Identity, Placing};

/// Most ranges in the sample of one plan.
const SAMPLE: usize = 1024;
/// Most objects inspected for it.
const SAMPLE_OBJECTS: u32 = 4096;
/// Pause between plans while data are read or written, or a tier is too full…
const PAUSE_BUSY_NS: u64 = 20_000_000;
/// …and when nothing happens: it doubles after each plan, since nothing new is known, up to an hour.
const PAUSE_IDLE_NS: u64 = 1_000_000_000;
const PAUSES_DOUBLED_MAX: u32 = 12;
/// Containers are inspected again after this time.
const LOOK_AGAIN_NS: u64 = 500_000_000;
/// Most bytes that one plan may move.
const BYTES_MAX: u64 = 256 << 20;
const MOVES_MAX: usize = 512;

/// Position of the search.
#[derive(Default)]
pub struct Plans {
    hand: u32,
    next_ns: u64,
    epoch: u64,
    /// Plans since anything was read or written.
    idle: u32,
    /// The tracking policies in use…
    in_use: Vec<String>,
    /// …when the store had these containers (next id, count), and when that was.
    containers: (u64, usize),
    looked_ns: u64,
}

impl Plans {
    /// Returns the next slot of the sweep.
    pub fn next_slot(&mut self, slots: u32) -> u32 {
        let slot = self.hand % slots.max(1);
        self.hand = (slot + 1) % slots.max(1);
        slot
    }
}

impl Tiering {
    /// Lets each policy in use make a plan, if it is time.
    pub fn plan_tiers(&mut self, core: &mut Core) {
        let now = core.state.now.ns;
        let is_busy = self.plans.epoch != core.state.epoch || !core.observed.heats.fresh.is_empty();
        let is_rested = is_busy && self.plans.idle > 0; // activity has resumed
        if !self.relocations.is_empty() || (now < self.plans.next_ns && !is_rested) {
            return;
        }
        let in_use = self.policies_in_use(core);
        let plans = &mut self.plans;
        plans.epoch = core.state.epoch;
        plans.idle = if is_busy { 0 } else { (plans.idle + 1).min(PAUSES_DOUBLED_MAX) };
        plans.next_ns = now + if is_busy { PAUSE_BUSY_NS } else { PAUSE_IDLE_NS << plans.idle };
        if !in_use.is_empty() {
            core.look_at_loads();
        }
        for name in in_use {
            let Some(policy) = self.policies.named(&name) else { continue };
            let sampled = self.sample_of(core, &policy, SAMPLE);
            if sampled.is_empty() {
                continue;
            }
            let views = super::view::tier_views(core);
            let rhythm = core.observed.rhythms.of_store();
            let limits = Limits { idle: idle_share(core), rhythm, ..limits(core) };
            let plan = policy.plan(&views, &super::fetch::views_of(core, &sampled), &limits);
            if !plan.moves.is_empty() {
                core.observed.move_reason = plan.reason.to_string();
            }
            self.carry_out(core, &plan, &sampled, None);
        }
        core.observed.heats.fresh.clear();
    }

    /// Returns the tracking policies in use. Inspects all containers if their set changed, or after some time.
    fn policies_in_use(&mut self, core: &mut Core) -> Vec<String> {
        let now = core.state.now.ns;
        let containers = (core.state.containers.next_id, core.state.containers.len());
        let plans = &self.plans;
        if plans.containers != containers || now.saturating_sub(plans.looked_ns) >= LOOK_AGAIN_NS {
            let in_use: HashSet<&str> = (core.state.containers.iter())
                .filter(|container| container.snapshot.is_none() && is_tracking(&container.spec.policy))
                .map(|container| container.spec.policy.as_str())
                .collect();
            let mut in_use: Vec<String> = in_use.into_iter().map(str::to_owned).collect();
            in_use.sort_unstable();
            let plans = &mut self.plans;
            (plans.containers, plans.looked_ns, plans.in_use) = (containers, now, in_use);
        }
        self.plans.in_use.clone()
    }

    /// Lets the policy choose evictions from a device on which a lease waits for room. Returns false if nothing left.
    pub fn plan_room(&mut self, core: &mut Core, policy: &Arc<dyn Policy>, dev: DeviceIndex, bytes: u64) -> bool {
        let sampled = self.sample_of(core, policy, SAMPLE);
        let views = super::view::tier_views(core);
        let wanted = [(core.state.space.get(dev).id, bytes)];
        let limits = Limits { room_wanted: &wanted, room_only: true, ..limits(core) };
        let mut plan = policy.plan(&views, &super::fetch::views_of(core, &sampled), &limits);
        // The lease does not wait for I/O: moves that need some are left to the next plan.
        plan.moves.retain(|planned| planned.action == Planned::Evict);
        let before = core.state.space.get(dev).used_bytes();
        self.carry_out(core, &plan, &sampled, None);
        core.state.space.get(dev).used_bytes() < before
    }

    /// Samples ranges of objects whose container has this policy: some that were accessed of late, and some others.
    pub fn sample_of(&mut self, core: &mut Core, policy: &Arc<dyn Policy>, count: usize) -> Vec<Sampled> {
        let mut sampled = Vec::new();
        let mut seen = HashSet::new();
        let fresh = std::mem::take(&mut core.observed.heats.fresh);
        for (slot, generation, region) in fresh.iter().rev() {
            if sampled.len() >= count / 2 {
                break;
            }
            let object = core.state.objects.get(*slot);
            if object.generation != *generation || !is_of(core, *slot, policy.name()) {
                continue;
            }
            let (from, to) = region_bounds(*region);
            for (offset, ext) in object.map.overlapping(from, to) {
                if sampled.len() < count && seen.insert((*slot, offset)) {
                    sampled.push(super::view::sampled(core, *slot, offset, ext, None));
                }
            }
        }
        core.observed.heats.fresh = fresh;
        let slots = core.state.objects.slots();
        for _ in 0..SAMPLE_OBJECTS.min(slots) {
            if sampled.len() >= count {
                break;
            }
            let slot = self.plans.next_slot(slots);
            if !is_of(core, slot, policy.name()) {
                continue;
            }
            let object = core.state.objects.get(slot);
            let room = count - sampled.len();
            let extents = object.map.iter().filter(|(offset, _)| !seen.contains(&(slot, *offset))).take(room);
            sampled.extend(extents.map(|(offset, ext)| super::view::sampled(core, slot, offset, ext, None)));
        }
        sampled
    }

    /// Carries out a plan. `waiter`: the waiter number for moves of the first ranges, and how many ranges that are.
    /// Returns the number of moves waited for.
    pub fn carry_out(
        &mut self,
        core: &mut Core,
        plan: &Plan,
        sampled: &[Sampled],
        waiter: Option<(u64, usize)>,
    ) -> usize {
        let mut free = Vec::new();
        let mut twins: HashSet<Identity> = HashSet::new();
        let mut awaited = 0;
        for planned in &plan.moves {
            let Some(range) = sampled.get(planned.range) else { continue };
            let (how, to) = match planned.action {
                Planned::Evict | Planned::DropCopy => {
                    let action = if planned.action == Planned::Evict {
                        Action::Evict { copy: 0 }
                    } else {
                        Action::DropCopy { copy: 0 }
                    };
                    let placing = Placing { target: range.target, was: range.was, action };
                    let is_moving = self.relocations.is_known(&placing.target) || core.is_held(&placing);
                    if !is_moving && twins.insert(placing.was) && may_leave(core, &placing) {
                        free.push(placing);
                    }
                    continue;
                }
                Planned::Promote(to) => (How::Promote, to),
                Planned::Copy(to) => (How::Copy, to),
                // Data that could be lost get a copy there first; the next plan evicts them.
                Planned::Demote(to) if core.state.space.is_volatile(range.was.dev) && is_kept(core, range) => {
                    (How::Copy, to)
                }
                Planned::Demote(to) => (How::Move, to),
            };
            let Some(dev) = core.state.space.slot_of(to) else { continue };
            let leaves =
                Placing { target: range.target, was: range.was, action: Action::Move { dev, base: 0, packed: None } };
            if how != How::Copy && core.is_held(&leaves) {
                continue;
            }
            let ahead = waiter.is_none() && range.coming.is_some();
            let waiter = waiter.filter(|(_, wanted)| planned.range < *wanted).map(|(waiter, _)| waiter);
            let relocation = Relocation { target: range.target, dev, how, waiter, ahead, short_since_ns: None };
            if self.relocations.push(relocation) {
                awaited += usize::from(waiter.is_some());
            }
        }
        let (spare, free): (Vec<_>, Vec<_>) = free.into_iter().partition(|placing| placing.action.is_drop());
        core.asks.push(Ask::GiveUpCopies(spare));
        for batch in free.chunks(1024) {
            if core.place_all(batch).is_err() {
                break; // the journal does not take it: the next plan finds it again
            }
        }
        awaited
    }
}

/// Returns the limits of one plan.
pub fn limits(core: &Core) -> Limits<'static> {
    Limits {
        bytes_max: BYTES_MAX,
        moves_max: MOVES_MAX,
        now_ms: core.now_ms(),
        now_unix_ms: core.seams.clock.unix_ms(),
        ..Limits::default()
    }
}

/// Approximate share of the devices' time that background moves may take.
pub fn idle_share(core: &Core) -> f32 {
    if core.may_copy(core.state.now.ns) { 1.0 } else { 0.25 }
}

/// Returns true if a slot has a live object of a container with this policy. Not an object of a snapshot: ranges that
/// it shares with the original move with that, and nothing is known of the use of the rest.
fn is_of(core: &Core, slot: u32, policy: &str) -> bool {
    let object = core.state.objects.get(slot);
    if object.presence != Presence::Live || !core.is_visible(object.container) {
        return false;
    }
    let container = core.state.containers.at(object.container);
    container.snapshot.is_none() && container.spec.policy == policy
}

/// Returns true if an extent may give up one of its two places: the other must not be on a tier that is away.
fn may_leave(core: &mut Core, placing: &Placing) -> bool {
    let Some(ext) = core.state.target_mut(placing.target).cloned() else { return false };
    let is_open = match placing.action {
        Action::DropCopy { .. } => core.state.space.is_well(ext.dev),
        _ => core.state.space.has_readable_copy(&ext),
    };
    is_open && core.state.can_place(placing)
}

/// Returns true if a range must survive power loss.
fn is_kept(core: &Core, range: &Sampled) -> bool {
    core.state.containers.get(range.key.container).is_some_and(crate::container::Container::is_tracked)
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::{Durability, ObjectId};
    use cenote_policy::Reason;

    use super::*;
    use crate::engine::filled::filled_before_a_file;

    /// How an object in memory goes to a slower tier, in a container with this durability.
    fn demoted(durability: Durability) -> How {
        let mut engine = filled_before_a_file(&Arc::<MemClock>::default(), 1);
        let id = engine.core.state.containers.ids()[0];
        let container = engine.core.state.containers.get_mut(id).unwrap();
        container.spec.durability = durability;
        let slot = container.content.objects[&ObjectId(1)];
        let (offset, ext) = engine.core.state.objects.get(slot).map.iter().next().unwrap();
        let range = super::super::view::sampled(&engine.core, slot, offset, ext, None);
        let action = Planned::Demote(engine.core.state.space.get(1).id);
        let planned = cenote_policy::Planned { range: 0, action, gain_ns: 1.0, cost_ns: 1.0, reason: Reason::Nothing };
        engine.activities.tiering.carry_out(
            &mut engine.core,
            &Plan { moves: vec![planned], reason: Reason::Nothing },
            &[range],
            None,
        );
        let queued: Vec<How> =
            engine.activities.tiering.relocations.queued().map(|relocation| relocation.how).collect();
        assert_eq!(queued.len(), 1);
        queued[0]
    }

    #[test]
    fn what_could_be_lost_stays_in_memory_until_it_has_a_copy() {
        assert_eq!(demoted(Durability::Async), How::Copy);
        assert_eq!(demoted(Durability::Scratch), How::Move);
    }
}
