//! Rollback: after power loss containers go back to their persisted epochs.

use cenote_model::ObjectKey;

use crate::RolledBack;
use crate::map::{DeviceIndex, ExtentMap, Pieces};
use crate::objects::Presence;
use crate::state::EngineState;
use crate::undo::Change;

impl EngineState {
    /// Takes every container back to its persisted epoch. `lost`: device slots whose bytes are gone. Does not account
    /// for space: [`EngineState::rebuild`] does that afterwards. Returns the containers that went back, and the objects that
    /// lost bytes.
    pub fn roll_back(&mut self, lost: &[DeviceIndex]) -> (Vec<RolledBack>, Vec<ObjectKey>) {
        let mut rolled_back = Vec::new();
        for id in self.containers.ids() {
            let Some(at) = self.containers.slot_of(id) else { continue };
            let container = self.containers.at(at);
            if !container.is_tracked() {
                continue;
            }
            let (from, to) = (container.epoch, container.durable.persisted);
            let is_gone = self.undo_all(at);
            if from > to {
                let label = self.containers.at(at).label.clone();
                rolled_back.push(RolledBack { container: id, label, from, to });
            }
            if is_gone {
                self.lose_log(at);
                self.containers.hide(at);
                self.containers.vacate(at);
            }
        }
        self.containers.relabel();
        // Snapshots that were kept only for a session go, too.
        let deleted = self.containers.ids().into_iter().filter(|id| self.containers.is_deleted_snapshot(*id));
        for id in deleted.collect::<Vec<_>>() {
            self.drop_snapshot(id);
        }
        self.cuts.pending.clear();
        self.cuts.dirty.clear();
        (rolled_back, self.leave_lost_devices(lost))
    }

    /// Undoes a container's whole undo list. Returns true if the container itself did not exist yet: it is empty then.
    fn undo_all(&mut self, at: u32) -> bool {
        let mut is_gone = false;
        let container = self.containers.at_mut(at);
        let mut undo = std::mem::take(&mut container.back.undo);
        container.back.undo_first += undo.len() as u64;
        while let Some(entry) = undo.pop_back() {
            is_gone |= matches!(entry.change, Change::Made);
            self.undo_one(at, entry.change);
        }
        let container = self.containers.at_mut(at);
        container.epoch = container.durable.persisted;
        container.durable.cut_epoch = container.durable.persisted;
        container.unsaved.data_epoch = container.unsaved.data_epoch.min(container.durable.persisted);
        container.durable.pending_cut = None;
        container.durable.marked_cuts = container.durable.cuts;
        container.durable.later = container.durable.cuts;
        container.unsaved.fresh.clear();
        container.unsaved.links.clear();
        is_gone
    }

    /// Drops a snapshot with all its objects. The rebuild finds out later who has their space.
    fn drop_snapshot(&mut self, id: cenote_model::ContainerId) {
        let Some(slot) = self.containers.slot_of(id) else { return };
        let container = self.containers.at_mut(slot);
        if container.snapshot.is_none() {
            return;
        }
        for object in std::mem::take(&mut container.content.objects).into_values() {
            self.space.extents -= self.objects.get(object).map.extents();
            self.objects.remove(object);
        }
        self.containers.hide(slot);
        self.containers.vacate(slot);
    }

    fn undo_one(&mut self, at: u32, change: Change) {
        let container = self.containers.at_mut(at);
        match change {
            Change::Range { object, from, to, pieces, size } => {
                let Some(slot) = container.content.objects.get(&object).copied() else { return };
                let object = self.objects.get_mut(slot);
                let (extents, mapped) = (object.map.extents(), object.map.mapped_bytes());
                object.map.cut_out(from, to, &mut self.space.shared, &mut Pieces::None);
                for (offset, ext) in pieces {
                    object.map.insert(offset, ext);
                }
                object.size = size;
                self.space.extents = self.space.extents + object.map.extents() - extents;
                container.content.stored_bytes = container.content.stored_bytes + object.map.mapped_bytes() - mapped;
            }
            Change::ObjectCreated { object } => {
                if let Some(slot) = container.content.objects.remove(&object) {
                    let gone = self.objects.get(slot);
                    self.space.extents -= gone.map.extents();
                    container.content.stored_bytes -= gone.map.mapped_bytes();
                    self.objects.remove(slot);
                }
            }
            Change::ObjectDeleted { slot, .. } => {
                self.gone.detached.remove(&slot);
                self.attach(slot);
            }
            Change::IndexCreated { index } => {
                if let Some(gone) = container.content.indices.remove(&index) {
                    container.discount_index(&gone);
                }
            }
            Change::IndexDeleted { index, was } => {
                container.count_index(&was);
                container.content.indices.insert(index, was);
            }
            // Labels are assigned when all containers are back.
            Change::Renamed { was } => container.label = was,
            Change::Set { was } => container.spec = *was,
            Change::Made => {}
            Change::SnapshotMade { id } => self.drop_snapshot(id),
            Change::SnapshotDeleted { id } => {
                let snapshot = self.containers.get_mut(id).and_then(|container| container.snapshot.as_mut());
                if let Some(snapshot) = snapshot {
                    (snapshot.deleted, snapshot.in_undo) = (false, false);
                }
            }
            Change::Record { index, key, was } => {
                container.put_back_record(index, &key, was);
            }
        }
    }

    /// Lets extents on lost devices fall back to their copies. Drops objects without copies, and scratch objects with
    /// bytes.
    fn leave_lost_devices(&mut self, lost: &[DeviceIndex]) -> Vec<ObjectKey> {
        let mut dropped = Vec::new();
        for slot in 0..self.objects.slots() {
            let object = self.objects.get(slot);
            if object.presence != Presence::Live {
                continue;
            }
            // Data of a scratch container were never synced, on any device, and may be torn. Values in its log were
            // synced.
            let container = self.containers.at(object.container);
            let is_log = container.is_value_log(object.id());
            let scratch = !container.is_tracked() && !is_log;
            let mut bytes_lost = scratch && object.map.extents() > 0;
            self.objects.get_mut(slot).map.for_each_mut(|_, ext| {
                if lost.contains(&ext.dev) {
                    if ext.has_copy() {
                        *ext = ext.at_copy(0);
                    } else {
                        bytes_lost = true;
                    }
                }
            });
            if bytes_lost && is_log {
                dropped.push(self.key_of(slot));
                self.lose_log(self.objects.get(slot).container);
            } else if bytes_lost {
                let key = self.key_of(slot);
                let object = self.objects.get_mut(slot);
                let (extents, mapped) = (object.map.extents(), object.map.mapped_bytes());
                object.map = ExtentMap::Empty;
                self.space.extents -= extents;
                self.objects.remove(slot);
                if let Some(container) = self.containers.get_mut(key.container) {
                    container.content.objects.remove(&key.object);
                    container.content.stored_bytes -= mapped;
                }
                dropped.push(key);
            }
        }
        dropped.sort_unstable();
        dropped
    }
}
