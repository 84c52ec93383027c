//! Steps that share ranges between objects.

use cenote_model::{ContainerId, ObjectId, ObjectKey, Update};

use super::Sim;
use crate::oracle::{Change, ObjectState};

impl Sim {
    /// Shares from an object of the container, often all of it, or from one of its snapshots; sometimes from
    /// elsewhere.
    pub(super) fn draw_share(&mut self) -> Option<(Update, Change)> {
        let to = self.any_object()?;
        let from = match self.rng.below(20) {
            0 => self.any_object()?,
            1..=5 => self.object_of_snapshot(to.container)?,
            _ => ObjectKey { object: self.object_of(to.container)?, ..to },
        };
        let (edges, size) = self.edges_of(to.container, from);
        let (offset, len) = match self.rng.below(8) {
            0..=2 => (0, size),
            3 | 4 if edges.len() > 1 => {
                let (one, other) = (*self.rng.pick(&edges), *self.rng.pick(&edges));
                (one.min(other), one.abs_diff(other))
            }
            5 if self.rng.chance(300) => (self.rng.below(size + 1), self.rng.size(self.profile.write_max)),
            _ => {
                let offset = self.rng.below(size + 1);
                (offset, self.rng.below(size - offset + 1))
            }
        };
        let at = match self.rng.below(4) {
            0 => offset,
            1 => self.oracle.current().object(to).map_or(0, |object| object.size),
            _ => self.draw_offset(to),
        };
        Some((Update::Share { to, at, from, offset, len }, Change::Share { to, at, from, offset, len }))
    }
    fn object_of(&mut self, container: ContainerId) -> Option<ObjectId> {
        let objects = &self.oracle.current().containers[&container].objects;
        // Mostly an object with content.
        let any = self.rng.chance(100);
        let there = objects.iter().filter(|(_, object)| any || !object.map.is_empty()).map(|(id, _)| *id);
        let there: Vec<ObjectId> = there.collect();
        if there.is_empty() { None } else { Some(*self.rng.pick(&there)) }
    }
    fn object_of_snapshot(&mut self, of: ContainerId) -> Option<ObjectKey> {
        let snapshots = self.oracle.current().containers[&of].snapshots.values();
        let keys = snapshots.flat_map(|(id, content)| {
            let filled = content.objects.iter().filter(|(_, object)| !object.map.is_empty());
            filled.map(|(object, _)| ObjectKey { container: *id, object: *object })
        });
        let keys: Vec<ObjectKey> = keys.collect();
        if keys.is_empty() { None } else { Some(*self.rng.pick(&keys)) }
    }
    /// Offsets where something begins or ends in an object of a container or of its snapshots, and the object's
    /// size.
    fn edges_of(&self, container: ContainerId, key: ObjectKey) -> (Vec<u64>, u64) {
        let current = self.oracle.current();
        let in_snapshot = || {
            let all = &current.containers.get(&container)?.snapshots;
            all.values().find(|(id, _)| *id == key.container)?.1.objects.get(&key.object)
        };
        let object: Option<&ObjectState> = current.object(key).or_else(in_snapshot);
        let edges = |object: &ObjectState| object.map.iter().flat_map(|(at, it)| [*at, at + it.len]).collect();
        object.map_or_else(|| (Vec::new(), 0), |object| (edges(object), object.size))
    }
}
