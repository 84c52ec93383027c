//! Relocation: moves that policies, readers and people want. A job reads and verifies the extent, writes it to its
//! target, and syncs it if the device is persistent; only then do the journal and the map change.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use cenote_model::{DeviceId, Durability, Error, ErrorKind};
use cenote_policy::Incoming;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::Tiering;
use crate::copying::{Copy, Piece};
use crate::engine::core::Core;
use crate::engine::core::{CopyPart, Purpose, Reserved};
use crate::map::{DeviceIndex, Ext};
use crate::placing::{Action, Identity, Placing, Target, identity};
use crate::work::Job;

/// Most extents in one job.
const PARTS_MAX: usize = 256;
/// Most queued moves that nobody waits for; the next plan makes the others anew.
const QUEUE_MAX: usize = 16_384;

/// How an extent comes to the other device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It is read from there, and keeps its old place as its copy.
    Promote,
    /// It leaves its old place.
    Move,
    /// It gets a copy there.
    Copy,
    /// It gets a copy there, which is read back and compared.
    Archive,
}

/// The relocation of one extent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Relocation {
    pub target: Target,
    /// The slot of the device.
    pub dev: DeviceIndex,
    pub how: How,
    /// The waiter number of a fetch or arrangement.
    pub waiter: Option<u64>,
    /// It is a prefetch.
    pub ahead: bool,
    /// Since when it has waited for room.
    pub short_since_ns: Option<u64>,
}

/// Queued relocations.
#[derive(Default)]
pub struct Queue {
    /// Those that a request waits for; the others are in `calm`.
    urgent: VecDeque<Relocation>,
    calm: VecDeque<Relocation>,
    /// All that are queued or running, with their waiters, so that nothing is moved twice.
    known: HashMap<Target, Vec<u64>, FixedState>,
    /// There was no room: not before then.
    retry_ns: u64,
}

impl Queue {
    /// Returns true if nothing is queued.
    pub fn is_empty(&self) -> bool {
        self.urgent.is_empty() && self.calm.is_empty()
    }
    /// Returns true if a relocation of this target is queued or running.
    pub fn is_known(&self, target: &Target) -> bool {
        self.known.contains_key(target)
    }
    /// Queues a relocation. Returns false if nobody waits for it and it is queued already, or the queue is full.
    pub fn push(&mut self, relocation: Relocation) -> bool {
        let is_new = !self.is_known(&relocation.target);
        if let Some(waiter) = relocation.waiter {
            // An older entry in the calm queue is found done when its turn comes.
            self.known.entry(relocation.target).or_default().push(waiter);
            self.urgent.push_back(relocation);
            return true;
        }
        let fits = is_new && self.calm.len() < QUEUE_MAX;
        if fits {
            self.known.insert(relocation.target, Vec::new());
            self.calm.push_back(relocation);
        }
        fits
    }
    #[cfg(test)]
    pub fn queued(&self) -> impl Iterator<Item = &Relocation> {
        self.urgent.iter().chain(&self.calm)
    }
    fn pop(&mut self, calm_too: bool) -> Option<Relocation> {
        self.urgent.pop_front().or_else(|| if calm_too { self.calm.pop_front() } else { None })
    }
    fn back(&mut self, relocation: Relocation) {
        let queue = if relocation.waiter.is_some() { &mut self.urgent } else { &mut self.calm };
        queue.push_front(relocation);
    }
}

impl Tiering {
    /// Returns a job with the next moves: those that a request waits for at once, the others when clients write little.
    pub fn next_relocation(&mut self, core: &mut Core) -> Option<Job> {
        let busy = self.moving;
        let now = core.state.now.ns;
        if busy >= core.settings.copy_jobs || self.relocations.is_empty() || self.relocations.retry_ns > now {
            return None;
        }
        let calm_too = busy == 0 && (core.may_copy(now) || core.observed.loads.has_share(now));
        let mut batch: Vec<(Relocation, Ext, u64)> = Vec::new();
        let mut bytes = 0;
        while let Some(relocation) = self.relocations.pop(calm_too) {
            let Some(ext) = still_to_move(core, &relocation) else {
                self.relocation_over(core, &relocation, None);
                continue;
            };
            if let Some(error) = super::disposition::refusal_of(core, relocation.dev) {
                self.turn_away(core, &relocation, &error);
                continue;
            }
            if relocation.waiter.is_none() && !core.is_within_budget(ext.dev, relocation.dev) {
                self.relocations.back(relocation);
                break;
            }
            let is_archived = |relocation: &Relocation| relocation.how == How::Archive;
            let alike = batch.first().is_none_or(|(first, with, _)| {
                (first.dev, with.dev, is_archived(first)) == (relocation.dev, ext.dev, is_archived(&relocation))
            });
            if !alike {
                self.relocations.back(relocation);
                break;
            }
            match self.room_on(core, &relocation, &ext) {
                Ok(Some(at)) => {
                    core.charge(ext.dev, relocation.dev, u64::from(ext.len));
                    bytes += u64::from(ext.len);
                    batch.push((relocation, ext, at));
                }
                Ok(None) => {
                    // Room is being made: move those that have room.
                    self.relocations.back(Relocation {
                        short_since_ns: Some(relocation.short_since_ns.unwrap_or(now)),
                        ..relocation
                    });
                    self.relocations.retry_ns = now + core.settings.group_commit_ns / 4;
                    break;
                }
                Err(error) => self.relocation_over(core, &relocation, Some(&error)),
            }
            if bytes >= core.job_bytes(relocation.dev) || batch.len() >= PARTS_MAX {
                break;
            }
        }
        self.relocation_job(core, batch)
    }

    /// Handles a move whose tier takes nothing any more. A move that a reader waits for goes to another tier.
    fn turn_away(&mut self, core: &mut Core, relocation: &Relocation, error: &Error) {
        let is_read = relocation.waiter.is_some_and(|waiter| self.waits.is_restored(waiter));
        match super::fetch::restore_to(core).filter(|_| is_read) {
            Some(dev) => self.relocations.back(Relocation { dev, short_since_ns: None, ..*relocation }),
            None => self.relocation_over(core, relocation, Some(error)),
        }
    }

    /// Takes room on the device. `None`: not yet. Fails if there is none within the time limit.
    fn room_on(&mut self, core: &mut Core, relocation: &Relocation, ext: &Ext) -> cenote_model::Result<Option<u64>> {
        let bytes = u64::from(ext.hull().len());
        let patience_ns = core.settings.retry_ns;
        let now = core.state.now.ns;
        let slot = core.state.space.get_mut(relocation.dev);
        let padded = slot.padded(bytes);
        // Only up to the watermark, or the extent would have to leave again.
        if slot.view().below_high_with(padded)
            && let [(offset, _)] = slot.take(padded, padded)[..]
        {
            return Ok(Some(offset));
        }
        let waited_ns = now.saturating_sub(relocation.short_since_ns.unwrap_or(now));
        let must_wait = relocation.waiter.is_some() && waited_ns < patience_ns;
        if must_wait && (self.make_room(core, relocation.dev, padded) || waited_ns > 0) {
            return Ok(None);
        }
        let name = core.state.space.get(relocation.dev).spec.name.clone();
        Err(Error::new(ErrorKind::Full, format!("tier `{name}`"))
            .because(format!("no room for {bytes} bytes in one piece: {}", core.uses()))
            .try_next("delete something there, or make it larger"))
    }

    /// Evicts extents with copies from devices that could take new bytes of this durability. Returns false if none can
    /// leave.
    pub fn make_room_for(&mut self, core: &mut Core, bytes: u64, durability: Durability, avoid: &[DeviceId]) -> bool {
        let incoming = Incoming { avoid, ..Incoming::new(durability, bytes) };
        let views: Vec<_> = core.state.space.views();
        // Memory takes no more than the persistent tiers have room for.
        let is_kept = durability != Durability::Scratch;
        if is_kept
            && !views.iter().any(|view| view.kind.is_persistent() && view.is_online() && view.room_bytes() >= bytes)
        {
            return false;
        }
        let takers: Vec<DeviceIndex> =
            (views.iter().filter(|view| incoming.may_use(view) && view.capacity_bytes >= bytes))
                .filter_map(|view| core.state.space.slot_of(view.id))
                .collect();
        takers.into_iter().any(|dev| self.make_room(core, dev, bytes))
    }

    /// Evicts extents with copies from a device, the least used of a sample first. Returns false if none can leave
    /// without I/O.
    pub fn make_room(&mut self, core: &mut Core, dev: DeviceIndex, bytes: u64) -> bool {
        const LOOKED_AT: usize = 4096;
        let now_ms = core.now_ms();
        let slots = core.state.objects.slots();
        let mut found: Vec<(f32, u32, Placing)> = Vec::new();
        let (mut looked, mut objects) = (0, 0);
        while looked < LOOKED_AT && objects < slots.min(LOOKED_AT as u32) {
            let slot = self.plans.next_slot(slots);
            objects += 1;
            let object = core.state.objects.get(slot);
            if object.presence != crate::objects::Presence::Live || !core.is_visible(object.container) {
                continue;
            }
            let key = core.state.key_of(slot);
            for (offset, ext) in object.map.iter() {
                looked += 1;
                if ext.dev == dev && core.state.space.has_readable_copy(ext) && !core.is_pinned_on(key, offset, ext) {
                    let heat = core.observed.heats.of(slot, object.generation, offset);
                    let placing = Placing {
                        target: Target::Live { key, offset },
                        was: identity(ext),
                        action: core.state.space.eviction(ext),
                    };
                    found.push((heat.score(now_ms), object.last.touched, placing));
                }
            }
        }
        found.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
        let mut left = bytes;
        let mut seen: HashSet<Identity> = HashSet::new(); // an eviction takes its twins along
        let mut evictions = Vec::new();
        for (_, _, placing) in found {
            if left == 0 {
                break;
            }
            if self.relocations.is_known(&placing.target) || !seen.insert(placing.was) {
                continue;
            }
            left = left.saturating_sub(u64::from(placing.was.len));
            evictions.push(placing);
        }
        evictions.retain(|placing| !core.is_held(placing));
        !evictions.is_empty() && core.place_all(&evictions).is_ok()
    }

    fn relocation_job(&mut self, core: &mut Core, batch: Vec<(Relocation, Ext, u64)>) -> Option<Job> {
        let dev = batch.first()?.0.dev;
        let device = core.state.space.get(dev).device.clone();
        let mut parts = Vec::new();
        let mut work = Vec::new();
        let mut relocations = Vec::new();
        for (relocation, ext, at) in batch {
            let hull = ext.hull();
            let padded = core.state.space.get(dev).padded(u64::from(hull.len()));
            let (Some(part), Some(_)) = (core.part_of(&ext), &device) else {
                core.state.space.get_mut(dev).unreserve(at, padded);
                let error = core.not_open(if device.is_some() { ext.dev } else { dev });
                self.relocation_over(core, &relocation, Some(&error));
                continue;
            };
            let base = at.wrapping_sub(u64::from(hull.begin));
            let placing =
                Placing { target: relocation.target, was: identity(&ext), action: action(&relocation, &ext, base) };
            parts.push(CopyPart { placing, reserved: Reserved { dev, offset: at, bytes: padded }, again: None });
            work.push(Piece { part, at, like: None });
            relocations.push(relocation);
        }
        if parts.is_empty() {
            return None;
        }
        let slot = core.state.space.get(dev);
        let syncs = (!slot.is_volatile()).then(|| Arc::clone(&slot.trust.syncs));
        let read_back = relocations.iter().any(|relocation| relocation.how == How::Archive);
        let copy = Copy { pieces: work, target: device?, syncs, packing: core.packing_for(dev), read_back };
        self.moving += 1;
        let began_ns = core.state.now.ns;
        Some(core.start_copies(Purpose::Relocate, parts, copy, move |tiering: &mut Self, core, parts, results| {
            tiering.moving = tiering.moving.saturating_sub(1);
            core.begin_prefetched(relocations.iter().filter(|it| it.ahead).map(|it| it.target));
            let error = core.finish_copy(Purpose::Relocate, parts, results);
            tiering.relocations_over(core, &relocations, began_ns, error.as_ref());
        }))
    }

    /// Ends a batch of moves.
    pub fn relocations_over(
        &mut self,
        core: &mut Core,
        relocations: &[Relocation],
        began_ns: u64,
        error: Option<&Error>,
    ) {
        let now = core.state.now.ns;
        if relocations.iter().all(|relocation| relocation.waiter.is_none()) {
            core.observed.loads.took(now, now.saturating_sub(began_ns));
        }
        for relocation in relocations {
            self.relocation_over(core, relocation, error);
        }
    }

    /// Ends a move, done or not, and tells its waiters.
    pub fn relocation_over(&mut self, core: &mut Core, relocation: &Relocation, error: Option<&Error>) {
        for waiter in self.relocations.known.remove(&relocation.target).unwrap_or_default() {
            self.one_over(core, waiter, error);
        }
    }
}

/// Returns the extent, if the move still makes sense.
fn still_to_move(core: &mut Core, relocation: &Relocation) -> Option<Ext> {
    let ext = core.state.target_mut(relocation.target).cloned()?;
    let (Action::Copy { .. } | Action::Move { .. } | Action::Promote { .. }) = action(relocation, &ext, 0) else {
        return None;
    };
    if ext.dev == relocation.dev {
        return None;
    }
    let placing = Placing { target: relocation.target, was: identity(&ext), action: action(relocation, &ext, 0) };
    // Moves that nobody waits for yield to pins set meanwhile.
    if relocation.waiter.is_none() && core.is_held(&placing) {
        return None;
    }
    core.state.can_place(&placing).then_some(ext)
}

fn action(relocation: &Relocation, ext: &Ext, base: u64) -> Action {
    let dev = relocation.dev;
    match relocation.how {
        How::Promote => Action::Promote { dev, base, packed: None },
        How::Move => Action::Move { dev, base, packed: None },
        How::Copy | How::Archive => Action::Copy { dev, base, packed: None, replaces: ext.has_copy().then_some(0) },
    }
}
