//! Shared ranges (reflinks): a range of an object becomes a range of another one, without a copy of the bytes.
//!
//! The extents of both name the same bytes, as those of a container and its snapshot do, and by the same means: the
//! engine counts how many extents touch a checksum unit ([`crate::space::Shared`]), so that its space is free when the
//! last one goes. Only objects of one *family*, a container and its snapshots, share, so that a container can be
//! deleted with all that it has.

use cenote_model::{KeyCode, OBJECT_BYTES_MAX, ObjectKey};

use super::{Brought, NO_OBJECT, PAST_QUOTA, RangeStep, Refusal, Step, Txn, refuse};
use crate::container::Fresh;
use crate::map::Ext;
use crate::persist::DeviceSet;
use crate::state::EngineState;

/// Most extents in one range: no other request is served while they are shared.
const EXTENTS_MAX: usize = 1 << 20;

impl EngineState {
    pub(super) fn share(
        &mut self,
        txn: &mut Txn,
        (to, at): (ObjectKey, u64),
        (from, offset): (ObjectKey, u64),
        len: u64,
    ) -> Result<(), Refusal> {
        let end_of = |begin: u64| begin.checked_add(len).filter(|end| *end <= OBJECT_BYTES_MAX);
        let (Some(source_end), Some(target_end)) = (end_of(offset), end_of(at)) else {
            return Err(refuse(KeyCode::Invalid, "objects end below 2^63 bytes"));
        };
        if len == 0 {
            return Err(refuse(KeyCode::Invalid, "there is nothing to share"));
        }
        if from == to && offset < target_end && at < source_end {
            return Err(refuse(KeyCode::Invalid, "the two ranges overlap"));
        }
        let target = self.find_object(to).ok_or(NO_OBJECT)?;
        let source = self.source(txn, to, from)?;
        if self.objects.get(source).size < source_end {
            return Err(refuse(KeyCode::Invalid, "the range reaches past the end of what it is taken from"));
        }
        let shared = self.shared_parts(source, (offset, source_end), target, at);
        if shared.len() > EXTENTS_MAX {
            return Err(refuse(KeyCode::Limit, "a range of more than 2^20 extents is shared in several parts"));
        }
        self.check_quota(txn, target, (at, target_end), shared.iter().map(|(_, ext)| u64::from(ext.len)).sum())?;
        self.take_over_suspects(target, source);
        let (pieces, splits) = self.cut(target, at, target_end);
        self.insert_shared(target, shared);
        let object = self.objects.get_mut(target);
        let (size_before, epoch_before) = (object.size, object.epoch);
        object.size = object.size.max(target_end);
        object.epoch = txn.epoch;
        object.last.touched = self.now.s;
        txn.steps.push(Step::Range(RangeStep {
            slot: target,
            from: at,
            to: target_end,
            pieces,
            splits,
            size_before,
            resized: target_end > size_before,
            epoch_before,
            brought: Brought::Shared,
        }));
        Ok(())
    }

    /// Returns the slot of the object that is shared from. Refuses one outside the family.
    fn source(&mut self, txn: &Txn, to: ObjectKey, from: ObjectKey) -> Result<u32, Refusal> {
        if from.container != to.container {
            let snapshot = self.containers.get(from.container).and_then(|container| container.snapshot.as_deref());
            let snapshot = snapshot.filter(|snapshot| snapshot.of == to.container).ok_or(refuse(
                KeyCode::Invalid,
                "only objects of one container, and of its snapshots, share bytes: copy them",
            ))?;
            let reads =
                |txn: &Txn| self.sessions.open.get(&txn.session).is_some_and(|it| it.pins.contains(&from.container));
            if snapshot.deleted && !reads(txn) && !txn.is_settled {
                return Err(NO_OBJECT);
            }
        }
        self.find_object(from).ok_or(NO_OBJECT)
    }

    /// Returns the extents of the source's range as they will be in the target, from `at` on.
    fn shared_parts(&mut self, source: u32, (offset, end): (u64, u64), target: u32, at: u64) -> Vec<(u64, Ext)> {
        let born = self.containers.at(self.objects.get(target).container).durable.cuts;
        let (of, to) = (self.objects.get(source).id(), self.objects.get(target).id());
        let family = self.containers.at(self.objects.get(target).container).id;
        let found = self.objects.get(source).map.overlapping(offset, end).take(EXTENTS_MAX + 1);
        let part = |(begin, ext): (u64, &Ext)| {
            let (from, to) = (begin.max(offset), (begin + u64::from(ext.len)).min(end));
            let mut part = ext.part((from - begin) as u32, (to - from) as u32);
            part.born = born;
            (at + (from - offset), part)
        };
        let parts: Vec<(u64, Ext)> = found.map(part).collect();
        // Note where the same bytes are, for moves.
        let begins = self.objects.get(source).map.overlapping(offset, end).map(|(begin, _)| begin);
        for (begin, (at, part)) in begins.zip(&parts) {
            let run = (part.dev, part.run_offset);
            self.space.kin.note(run, (family, of, begin));
            self.space.kin.note(run, (family, to, *at));
        }
        self.sweep_kin();
        parts
    }

    /// Checks the quota: shared bytes count like any others.
    fn check_quota(&self, txn: &Txn, target: u32, (from, to): (u64, u64), bytes: u64) -> Result<(), Refusal> {
        let object = self.objects.get(target);
        let container = self.containers.at(object.container);
        if container.is_past_quota(bytes, 0) && !self.space.replaying && !txn.is_settled {
            let replaced = object.map.overlapping(from, to);
            let replaced = replaced.map(|(at, ext)| (at + u64::from(ext.len)).min(to) - at.max(from)).sum();
            if container.is_past_quota(bytes, replaced) {
                return Err(PAST_QUOTA);
            }
        }
        Ok(())
    }

    /// Copies suspects from a snapshot's container: bytes in doubt there are in doubt in the target too.
    fn take_over_suspects(&mut self, target: u32, source: u32) {
        let (target, source) = (self.objects.get(target).container, self.objects.get(source).container);
        if target != source {
            for dev in self.containers.at(source).durable.suspect.clone() {
                let suspect = &mut self.containers.at_mut(target).durable.suspect;
                if !suspect.contains(&dev) {
                    suspect.push(dev);
                }
            }
        }
    }

    fn insert_shared(&mut self, target: u32, shared: Vec<(u64, Ext)>) {
        let object = self.objects.get_mut(target);
        let (extents, mapped) = (object.map.extents(), object.map.mapped_bytes());
        for (offset, ext) in shared {
            self.space.shared.touch_all(&ext);
            self.space.count_copied(&ext);
            object.map.insert(offset, ext);
        }
        self.space.extents = self.space.extents - extents + object.map.extents();
        let (at, mapped) = (object.container, object.map.mapped_bytes() - mapped);
        let container = self.containers.at_mut(at);
        container.content.stored_bytes += mapped;
        container.shares = true;
    }

    /// Lists the extents of a shared range that the next cut has to copy or sync.
    pub(super) fn list_shared(&mut self, slot: u32, (from, to): (u64, u64), epoch: u64) {
        let object = self.objects.get(slot);
        let (at, generation) = (object.container, object.generation);
        if !self.containers.at(at).is_tracked() {
            return;
        }
        let container = self.containers.at_mut(at);
        for (offset, ext) in object.map.overlapping(from, to) {
            if self.space.at_risk(ext) {
                container.add_fresh(Fresh { slot, generation, offset, len: u64::from(ext.len) });
            } else {
                container.unsaved.data_epoch = epoch;
                container.unsaved.wrote = DeviceSet::ALL; // they may wait for a sync, wherever and whenever they were written
            }
        }
    }
}
