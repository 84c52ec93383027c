//! Snapshots: creation, deletion, and rollback of a container to one.
//!
//! A snapshot is a read-only container of its own. Its objects have maps of their own, whose extents name the same
//! bytes; [`crate::space::Shared`] counts the extents that touch a unit. A snapshot is persistent when the original is:
//! the two share the transaction that made it, so they are cut together, and the original's undo list takes it back.

use std::ops::Bound;

use cenote_model::{ContainerId, IndexId, KeyCode, ObjectId, SNAPSHOT_NAME_BYTES_MAX};

use super::{NO_CONTAINER, NO_SNAPSHOT, RangeStep, Refusal, Step, Txn, refuse};
use crate::codec::ORDINALS_END;
use crate::container::{Container, Fresh, Snapshot};
use crate::index::{Index, Key, Record, Value};
use crate::map::ExtentMap;
use crate::objects::Presence;
use crate::persist::DeviceSet;
use crate::small_map::SmallMap;
use crate::state::{EngineState, Reclaim};

const TOO_MANY: Refusal = refuse(KeyCode::Limit, "a store holds at most 2^32 objects");

fn check_name(name: &str) -> Result<(), Refusal> {
    match name.len() {
        0 => Err(refuse(KeyCode::Invalid, "a snapshot's name must not be empty")),
        len if len > SNAPSHOT_NAME_BYTES_MAX => {
            Err(refuse(KeyCode::Invalid, "a snapshot's name has at most 255 bytes"))
        }
        _ => Ok(()),
    }
}

impl EngineState {
    pub(super) fn snapshot_create(
        &mut self,
        txn: &mut Txn,
        (of, name): (ContainerId, &str),
        id: ContainerId,
        replace: bool,
        unix_ms: u64,
    ) -> Result<(), Refusal> {
        check_name(name)?;
        let origin = self.containers.slot_of(of).ok_or(NO_CONTAINER)?;
        self.stands_alone(txn, origin)?;
        let old = self.containers.snapshot_slot(of, name);
        if old.is_some() && !replace {
            return Err(refuse(KeyCode::Exists, "the container has a snapshot of that name already"));
        }
        let id = if id.0 == 0 { ContainerId(self.containers.next_id) } else { id };
        // A number that was given when the transaction was prepared has been nobody else's since.
        let is_new = id.0 >= self.containers.next_id || txn.is_settled && self.containers.slot_of(id).is_none();
        if !is_new || id.0 >= ORDINALS_END / 2 {
            return Err(refuse(KeyCode::Invalid, "ids are never reused: give 0, or one that was not used yet"));
        }
        if (self.containers.at(origin).content.objects.len() as u64) > self.objects.room() {
            return Err(TOO_MANY);
        }
        if let Some(old) = old {
            self.hide_snapshot(txn, origin, old);
        }
        let slot = self.add_snapshot(origin, id, name, (txn.epoch, unix_ms));
        txn.created = Some(id);
        txn.steps.push(Step::SnapshotMade { origin, id });
        txn.steps.push(Step::SnapshotFilled { slot });
        Ok(())
    }

    /// Copies the metadata of a container.
    fn add_snapshot(&mut self, origin: u32, id: ContainerId, name: &str, (epoch, unix_ms): (u64, u64)) -> u32 {
        let from = self.containers.at_mut(origin);
        from.shares = true;
        let snapshot = Snapshot {
            of: from.id,
            name: name.to_owned(),
            epoch,
            unix_ms,
            made: from.durable.cuts,
            deleted: false,
            in_undo: false,
        };
        // As if all of it had just been written to a container of its own: the engine then finds what needs a copy, a
        // sync or a rewrite as for any other container.
        let mut container = Container::new(id, name.to_owned(), from.spec.clone(), epoch);
        (container.durable.persisted, container.durable.cut_epoch) = (from.durable.persisted, from.durable.persisted);
        container.unsaved.data_epoch = from.unsaved.data_epoch;
        container.unsaved.wrote = DeviceSet::ALL; // a pending cut of the original may still have to sync data that are the snapshot's too
        container.durable.suspect.clone_from(&from.durable.suspect);
        (container.content.records, container.content.record_bytes) = (from.content.records, from.content.record_bytes);
        container.snapshot = Some(Box::new(snapshot));
        container.content.indices = from.content.indices.iter().map(|(id, index)| (*id, index.clone())).collect();
        container.content.indices.values_mut().for_each(|index| index.created = 0);
        let seen = from.content.objects.iter().filter(|(id, _)| !from.is_value_log(**id));
        let objects: Vec<(ObjectId, u32)> = seen.map(|(id, slot)| (*id, *slot)).collect();
        let slot = self.containers.add(container);
        let mut tree = SmallMap::default();
        for (id, object) in objects {
            let epoch = self.objects.get(object).epoch;
            if let Some(clone) = self.clone_object(object, slot, epoch, 0) {
                tree.insert(id, clone);
            }
        }
        self.containers.at_mut(slot).content.objects = tree;
        slot
    }

    /// Clones an object into a container; the caller puts the clone into the container's tree. `None` if there is no
    /// room, which the caller has checked.
    fn clone_object(&mut self, object: u32, container: u32, epoch: u64, born: u32) -> Option<u32> {
        let from = self.objects.get(object);
        let (id, block_shift) = (from.id(), from.block_shift);
        let slot = self.objects.add(container, id, block_shift, epoch, born)?;
        let from = self.objects.get(object);
        let (size, touched) = (from.size, from.last.touched);
        let mut map = ExtentMap::Empty;
        for (offset, ext) in from.map.iter() {
            let mut ext = ext.clone();
            ext.born = born;
            self.space.shared.touch_all(&ext);
            self.space.count_copied(&ext);
            map.insert(offset, ext);
        }
        self.space.extents += map.extents();
        self.containers.at_mut(container).content.stored_bytes += map.mapped_bytes();
        let clone = self.objects.get_mut(slot);
        (clone.map, clone.size, clone.last.touched) = (map, size, touched);
        Some(slot)
    }

    pub(super) fn snapshot_delete(&mut self, txn: &mut Txn, of: ContainerId, name: &str) -> Result<(), Refusal> {
        let origin = self.containers.slot_of(of).ok_or(NO_CONTAINER)?;
        self.stands_alone(txn, origin)?;
        let slot = self.containers.snapshot_slot(of, name).ok_or(NO_SNAPSHOT)?;
        self.hide_snapshot(txn, origin, slot);
        Ok(())
    }

    fn hide_snapshot(&mut self, txn: &mut Txn, origin: u32, slot: u32) {
        self.set_deleted(slot, true);
        txn.steps.push(Step::SnapshotDeleted { origin, slot });
    }

    /// Marks a snapshot as deleted, or as existing again.
    pub(super) fn set_deleted(&mut self, slot: u32, deleted: bool) {
        if let Some(snapshot) = &mut self.containers.at_mut(slot).snapshot {
            snapshot.deleted = deleted;
        }
    }

    /// Rolls a container back to a snapshot. Unchanged objects and records stay as they are. Changed ones are replaced
    /// like a deletion and a creation, by ordinary updates with their own undo and version words.
    pub(super) fn snapshot_rollback(&mut self, txn: &mut Txn, of: ContainerId, name: &str) -> Result<(), Refusal> {
        let origin = self.containers.slot_of(of).ok_or(NO_CONTAINER)?;
        self.stands_alone(txn, origin)?;
        let snapshot = self.containers.snapshot_slot(of, name).ok_or(NO_SNAPSHOT)?;
        if (self.containers.at(snapshot).content.objects.len() as u64) > self.objects.room() {
            return Err(TOO_MANY);
        }
        self.roll_objects(txn, origin, snapshot);
        self.roll_indices(txn, origin, snapshot);
        txn.steps.push(Step::RolledBack { origin });
        Ok(())
    }

    fn roll_objects(&mut self, txn: &mut Txn, origin: u32, snapshot: u32) {
        let kept = &self.containers.at(snapshot).content.objects;
        let epoch_of = |slot: &u32| self.objects.get(*slot).epoch;
        let is_same = |id: &ObjectId, slot: &u32| kept.get(id).is_some_and(|kept| epoch_of(kept) == epoch_of(slot));
        let container = self.containers.at(origin);
        let head = &container.content.objects;
        let is_changed = |id: &ObjectId, slot: &u32| !container.is_value_log(*id) && !is_same(id, slot);
        let changed: Vec<u32> = head.iter().filter(|(id, slot)| is_changed(id, slot)).map(|(_, slot)| *slot).collect();
        let missing: Vec<(ObjectId, u32)> = (kept.iter())
            .filter(|(id, _)| head.get(id).is_none_or(|slot| !is_same(id, slot)))
            .map(|(id, slot)| (*id, *slot))
            .collect();
        for slot in changed {
            let object = self.objects.get_mut(slot);
            object.presence = Presence::Detached;
            let (id, mapped) = (object.id(), object.map.mapped_bytes());
            self.space.extents -= object.map.extents();
            let container = self.containers.at_mut(origin);
            container.content.objects.remove(&id);
            container.content.stored_bytes -= mapped;
            txn.steps.push(Step::ObjectDeleted { slot });
        }
        let cuts = self.containers.at(origin).durable.cuts;
        for (id, kept) in missing {
            let Some(slot) = self.clone_object(kept, origin, txn.epoch, cuts) else { continue };
            self.containers.at_mut(origin).content.objects.insert(id, slot);
            txn.steps.push(Step::ObjectCloned { slot });
        }
    }

    fn roll_indices(&mut self, txn: &mut Txn, origin: u32, snapshot: u32) {
        let kept: Vec<IndexId> = self.containers.at(snapshot).content.indices.keys().copied().collect();
        let container = self.containers.at_mut(origin);
        let gone: Vec<IndexId> = container.content.indices.keys().filter(|id| !kept.contains(id)).copied().collect();
        for index in gone {
            let Some(was) = container.content.indices.remove(&index) else { continue };
            container.discount_index(&was);
            txn.steps.push(Step::IndexDeleted { container: origin, index, was });
        }
        for id in kept {
            let container = self.containers.at_mut(origin);
            let cuts = container.durable.cuts;
            let mut index = container.content.indices.remove(&id).unwrap_or_else(|| {
                txn.steps.push(Step::IndexCreated { container: origin, index: id });
                Box::new(Index::new(cuts))
            });
            let in_new_index = index.created == cuts;
            let kept = &self.containers.at(snapshot).content.indices[&id];
            for (key, value) in differences(&index, kept) {
                let bytes = key.bytes().len();
                let after = value.as_ref().map(|value| bytes + value.len());
                let was = match value {
                    Some(value) => index.put(key.bytes(), Record { epoch: txn.epoch, value }),
                    None => index.del(key.bytes()),
                };
                let before = was.as_ref().map(|was| bytes + was.value.len());
                self.containers.at_mut(origin).count_record(before, after);
                txn.steps.push(Step::Record { container: origin, index: id, key, was, in_new_index });
            }
            self.containers.at_mut(origin).content.indices.insert(id, index);
        }
    }

    /// Refuses a change of a snapshot of a container that the same request changes.
    fn stands_alone(&self, txn: &Txn, origin: u32) -> Result<(), Refusal> {
        let alone = txn.steps.iter().all(|step| self.changed_by(step) != origin);
        if alone { Ok(()) } else { Err(refuse(KeyCode::Invalid, "changes of snapshots stand alone")) }
    }

    /// The slot of the container that a step changes.
    fn changed_by(&self, step: &Step) -> u32 {
        match step {
            Step::Range(RangeStep { slot, .. })
            | Step::ObjectCreated { slot }
            | Step::ObjectDeleted { slot }
            | Step::ObjectCloned { slot } => self.objects.get(*slot).container,
            Step::IndexCreated { container, .. }
            | Step::IndexDeleted { container, .. }
            | Step::Record { container, .. } => *container,
            Step::SnapshotMade { origin, .. } | Step::SnapshotDeleted { origin, .. } | Step::RolledBack { origin } => {
                *origin
            }
            Step::ContainerCreated { slot }
            | Step::ContainerRenamed { slot, .. }
            | Step::ContainerSet { slot, .. }
            | Step::ContainerDeleted { slot }
            | Step::SnapshotFilled { slot } => *slot,
        }
    }

    /// Takes back a snapshot that is being made.
    pub(super) fn drop_new_snapshot(&mut self, txn: &Txn, slot: u32) {
        let container = self.containers.at_mut(slot);
        let (id, objects) = (container.id, std::mem::take(&mut container.content.objects));
        for object in objects.into_values() {
            self.drop_clone(object);
        }
        if !txn.is_settled {
            self.containers.next_id = id.0;
        }
        self.containers.hide(slot);
        self.containers.vacate(slot);
    }

    /// Takes back a cloned object that is in no tree any more. Others still have its space.
    pub(super) fn drop_clone(&mut self, slot: u32) {
        let object = self.objects.get(slot);
        let mapped = object.map.mapped_bytes();
        self.space.extents -= object.map.extents();
        self.containers.at_mut(object.container).content.stored_bytes -= mapped;
        for (_, ext) in self.objects.get(slot).map.iter() {
            self.space.shared.leave_all(ext);
            self.space.discount_copied(ext);
        }
        self.objects.remove(slot);
    }

    /// Lists the extents of a cloned object that the next cut has to copy or sync.
    pub(super) fn list_clone(&mut self, slot: u32, epoch: u64) {
        let object = self.objects.get(slot);
        let (at, generation) = (object.container, object.generation);
        if !self.containers.at(at).is_tracked() {
            return;
        }
        let container = self.containers.at_mut(at);
        for (offset, ext) in object.map.iter() {
            if self.space.at_risk(ext) {
                container.add_fresh(Fresh { slot, generation, offset, len: u64::from(ext.len) });
            } else {
                container.unsaved.data_epoch = epoch;
                container.unsaved.wrote = DeviceSet::ALL;
            }
        }
    }

    /// Removes a deleted snapshot for good, unless an undo entry or a session still needs it.
    pub fn let_go(&mut self, id: ContainerId) {
        let Some(slot) = self.containers.slot_of(id) else { return };
        let waits = |snapshot: &Snapshot| snapshot.deleted && !snapshot.in_undo;
        if !self.containers.at(slot).snapshot.as_deref().is_some_and(waits) || self.is_pinned(id) {
            return;
        }
        self.remove_snapshot(slot);
    }

    /// Removes a snapshot for good.
    pub fn remove_snapshot(&mut self, slot: u32) {
        let id = self.containers.at(slot).id;
        for session in self.sessions.open.values_mut() {
            session.pins.remove(&id);
        }
        self.unlink(slot);
        self.containers.hide(slot);
        self.gone.reclaim.push_back(Reclaim::Container(slot));
    }

    /// Returns true if a session reads the snapshot.
    fn is_pinned(&self, id: ContainerId) -> bool {
        self.sessions.open.values().any(|session| session.pins.contains(&id))
    }

    /// Notes that no undo entry can bring the snapshot back any more.
    pub fn forget_snapshot(&mut self, id: ContainerId) {
        if let Some(snapshot) = self.containers.get_mut(id).and_then(|container| container.snapshot.as_mut()) {
            snapshot.in_undo = false;
        }
        self.let_go(id);
    }
}

/// Returns the changes that turn `head` into `kept`: keys with their values, or `None` for keys to delete.
fn differences(head: &Index, kept: &Index) -> Vec<(Key, Option<Value>)> {
    let mut found = Vec::new();
    let mut ours = head.range(Bound::Unbounded).peekable();
    let mut theirs = kept.range(Bound::Unbounded).peekable();
    loop {
        match (ours.peek(), theirs.peek()) {
            (None, None) => return found,
            (Some((key, _)), None) => {
                found.push((Key::new(key), None));
                ours.next();
            }
            (Some((key, _)), Some((other, _))) if key < other => {
                found.push((Key::new(key), None));
                ours.next();
            }
            (Some((key, ours_has)), Some((other, has))) if key == other => {
                if ours_has.epoch != has.epoch {
                    found.push((Key::new(key), Some(has.value.to_owned())));
                }
                ours.next();
                theirs.next();
            }
            (_, Some((key, has))) => {
                found.push((Key::new(key), Some(has.value.to_owned())));
                theirs.next();
            }
        }
    }
}
