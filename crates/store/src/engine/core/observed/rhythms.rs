//! Access rhythms: when containers and their objects are written and read.

use cenote_model::{ContainerId, ObjectKey};
use cenote_policy::{Heat, Rhythm};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Most objects with a rhythm of their own: some 2 MiB of memory.
const OBJECTS_MAX: usize = 16_384;

/// Rhythms of containers, of some of their objects, and of the store.
#[derive(Default)]
pub struct Rhythms {
    store: Rhythm,
    containers: HashMap<ContainerId, Rhythm, FixedState>,
    objects: HashMap<ObjectKey, Rhythm, FixedState>,
}

impl Rhythms {
    /// Notes a write to an object.
    pub fn wrote(&mut self, key: ObjectKey, now_ms: u64, bytes: u64) {
        self.store.wrote(now_ms, bytes);
        self.containers.entry(key.container).or_default().wrote(now_ms, bytes);
        self.object(key).wrote(now_ms, bytes);
    }
    /// Notes a read of an object; `heat` is the state before the read.
    pub fn read(&mut self, key: ObjectKey, now_ms: u64, heat: &Heat) {
        self.store.read(now_ms, heat);
        self.containers.entry(key.container).or_default().read(now_ms, heat);
        self.object(key).read(now_ms, heat);
    }
    /// Returns the object's own rhythm once it is meaningful, else that of its container.
    pub fn of(&self, key: &ObjectKey) -> Option<&Rhythm> {
        let own = self.objects.get(key).filter(|rhythm| rhythm.is_telling());
        own.or_else(|| self.containers.get(&key.container))
    }
    /// Returns the rhythm of a container, if it was read or written.
    pub fn of_container(&self, container: ContainerId) -> Option<&Rhythm> {
        self.containers.get(&container)
    }
    /// Returns the rhythm of the whole store, if anything was read or written.
    pub fn of_store(&self) -> Option<&Rhythm> {
        (!self.containers.is_empty()).then_some(&self.store)
    }

    /// Returns the rhythm of an object. Drops others if the table is full.
    pub fn object(&mut self, key: ObjectKey) -> &mut Rhythm {
        if self.objects.len() >= OBJECTS_MAX && !self.objects.contains_key(&key) {
            // Dropped rhythms are learned again soon. Those that are not meaningful yet go first.
            self.objects.retain(|_, rhythm| rhythm.is_telling());
            if self.objects.len() >= OBJECTS_MAX / 2 {
                self.objects.clear();
            }
        }
        self.objects.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(object: u128) -> ObjectKey {
        ObjectKey { container: ContainerId(1), object: cenote_model::ObjectId(object) }
    }

    #[test]
    fn an_objects_own_rhythm_is_preferred_once_it_tells_something() {
        let mut rhythms = Rhythms::default();
        assert!(rhythms.of(&key(1)).is_none() && rhythms.of_store().is_none());
        for at in 0..20 {
            rhythms.read(key(1), at * 100, &Heat::default());
        }
        rhythms.read(key(2), 5_000, &Heat::default());
        let container = rhythms.of_container(ContainerId(1)).copied();
        assert_ne!(rhythms.of(&key(1)).copied(), container);
        assert_eq!(rhythms.of(&key(2)).copied(), container, "of the second object too little is known");
    }

    #[test]
    fn the_table_of_objects_stays_small() {
        let mut rhythms = Rhythms::default();
        for object in 0..3 * OBJECTS_MAX as u128 {
            rhythms.wrote(key(object), 1, 1);
        }
        assert!(rhythms.objects.len() <= OBJECTS_MAX);
    }
}
