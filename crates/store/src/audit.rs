//! Self-checks of the state in memory: maps, indices, tables and free space must agree.
//!
//! Checksums guard the bytes on devices; the audit guards the metadata that say where they are. A verify and the scrub
//! run it, and tests and the simulation after their steps. It changes nothing and reads only memory.

use cenote_model::{ContainerId, IndexKey};

use crate::map::Ext;
use crate::objects::Presence;
use crate::space::for_places;
use crate::state::EngineState;
use crate::undo::Change;

/// Most records of an index that a verify counts at once; of a longer index it checks only the container's count.
const RECORDS_MAX: u64 = 200_000;

impl EngineState {
    /// Checks an object's map: overlapping extents, and space that is free or about to be.
    pub fn audit_object(&self, slot: u32) -> Option<String> {
        let object = self.objects.get(slot);
        if object.presence == Presence::Free {
            return None;
        }
        let subject = || format!("the extent map of object {}", self.key_of(slot));
        if let Err(why) = object.map.check() {
            return Some(format!("{}: {why}", subject()));
        }
        let wrong = object.map.iter().find_map(|(at, ext)| Some((at, self.audit_space_of(ext)?)));
        wrong.map(|(at, why)| format!("{}: at {at} {why}", subject()))
    }
    fn audit_space_of(&self, ext: &Ext) -> Option<&'static str> {
        let hull = ext.hull();
        let mut wrong = None;
        for_places(ext, |place| {
            let Some(slot) = self.space.slots.get(usize::from(place.dev)) else {
                wrong = Some("it names no device");
                return;
            };
            let (begin, end) = (place.unit_at(hull.begin), place.end_at(hull.end));
            if slot.removed {
                wrong = Some("it is on a device that was removed");
            } else if begin >= end || end > slot.space.map.units() * u64::from(slot.space.unit_bytes) {
                wrong = Some("it ends behind its device");
            } else if !slot.is_taken(begin, end) {
                wrong = Some("its space counts as free");
            }
        });
        wrong
    }
    /// Checks a container: indices, counts, and objects that are not where it has them.
    pub fn audit_container(&self, id: ContainerId) -> Option<String> {
        let container = self.containers.get(id)?;
        let mut records = 0;
        for (index, found) in &container.content.indices {
            records += found.len();
            if found.len() <= RECORDS_MAX
                && let Err(why) = found.check()
            {
                return Some(format!("index {}: {why}", IndexKey { container: id, index: *index }));
            }
        }
        if records != container.content.records {
            return Some(format!("container {id}: it counts {} records and has {records}", container.content.records));
        }
        if records <= RECORDS_MAX {
            // The index's own counts were checked above.
            let bytes = container.content.indices.values().map(|index| index.bytes).sum::<u64>();
            if bytes != container.content.record_bytes {
                let counted = container.content.record_bytes;
                return Some(format!("container {id}: it counts {counted} bytes of records and has {bytes}"));
            }
        }
        if let Some(why) = self.audit_log(id) {
            return Some(why);
        }
        let lost = container.content.objects.iter().find(|(object, slot)| {
            let found = self.objects.get(**slot);
            found.presence != Presence::Live || self.containers.at(found.container).id != id || found.id() != **object
        });
        if let Some((object, slot)) = lost {
            return Some(format!("container {id}: object {object:?} is not in slot {slot}"));
        }
        let objects = container.content.objects.iter().filter(|(object, _)| !container.is_value_log(**object));
        let stored = objects.map(|(_, slot)| self.objects.get(*slot).map.mapped_bytes()).sum::<u64>();
        let counted = container.content.stored_bytes;
        (stored != counted).then(|| format!("container {id}: it counts {counted} bytes of objects and has {stored}"))
    }
    /// Checks the free space of devices, and reports what the opening found.
    pub fn audit_space(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for slot in self.space.present() {
            if let Err(why) = slot.space.map.check() {
                wrong.push(format!("the free space of device `{}`: {why}", slot.spec.name));
            }
            if let Err(why) = slot.space.retired.check(|offset, len| slot.is_taken(offset, offset + len)) {
                wrong.push(format!("the retired space of device `{}`: {why}", slot.spec.name));
            }
        }
        if let Err(why) = self.space.kin.check() {
            wrong.push(format!("shared ranges: {why}"));
        }
        let is_undone = |slot: u32, number: u64| {
            let container = self.objects.get(slot).container;
            let undo = self.containers.is_taken(container).then(|| self.containers.at(container).undo_at(number));
            undo.flatten().is_some_and(|undo| matches!(undo.change, Change::ObjectDeleted { slot: at } if at == slot))
        };
        for (slot, (number, _)) in self.gone.detached.iter().filter(|(slot, (number, _))| !is_undone(**slot, *number)) {
            wrong.push(format!("object slot {slot}: it waits for undo entry {number}, which does not name it"));
        }
        for (key, found) in &self.containers.disorder {
            wrong.push(format!("index {key}: {found}"));
        }
        wrong
    }
    /// Checks everything, for tests.
    pub fn audit(&self) -> Vec<String> {
        let objects = (0..self.objects.slots()).filter_map(|slot| self.audit_object(slot));
        let containers = self.containers.ids().into_iter().filter_map(|id| self.audit_container(id));
        objects.chain(containers).chain(self.audit_space()).chain(self.audit_extents()).collect()
    }
    /// Checks the number of extents of all objects, except while some are being given up.
    fn audit_extents(&self) -> Option<String> {
        let objects = (0..self.objects.slots()).map(|slot| self.objects.get(slot));
        let live = objects.filter(|object| object.presence == Presence::Live);
        let (extents, counted) = (live.map(|object| object.map.extents()).sum::<u64>(), self.space.extents);
        (self.gone.reclaim.is_empty() && extents != counted)
            .then(|| format!("objects: {counted} extents are counted and {extents} are there"))
    }
}
