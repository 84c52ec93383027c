//! The table of objects: one slot each, found by container and id.

use cenote_model::{ObjectId, ObjectKey};

use crate::map::ExtentMap;
use crate::small_map::SmallMap;

const CHUNK: usize = 1024;
const CACHE: usize = 1 << 14;
const NO_SLOT: u32 = u32::MAX;

/// The stage of an object's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Presence {
    /// The slot is free.
    #[default]
    Free,
    /// In its container.
    Live,
    /// Deleted, but an undo list may bring it back.
    Detached,
}

/// An object.
#[derive(Debug, Default)]
pub(crate) struct Object {
    pub map: ExtentMap,
    /// Recorded size in bytes.
    pub size: u64,
    /// Epoch of its last update.
    pub epoch: u64,
    id: (u64, u64),
    /// Slot of its container.
    pub container: u32,
    /// How often the slot was freed: tells objects of one slot apart.
    pub generation: u32,
    pub last: LastUse,
    /// The container's cut count when it was created.
    pub created: u32,
    pub block_shift: u8,
    pub presence: Presence,
}

/// The last use of an object.
#[derive(Debug, Default)]
pub(crate) struct LastUse {
    /// Second in which it was last read or written.
    pub touched: u32,
    /// The last request that raised its version word.
    pub word_mark: u32,
}

impl Object {
    pub fn id(&self) -> ObjectId {
        ObjectId((u128::from(self.id.0) << 64) | u128::from(self.id.1))
    }
}

fn halves(id: ObjectId) -> (u64, u64) {
    ((id.0 >> 64) as u64, id.0 as u64)
}

/// All objects of the store.
pub(crate) struct Objects {
    chunks: Vec<Box<[Object]>>,
    free: Vec<u32>,
    used: u32,
    /// Slots by hash of the key, for repeated lookups.
    cache: Box<[u32]>,
}

impl Default for Objects {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: Vec::new(), used: 0, cache: vec![NO_SLOT; CACHE].into() }
    }
}

impl Objects {
    pub fn get(&self, slot: u32) -> &Object {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
    pub fn get_mut(&mut self, slot: u32) -> &mut Object {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
    /// Slots ever used: every slot is below.
    pub fn slots(&self) -> u32 {
        self.used
    }
    /// Returns the slot of an object that the container's `tree` holds.
    pub fn find(&mut self, container: u32, tree: &SmallMap<ObjectId, u32>, key: ObjectKey) -> Option<u32> {
        let way = key.word_hash() as usize % CACHE;
        let cached = self.cache[way];
        if cached != NO_SLOT {
            let object = self.get(cached);
            if object.id == halves(key.object) && object.container == container && object.presence == Presence::Live {
                return Some(cached);
            }
        }
        let slot = *tree.get(&key.object)?;
        self.cache[way] = slot;
        Some(slot)
    }
    /// Adds an object; `None` if there are 2^32 already.
    pub fn add(&mut self, container: u32, id: ObjectId, block_shift: u8, epoch: u64, created: u32) -> Option<u32> {
        let slot = if let Some(slot) = self.free.pop() {
            slot
        } else {
            let slot = self.used;
            if slot == NO_SLOT {
                return None;
            }
            if slot as usize == self.chunks.len() * CHUNK {
                self.chunks.push((0..CHUNK).map(|_| Object::default()).collect());
            }
            self.used += 1;
            slot
        };
        let object = self.get_mut(slot);
        let generation = object.generation;
        *object = Object {
            id: halves(id),
            container,
            generation,
            epoch,
            created,
            block_shift,
            presence: Presence::Live,
            ..Object::default()
        };
        Some(slot)
    }
    /// Number of objects that can still be added.
    pub fn room(&self) -> u64 {
        u64::from(NO_SLOT - self.used) + self.free.len() as u64
    }
    /// Frees a slot. Its map must be empty, or the caller must have taken care of the extents.
    pub fn remove(&mut self, slot: u32) {
        let object = self.get_mut(slot);
        object.presence = Presence::Free;
        object.generation = object.generation.wrapping_add(1);
        object.map = ExtentMap::Empty;
        self.free.push(slot);
    }
    /// Approximate bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        (self.chunks.len() * CHUNK * size_of::<Object>() + self.free.capacity() * 4 + CACHE * 4) as u64
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::ContainerId;

    use super::*;

    #[test]
    fn is_small_and_found_again() {
        assert!(size_of::<Object>() <= 128, "{}", size_of::<Object>());
        let mut objects = Objects::default();
        let mut tree = SmallMap::default();
        let key = |n: u128| ObjectKey { container: ContainerId(1), object: ObjectId(n << 60) };
        for n in 0..3000 {
            let slot = objects.add(0, key(n).object, 12, 1, 0).unwrap();
            tree.insert(key(n).object, slot);
        }
        for n in 0..3000 {
            let slot = objects.find(0, &tree, key(n)).unwrap();
            assert_eq!(objects.get(slot).id(), key(n).object);
            assert_eq!(objects.find(0, &tree, key(n)), Some(slot));
        }
        let slot = tree.remove(&key(5).object).unwrap();
        objects.remove(slot);
        assert_eq!(objects.find(0, &tree, key(5)), None, "not from the cache either");
    }
}
