//! Makes a transaction final: what it replaced goes to the undo lists, or its space is retired.

use cenote_device::Control;
use cenote_model::{ContainerId, IndexKey};

use super::{Brought, RangeStep, Step, Txn};
use crate::container::Fresh;
use crate::map::Pieces;
use crate::persist::DrainItem;
use crate::space::Tag;
use crate::state::{EngineState, Reclaim};
use crate::undo::{Change, Undo};

impl EngineState {
    /// Raises the version words of the objects and indices that the transaction touched. Returns those of the objects,
    /// before and after, in order of first appearance, then those of the indices of a container that it made. To be
    /// called before [`EngineState::commit`].
    pub fn raise_words(&mut self, txn: &Txn, control: &dyn Control) -> Vec<(u64, u64)> {
        let mut words = Vec::new();
        let mut indices: Vec<IndexKey> = Vec::new();
        self.now.request = self.now.request.wrapping_add(1);
        for step in &txn.steps {
            if let Step::ContainerDeleted { slot } | Step::SnapshotDeleted { slot, .. } = step {
                // Their space goes later, but no cached map may find them from now on.
                self.raise_words_of(*slot, control);
                let id = self.containers.at(*slot).id;
                for snapshot in self.containers.snapshots_of(id).to_vec() {
                    if let Some(slot) = self.containers.slot_of(snapshot) {
                        self.raise_words_of(slot, control);
                    }
                }
                continue;
            }
            if let Step::Record { container, index, .. }
            | Step::IndexCreated { container, index }
            | Step::IndexDeleted { container, index, .. } = step
            {
                let key = IndexKey { container: self.containers.at(*container).id, index: *index };
                // Raise each word once: a client that finds it raised by one after its own change knows that nobody
                // else made one.
                if indices.last() != Some(&key) && !indices.contains(&key) {
                    indices.push(key);
                }
                continue;
            }
            let (Step::Range(RangeStep { slot, .. }) | Step::ObjectDeleted { slot }) = step else { continue };
            let object = self.objects.get_mut(*slot);
            if object.last.word_mark == self.now.request {
                continue;
            }
            object.last.word_mark = self.now.request;
            let after = control.word_raise(self.key_of(*slot).word_hash());
            words.push((after.wrapping_sub(1), after));
        }
        // Last: a client that finds a new record then has no old map of the objects that changed with it.
        for key in indices {
            let after = control.word_raise(key.word_hash());
            if txn.created == Some(key.container) {
                words.push((after.wrapping_sub(1), after));
            }
        }
        words
    }

    /// Raises the version words of all objects and indices of a container.
    pub fn raise_words_of(&self, slot: u32, control: &dyn Control) {
        let container = self.containers.at(slot);
        for object in container.content.objects.values() {
            control.word_raise(self.key_of(*object).word_hash());
        }
        for index in container.content.indices.keys() {
            control.word_raise(IndexKey { container: container.id, index: *index }.word_hash());
        }
    }

    /// Makes the transaction final. `tag` is for the space that it gave up.
    pub fn commit(&mut self, txn: &mut Txn, tag: Tag) {
        let mut steps = std::mem::take(&mut txn.steps);
        let mut containers: Vec<u32> = Vec::new();
        txn.touched.clear();
        for step in steps.drain(..) {
            let at = self.commit_step(txn.epoch, step, tag);
            if containers.last() != Some(&at) && !containers.contains(&at) {
                containers.push(at);
            }
        }
        txn.steps = steps; // keeps the memory
        self.epoch = txn.epoch;
        for at in &containers {
            if !self.containers.is_taken(*at) {
                continue;
            }
            let now_ns = self.now.ns;
            let container = self.containers.at_mut(*at);
            if container.epoch <= container.durable.cut_epoch {
                container.unsaved.dirty_since_ns = now_ns;
            }
            container.epoch = txn.epoch;
            txn.touched.push(container.id);
            if container.is_tracked() {
                let id = container.id;
                self.cuts.dirty.insert(id);
            }
        }
        self.link(txn.epoch, &containers);
    }

    /// Links the containers that a transaction couples, so that they are cut together.
    fn link(&mut self, epoch: u64, containers: &[u32]) {
        if containers.len() < 2 {
            return;
        }
        let tracked = |at: &u32| self.containers.is_taken(*at) && self.containers.at(*at).is_tracked();
        let members: Vec<(u32, ContainerId)> =
            containers.iter().copied().filter(tracked).map(|at| (at, self.containers.at(at).id)).collect();
        for (i, (at, _)) in members.iter().enumerate() {
            // A chain is enough: the closure follows it.
            let next = members[(i + 1) % members.len()].1;
            let links = &mut self.containers.at_mut(*at).unsaved.links;
            match links.iter_mut().find(|(_, other)| *other == next) {
                Some(link) => link.0 = epoch,
                None if members.len() > 1 => links.push((epoch, next)),
                None => {}
            }
        }
    }

    /// Removes a deleted container from the links between others, and links these directly.
    pub(super) fn unlink(&mut self, slot: u32) {
        let (gone, passed_on) = (self.containers.at(slot).id, self.containers.at(slot).unsaved.links.clone());
        if passed_on.is_empty() {
            return;
        }
        for id in self.containers.ids() {
            let Some(container) = self.containers.get_mut(id) else { continue };
            let Some(at) = container.unsaved.links.iter().position(|(_, other)| *other == gone) else { continue };
            let (epoch, _) = container.unsaved.links.swap_remove(at);
            for (other_epoch, other) in passed_on.iter().filter(|(_, other)| *other != id) {
                let epoch = epoch.max(*other_epoch);
                match container.unsaved.links.iter_mut().find(|(_, linked)| linked == other) {
                    Some(link) => link.0 = link.0.max(epoch),
                    None => container.unsaved.links.push((epoch, *other)),
                }
            }
        }
    }

    /// Makes one step final. Returns the slot of the container that changed.
    fn commit_step(&mut self, epoch: u64, step: Step, tag: Tag) -> u32 {
        match step {
            Step::Range(step) => self.commit_range(epoch, step, tag),
            Step::ObjectCreated { slot } => {
                let object = self.objects.get(slot);
                let (at, object) = (object.container, object.id());
                self.note(at, epoch, Change::ObjectCreated { object });
                at
            }
            Step::ObjectDeleted { slot } => self.commit_object_delete(epoch, slot),
            Step::IndexCreated { container, index } => {
                self.note(container, epoch, Change::IndexCreated { index });
                container
            }
            Step::IndexDeleted { container, index, was } => {
                let it = self.containers.at(container);
                if it.is_tracked() && was.created != it.durable.cuts {
                    self.note(container, epoch, Change::IndexDeleted { index, was });
                } else {
                    self.gone.reclaim.push_back(Reclaim::Index(was));
                }
                container
            }
            // `in_new_index` was set when the record changed: the same transaction may delete the index later.
            Step::Record { container, index, key, was, in_new_index } => {
                let it = self.containers.at(container);
                let changed_since_cut = was.as_ref().is_some_and(|was| was.epoch > it.durable.cut_epoch);
                if it.is_tracked() && !in_new_index && !changed_since_cut {
                    self.note(container, epoch, Change::Record { index, key, was });
                }
                container
            }
            Step::SnapshotMade { origin, id } => {
                self.note(origin, epoch, Change::SnapshotMade { id });
                origin
            }
            Step::SnapshotFilled { slot } => {
                let objects: Vec<u32> = self.containers.at(slot).content.objects.values().copied().collect();
                let data_epoch = self.containers.at(slot).unsaved.data_epoch;
                for object in objects {
                    self.list_clone(object, data_epoch);
                }
                slot
            }
            Step::RolledBack { origin } => origin,
            Step::SnapshotDeleted { origin, slot } => self.commit_snapshot_delete(epoch, origin, slot),
            Step::ObjectCloned { slot } => {
                let object = self.objects.get(slot);
                let (at, object) = (object.container, object.id());
                self.note(at, epoch, Change::ObjectCreated { object });
                self.list_clone(slot, epoch);
                at
            }
            Step::ContainerDeleted { slot } => {
                for id in self.containers.snapshots_of(self.containers.at(slot).id).to_vec() {
                    if let Some(snapshot) = self.containers.slot_of(id) {
                        self.remove_snapshot(snapshot);
                    }
                }
                self.unlink(slot);
                self.gone.reclaim.push_back(Reclaim::Container(slot));
                slot
            }
            Step::ContainerCreated { slot } => {
                self.commit_container_create(epoch, slot);
                slot
            }
            Step::ContainerRenamed { slot, was } => {
                let id = self.containers.at(slot).id;
                self.take_label(epoch, slot);
                if self.containers.at(slot).is_tracked() {
                    self.containers.give_up(&was, id, epoch);
                    self.note(slot, epoch, Change::Renamed { was });
                }
                slot
            }
            Step::ContainerSet { slot, was } => {
                let container = self.containers.at_mut(slot);
                if !container.is_tracked() {
                    // It is empty, and has no state to go back to from now on.
                    container.back.undo_first += container.back.undo.len() as u64;
                    container.back.undo.clear();
                }
                self.note(slot, epoch, Change::Set { was: Box::new(was) });
                slot
            }
        }
    }

    /// A new container exists from its creation on, unless its label may go back to another one: then a rollback takes
    /// both back.
    fn commit_container_create(&mut self, epoch: u64, slot: u32) {
        if self.take_label(epoch, slot) {
            let container = self.containers.at_mut(slot);
            (container.epoch, container.durable.persisted, container.durable.cut_epoch) =
                (epoch - 1, epoch - 1, epoch - 1);
            self.note(slot, epoch, Change::Made);
        }
    }

    /// Couples a container with those that may get its label back after power loss, so that they are cut together.
    /// Returns true if there are any.
    fn take_label(&mut self, epoch: u64, slot: u32) -> bool {
        let container = self.containers.at(slot);
        if !container.is_tracked() {
            return false;
        }
        let id = container.id;
        let givers = self.containers.givers(&container.label);
        let others: Vec<ContainerId> = givers.into_iter().filter(|giver| *giver != id).collect();
        for other in &others {
            self.couple(epoch, id, *other);
            self.couple(epoch, *other, id);
        }
        !others.is_empty()
    }

    /// Lets `id` be cut together with `other`, unless `id` has persisted this epoch.
    fn couple(&mut self, epoch: u64, id: ContainerId, other: ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        match container.unsaved.links.iter_mut().find(|(_, linked)| *linked == other) {
            Some(link) => link.0 = link.0.max(epoch),
            None => container.unsaved.links.push((epoch, other)),
        }
    }

    /// Adds an entry to a container's undo list, if it has one. Returns the entry's number.
    fn note(&mut self, at: u32, epoch: u64, change: Change) -> Option<u64> {
        let container = self.containers.at_mut(at);
        // A rollback never goes back before the container's creation.
        if !container.is_tracked() || epoch <= container.durable.persisted {
            return None;
        }
        container.back.undo.push_back(Undo { epoch, change });
        Some(container.undo_next() - 1)
    }

    fn commit_snapshot_delete(&mut self, epoch: u64, origin: u32, slot: u32) -> u32 {
        let original = self.containers.at(origin);
        let (tracked, cuts) = (original.is_tracked(), original.durable.cuts);
        let container = self.containers.at_mut(slot);
        let id = container.id;
        // No rollback leads to a state with a snapshot that was made after the last cut.
        if let Some(snapshot) = container.snapshot.as_mut().filter(|snapshot| tracked && snapshot.made != cuts) {
            snapshot.in_undo = true;
            self.note(origin, epoch, Change::SnapshotDeleted { id });
        } else {
            self.let_go(id);
        }
        origin
    }

    fn commit_object_delete(&mut self, epoch: u64, slot: u32) -> u32 {
        let object = self.objects.get(slot);
        let (at, created) = (object.container, object.created);
        let container = self.containers.at(at);
        if container.is_tracked() && created != container.durable.cuts {
            if let Some(number) = self.note(at, epoch, Change::ObjectDeleted { slot }) {
                self.gone.detached.insert(slot, (number, epoch));
            }
        } else {
            self.gone.reclaim.push_back(Reclaim::Object(slot));
        }
        at
    }

    fn commit_range(&mut self, epoch: u64, step: RangeStep, tag: Tag) -> u32 {
        let RangeStep { slot, from, to, pieces, size_before, resized, brought, .. } = step;
        let object = self.objects.get(slot);
        let (at, id, generation) = (object.container, object.id(), object.generation);
        let created = object.created;
        let container = self.containers.at(at);
        let (tracked, cuts) = (container.is_tracked(), container.durable.cuts);
        let replaced_new = match &pieces {
            Pieces::One(offset, ext) => {
                *offset == from && from + u64::from(ext.len) == to && ext.born == cuts && self.space.at_risk(ext)
            }
            _ => false,
        };
        if matches!(brought, Brought::Shared) {
            self.list_shared(slot, (from, to), epoch);
        }
        if let (Brought::Written(written), true) = (brought, tracked) {
            let volatile = self.space.is_volatile(written.dev);
            let container = self.containers.at_mut(at);
            if !volatile {
                container.unsaved.data_epoch = epoch;
                container.unsaved.wrote.add(written.dev);
            } else if !replaced_new {
                container.add_fresh(Fresh { slot, generation, offset: from, len: to - from });
            }
        }
        if !tracked || created == cuts {
            for (_, ext) in pieces {
                self.space.drop_ext(&ext, tag);
            }
            return at;
        }
        let covered = Self::bytes_of(&pieces) == to - from && pieces.iter().all(|(_, ext)| ext.born == cuts);
        let was_empty = pieces.is_empty();
        let kept = self.keep_old(pieces, cuts, tag);
        // A punch or truncate that changed nothing needs no undo; a write into a hole does.
        if (covered && !resized) || (was_empty && !resized && matches!(brought, Brought::Nothing)) {
            return at;
        }
        let at_risk: Vec<usize> =
            kept.iter().enumerate().filter(|(_, (_, ext))| self.space.at_risk(ext)).map(|(i, _)| i).collect();
        let change = Change::Range { object: id, from, to, pieces: kept, size: size_before };
        if let Some(number) = self.note(at, epoch, change).filter(|_| !at_risk.is_empty()) {
            let container = self.containers.at(at);
            if let Some(cut) = container.durable.pending_cut.and_then(|cut| self.cuts.get_mut(cut)) {
                let id = container.id;
                cut.queue.extend(at_risk.into_iter().map(|piece| DrainItem::Undo { container: id, number, piece }));
            }
        }
        at
    }

    /// Drops the pieces that were written after the last cut, and the volatile place of other pieces that have a copy.
    fn keep_old(&mut self, pieces: Pieces, cuts: u32, tag: Tag) -> Pieces {
        let mut kept = Pieces::None;
        for (offset, ext) in pieces {
            if ext.born == cuts {
                self.space.drop_ext(&ext, tag);
            } else if ext.has_copy() && self.space.is_volatile(ext.dev) {
                self.space.discount_copied(&ext);
                self.space.count_given_up(&ext);
                self.space.drop_place(&ext, ext.place(), tag);
                kept.push(offset, ext.at_copy(0));
            } else {
                kept.push(offset, ext);
            }
        }
        kept
    }
}
