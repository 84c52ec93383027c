//! Placings: into the journal and the maps. Copies come back from jobs and become places.

use std::collections::HashSet;

use cenote_model::{Error, ErrorKind, Result};

use super::{CopyPart, Core, Purpose, Reserved};
use crate::copying::{Copied, CopyFailure};
use crate::engine::activity::Ask;
use crate::journal::Kind;
use crate::journal::record::{Placed, encode_places};
use crate::persist::DrainItem;
use crate::placing::{Action, Placing, Target};

impl Core {
    /// If the sync of the target failed, suspects all its unsynced writes.
    pub fn look_at_target(&mut self, sync_failed: bool, parts: &[CopyPart]) {
        if let (true, Some(part)) = (sync_failed, parts.first()) {
            self.look_at_syncs(part.reserved.dev);
        }
    }

    /// Places finished copies, returns unused room, and queues failed copies of a cut again. Returns the last error, if
    /// any.
    pub fn finish_copy(&mut self, purpose: Purpose, mut parts: Vec<CopyPart>, results: Vec<Copied>) -> Option<Error> {
        self.settle_room(&mut parts, &results);
        let cut = if let Purpose::Cut(cut) = purpose { Some(cut) } else { None };
        // Now, not when the job began: a sync that began in between does not cover these writes.
        for part in &parts {
            let slot = self.state.space.get_mut(part.reserved.dev);
            slot.trust.unsynced |= !slot.is_volatile();
            if let Some(cut) = cut.and_then(|cut| self.state.cuts.get_mut(cut)) {
                cut.sync.wrote.add(part.reserved.dev);
            }
        }
        let mut good: Vec<CopyPart> = Vec::new();
        // An extent can be listed twice; the second one must see that the first is about to be placed.
        let mut targets = HashSet::new();
        // Twins (the same bytes in a snapshot) mostly share the disposition of the first one.
        let mut bytes = HashSet::new();
        let mut failure = None;
        for (mut part, result) in parts.into_iter().zip(results) {
            self.state.choose_replaced(&mut part.placing);
            match result {
                Ok(_) if targets.contains(&part.placing.target) => self.unreserve(&part),
                Ok(_) if !bytes.insert(part.placing.was) => {
                    self.unreserve(&part);
                    self.queue_again(cut, &part);
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
                    self.unreserve(&part);
                    self.queue_again(cut, &part); // changed meanwhile: inspect it again
                }
                Err(CopyFailure::NoSmaller) => self.unreserve(&part),
                Err(CopyFailure::Source(_)) if !matches!(part.placing.target, Target::Live { .. }) => {
                    // Overwritten since, and unreadable: a later cut does not need it.
                    self.unreserve(&part);
                    if let Some(cut) = cut.and_then(|cut| self.state.cuts.get_mut(cut)) {
                        cut.renew = true;
                    }
                }
                Err(what) => {
                    self.unreserve(&part);
                    self.queue_again(cut, &part);
                    failure = Some(self.copy_failed(&part, what));
                }
            }
        }
        if !good.is_empty() {
            let placings: Vec<Placing> = good.iter().map(|part| part.placing.clone()).collect();
            match self.place_all(&placings) {
                Ok(()) => {
                    for part in &good {
                        let slot = self.state.space.get_mut(part.reserved.dev);
                        slot.space.reserved_bytes = slot.space.reserved_bytes.saturating_sub(part.reserved.bytes);
                        self.observed.counting.moved_bytes += u64::from(part.placing.was.len);
                    }
                }
                Err(error) => {
                    for part in &good {
                        self.unreserve(part);
                        self.queue_again(cut, part);
                    }
                    failure = Some(error);
                }
            }
        }
        self.observed.counting.failed(failure.is_some());
        if let (Some(error), Purpose::Cut(cut)) = (&failure, purpose) {
            self.cut_failed(cut, error);
        }
        failure
    }

    /// Returns true if the extent got a copy elsewhere meanwhile.
    pub fn has_copy_by_now(&mut self, part: &CopyPart) -> bool {
        self.state.target_mut(part.placing.target).is_some_and(|ext| ext.has_copy())
    }

    /// Returns false if another object has replaced the one to be copied for a cut. It may have the very same extent,
    /// because a rollback brings it back from a snapshot.
    pub fn is_same_object(&mut self, part: &CopyPart) -> bool {
        match (part.placing.target, part.again) {
            (Target::Live { key, .. }, Some(DrainItem::Fresh(fresh))) => {
                self.state.find_object(key) == Some(fresh.slot)
            }
            _ => true,
        }
    }

    /// Returns the room reserved for a copy.
    pub fn unreserve(&mut self, part: &CopyPart) {
        let Reserved { dev, offset, bytes } = part.reserved;
        if bytes > 0 {
            self.state.space.get_mut(dev).unreserve(offset, bytes);
        }
    }

    /// Adjusts reservations after compression: parts took less room and moved up, so each part keeps what it took, and
    /// the rest becomes free.
    pub fn settle_room(&mut self, parts: &mut [CopyPart], results: &[Copied]) {
        let lands = |(part, result): (&CopyPart, &Copied)| match result {
            Ok(landed) => landed.packed.is_none() && landed.at == part.reserved.offset,
            Err(_) => true,
        };
        if parts.iter().zip(results).all(lands) {
            return;
        }
        let Some(dev) = parts.first().map(|part| part.reserved.dev) else { return };
        let mut rooms: Vec<(u64, u64)> = Vec::new();
        let mut taken: Vec<(u64, u64)> = Vec::new();
        for (part, result) in parts.iter_mut().zip(results) {
            let Reserved { offset: from, bytes, .. } = part.reserved;
            match rooms.last_mut().filter(|(_, end)| *end == from) {
                Some((_, end)) => *end += bytes,
                None => rooms.push((from, from + bytes)),
            }
            part.reserved = Reserved { dev, offset: 0, bytes: 0 };
            if let Ok(landed) = result {
                let took = landed.packed.as_ref().map_or(bytes, |packed| u64::from(packed.stored_bytes()));
                part.reserved = Reserved { dev, offset: landed.at, bytes: took };
                part.placing.action.land(from, landed.at, landed.packed.clone());
                taken.push((landed.at, landed.at + took));
            }
        }
        taken.sort_unstable();
        for (begin, end) in rooms {
            let mut at = begin;
            for (from, to) in taken.iter().filter(|(from, _)| (begin..end).contains(from)) {
                if *from > at {
                    self.state.space.get_mut(dev).unreserve(at, from - at);
                }
                at = *to;
            }
            if end > at {
                self.state.space.get_mut(dev).unreserve(at, end - at);
            }
        }
    }

    /// Queues a failed copy of a cut again.
    fn queue_again(&mut self, cut: Option<u64>, part: &CopyPart) {
        if let (Some(cut), Some(item)) = (cut.and_then(|cut| self.state.cuts.get_mut(cut)), part.again) {
            cut.queue.push_back(item);
        }
    }

    /// Records the failure of a copy. Returns the error for those who wait.
    pub fn copy_failed(&mut self, part: &CopyPart, failure: CopyFailure) -> Error {
        let subject = self.subject(part.placing.target, part.placing.was.len);
        match failure {
            CopyFailure::NoSmaller => Error::new(ErrorKind::Internal, subject).because("it was not to be compressed"),
            CopyFailure::Source(error) => {
                self.note_unread(part.placing.was.dev, error.kind() == ErrorKind::Corrupt, &error);
                if let Target::Live { key, offset } = part.placing.target {
                    let (len, dev, what) = (part.placing.was.len, part.placing.was.dev, error.cause().to_owned());
                    self.asks.push(Ask::Report { key, offset, len, dev, what });
                }
                let device = self.state.space.get(part.placing.was.dev).spec.name.clone();
                // Rewriting helps damaged bytes only; unreachable bytes are still there.
                let next = if error.kind() == ErrorKind::Corrupt {
                    "rewrite or delete that range; the rest of the store is not affected".to_owned()
                } else {
                    format!("look after `{device}` (`cenote tiers` says how it is) and repeat; its bytes are not lost")
                };
                Error::new(error.kind(), subject).because(format!("on `{device}`: {}", error.cause())).try_next(next)
            }
            CopyFailure::Target(error) => {
                self.note_trouble(part.reserved.dev, &error);
                let device = self.state.space.get(part.reserved.dev).spec.name.clone();
                Error::new(error.kind(), format!("copying {subject} to `{device}`"))
                    .because(if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() })
                    .try_next(match error.next_step() {
                        "" => "check the device; the bytes stay where they were".to_owned(),
                        next => format!("{next}; the bytes stay where they were"),
                    })
            }
        }
    }

    /// Writes placings to the journal and applies them, with the placings that follow for extents with the same bytes.
    /// Each must be possible. An eviction to an untrusted copy is done after the copy was read. Fails if the journal
    /// does not take the record.
    pub fn place_all(&mut self, placings: &[Placing]) -> Result<()> {
        if !self.state.space.any_damaged {
            return self.place_trusted(placings);
        }
        let (trusted, _) = self.doubt(placings.to_vec(), None);
        if trusted.is_empty() { Ok(()) } else { self.place_trusted(&trusted) }
    }

    /// Places as [`Self::place_all`] does, without checking trust in copies.
    pub fn place_trusted(&mut self, placings: &[Placing]) -> Result<()> {
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
                    // Copies, dropped copies and splits change nothing for readers.
                    if !matches!(placing.action, Action::Copy { .. } | Action::DropCopy { .. } | Action::Split { .. }) {
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

    /// Groups each placing with those that follow from it. No two groups are about the same bytes.
    pub fn with_sharers(&mut self, placings: &[Placing]) -> Vec<Vec<Placing>> {
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

    /// Notes that extents placed together share bytes at their new place.
    pub fn note_group(&mut self, group: &[Placing]) {
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
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::mem::MemClock;
    use cenote_model::{ObjectId, ObjectKey};

    use super::*;
    use crate::engine::filled::filled;
    use crate::placing::identity;

    /// A second placing of the same bytes is dropped: the first one has moved them by then.
    #[test]
    fn no_two_groups_are_about_the_same_bytes() {
        let mut engine = filled(&Arc::<MemClock>::default(), 2);
        let ids = engine.core.state.containers.ids();
        let [one, other] = [ids[0], ids[1]].map(|container| {
            let target = Target::Live { key: ObjectKey { container, object: ObjectId(1) }, offset: 0 };
            let was = identity(engine.core.state.target_mut(target).unwrap());
            Placing { target, was, action: Action::Split { at: 1 } }
        });
        let groups = engine.core.with_sharers(&[one.clone(), other.clone(), one.clone()]);
        assert_eq!(groups, [vec![one.clone()], vec![other]]);
        assert_eq!(engine.core.with_sharers(std::slice::from_ref(&one)), [vec![one.clone()]]);
    }
}
