//! Cuts are begun, copied and marked.

use cenote_device::Device;
use std::sync::Arc;

use cenote_model::{ContainerId, DeviceId, Error, ErrorKind};
use cenote_policy::{PlaceRequest, place, place_copy};

use super::Engine;
use super::jobs::{CopyPart, What};
use crate::codec::Encode;
use crate::container::Container;
use crate::copying::{Copy, Part, Piece};
use crate::journal::Kind;
use crate::journal::record::encode_cut;
use crate::map::Ext;
use crate::objects::Presence;
use crate::persist::{Cut, DrainItem, Stage};
use crate::placing::{Action, Placing, Target, identity};
use crate::undo::Change;
use crate::work::{Job, Work};

/// Extents in one job.
const PARTS_MAX: usize = 1024;

/// A volatile extent that a cut wants a copy of.
struct Source {
    target: Target,
    ext: Ext,
    again: DrainItem,
}

impl Engine {
    /// Begins the cuts that are due. `pressure`: a volatile device is too full.
    pub(super) fn begin_cuts(&mut self, pressure: bool) {
        let now = self.state.now_ns;
        // There may be very many that only grow old: no tick looks at them that comes right behind another.
        let rest_ns = self.settings.group_commit_ns / 2;
        if !pressure && now.saturating_sub(self.pace.looked_ns) < rest_ns && !self.is_cut_asked_for() {
            return self.advance_cuts();
        }
        (self.pace.looked_ns, self.pace.early_ns) = (now, None);
        let mut due: Vec<Vec<ContainerId>> = Vec::new();
        let mut trivial_due: Vec<ContainerId> = Vec::new();
        let mut gone = Vec::new();
        let mut taken: std::collections::BTreeSet<ContainerId> = std::collections::BTreeSet::new();
        for id in &self.state.cuts.dirty {
            let Some(container) = self.state.containers.get(*id).filter(|c| c.is_dirty()) else {
                gone.push(*id);
                continue;
            };
            if container.pending_cut.is_some() || taken.contains(id) {
                continue;
            }
            let age = now.saturating_sub(container.dirty_since_ns);
            let is_much = container.has_fresh(self.settings.burst_bytes);
            if is_much {
                let early_ns = container.dirty_since_ns.saturating_add(self.settings.write_back_early_ns);
                self.pace.early_ns = Some(self.pace.early_ns.map_or(early_ns, |first| first.min(early_ns)));
            }
            let wanted = self.state.cuts.wanted.contains(id);
            if !wanted && !pressure && age < self.settings.group_commit_ns {
                continue;
            }
            let is_trivial = |c: &Container| c.fresh.is_empty() && c.data_epoch <= c.persisted;
            let old_ns = container.dirty_since_ns.saturating_add(self.settings.write_back_ns);
            let is_due = age >= self.settings.write_back_ns && self.may_copy(old_ns)
                || age >= self.settings.write_back_early_ns && is_much && self.may_copy_early();
            let with_bytes = wanted || is_due || (pressure && !container.fresh.is_empty());
            if !with_bytes && !is_trivial(container) {
                continue;
            }
            let group = self.state.linked(*id);
            let members = || group.iter().filter_map(|id| self.state.containers.get(*id));
            if members().any(|c| c.pending_cut.is_some() || taken.contains(&c.id)) {
                continue;
            }
            if members().all(is_trivial) {
                trivial_due.extend(group.iter().filter(|id| taken.insert(**id)));
            } else if with_bytes {
                taken.extend(group.iter().copied());
                due.push(group);
            }
        }
        for id in gone {
            self.state.cuts.dirty.remove(&id);
        }
        if !trivial_due.is_empty() {
            due.push(trivial_due);
        }
        for members in due {
            if self.begin_cut(&members).is_err() {
                return; // the journal does not take it: later
            }
        }
        self.advance_cuts();
    }

    /// True if somebody waits for a cut that was not begun.
    fn is_cut_asked_for(&self) -> bool {
        let is_to_come = |c: &Container| c.is_dirty() && c.pending_cut.is_none();
        self.state.cuts.wanted.iter().any(|id| self.state.containers.get(*id).is_some_and(is_to_come))
    }

    pub(super) fn begin_cut(&mut self, members: &[ContainerId]) -> cenote_model::Result<()> {
        self.densify(members);
        let (id, epoch) = (self.state.cuts.next_id, self.state.epoch);
        let containers = || members.iter().map(|member| self.state.containers.get(*member));
        let renews = containers().flatten().any(|container| container.pending_cut.is_some());
        // The journal says what is forgotten: a checkpoint does not keep what this is known from.
        let later = containers().map(|container| container.map_or(u32::MAX, |container| container.later));
        let later: Vec<u32> = if renews { later.collect() } else { Vec::new() };
        let mut draft = self.journal.draft(if renews { Kind::Recut } else { Kind::Cut });
        encode_cut(&mut draft.bytes, id, epoch, members);
        for later in &later {
            draft.bytes.put_u32(*later);
        }
        self.journal.append(draft, epoch)?;
        self.note_journal_dirty();
        self.state.begin_cut(id, epoch, members, &later);
        let now = self.state.now_ns;
        if let Some(cut) = self.state.cuts.get_mut(id) {
            cut.begun_ns = now;
        }
        Ok(())
    }

    /// Takes cuts whose copies are made a stage further.
    pub(super) fn advance_cuts(&mut self) {
        let mut done = Vec::new();
        for cut in self.state.cuts.pending.values_mut() {
            cut.urgent = cut.members.iter().any(|member| self.state.cuts.wanted.contains(member));
            if cut.stage == Stage::Drain && cut.queue.is_empty() && cut.in_flight == 0 {
                if cut.needs_sync {
                    cut.stage = Stage::Copied;
                } else {
                    done.push(cut.id);
                }
            }
        }
        for id in done {
            self.mark(id);
        }
    }

    /// All that a cut promises is on media: says so in the journal.
    pub(super) fn mark(&mut self, id: u64) {
        // What is to be renewed is not whole: a later cut takes its place at the next tick.
        let Some(cut) = self.state.cuts.pending.get(&id).filter(|cut| !cut.renew) else { return };
        let (epoch, members) = (cut.epoch, cut.members.clone());
        let mut draft = self.journal.draft(Kind::Mark);
        encode_cut(&mut draft.bytes, id, epoch, &members);
        if self.journal.append(draft, self.state.epoch).is_err() {
            return; // tried again at the next tick
        }
        self.note_journal_dirty();
        let position = self.journal.position();
        self.state.mark(id, epoch, &members, position);
    }

    /// The next batch of copies for a cut.
    pub(super) fn next_copy(&mut self) -> Option<Job> {
        if self.jobs.count(|what| matches!(what, What::Copy { .. } | What::Move { .. })) >= self.settings.copy_jobs {
            return None;
        }
        let (pressure, within_budgets) = (self.is_under_pressure(), self.is_within_budgets());
        let between_bursts = self.is_between_bursts();
        let ready = |cut: &&Cut| {
            let may_copy = between_bursts || self.may_copy(cut.begun_ns);
            let is_due = cut.urgent || pressure || (within_budgets && may_copy);
            is_due && cut.stage == Stage::Drain && self.may_try(cut) && !cut.queue.is_empty()
        };
        let pending = &self.state.cuts.pending;
        let cut = pending.values().filter(ready).max_by_key(|cut| (cut.urgent, std::cmp::Reverse(cut.id)))?.id;
        loop {
            let sources = self.gather(cut);
            if sources.is_empty() {
                self.advance_cuts();
                return None; // all of it was overwritten, or copied already
            }
            let lens: Vec<u32> = sources.iter().map(|source| source.ext.hull().len()).collect();
            match self.room_for(&lens, None) {
                Ok((dev, places)) => {
                    self.state.cuts.get_mut(cut)?.short_since_ns = None;
                    return self.copy_job(cut, sources, dev, &places);
                }
                Err(error) => {
                    let Some(second) = self.split_for_room(sources[0].target, &sources[0].ext, None) else {
                        self.put_back(cut, sources.into_iter().map(|source| source.again));
                        if !self.waits_for_space(cut) {
                            self.cut_failed(cut, &error);
                        }
                        return None;
                    };
                    self.put_first(cut, &sources, second);
                }
            }
        }
    }

    /// True if a cut without room had better wait: what was given up is not free yet. It waits a bounded time, since
    /// readers may hold it long.
    fn waits_for_space(&mut self, id: u64) -> bool {
        let given_up = !self.state.reclaim.is_empty()
            || self.state.space.present().any(|slot| !slot.is_volatile() && slot.retired.bytes() > 0);
        let now = self.state.now_ns;
        let Some(cut) = self.state.cuts.get_mut(id) else { return false };
        let since = *cut.short_since_ns.get_or_insert(now);
        if !given_up || now.saturating_sub(since) >= self.settings.retry_ns {
            return false;
        }
        cut.retry_ns = now + self.settings.group_commit_ns;
        true
    }

    /// Queues again what was gathered, before all else. The first of it was split, and `second` is its second part.
    fn put_first(&mut self, id: u64, sources: &[Source], second: Target) {
        let Some(cut) = self.state.cuts.get_mut(id) else { return };
        sources.iter().rev().for_each(|source| cut.queue.push_front(source.again));
        // A range that is queued has both parts.
        if let Target::Undo { container, number, piece } = second {
            cut.queue.push_front(DrainItem::Undo { container, number, piece: piece as usize });
        }
    }

    /// Takes extents from a cut's queue, some MiB together.
    fn gather(&mut self, id: u64) -> Vec<Source> {
        let mut sources = Vec::new();
        let mut bytes = 0;
        let bytes_max = self.cut_job_bytes();
        let Some(cut) = self.state.cuts.pending.get_mut(&id) else { return sources };
        let (epoch, members) = (cut.epoch, cut.members.clone());
        let mut queue = std::mem::take(&mut cut.queue);
        let mut looked = 0;
        let gone = self.gone_before(&members, epoch);
        let shares = self.state.space.shared.is_everywhere();
        while bytes < bytes_max && sources.len() < PARTS_MAX && looked < 16 * PARTS_MAX {
            let Some(item) = queue.pop_front() else { break };
            looked += 1;
            match item {
                DrainItem::Fresh(fresh) if gone.contains(&self.state.objects.get(fresh.slot).container) => {}
                DrainItem::Fresh(mut fresh) => {
                    let room = PARTS_MAX - sources.len();
                    let before = sources.len();
                    if let Some(from) = self.gather_fresh(fresh, epoch, (room, bytes_max), &mut bytes, &mut sources) {
                        fresh.len -= from - fresh.offset;
                        fresh.offset = from;
                        queue.push_front(DrainItem::Fresh(fresh));
                    }
                    looked += sources.len() - before;
                }
                DrainItem::Undo { container, number, piece } => {
                    let target = Target::Undo { container, number, piece: piece as u32 };
                    let ext = self.state.target_mut(target).cloned();
                    if let Some(ext) = ext.filter(|ext| self.state.space.at_risk(ext)) {
                        bytes += u64::from(ext.len);
                        sources.push(Source { target, ext, again: item });
                    }
                }
            }
        }
        if shares {
            // The same bytes elsewhere get the same copy: looked at again when that is there.
            let mut seen = self.jobs.copied();
            sources.retain(|source| {
                let first = seen.insert(identity(&source.ext));
                if !first {
                    queue.push_back(source.again);
                }
                first
            });
        }
        if let Some(cut) = self.state.cuts.pending.get_mut(&id) {
            cut.queue = queue;
        }
        sources
    }

    /// Gives the offset from which on nothing was taken, if the batch is full.
    fn gather_fresh(
        &self,
        fresh: crate::container::Fresh,
        cut_epoch: u64,
        (room, bytes_max): (usize, u64),
        bytes: &mut u64,
        sources: &mut Vec<Source>,
    ) -> Option<u64> {
        let object = self.state.objects.get(fresh.slot);
        if object.generation != fresh.generation || object.presence == Presence::Free {
            return None;
        }
        if !self.state.containers.is_taken(object.container) {
            return None;
        }
        let container = self.state.containers.at(object.container);
        self.state.containers.get(container.id)?; // else deleted
        let undo = match object.presence {
            Presence::Detached => {
                let (number, deleted) = *self.state.detached.get(&fresh.slot)?;
                if deleted <= cut_epoch {
                    return None; // not there at the cut
                }
                Some(number)
            }
            _ => None,
        };
        let key = self.state.key_of(fresh.slot);
        for (taken, (at, ext)) in object.map.overlapping(fresh.offset, fresh.offset + fresh.len).enumerate() {
            if taken >= room || *bytes >= bytes_max {
                return Some(at.max(fresh.offset));
            }
            if !self.state.space.at_risk(ext) || ext.born >= container.cuts {
                continue;
            }
            *bytes += u64::from(ext.len);
            let target = match undo {
                Some(number) => Target::Detached { container: key.container, number, offset: at },
                None => Target::Live { key, offset: at },
            };
            let piece = crate::container::Fresh { offset: at, len: u64::from(ext.len), ..fresh };
            sources.push(Source { target, ext: ext.clone(), again: DrainItem::Fresh(piece) });
        }
        None
    }

    /// Copies sources to these places on a device, as many as there are.
    fn copy_job(&mut self, cut: u64, sources: Vec<Source>, dev: u8, places: &[u64]) -> Option<Job> {
        let target = self.state.space.get(dev).device.clone()?;
        let mut parts = Vec::new();
        let mut work = Vec::new();
        for (i, source) in sources.into_iter().enumerate() {
            let Some(at) = places.get(i).copied() else {
                self.put_back(cut, std::iter::once(source.again));
                continue;
            };
            let hull = source.ext.hull();
            let padded = self.state.space.get(dev).padded(u64::from(hull.len()));
            let Some(part) = self.part_of(&source.ext) else {
                self.state.space.get_mut(dev).give_back(at, padded);
                self.put_back(cut, std::iter::once(source.again));
                let error = self.not_open(source.ext.dev);
                self.cut_failed(cut, &error);
                continue;
            };
            let action = Action::Copy { dev, base: at.wrapping_sub(u64::from(hull.begin)), packed: None };
            let placing = Placing { target: source.target, was: identity(&source.ext), action };
            self.charge(source.ext.dev, dev, u64::from(hull.len()));
            parts.push(CopyPart { placing, reserved: (dev, at, padded), again: Some(source.again) });
            work.push(Piece { part, at, like: None });
        }
        if parts.is_empty() {
            return None;
        }
        if let Some(cut) = self.state.cuts.get_mut(cut) {
            cut.in_flight += 1;
        }
        let syncs = self.state.space.get(dev).forgets_unsynced().then(|| Arc::clone(&self.state.space.get(dev).syncs));
        let work = Work::Copy(Copy { pieces: work, target, syncs, packing: self.packing_for(dev), read_back: false });
        Some(self.start(What::Copy { cut, parts }, work))
    }

    /// The bytes of an extent, in whole checksum units.
    pub(super) fn part_of(&self, ext: &Ext) -> Option<Part> {
        let device: Arc<dyn Device> = self.state.space.get(ext.dev).device.clone()?;
        let seen = ext.trimmed();
        Some(Part {
            device,
            offset: seen.run_offset,
            len: seen.run_len,
            sums: seen.sums().to_vec(),
            packed: seen.packed().cloned(),
        })
    }

    /// Takes room on a persistent device (or, for moves, where placement says) for stretches of these lengths: on one
    /// device, for as many as it has room for, at least one.
    pub(super) fn room_for(
        &mut self,
        lens: &[u32],
        moving: Option<(cenote_model::Durability, DeviceId)>,
    ) -> cenote_model::Result<(u8, Vec<u64>)> {
        let leaving = moving.map(|(_, from)| from);
        let padded = |len: &u32| u64::from(*len).next_multiple_of(4096);
        let total: u64 = lens.iter().map(padded).sum();
        let first = lens.first().map_or(4096, padded);
        for wanted in [total, first] {
            let mut refused: Vec<DeviceId> = leaving.into_iter().collect();
            while let Some(dev) = self.device_for(wanted, moving, &refused) {
                // What may stay must not fill the other device past its watermark, or it would come back.
                let may_stay = leaving.is_some_and(|from| !self.must_leave(from));
                let fitting = if may_stay && wanted < total { &lens[..1] } else { lens };
                let places = self.take_each(dev, fitting);
                if !places.is_empty() {
                    return Ok((dev, places));
                }
                refused.push(self.state.space.get(dev).id);
            }
        }
        Err(Error::new(ErrorKind::Full, "the persistent tiers")
            .because(format!("no room for a copy of {first} bytes: {}", self.uses()))
            .try_next("delete something or add a device; what was acknowledged stays readable"))
    }

    /// Where placement would put so many bytes, if not on the `refused` devices.
    pub(super) fn device_for(
        &self,
        bytes: u64,
        moving: Option<(cenote_model::Durability, DeviceId)>,
        refused: &[DeviceId],
    ) -> Option<u8> {
        let views = self.state.space.views();
        let among = |refused: &[DeviceId]| match moving {
            Some((durability @ cenote_model::Durability::Scratch, _)) => {
                place(&views, &PlaceRequest { durability, bytes, avoid: refused })
            }
            _ => place_copy(&views, bytes, refused),
        };
        let troubled = self.troubled();
        let well = if troubled.is_empty() { None } else { among(&[refused, &troubled].concat()).ok() };
        let decision = well.map_or_else(|| among(refused), Ok);
        let may_stay = moving.is_some_and(|(_, from)| !self.must_leave(from));
        // What may stay is no better off where that is full too.
        let decision = decision.ok().filter(|decision| !(decision.past_watermarks && may_stay))?;
        self.state.space.slot_of(decision.device)
    }

    /// True if a device is to be emptied, at all costs.
    fn must_leave(&self, id: DeviceId) -> bool {
        let slot = self.state.space.slot_of(id);
        slot.is_some_and(|slot| self.state.space.get(slot).state == cenote_model::DeviceState::Draining)
    }

    pub(super) fn take_each(&mut self, dev: u8, lens: &[u32]) -> Vec<u64> {
        let slot = self.state.space.get_mut(dev);
        let padded: Vec<u64> = lens.iter().map(|len| slot.padded(u64::from(*len))).collect();
        let total: u64 = padded.iter().sum();
        if let [(offset, _)] = slot.take(total, total)[..] {
            let mut at = offset;
            let place = |len: &u64| {
                at += len;
                at - len
            };
            return padded.iter().map(place).collect();
        }
        let mut places = Vec::new();
        for len in padded {
            match slot.take(len, len)[..] {
                [(offset, _)] => places.push(offset),
                _ => break,
            }
        }
        places
    }

    pub(super) fn put_back(&mut self, cut: u64, items: impl Iterator<Item = DrainItem>) {
        if let Some(cut) = self.state.cuts.get_mut(cut) {
            cut.queue.extend(items);
        }
    }

    /// What a part is, in words.
    pub(super) fn subject(&self, target: Target, len: u32) -> String {
        match target {
            Target::Live { key, offset } => format!("{len} bytes at {offset} of object {key}"),
            Target::Undo { container, number, piece } => {
                let undo = self
                    .state
                    .containers
                    .get(container)
                    .and_then(|c| c.undo.get(usize::try_from(number.checked_sub(c.undo_first)?).ok()?));
                match undo.map(|undo| &undo.change) {
                    Some(Change::Range { object, pieces, .. }) => {
                        let offset = pieces.get(piece as usize).map_or(0, |(offset, _)| offset);
                        format!("{len} bytes at {offset} of object {container}/{object}, as they were")
                    }
                    _ => format!("{len} bytes of container {container}, as they were"),
                }
            }
            Target::Detached { container, offset, .. } => {
                format!("{len} bytes at {offset} of a deleted object of container {container}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
