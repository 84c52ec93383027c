//! Rewrites data in doubt: after a failed sync, what no mark covers is written once more before any sync is trusted.
//!
//! An operating system that could not write a page may count it as clean all the same. The next sync then succeeds, and
//! the bytes are nowhere. Data that marks cover were synced well; the rest is read, checked and written again in place.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{ContainerId, Error};

use super::Cutting;
use crate::container::Container;
use crate::copying::{Copied, Copy, CopyFailure, Piece};
use crate::engine::core::{Core, Effect};
use crate::map::{DeviceIndex, Ext};
use crate::persist::{Cut, CutPhase};
use crate::placing::Target;
use crate::state::EngineState;
use crate::undo::Change;
use crate::work::Job;

/// Most extents in one job.
const PARTS_MAX: usize = 1024;

/// What is still to be written again, by container.
#[derive(Default)]
pub struct Rewrites {
    /// A job is writing some of them.
    is_running: bool,
    queues: BTreeMap<ContainerId, Queue>,
}

#[derive(Default)]
struct Queue {
    list: Vec<Suspect>,
    /// Places of suspects that were not found where they were listed. Parts of them may be elsewhere: in an undo list,
    /// or cut off.
    lost: Vec<(DeviceIndex, u64, u64)>,
}

/// An extent that may not be on media at one of its places.
#[derive(Clone, Copy)]
pub struct Suspect {
    target: Target,
    /// Device slot of the place, and its begin and end there, in whole checksum units.
    dev: DeviceIndex,
    begin: u64,
    end: u64,
}

impl Rewrites {
    /// Returns the list of a container; drops it if more may have to be written again since, so that it is made anew.
    fn queue(&mut self, state: &EngineState, id: ContainerId) -> Option<&mut Queue> {
        if !state.containers.get(id).is_some_and(|container| container.durable.suspects_listed) {
            self.queues.remove(&id);
        }
        self.queues.get_mut(&id)
    }
}

impl Suspect {
    /// `None`: the extent has no place on the device.
    fn of(target: Target, ext: &Ext, dev: DeviceIndex) -> Option<Self> {
        let place = ext.places().find(|place| place.dev == dev)?;
        let hull = ext.hull();
        Some(Self { target, dev, begin: place.unit_at(hull.begin), end: place.end_at(hull.end) })
    }
    fn place(&self) -> (DeviceIndex, u64, u64) {
        (self.dev, self.begin, self.end)
    }
    fn touches(&self, (dev, begin, end): (DeviceIndex, u64, u64)) -> bool {
        self.dev == dev && self.begin < end && begin < self.end
    }
}

impl EngineState {
    /// Lists the extents of a container that are on its suspect devices and that no mark covers.
    fn list_suspect(&self, id: ContainerId) -> Vec<Suspect> {
        let mut found = Vec::new();
        let Some(container) = self.containers.get(id) else { return found };
        let mut look = |target: Target, ext: &Ext| {
            let places = ext.places().map(|place| place.dev);
            for dev in places
                .filter(|dev| ext.born >= container.durable.marked_cuts && container.durable.suspect.contains(dev))
            {
                found.extend(Suspect::of(target, ext, dev));
            }
        };
        for (object, slot) in &container.content.objects {
            let it = self.objects.get(*slot);
            if it.epoch > container.durable.persisted {
                let key = cenote_model::ObjectKey { container: id, object: *object };
                it.map.iter().for_each(|(offset, ext)| look(Target::Live { key, offset }, ext));
            }
        }
        // Replaced extents are needed only for a rollback to the pending cut.
        let Some(cut) = container.durable.pending_cut.and_then(|cut| self.cuts.pending.get(&cut)) else { return found };
        for (number, undo) in
            (container.back.undo_first..).zip(&container.back.undo).filter(|(_, undo)| undo.epoch > cut.epoch)
        {
            match &undo.change {
                Change::Range { pieces, .. } => {
                    for (piece, (_, ext)) in pieces.iter().enumerate() {
                        look(Target::Undo { container: id, number, piece: piece as u32 }, ext);
                    }
                }
                Change::ObjectDeleted { slot } => {
                    let map = &self.objects.get(*slot).map;
                    map.iter().for_each(|(offset, ext)| {
                        look(Target::Detached { container: id, number, offset }, ext);
                    });
                }
                _ => {}
            }
        }
        found
    }

    /// Returns the extent, if it is still where it was listed, with that length.
    fn still_there(&mut self, suspect: &Suspect) -> Option<Ext> {
        let ext = self.target_mut(suspect.target).cloned()?;
        let found = Suspect::of(suspect.target, &ext, suspect.dev)?;
        (found.place() == suspect.place()).then_some(ext)
    }

    /// Returns true if members of a cut have suspects to be written again before its sync.
    pub fn has_suspect(&self, cut: &Cut) -> bool {
        let suspect = |id: &ContainerId| self.containers.get(*id).is_some_and(|c| !c.durable.suspect.is_empty());
        cut.members.iter().any(suspect)
    }
}

impl Cutting {
    /// Returns a job that rewrites the next batch, for a cut that waits for its sync.
    pub fn next_rewrite(&mut self, core: &mut Core) -> Option<Job> {
        if self.rewrites.is_running {
            return None;
        }
        loop {
            let now = core.state.now.ns;
            let waits =
                |cut: &&Cut| cut.phase == CutPhase::Copied && cut.tries.retry_ns <= now && core.state.has_suspect(cut);
            let cut = core.state.cuts.pending.values().find(waits)?;
            let (cut, members) = (cut.id, cut.members.clone());
            let suspect = |id: &ContainerId| core.state.containers.get(*id).is_some_and(Container::is_suspect);
            let member = members.into_iter().find(suspect)?;
            if self.rewrites.queue(&core.state, member).is_none() {
                let list = core.state.list_suspect(member);
                self.rewrites.queues.insert(member, Queue { list, lost: Vec::new() });
                if let Some(container) = core.state.containers.get_mut(member) {
                    container.durable.suspects_listed = true;
                }
            }
            if let Some(job) = self.rewrite_job(core, cut, member) {
                return Some(job);
            }
            if core.state.cuts.pending.get(&cut).is_some_and(|cut| cut.tries.retry_ns > now) {
                return None; // it failed
            }
            let lost = self.rewrites.queues.remove(&member).unwrap_or_default().lost;
            if !lost.is_empty() {
                let mut list = core.state.list_suspect(member);
                list.retain(|suspect| lost.iter().any(|place| suspect.touches(*place)));
                self.rewrites.queues.insert(member, Queue { list, lost: Vec::new() });
                continue;
            }
            // Nothing is left: the rewritten data are synced with the cut.
            if let Some(container) = core.state.containers.get_mut(member) {
                container.durable.suspect.clear();
            }
        }
    }

    fn rewrite_job(&mut self, core: &mut Core, cut: u64, container: ContainerId) -> Option<Job> {
        let queue = self.rewrites.queue(&core.state, container)?;
        let target_dev = queue.list.last()?.dev;
        let mut batch = Vec::new();
        while let Some(entry) = queue.list.pop_if(|entry| entry.dev == target_dev && batch.len() < PARTS_MAX) {
            batch.push(entry);
        }
        let Some(target) = core.state.space.get(target_dev).device.clone() else {
            return self.cannot_rewrite(core, cut, container, batch, target_dev);
        };
        let (mut parts, mut targets, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (i, suspect) in batch.iter().enumerate() {
            if bytes >= core.settings.copy_bytes {
                let rest = batch[i..].to_vec();
                self.rewrites.queues.entry(container).or_default().list.extend(rest);
                break;
            }
            let Some(ext) = core.state.still_there(suspect) else {
                self.rewrites.queues.entry(container).or_default().lost.push(suspect.place());
                continue;
            };
            let Some(part) = core.part_of(&ext) else {
                let rest = batch[i..].to_vec();
                return self.cannot_rewrite(core, cut, container, rest, ext.dev);
            };
            bytes += u64::from(part.len);
            // The same compression: bytes rewritten in place must land in the same units.
            let seen = ext.trimmed();
            let like = match seen.copy_on(target_dev) {
                Some(copy) if seen.dev != target_dev => seen.copy(copy).and_then(|copy| copy.packed),
                _ => seen.packed().cloned(),
            };
            parts.push(Piece { part, at: suspect.begin, like });
            targets.push(*suspect);
        }
        if parts.is_empty() {
            // All of these are gone; there may be more.
            return if self.rewrites.queues.get(&container).is_some_and(|queue| !queue.list.is_empty()) {
                self.rewrite_job(core, cut, container)
            } else {
                None
            };
        }
        let target = Arc::clone(&target);
        let work = Copy { pieces: parts, target, syncs: None, packing: None, read_back: false };
        self.rewrites.is_running = true;
        Some(core.start(Effect::FreesSpace, work, move |cutting: &mut Self, core, (results, _)| {
            cutting.rewrites.is_running = false;
            cutting.finish_rewrite(core, cut, container, targets, results);
        }))
    }

    fn cannot_rewrite(
        &mut self,
        core: &mut Core,
        cut: u64,
        id: ContainerId,
        rest: Vec<Suspect>,
        dev: DeviceIndex,
    ) -> Option<Job> {
        let mut live = Vec::new();
        for suspect in rest {
            if core.state.still_there(&suspect).is_none() {
                self.rewrites.queues.entry(id).or_default().lost.push(suspect.place());
            } else if matches!(suspect.target, Target::Live { .. }) {
                live.push(suspect);
            } else if let Some(cut) = core.state.cuts.get_mut(cut) {
                cut.renew = true; // overwritten or deleted since: a later cut does not need it
            }
        }
        if live.is_empty() {
            return if self.rewrites.queues.get(&id).is_some_and(|queue| !queue.list.is_empty()) {
                self.rewrite_job(core, cut, id)
            } else {
                None
            };
        }
        self.rewrites.queues.entry(id).or_default().list.extend(live);
        let error = core.not_open(dev);
        core.cut_failed(cut, &error);
        None
    }

    /// Takes the results of a rewrite job. Fails the cut if a suspect that it needs was not rewritten.
    pub fn finish_rewrite(
        &mut self,
        core: &mut Core,
        cut: u64,
        container: ContainerId,
        targets: Vec<Suspect>,
        results: Vec<Copied>,
    ) {
        let mut failure = None;
        for (suspect, result) in targets.into_iter().zip(results) {
            let Suspect { target, dev, begin, end } = suspect;
            core.observed.counting.moved(dev, dev, cenote_model::FlowWhy::Rewrite, end - begin);
            // Now, not when the job began: a sync that began in between does not cover these writes.
            core.state.space.get_mut(dev).trust.unsynced = true;
            if let Some(cut) = core.state.cuts.get_mut(cut) {
                cut.sync.wrote.add(dev);
            }
            let Err(what) = result else { continue };
            let Some(ext) = core.state.still_there(&suspect) else {
                if let Some(queue) = self.rewrites.queue(&core.state, container) {
                    queue.lost.push(suspect.place());
                }
                continue;
            };
            if matches!(what, CopyFailure::Source(_)) && !matches!(target, Target::Live { .. }) {
                // Overwritten since, and unreadable: a later cut does not need it.
                if let Some(cut) = core.state.cuts.get_mut(cut) {
                    cut.renew = true;
                }
                continue;
            }
            // If the list was dropped meanwhile, its next version contains this one.
            if let Some(queue) = self.rewrites.queue(&core.state, container) {
                queue.list.push(suspect);
            }
            let subject = core.subject(target, ext.len);
            let device = core.state.space.get(dev).spec.name.clone();
            let (CopyFailure::Source(error) | CopyFailure::Target(error)) = what else { continue };
            failure = Some(
                Error::new(error.kind(), subject)
                    .because(format!("writing it again to `{device}`, a sync of which failed: {}", error.cause()))
                    .try_next("check the device, or write or delete that range anew"),
            );
        }
        if let Some(error) = failure {
            core.cut_failed(cut, &error);
        }
    }
}
