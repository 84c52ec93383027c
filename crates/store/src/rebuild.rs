//! Rebuild after replay: computes which space is used, which units are shared, and what is still to be copied.

use std::collections::BTreeSet;

use cenote_model::{ContainerId, Error, ErrorKind, Result};
use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use crate::container::{Container, Containers, Fresh};
use crate::map::{DeviceIndex, Ext, ExtentPlace};
use crate::objects::{Objects, Presence};
use crate::persist::{CutPhase, DeviceSet, DrainItem};
use crate::space::{Shared, Space, for_places, for_units};
use crate::state::EngineState;
use crate::sums::UNIT;
use crate::undo::Change;

/// Units that several extents may touch.
#[derive(Default)]
struct Edges {
    /// Units at the edge of an extent that were seen.
    seen: HashSet<(DeviceIndex, u64), FixedState>,
    /// Units of extents that may share anywhere: their bytes, and their family.
    family: HashMap<(DeviceIndex, u64), (u32, ContainerId), FixedState>,
    /// Families in which more than one extent touches such a unit.
    sharing: BTreeSet<ContainerId>,
}

impl EngineState {
    /// Computes all that the journal and checkpoints do not hold. Fails if extents contradict each other.
    pub fn rebuild(&mut self, now_ns: u64) -> Result<()> {
        self.space.begin_claims();
        let mut edges = Edges::default();
        self.clear_drain_lists(now_ns)?;
        for slot in 0..self.objects.slots() {
            let object = self.objects.get(slot);
            if object.presence == Presence::Free {
                continue;
            }
            let family = self.containers.at(object.container).family();
            for (offset, ext) in object.map.iter() {
                if let Err(why) = self.space.claim(ext, family, &mut edges) {
                    return Err(Error::new(
                        ErrorKind::Corrupt,
                        format!("{} bytes at {offset} of object {}", ext.len, self.key_of(slot)),
                    )
                    .because(why)
                    .try_next(crate::RESTORE));
                }
            }
            self.list_fresh(slot);
        }
        for id in self.containers.ids_of(|it| !it.back.undo.is_empty()) {
            let Some(container) = self.containers.get(id) else { continue };
            let family = container.family();
            for undo in &container.back.undo {
                let Change::Range { pieces, .. } = &undo.change else { continue };
                for (_, ext) in pieces.iter() {
                    if let Err(why) = self.space.claim(ext, family, &mut edges) {
                        return Err(
                            Error::new(ErrorKind::Corrupt, format!("the undo list of container {id}")).because(why)
                        );
                    }
                }
            }
            self.list_undo(id);
        }
        for id in self.containers.ids_of(|it| it.shares) {
            let alone = self.containers.snapshots_of(id).is_empty() && !edges.sharing.contains(&id);
            if let Some(container) = self.containers.get_mut(id).filter(|_| alone) {
                container.shares = false;
            }
        }
        let has_log =
            |it: &&Container| it.content.values.is_some() || it.content.indices.values().any(|index| index.away > 0);
        if let Some(why) = self.containers.ids_of(has_log).into_iter().find_map(|id| self.audit_log(id)) {
            return Err(Error::new(ErrorKind::Corrupt, why).try_next(crate::RESTORE));
        }
        self.find_kin(&edges.sharing);
        self.claim_leases()
    }

    fn claim_leases(&mut self) -> Result<()> {
        let prepared = self.two_phase.prepared.values().map(|it| (&it.session, &it.leases));
        for (id, session) in self.sessions.open.iter().chain(prepared) {
            for ((dev, offset), len) in &session.leases {
                let slot = self.space.get_mut(*dev);
                slot.space.reserved_bytes += len;
                if slot.mark(*offset, *len) != 0 {
                    return Err(Error::new(ErrorKind::Corrupt, format!("a lease of session {}", id.0))
                        .because(format!("{len} bytes at {offset} of device {} are in use", slot.id)));
                }
            }
        }
        Ok(())
    }

    fn clear_drain_lists(&mut self, now_ns: u64) -> Result<()> {
        self.cuts.dirty.clear();
        self.cuts.wanted.clear();
        for cut in self.cuts.pending.values_mut() {
            cut.queue.clear();
            (cut.in_flight, cut.phase, cut.sync.is_needed) = (0, CutPhase::Drain, true);
            cut.sync.wrote = DeviceSet::ALL;
        }
        for container in self.containers.iter_mut() {
            let id = container.id;
            container.unsaved.fresh.clear();
            container.unsaved.wrote = DeviceSet::ALL;
            container.unsaved.dirty_since_ns = now_ns;
            container.durable.persisted_at = 0;
            // A container of a pending cut that is not pending would wait for ever.
            let pending = container.durable.pending_cut;
            if container.is_dirty() {
                self.cuts.dirty.insert(id);
            }
            if let Some(cut) = pending.filter(|cut| !self.cuts.pending.contains_key(cut)) {
                return Err(Error::new(ErrorKind::Corrupt, format!("container {id}"))
                    .because(format!("it waits for cut {cut}, which is not pending"))
                    .try_next(crate::RESTORE));
            }
        }
        Ok(())
    }

    /// Lists the parts of an object that the pending cut or the next one has to copy.
    fn list_fresh(&mut self, slot: u32) {
        let object = self.objects.get(slot);
        let (at, generation) = (object.container, object.generation);
        let container = self.containers.at(at);
        if !container.is_tracked() {
            return;
        }
        let (cuts, pending) = (container.durable.cuts, container.durable.pending_cut);
        let at_risk = object.map.iter().filter(|(_, ext)| self.space.at_risk(ext));
        let ranges: Vec<(u64, u32, u32)> = at_risk.map(|(offset, ext)| (offset, ext.len, ext.born)).collect();
        for (offset, len, born) in ranges {
            let fresh = Fresh { slot, generation, offset, len: u64::from(len) };
            let cut = pending.filter(|_| born != cuts).and_then(|cut| self.cuts.get_mut(cut));
            match cut {
                Some(cut) => cut.queue.push_back(DrainItem::Fresh(fresh)),
                None => self.containers.at_mut(at).add_fresh(fresh),
            }
        }
    }

    fn list_undo(&mut self, id: cenote_model::ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        let Some(cut) = container.durable.pending_cut.and_then(|cut| self.cuts.pending.get_mut(&cut)) else { return };
        for (number, undo) in (container.back.undo_first..).zip(&container.back.undo) {
            if undo.epoch <= cut.epoch {
                continue;
            }
            let Change::Range { pieces, .. } = &undo.change else { continue };
            for (piece, (_, ext)) in pieces.iter().enumerate() {
                if self.space.at_risk(ext) {
                    cut.queue.push_back(DrainItem::Undo { container: id, number, piece });
                }
            }
        }
    }
}

impl Space {
    /// Counts only the shared units, before replay. [`EngineState::rebuild`] checks later whether space is claimed twice.
    pub fn replay_shared(&mut self, objects: &Objects, containers: &Containers) {
        self.shared = Shared::default();
        let mut edges = Edges::default();
        for slot in 0..objects.slots() {
            let object = objects.get(slot);
            if object.presence != Presence::Free {
                let family = containers.at(object.container).family();
                object.map.iter().for_each(|(_, ext)| self.count_shared(ext, family, &mut edges));
            }
        }
        for container in containers.iter() {
            for undo in &container.back.undo {
                if let Change::Range { pieces, .. } = &undo.change {
                    pieces.iter().for_each(|(_, ext)| self.count_shared(ext, container.family(), &mut edges));
                }
            }
        }
    }

    fn count_shared(&mut self, ext: &Ext, family: Option<ContainerId>, edges: &mut Edges) {
        if family.is_none() {
            return self.count_edges(ext, &mut edges.seen);
        }
        for_units(ext, |dev, unit| {
            if !edges.seen.insert((dev, unit)) {
                self.shared.touch_again(dev, unit);
                self.shared.set_everywhere();
            }
        });
    }

    fn count_edges(&mut self, ext: &Ext, edges: &mut HashSet<(DeviceIndex, u64), FixedState>) {
        let (first_inside, last_inside) = (ext.begins_inside(), ext.ends_inside());
        if !first_inside && !last_inside {
            return;
        }
        let (first, last) = (ext.skip, ext.end() - 1);
        let single = first / UNIT == last / UNIT;
        for_places(ext, |place| {
            let mut count = |at| {
                if !edges.insert((place.dev, place.unit_at(at))) {
                    self.shared.touch_again(place.dev, place.unit_at(at));
                }
            };
            if first_inside || single {
                count(first);
            }
            if last_inside && !single {
                count(last);
            }
        });
    }

    fn begin_claims(&mut self) {
        self.shared = Shared::default();
        for slot in &mut self.slots {
            slot.clear_space();
            slot.space.reserved_bytes = 0;
            slot.space.copied_bytes = 0;
            (slot.space.packed_bytes, slot.space.unpacked_bytes) = (0, 0);
            slot.trust.unsynced = !slot.is_volatile();
        }
    }

    /// Marks the units that an extent touches as used, at both its places.
    fn claim(
        &mut self,
        ext: &Ext,
        family: Option<ContainerId>,
        edges: &mut Edges,
    ) -> std::result::Result<(), &'static str> {
        self.count_copied(ext);
        let mut outcome = Ok(());
        for_places(ext, |place| {
            if outcome.is_ok() {
                outcome = match family {
                    None => self.claim_place(ext, place, edges),
                    Some(family) => self.claim_units(ext, place, family, edges),
                };
            }
        });
        outcome
    }

    /// Claims each unit by itself: others of the family may touch it too, but then all of it.
    fn claim_units(
        &mut self,
        ext: &Ext,
        place: ExtentPlace<'_>,
        family: ContainerId,
        edges: &mut Edges,
    ) -> std::result::Result<(), &'static str> {
        let hull = ext.hull();
        for at in (hull.begin..hull.end).step_by(UNIT as usize) {
            let unit = place.unit_at(at);
            let end = at.saturating_add(UNIT).min(hull.end);
            match edges.family.entry((place.dev, unit)) {
                Entry::Vacant(entry) => {
                    entry.insert((end - at, family));
                    self.claim_bytes(place, at, end)?;
                }
                Entry::Occupied(entry) if *entry.get() == (end - at, family) => {
                    edges.sharing.insert(family);
                    self.shared.touch_again(place.dev, unit);
                    self.shared.set_everywhere();
                }
                Entry::Occupied(_) => return Err("its space on the device belongs to something else too"),
            }
        }
        Ok(())
    }

    fn claim_place(
        &mut self,
        ext: &Ext,
        place: ExtentPlace<'_>,
        edges: &mut Edges,
    ) -> std::result::Result<(), &'static str> {
        let hull = ext.hull();
        let (mut begin, mut end) = (hull.begin, hull.end);
        let last_at = ext.end() - 1;
        let first_inside = ext.begins_inside();
        let last_inside = ext.ends_inside();
        let single = hull.len() <= UNIT;
        if first_inside || (single && last_inside) {
            self.claim_edge(ext, place, begin, edges)?;
            begin = begin.saturating_add(UNIT).min(end);
        }
        if last_inside && !single {
            end = last_at & !(UNIT - 1);
            self.claim_edge(ext, place, end, edges)?;
        }
        if begin < end { self.claim_bytes(place, begin, end) } else { Ok(()) }
    }

    /// Claims a unit that other extents may touch too.
    fn claim_edge(
        &mut self,
        ext: &Ext,
        place: ExtentPlace<'_>,
        at: u32,
        edges: &mut Edges,
    ) -> std::result::Result<(), &'static str> {
        let unit = place.unit_at(at);
        if edges.seen.insert((place.dev, unit)) {
            return self.claim_bytes(place, at, at.saturating_add(UNIT).min(ext.hull().end));
        }
        self.shared.touch_again(place.dev, unit);
        Ok(())
    }

    fn claim_bytes(&mut self, place: ExtentPlace<'_>, begin: u32, end: u32) -> std::result::Result<(), &'static str> {
        let slot = self.get_mut(place.dev);
        let (from, to) = (place.unit_at(begin), place.end_at(end));
        if place
            .packed()
            .is_some_and(|packed| !(1u64 << packed.grain_shift()).is_multiple_of(u64::from(slot.space.unit_bytes)))
        {
            return Err("its compressed units begin inside of units of its device");
        }
        let to = slot.padded(to);
        let capacity = slot.space.map.units() * u64::from(slot.space.unit_bytes);
        if from >= to || to > capacity || !from.is_multiple_of(u64::from(slot.space.unit_bytes)) {
            return Err("it lies outside of its device");
        }
        if slot.mark(from, to - from) != 0 {
            return Err("its space on the device belongs to something else too");
        }
        self.count_packed(place, (begin, end));
        Ok(())
    }
}
