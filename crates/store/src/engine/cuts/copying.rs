//! Begins cuts (consistent cuts) and copies the extents that they need.

use std::sync::Arc;

use cenote_model::ContainerId;

use super::Cutting;
use crate::codec::Encode;
use crate::container::Container;
use crate::copying::{Copy, Piece};
use crate::engine::core::{CopyPart, Core, Purpose, Reserved};
use crate::journal::Kind;
use crate::journal::record::encode_cut;
use crate::map::{DeviceIndex, Ext};
use crate::objects::Presence;
use crate::persist::{Cut, CutPhase, DrainItem};
use crate::placing::{Action, Placing, Target, identity};
use crate::work::Job;

/// Most extents in one job.
const PARTS_MAX: usize = 1024;

/// A volatile extent that a cut needs a copy of.
struct Source {
    target: Target,
    ext: Ext,
    again: DrainItem,
}

/// Returns a job that makes the next batch of copies for a cut.
pub fn next_copy(core: &mut Core) -> Option<Job> {
    if core.jobs.copying(|purpose| matches!(purpose, Purpose::Cut(_) | Purpose::Leave(_))) >= core.settings.copy_jobs {
        return None;
    }
    let (pressure, within_budgets) = (core.is_under_pressure(), core.is_within_budgets());
    let between_bursts = core.is_between_bursts();
    let ready = |cut: &&Cut| {
        let may_copy = between_bursts || core.may_copy(cut.tries.begun_ns);
        let is_due = cut.urgent || pressure || (within_budgets && may_copy);
        is_due && cut.phase == CutPhase::Drain && super::failing::may_try(core, cut) && !cut.queue.is_empty()
    };
    let pending = &core.state.cuts.pending;
    let cut = pending.values().filter(ready).max_by_key(|cut| (cut.urgent, std::cmp::Reverse(cut.id)))?.id;
    loop {
        let sources = gather(core, cut);
        if sources.is_empty() {
            core.advance_cuts();
            return None; // all of it was overwritten, or copied already
        }
        let lens: Vec<u32> = sources.iter().map(|source| source.ext.hull().len()).collect();
        match core.room_for(&lens, None) {
            Ok((dev, places)) => {
                core.state.cuts.get_mut(cut)?.tries.short_since_ns = None;
                return copy_job(core, cut, sources, dev, &places);
            }
            Err(error) => {
                let Some(second) = core.split_for_room(sources[0].target, &sources[0].ext, None) else {
                    put_back(core, cut, sources.into_iter().map(|source| source.again));
                    if !waits_for_space(core, cut) {
                        core.cut_failed(cut, &error);
                    }
                    return None;
                };
                put_first(core, cut, &sources, second);
            }
        }
    }
}

/// Copies sources to these places on a device, as many as there are places.
fn copy_job(core: &mut Core, cut: u64, sources: Vec<Source>, dev: DeviceIndex, places: &[u64]) -> Option<Job> {
    let target = core.state.space.get(dev).device.clone()?;
    let mut parts = Vec::new();
    let mut work = Vec::new();
    for (i, source) in sources.into_iter().enumerate() {
        let Some(at) = places.get(i).copied() else {
            put_back(core, cut, std::iter::once(source.again));
            continue;
        };
        let hull = source.ext.hull();
        let padded = core.state.space.get(dev).padded(u64::from(hull.len()));
        let Some(part) = core.part_of(&source.ext) else {
            core.state.space.get_mut(dev).unreserve(at, padded);
            put_back(core, cut, std::iter::once(source.again));
            let error = core.not_open(source.ext.dev);
            core.cut_failed(cut, &error);
            continue;
        };
        let action = Action::Copy { dev, base: at.wrapping_sub(u64::from(hull.begin)), packed: None, replaces: None };
        let placing = Placing { target: source.target, was: identity(&source.ext), action };
        core.charge(source.ext.dev, dev, u64::from(hull.len()));
        parts.push(CopyPart {
            placing,
            reserved: Reserved { dev, offset: at, bytes: padded },
            again: Some(source.again),
        });
        work.push(Piece { part, at, like: None });
    }
    if parts.is_empty() {
        return None;
    }
    if let Some(cut) = core.state.cuts.get_mut(cut) {
        cut.in_flight += 1;
    }
    let syncs =
        core.state.space.get(dev).forgets_unsynced().then(|| Arc::clone(&core.state.space.get(dev).trust.syncs));
    let copy = Copy { pieces: work, target, syncs, packing: core.packing_for(dev), read_back: false };
    Some(core.start_copies(Purpose::Cut(cut), parts, copy, move |_: &mut Cutting, core, parts, results| {
        if let Some(cut) = core.state.cuts.get_mut(cut) {
            cut.in_flight = cut.in_flight.saturating_sub(1);
        }
        core.finish_copy(Purpose::Cut(cut), parts, results);
        core.advance_cuts();
    }))
}

/// Takes some MiB of extents from a cut's queue.
fn gather(core: &mut Core, id: u64) -> Vec<Source> {
    let mut sources = Vec::new();
    let mut bytes = 0;
    let bytes_max = core.cut_job_bytes();
    let Some(cut) = core.state.cuts.pending.get_mut(&id) else { return sources };
    let (epoch, members) = (cut.epoch, cut.members.clone());
    let mut queue = std::mem::take(&mut cut.queue);
    let mut looked = 0;
    let gone = core.gone_before(&members, epoch);
    let shares = core.state.space.shared.is_everywhere();
    while bytes < bytes_max && sources.len() < PARTS_MAX && looked < 16 * PARTS_MAX {
        let Some(item) = queue.pop_front() else { break };
        looked += 1;
        match item {
            DrainItem::Fresh(fresh) if gone.contains(&core.state.objects.get(fresh.slot).container) => {}
            DrainItem::Fresh(mut fresh) => {
                let room = PARTS_MAX - sources.len();
                let before = sources.len();
                if let Some(from) = gather_fresh(core, fresh, epoch, (room, bytes_max), &mut bytes, &mut sources) {
                    fresh.len -= from - fresh.offset;
                    fresh.offset = from;
                    queue.push_front(DrainItem::Fresh(fresh));
                }
                looked += sources.len() - before;
            }
            DrainItem::Undo { container, number, piece } => {
                let target = Target::Undo { container, number, piece: piece as u32 };
                let ext = core.state.target_mut(target).cloned();
                if let Some(ext) = ext.filter(|ext| core.state.space.at_risk(ext)) {
                    bytes += u64::from(ext.len);
                    sources.push(Source { target, ext, again: item });
                }
            }
        }
    }
    if shares {
        // Extents with the same bytes get the same copy: look at them again when that is made.
        let mut seen = core.jobs.copied();
        sources.retain(|source| {
            let first = seen.insert(identity(&source.ext));
            if !first {
                queue.push_back(source.again);
            }
            first
        });
    }
    if let Some(cut) = core.state.cuts.pending.get_mut(&id) {
        cut.queue = queue;
    }
    sources
}

/// Begins the cuts that are due. `pressure`: a volatile device is too full.
pub fn begin_cuts(core: &mut Core, pressure: bool) {
    let now = core.state.now.ns;
    // Very many dirty containers may only be growing old: do not inspect them at each tick.
    let rest_ns = core.settings.group_commit_ns / 2;
    if !pressure && now.saturating_sub(core.observed.pace.looked_ns) < rest_ns && !is_cut_asked_for(core) {
        return core.advance_cuts();
    }
    (core.observed.pace.looked_ns, core.observed.pace.early_ns) = (now, None);
    let mut due: Vec<Vec<ContainerId>> = Vec::new();
    let mut trivial_due: Vec<ContainerId> = Vec::new();
    let mut gone = Vec::new();
    let mut taken: std::collections::BTreeSet<ContainerId> = std::collections::BTreeSet::new();
    for id in &core.state.cuts.dirty {
        let Some(container) = core.state.containers.get(*id).filter(|c| c.is_dirty()) else {
            gone.push(*id);
            continue;
        };
        if container.durable.pending_cut.is_some() || taken.contains(id) {
            continue;
        }
        let age = now.saturating_sub(container.unsaved.dirty_since_ns);
        let is_much = container.has_fresh(core.settings.burst_bytes);
        if is_much {
            let early_ns = container.unsaved.dirty_since_ns.saturating_add(core.settings.write_back_early_ns);
            core.observed.pace.early_ns =
                Some(core.observed.pace.early_ns.map_or(early_ns, |first| first.min(early_ns)));
        }
        let wanted = core.state.cuts.wanted.contains(id);
        if !wanted && !pressure && age < core.settings.group_commit_ns {
            continue;
        }
        let is_trivial = |c: &Container| c.unsaved.fresh.is_empty() && c.unsaved.data_epoch <= c.durable.persisted;
        let old_ns = container.unsaved.dirty_since_ns.saturating_add(core.settings.write_back_ns);
        let is_due = age >= core.settings.write_back_ns && core.may_copy(old_ns)
            || age >= core.settings.write_back_early_ns && is_much && core.may_copy_early();
        let with_bytes = wanted || is_due || (pressure && !container.unsaved.fresh.is_empty());
        if !with_bytes && !is_trivial(container) {
            continue;
        }
        let group = core.state.linked(*id);
        let members = || group.iter().filter_map(|id| core.state.containers.get(*id));
        if members().any(|c| c.durable.pending_cut.is_some() || taken.contains(&c.id)) {
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
        core.state.cuts.dirty.remove(&id);
    }
    if !trivial_due.is_empty() {
        due.push(trivial_due);
    }
    for members in due {
        if begin_cut(core, &members).is_err() {
            return; // the journal does not take it: retry later
        }
    }
    core.advance_cuts();
}

/// Begins a cut of these containers at the current epoch, or renews their pending one. Fails if the journal does
/// not take the record.
pub fn begin_cut(core: &mut Core, members: &[ContainerId]) -> cenote_model::Result<()> {
    super::densify::densify(core, members);
    let (id, epoch) = (core.state.cuts.next_id, core.state.epoch);
    let containers = || members.iter().map(|member| core.state.containers.get(*member));
    let renews = containers().flatten().any(|container| container.durable.pending_cut.is_some());
    // The record says what the cut forgets, because a checkpoint does not keep the data to derive it.
    let later = containers().map(|container| container.map_or(u32::MAX, |container| container.durable.later));
    let later: Vec<u32> = if renews { later.collect() } else { Vec::new() };
    let mut draft = core.journal.draft(if renews { Kind::Recut } else { Kind::Cut });
    encode_cut(&mut draft.bytes, id, epoch, members);
    for later in &later {
        draft.bytes.put_u32(*later);
    }
    core.journal.append(draft, epoch)?;
    core.note_journal_dirty();
    core.state.begin_cut(id, epoch, members, &later);
    let now = core.state.now.ns;
    if let Some(cut) = core.state.cuts.get_mut(id) {
        cut.tries.begun_ns = now;
    }
    Ok(())
}

/// Returns true if a response waits for a cut that was not begun.
fn is_cut_asked_for(core: &Core) -> bool {
    let is_to_come = |c: &Container| c.is_dirty() && c.durable.pending_cut.is_none();
    core.state.cuts.wanted.iter().any(|id| core.state.containers.get(*id).is_some_and(is_to_come))
}

/// Returns true if a cut without room should wait until space given up is free. The wait is bounded, since
/// readers may hold the space long.
fn waits_for_space(core: &mut Core, id: u64) -> bool {
    let given_up = !core.state.gone.reclaim.is_empty()
        || core.state.space.present().any(|slot| !slot.is_volatile() && slot.space.retired.bytes() > 0);
    let now = core.state.now.ns;
    let Some(cut) = core.state.cuts.get_mut(id) else { return false };
    let since = *cut.tries.short_since_ns.get_or_insert(now);
    if !given_up || now.saturating_sub(since) >= core.settings.retry_ns {
        return false;
    }
    cut.tries.retry_ns = now + core.settings.group_commit_ns;
    true
}

/// Puts gathered sources back at the front of the queue. The first of them was split, and `second` is its second
/// part.
fn put_first(core: &mut Core, id: u64, sources: &[Source], second: Target) {
    let Some(cut) = core.state.cuts.get_mut(id) else { return };
    sources.iter().rev().for_each(|source| cut.queue.push_front(source.again));
    // A queued range contains both parts.
    if let Target::Undo { container, number, piece } = second {
        cut.queue.push_front(DrainItem::Undo { container, number, piece: piece as usize });
    }
}

/// Gathers the extents of a fresh range. Returns the offset of the first byte not taken, if the batch is full.
fn gather_fresh(
    core: &Core,
    fresh: crate::container::Fresh,
    cut_epoch: u64,
    (room, bytes_max): (usize, u64),
    bytes: &mut u64,
    sources: &mut Vec<Source>,
) -> Option<u64> {
    let object = core.state.objects.get(fresh.slot);
    if object.generation != fresh.generation || object.presence == Presence::Free {
        return None;
    }
    if !core.state.containers.is_taken(object.container) {
        return None;
    }
    let container = core.state.containers.at(object.container);
    core.state.containers.get(container.id)?; // else deleted
    let undo = match object.presence {
        Presence::Detached => {
            let (number, deleted) = *core.state.gone.detached.get(&fresh.slot)?;
            if deleted <= cut_epoch {
                return None; // not there at the cut
            }
            Some(number)
        }
        _ => None,
    };
    let key = core.state.key_of(fresh.slot);
    for (taken, (at, ext)) in object.map.overlapping(fresh.offset, fresh.offset + fresh.len).enumerate() {
        if taken >= room || *bytes >= bytes_max {
            return Some(at.max(fresh.offset));
        }
        if !core.state.space.at_risk(ext) || ext.born >= container.durable.cuts {
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

/// Appends items to a cut's queue again.
pub fn put_back(core: &mut Core, cut: u64, items: impl Iterator<Item = DrainItem>) {
    if let Some(cut) = core.state.cuts.get_mut(cut) {
        cut.queue.extend(items);
    }
}

#[cfg(test)]
mod tests;
