//! Jobs come back.

use std::collections::HashSet;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, Result};

use super::Engine;
use super::checkpoint::NextFile;
use super::jobs::{CopyPart, What};
use crate::copying::{Copied, CopyFailure};
use crate::journal::record::{Placed, encode_places};
use crate::journal::{Kind, file_name};
use crate::map::NO_DEVICE;
use crate::persist::{DrainItem, Stage};
use crate::placing::{Action, Placing, Target};
use crate::syncs::Log;
use crate::work::{Done, JobDone};

/// What copies are made for.
#[derive(Clone, Copy)]
enum Purpose {
    /// A cut waits for them.
    Cut(u64),
    /// The bytes leave this device.
    Leave(u8),
    /// They are to be elsewhere.
    Relocate,
}

impl Engine {
    /// Takes a job's result. Jobs may come back in any order.
    pub fn finish_job(&mut self, done: JobDone) {
        self.update_clock();
        let Some(running) = self.jobs.running.remove(&done.id) else { return };
        self.observe(&done.seen);
        match (running.what, done.result) {
            (What::SyncLog { position, sequence }, Done::SyncLog(result)) => {
                self.finish_sync_log(position, sequence, result);
            }
            (What::SyncDevices { slots, cuts }, Done::SyncDevices(results)) => {
                self.finish_sync_devices(&slots, &cuts, results);
            }
            (What::Copy { cut, parts }, Done::Copy(results, sync_failed)) => {
                self.look_at_target(sync_failed, &parts);
                if let Some(cut) = self.state.cuts.get_mut(cut) {
                    cut.in_flight = cut.in_flight.saturating_sub(1);
                }
                self.finish_copy(Purpose::Cut(cut), parts, results);
                self.advance_cuts();
            }
            (What::Rewrite { cut, container, targets }, Done::Copy(results, _)) => {
                self.finish_rewrite(cut, container, targets, results);
            }
            (What::Move { parts, leaving }, Done::Copy(results, sync_failed)) => {
                self.look_at_target(sync_failed, &parts);
                self.drain.moves_in_flight = self.drain.moves_in_flight.saturating_sub(1);
                self.finish_copy(Purpose::Leave(leaving), parts, results);
            }
            (What::Relocate { parts, relocations, began_ns }, Done::Copy(results, sync_failed)) => {
                self.look_at_target(sync_failed, &parts);
                self.begin_prefetched(&relocations);
                let error = self.finish_copy(Purpose::Relocate, parts, results);
                self.relocations_over(&relocations, began_ns, error.as_ref());
            }
            (What::Repack { parts }, Done::Copy(results, sync_failed)) => {
                self.look_at_target(sync_failed, &parts);
                self.finish_repack(parts, results);
            }
            (What::MakeLog { sequence }, Done::MakeLog(result)) => self.finish_make_log(sequence, result),
            (What::Checkpoint, Done::WriteCheckpoint(result)) => self.finish_checkpoint(result),
            (What::Reopen { dev }, Done::Reopen(result)) => self.finish_reopen(dev, result),
            (What::Change(change), Done::Change(result)) => self.finish_change(*change, result),
            (What::Check(slice), Done::Check(results)) => self.finish_check(slice, results),
            (What::Rescue(rescue), Done::Check(results)) => self.finish_rescue(*rescue, &results),
            (What::Read { ticket, key, size }, Done::Read(result)) => {
                self.finish_carrying_out(ticket, key, size, result);
            }
            (What::Deposit(deposit), Done::Deposit(result)) => self.finish_deposit(&deposit, result),
            (What::Spare(placings), Done::Check(results)) => self.finish_spare(placings, results),
            (What::Mend(mend), Done::Copy(results, sync_failed)) => self.finish_mend(*mend, &results, sync_failed),
            (What::Values(reading), Done::ReadValues(values, unread)) => {
                self.finish_reading(*reading, values, unread);
            }
            (What::Spill(spilling), Done::WriteValues(result)) => self.finish_spill(*spilling, result),
            _ => {}
        }
        self.answer_waiters();
    }

    /// The target of copies could not be synced: what was not synced of it is not to be trusted.
    fn look_at_target(&mut self, sync_failed: bool, parts: &[CopyPart]) {
        if let (true, Some(part)) = (sync_failed, parts.first()) {
            self.look_at_syncs(part.reserved.0);
        }
    }

    fn finish_sync_log(&mut self, position: u64, sequence: u64, result: Result<()>) {
        match result {
            Ok(()) => self.journal.note_synced(position),
            Err(_) if sequence != self.journal.sequence => {} // its successor was begun only after it was on media
            Err(error) => {
                self.mend_journal(&error);
            }
        }
    }

    /// Nothing is known of what of the journal is on media, and a later sync would not tell: a checkpoint makes the
    /// file superfluous.
    fn mend_journal(&mut self, error: &Error) {
        let Err(second) = self.checkpoint_now() else { return };
        self.journal_retry_ns = self.state.now_ns + self.settings.retry_ns;
        let error = Error::new(ErrorKind::Io, "the journal")
            .because(format!("{error}; nor could a checkpoint be written: {second}"))
            .try_next("look after the file system of the store directory");
        self.fail_waiters(&error, |what| matches!(what, super::flush::Wait::Durable { .. }));
    }

    /// Syncs the journal here and now, before something that a lost record would make senseless.
    pub(super) fn sync_log_now(&mut self) -> Result<()> {
        if self.journal.synced() >= self.journal.position() {
            return Ok(());
        }
        let synced = if self.journal.is_tainted() { Err(log_sync_failed()) } else { self.journal.sync() };
        let Err(failed) = synced else { return Ok(()) };
        self.mend_journal(&failed);
        if self.journal.is_tainted() {
            Err(failed.try_next("look after the file system of the store directory"))
        } else {
            Ok(())
        }
    }

    /// Tries again to get rid of a journal file that cannot be synced.
    pub(super) fn mend_journal_if_due(&mut self) {
        if self.journal.is_tainted() && self.journal_retry_ns <= self.state.now_ns {
            self.mend_journal(&log_sync_failed());
        }
    }

    fn finish_sync_devices(&mut self, slots: &[(u8, u64)], cuts: &[u64], results: Vec<Result<()>>) {
        let mut failure = None;
        let mut trusted = true;
        for ((dev, failed_before), result) in slots.iter().zip(results) {
            // Another sync may have failed before, and have dropped what this one then did not see.
            self.look_at_syncs(*dev);
            trusted &= self.state.space.get(*dev).failed_syncs == *failed_before;
            if let Err(error) = result {
                self.note_trouble(*dev, &error);
                let name = &self.state.space.get(*dev).spec.name;
                failure = Some(
                    Error::new(error.kind(), format!("syncing device `{name}`"))
                        .because(if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() })
                        .try_next("look after the device; what was written is written again and tried again"),
                );
            }
        }
        for id in cuts {
            let Some(cut) = self.state.cuts.get_mut(*id) else { continue };
            if failure.is_none() && trusted {
                // If the journal does not take the mark, the tick tries again from here.
                (cut.stage, cut.needs_sync) = (Stage::Drain, false);
                self.mark(*id);
            } else {
                cut.stage = Stage::Copied;
                if let Some(error) = &failure {
                    self.cut_failed(*id, error);
                }
            }
        }
    }

    /// What was copied on nobody's account is where it was to be.
    pub(super) fn finish_relocation(&mut self, parts: Vec<CopyPart>, results: Vec<Copied>) {
        self.finish_copy(Purpose::Relocate, parts, results);
    }

    /// Gives what went wrong, if something did.
    fn finish_copy(&mut self, purpose: Purpose, mut parts: Vec<CopyPart>, results: Vec<Copied>) -> Option<Error> {
        self.settle_room(&mut parts, &results);
        let cut = if let Purpose::Cut(cut) = purpose { Some(cut) } else { None };
        // Now, not when the job began: a sync that began in between does not cover it.
        for part in &parts {
            let slot = self.state.space.get_mut(part.reserved.0);
            slot.unsynced |= !slot.is_volatile();
            if let Some(cut) = cut.and_then(|cut| self.state.cuts.get_mut(cut)) {
                cut.wrote.add(part.reserved.0);
            }
        }
        let mut good: Vec<CopyPart> = Vec::new();
        // An extent can be listed twice; what the first one did is not done yet when the second one is looked at.
        let mut targets = HashSet::new();
        // The same bytes in a snapshot: what becomes of the first mostly becomes of the second too.
        let mut bytes = HashSet::new();
        let mut failure = None;
        for (part, result) in parts.into_iter().zip(results) {
            match result {
                Ok(_) if targets.contains(&part.placing.target) => self.give_back(&part),
                Ok(_) if !bytes.insert(part.placing.was) => {
                    self.give_back(&part);
                    self.again(cut, &part);
                }
                Ok(_)
                    if self.is_same_object(&part)
                        && self.state.can_place(&part.placing)
                        && !(cut.is_some() && self.has_copy_by_now(&part)) =>
                {
                    targets.insert(part.placing.target);
                    good.push(part);
                }
                Ok(_) => {
                    self.give_back(&part);
                    self.again(cut, &part); // it changed meanwhile: look again
                }
                Err(CopyFailure::NoSmaller) => self.give_back(&part),
                Err(CopyFailure::Source(_)) if !matches!(part.placing.target, Target::Live { .. }) => {
                    // Overwritten since, and not to be read: a later cut does not need it.
                    self.give_back(&part);
                    if let Some(cut) = cut.and_then(|cut| self.state.cuts.get_mut(cut)) {
                        cut.renew = true;
                    }
                }
                Err(what) => {
                    self.give_back(&part);
                    self.again(cut, &part);
                    failure = Some(self.copy_failed(&part, what));
                }
            }
        }
        if !good.is_empty() {
            let placings: Vec<Placing> = good.iter().map(|part| part.placing.clone()).collect();
            match self.place_all(&placings) {
                Ok(()) => {
                    for part in &good {
                        let slot = self.state.space.get_mut(part.reserved.0);
                        slot.reserved_bytes = slot.reserved_bytes.saturating_sub(part.reserved.2);
                        self.moved_bytes += u64::from(part.placing.was.3);
                    }
                }
                Err(error) => {
                    for part in &good {
                        self.give_back(part);
                        self.again(cut, part);
                    }
                    failure = Some(error);
                }
            }
        }
        self.counting.failed(failure.is_some());
        match (&failure, purpose) {
            (Some(error), Purpose::Cut(cut)) => self.cut_failed(cut, error),
            (Some(error), Purpose::Leave(leaving)) => self.moves_failed(error, leaving),
            (Some(_), Purpose::Relocate) | (None, _) => {}
        }
        failure
    }

    /// True if what was copied got a copy elsewhere meanwhile, since somebody wanted it there.
    fn has_copy_by_now(&mut self, part: &CopyPart) -> bool {
        self.state.target_mut(part.placing.target).is_some_and(|ext| ext.copy != NO_DEVICE)
    }

    /// False if another object has taken the place of the one that a cut has to copy from. It may have the very same extent:
    /// a rollback brings it back from a snapshot.
    fn is_same_object(&mut self, part: &CopyPart) -> bool {
        match (part.placing.target, part.again) {
            (Target::Live { key, .. }, Some(DrainItem::Fresh(fresh))) => {
                self.state.find_object(key) == Some(fresh.slot)
            }
            _ => true,
        }
    }

    fn give_back(&mut self, part: &CopyPart) {
        let (dev, offset, bytes) = part.reserved;
        if bytes > 0 {
            self.state.space.get_mut(dev).give_back(offset, bytes);
        }
    }

    /// What was compressed took less room than was reserved, and parts moved up: each part has what it took from now on,
    /// and the rest is given back.
    fn settle_room(&mut self, parts: &mut [CopyPart], results: &[Copied]) {
        let lands = |(part, result): (&CopyPart, &Copied)| match result {
            Ok(landed) => landed.packed.is_none() && landed.at == part.reserved.1,
            Err(_) => true,
        };
        if parts.iter().zip(results).all(lands) {
            return;
        }
        let Some(dev) = parts.first().map(|part| part.reserved.0) else { return };
        let mut rooms: Vec<(u64, u64)> = Vec::new();
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (part, result) in parts.iter_mut().zip(results) {
            let (_, from, bytes) = part.reserved;
            match rooms.last_mut().filter(|(_, end)| *end == from) {
                Some((_, end)) => *end += bytes,
                None => rooms.push((from, from + bytes)),
            }
            part.reserved = (dev, 0, 0);
            if let Ok(landed) = result {
                let took = landed.packed.as_ref().map_or(bytes, |packed| u64::from(packed.stored_bytes()));
                part.reserved = (dev, landed.at, took);
                part.placing.action.land(from, landed.at, landed.packed.clone());
                taken.push((landed.at, landed.at + took));
            }
        }
        taken.sort_unstable();
        for (begin, end) in rooms {
            let mut at = begin;
            for (from, to) in taken.iter().filter(|(from, _)| (begin..end).contains(from)) {
                if *from > at {
                    self.state.space.get_mut(dev).give_back(at, from - at);
                }
                at = *to;
            }
            if end > at {
                self.state.space.get_mut(dev).give_back(at, end - at);
            }
        }
    }

    fn again(&mut self, cut: Option<u64>, part: &CopyPart) {
        if let (Some(cut), Some(item)) = (cut, part.again) {
            self.put_back(cut, std::iter::once(item));
        }
    }

    /// Records what went wrong; gives the error for those who wait.
    fn copy_failed(&mut self, part: &CopyPart, failure: CopyFailure) -> Error {
        let subject = self.subject(part.placing.target, part.placing.was.3);
        match failure {
            CopyFailure::NoSmaller => Error::new(ErrorKind::Internal, subject).because("it was not to be compressed"),
            CopyFailure::Source(error) => {
                self.note_unread(part.placing.was.0, error.kind() == ErrorKind::Corrupt, &error);
                if let Target::Live { key, offset } = part.placing.target {
                    self.add_finding(key, offset, part.placing.was.3, part.placing.was.0, error.cause());
                }
                let device = self.state.space.get(part.placing.was.0).spec.name.clone();
                // Only what is damaged is helped by writing it again: what cannot be reached now is still there.
                let next = if error.kind() == ErrorKind::Corrupt {
                    "rewrite or delete that range; the rest of the store is not affected".to_owned()
                } else {
                    format!("look after `{device}` (`cenote tiers` says how it is) and repeat; its bytes are not lost")
                };
                Error::new(error.kind(), subject).because(format!("on `{device}`: {}", error.cause())).try_next(next)
            }
            CopyFailure::Target(error) => {
                self.note_trouble(part.reserved.0, &error);
                let device = self.state.space.get(part.reserved.0).spec.name.clone();
                Error::new(error.kind(), format!("copying {subject} to `{device}`"))
                    .because(if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() })
                    .try_next(match error.next_step() {
                        "" => "look after the device; the bytes stay where they were".to_owned(),
                        next => format!("{next}; the bytes stay where they were"),
                    })
            }
        }
    }

    /// Writes placings to the journal and does them, and what follows from them for other extents that are the same bytes.
    /// Each must be possible. What would fall back to a copy that is not to be trusted unread is done once that was read.
    pub(super) fn place_all(&mut self, placings: &[Placing]) -> Result<()> {
        if !self.state.space.any_damaged {
            return self.place_trusted(placings);
        }
        let (trusted, _) = self.doubt(placings.to_vec(), None);
        if trusted.is_empty() { Ok(()) } else { self.place_trusted(&trusted) }
    }

    /// The same of what was looked at.
    pub(super) fn place_trusted(&mut self, placings: &[Placing]) -> Result<()> {
        let groups = self.with_sharers(placings);
        let all = groups.iter().flat_map(|group| group.iter().enumerate());
        let places: Vec<Placed> =
            all.map(|(number, placing)| Placed::new(placing, number > 0, |dev| self.state.space.get(dev).id)).collect();
        let mut draft = self.journal.draft(Kind::Place);
        encode_places(&mut draft.bytes, &places);
        self.journal.append(draft, self.state.epoch)?;
        self.note_journal_dirty();
        let tag = self.tag();
        for group in &groups {
            self.note_placing(&group[0]);
            for (number, placing) in group.iter().enumerate() {
                let twins = self.state.twins(placing);
                self.state.place(placing, &twins, number > 0, tag);
                if let Target::Live { key, .. } = placing.target {
                    // These change nothing for readers.
                    if !matches!(placing.action, Action::Copy { .. } | Action::DropCopy | Action::Split { .. }) {
                        for key in [key].iter().chain(&twins) {
                            self.seams.control.word_raise(key.word_hash());
                        }
                    }
                }
            }
            self.note_group(group);
        }
        self.seams.control.epoch_raise();
        Ok(())
    }

    /// Each placing with those that follow from it. No two groups are about the same bytes.
    fn with_sharers(&mut self, placings: &[Placing]) -> Vec<Vec<Placing>> {
        let mut seen = HashSet::new();
        let mut groups = Vec::with_capacity(placings.len());
        for placing in placings {
            if placings.len() > 1 && !seen.insert(placing.was) {
                continue;
            }
            let mut group = vec![placing.clone()];
            for other in self.state.sharers(placing) {
                if self.state.can_place(&other) && !self.is_held(&other) {
                    group.push(other);
                }
            }
            groups.push(group);
        }
        groups
    }

    /// What moved together is found together at its new place.
    fn note_group(&mut self, group: &[Placing]) {
        if group.len() < 2 {
            return;
        }
        let mut targets: Vec<Target> = group.iter().map(|placing| placing.target).collect();
        if let Action::Split { at } = group[0].action {
            let second = |placing: &Placing| match placing.target {
                Target::Live { key, offset } => Some(Target::Live { key, offset: offset + u64::from(at) }),
                Target::Undo { .. } | Target::Detached { .. } => None,
            };
            targets.extend(group.iter().filter_map(second));
        }
        self.state.note_moved(&targets);
    }

    fn finish_make_log(&mut self, sequence: u64, result: Result<Arc<Log>>) {
        // If it failed, the journal makes its next file itself, and says so if it cannot.
        if self.checkpoint.file == NextFile::Wanted {
            self.checkpoint.file = NextFile::Tried;
        }
        if !self.journal.give_spare(sequence, result.ok()) {
            let _ = self.seams.meta.remove(&file_name(sequence)); // it has no header, so it does no harm
        }
    }
}

fn log_sync_failed() -> Error {
    Error::new(ErrorKind::Io, "the journal").because("a sync failed")
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemClock;
    use cenote_model::{ObjectId, ObjectKey};

    use super::*;
    use crate::engine::filled::filled;
    use crate::placing::identity;

    /// A second placing of the same bytes is none: they are where the first one puts them by then.
    #[test]
    fn no_two_groups_are_about_the_same_bytes() {
        let mut engine = filled(&Arc::<MemClock>::default(), 2);
        let ids = engine.state.containers.ids();
        let [one, other] = [ids[0], ids[1]].map(|container| {
            let target = Target::Live { key: ObjectKey { container, object: ObjectId(1) }, offset: 0 };
            let was = identity(engine.state.target_mut(target).unwrap());
            Placing { target, was, action: Action::Split { at: 1 } }
        });
        let groups = engine.with_sharers(&[one.clone(), other.clone(), one.clone()]);
        assert_eq!(groups, [vec![one.clone()], vec![other]]);
        assert_eq!(engine.with_sharers(std::slice::from_ref(&one)), [vec![one.clone()]]);
    }
}
