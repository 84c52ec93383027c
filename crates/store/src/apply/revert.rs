//! Takes back what a transaction did, step by step from the last.

use cenote_model::ObjectKey;

use super::write::unmerge;
use super::{Brought, RangeStep, Step, Txn};
use crate::map::Pieces;
use crate::objects::Presence;
use crate::state::EngineState;

impl EngineState {
    /// Restores the state exactly as it was before the transaction, down to how extents are split: the transaction
    /// is not in the journal, and replay must come to the same maps.
    pub fn revert(&mut self, txn: &mut Txn) {
        while let Some(step) = txn.steps.pop() {
            self.revert_step(txn, step);
        }
    }

    fn revert_step(&mut self, txn: &Txn, step: Step) {
        match step {
            Step::Range(step) => self.revert_range(txn, step),
            Step::ObjectCreated { slot } => {
                let object = self.objects.get(slot);
                let (id, container) = (object.id(), object.container);
                let container = self.containers.at_mut(container);
                container.content.objects.remove(&id);
                self.pins.forget(ObjectKey { container: container.id, object: id });
                self.objects.remove(slot);
            }
            Step::ObjectDeleted { slot } => self.attach(slot),
            Step::IndexCreated { container, index } => {
                self.containers.at_mut(container).content.indices.remove(&index);
            }
            Step::IndexDeleted { container, index, was } => {
                let container = self.containers.at_mut(container);
                container.count_index(&was);
                container.content.indices.insert(index, was);
            }
            Step::Record { container, index, key, was, .. } => {
                let container = self.containers.at_mut(container);
                container.put_back_record(index, &key, was);
            }
            Step::ContainerCreated { slot } => {
                self.containers.next_id = self.containers.at(slot).id.0;
                self.containers.hide(slot);
                self.containers.vacate(slot);
            }
            Step::ContainerRenamed { slot, was } => {
                self.containers.rename(slot, was);
            }
            Step::ContainerSet { slot, was } => self.containers.at_mut(slot).spec = was,
            Step::ContainerDeleted { slot } => self.containers.show(slot),
            Step::SnapshotMade { .. } | Step::RolledBack { .. } => {} // other steps of the transaction did the work
            Step::SnapshotFilled { slot } => self.drop_new_snapshot(txn, slot),
            Step::SnapshotDeleted { slot, .. } => self.set_deleted(slot, false),
            Step::ObjectCloned { slot } => {
                let object = self.objects.get(slot);
                let (id, container) = (object.id(), object.container);
                self.containers.at_mut(container).content.objects.remove(&id);
                self.drop_clone(slot);
            }
        }
    }

    fn revert_range(&mut self, txn: &Txn, step: RangeStep) {
        let RangeStep { slot, from, to, pieces, splits, size_before, epoch_before, brought, .. } = step;
        let object = self.objects.get_mut(slot);
        let (extents, mapped) = (object.map.extents(), object.map.mapped_bytes());
        match brought {
            Brought::Nothing => {}
            Brought::Written(written) => {
                match &written.merged {
                    Some(merged) => unmerge(&mut object.map, merged),
                    None => drop(object.map.remove(from)),
                }
                if let Some(session) = self.sessions.open.get_mut(&txn.session) {
                    session.lease(written.dev, written.run_offset, written.padded);
                }
                self.space.get_mut(written.dev).space.reserved_bytes += written.padded;
            }
            Brought::Shared => {
                let mut shared = Pieces::None;
                object.map.cut_out(from, to, &mut self.space.shared, &mut shared);
                for (_, ext) in shared {
                    self.space.shared.leave_all(&ext);
                    self.space.discount_copied(&ext);
                }
            }
        }
        object.map.put_back(from, to, pieces, splits, &mut self.space.shared);
        object.size = size_before;
        object.epoch = epoch_before;
        self.space.extents = self.space.extents - extents + object.map.extents();
        let container = self.containers.at_mut(object.container);
        container.content.stored_bytes = container.content.stored_bytes - mapped + object.map.mapped_bytes();
    }

    /// Puts a detached object back into its container.
    pub(crate) fn attach(&mut self, slot: u32) {
        let object = self.objects.get_mut(slot);
        object.presence = Presence::Live;
        self.space.extents += object.map.extents();
        let (id, mapped) = (object.id(), object.map.mapped_bytes());
        let container = self.containers.at_mut(object.container);
        container.content.stored_bytes += mapped;
        container.content.objects.insert(id, slot);
    }

    /// Returns the bytes of pieces.
    pub(crate) fn bytes_of(pieces: &Pieces) -> u64 {
        pieces.iter().map(|(_, ext)| u64::from(ext.len)).sum()
    }
}
