//! Kin: extents of other objects with the same bytes (reflinked extents), which move together.
//!
//! Shared ranges are found by the run that they are views of. These notes are not kept on media: the journal names all
//! that moves, and an opening makes the notes anew. A missing or outdated note costs space on the device where
//! something then gets bytes of its own.

use std::collections::BTreeSet;

use cenote_model::{ContainerId, ObjectId, ObjectKey};
use foldhash::fast::FixedState;
use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};

use crate::container::Container;
use crate::map::{DeviceIndex, Ext, NO_DEVICE};
use crate::objects::Presence;
use crate::placing::{Placing, Target, identity};
use crate::state::EngineState;

/// Device slot of a run, and where it begins there.
type RunAt = (DeviceIndex, u64);
/// The family, and the object and offset in it, in the container or in snapshots of it.
type Where = (ContainerId, ObjectId, u64);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Kin {
    by_run: HashMap<RunAt, Vec<Where>, FixedState>,
    /// Number of runs after the last sweep of outdated notes.
    left: usize,
}

impl Kin {
    /// Notes an extent that shares its run's bytes with others.
    pub fn note(&mut self, run: RunAt, place: Where) {
        let places = self.by_run.entry(run).or_default();
        if !places.contains(&place) {
            places.push(place);
        }
    }
    /// Checks the notes by themselves. They may be incomplete or outdated.
    pub fn check(&self) -> Result<(), String> {
        let wrong = self
            .by_run
            .iter()
            .find(|(_, places)| places.is_empty() || places.iter().collect::<BTreeSet<_>>().len() != places.len());
        wrong.map_or(Ok(()), |((device, offset), _)| {
            Err(format!("the notes of the run at {offset} on device {device} are empty, or name a place twice"))
        })
    }
    /// Approximate bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        self.by_run.len() as u64 * 88
    }
}

/// Returns true if two extents are the same bytes at the same places.
pub(crate) fn is_same(one: &Ext, other: &Ext) -> bool {
    identity(one) == identity(other) && one.has_same_copies(other)
}

impl EngineState {
    /// Returns a container and its snapshots.
    fn members(&self, family: ContainerId) -> Vec<ContainerId> {
        [family].into_iter().chain(self.containers.snapshots_of(family).iter().copied()).collect()
    }

    /// Returns the placings of other extents with the same bytes that follow from this one: one for each object and
    /// offset, whose own twins in snapshots follow it.
    pub fn sharers(&mut self, placing: &Placing) -> Vec<Placing> {
        let mut found = Vec::new();
        if self.space.kin.by_run.is_empty() {
            return found;
        }
        let Target::Live { key, offset } = placing.target else { return found };
        let Some(ext) = self.target_mut(placing.target).cloned() else { return found };
        let Some(places) = self.space.kin.by_run.get(&(ext.dev, ext.run_offset)).cloned() else { return found };
        let Some(family) = self.containers.get(key.container).and_then(Container::family) else { return found };
        let members = self.members(family);
        // The run may have belonged to another family before.
        let others =
            places.into_iter().filter(|(of, object, at)| *of == family && (*object, *at) != (key.object, offset));
        for (_, object, at) in others {
            let shares = |container: &ContainerId| {
                let target = Target::Live { key: ObjectKey { container: *container, object }, offset: at };
                self.target_mut(target).is_some_and(|other| is_same(&ext, other)).then_some(target)
            };
            let target = members.iter().find_map(shares);
            found.extend(target.map(|target| Placing { target, ..placing.clone() }));
        }
        found
    }

    /// Notes the new run of extents that moved together.
    pub fn note_moved(&mut self, targets: &[Target]) {
        for target in targets {
            let Target::Live { key, offset } = *target else { continue };
            let Some(run) = self.target_mut(*target).map(|ext| (ext.dev, ext.run_offset)) else { continue };
            if let Some(family) = self.containers.get(key.container).and_then(Container::family) {
                self.space.kin.note(run, (family, key.object, offset));
            }
        }
        self.sweep_kin();
    }

    /// Drops outdated notes, once there are twice as many as after the last sweep.
    pub fn sweep_kin(&mut self) {
        if self.space.kin.by_run.len() < 2 * self.space.kin.left + 1024 {
            return;
        }
        let mut kin = std::mem::take(&mut self.space.kin);
        kin.by_run.retain(|run, places| {
            places.retain(|(family, object, at)| {
                self.members(*family).iter().any(|container| {
                    let key = ObjectKey { container: *container, object: *object };
                    let ext = self.target_mut(Target::Live { key, offset: *at });
                    ext.is_some_and(|ext| (ext.dev, ext.run_offset) == *run)
                })
            });
            places.len() > 1
        });
        kin.left = kin.by_run.len();
        self.space.kin = kin;
    }

    /// Makes all notes anew. `families`: those in which several extents touch one checksum unit.
    pub fn find_kin(&mut self, families: &BTreeSet<ContainerId>) {
        self.space.kin = Kin::default();
        if families.is_empty() {
            return;
        }
        let mut first: HashMap<RunAt, (ObjectId, u64), FixedState> = HashMap::default();
        let mut several: HashSet<RunAt, FixedState> = HashSet::default();
        self.for_each_shared(families, |run, (_, object, at)| match first.entry(run) {
            Entry::Vacant(entry) => drop(entry.insert((object, at))),
            Entry::Occupied(entry) if *entry.get() != (object, at) => drop(several.insert(run)),
            Entry::Occupied(_) => {}
        });
        drop(first);
        let mut kin = Kin::default();
        self.for_each_shared(families, |run, place| {
            if several.contains(&run) {
                kin.note(run, place);
            }
        });
        kin.left = kin.by_run.len();
        self.space.kin = kin;
    }

    fn for_each_shared(&self, families: &BTreeSet<ContainerId>, mut each: impl FnMut(RunAt, Where)) {
        for slot in 0..self.objects.slots() {
            let object = self.objects.get(slot);
            if object.presence != Presence::Live {
                continue;
            }
            let Some(family) = self.containers.at(object.container).family().filter(|it| families.contains(it)) else {
                continue;
            };
            for (at, ext) in object.map.iter() {
                debug_assert_ne!(ext.dev, NO_DEVICE);
                if self.space.shared.is_shared(ext.dev, ext.place().unit_at(ext.skip)) {
                    each((ext.dev, ext.run_offset), (family, object.id(), at));
                }
            }
        }
    }
}
