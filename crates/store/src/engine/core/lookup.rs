//! Read-only queries: containers, objects, extent maps, indices.

use std::ops::Bound;

use cenote_model::{
    ContainerContent, ContainerId, ContainerInfo, Error, ErrorKind, IndexContent, IndexKey, Lookup, OBJECT_BYTES_MAX,
    ObjectId, ObjectKey, ObjectStat, Records, Response, Result, UnitBytes,
};

use super::Core;
use crate::container::Container;
use crate::index::Index;
use crate::map::ExtentMap;

/// Most items in one response.
pub const LIMIT_MAX: u32 = 65_536;
/// Most bytes of records in one response, beyond the first.
pub const BYTES_MAX: u32 = 64 << 20;
/// Most indices in a response to [`cenote_model::Request::ContainerContent`].
const CONTENT_INDICES_MAX: usize = 8;
/// Most objects inspected for it, and the most extents of an object whose map it includes.
const CONTENT_OBJECTS_MAX: usize = 32;
const CONTENT_EXTENTS_MAX: u64 = 16;

impl Core {
    /// Lists the containers that the asker may see.
    pub fn list_containers(&self, seer: super::rights::Caller<'_>, after: Option<&str>, limit: u32) -> Response {
        let found = self.state.containers.after_label(after).filter(|container| self.may_see(seer, container));
        let infos: Vec<ContainerInfo> = found.take(limit.min(LIMIT_MAX) as usize).map(Container::info).collect();
        Response::Containers(infos)
    }

    /// Returns a container. Fails if it does not exist, or is a deleted snapshot that no session reads.
    pub fn container(&self, id: ContainerId) -> Result<&Container> {
        let container = self.state.containers.get(id).filter(|container| !self.is_out_of_sight(container));
        container.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("container {id}")).because("it was deleted, or never was")
        })
    }

    /// Returns an index. Fails if it or its container does not exist.
    pub fn index(&self, key: IndexKey) -> Result<&Index> {
        self.container(key.container)?.content.indices.get(&key.index).map(|index| &**index).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("index {key}")).try_next("check its id, or create it")
        })
    }

    /// Returns the slot of an object. Fails if the object does not exist.
    pub fn object(&mut self, key: ObjectKey) -> Result<u32> {
        let slot = self.state.find_object(key).filter(|slot| {
            let container = self.state.objects.get(*slot).container;
            !self.is_out_of_sight(self.state.containers.at(container))
        });
        slot.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("object {key}")).try_next("check its id, or create it")
        })
    }

    /// Returns the first indices, records and maps of a container. Does not count as a use of them. Fails
    /// if the container does not exist.
    pub fn content(&self, id: ContainerId, limit: u32, bytes_max: u32) -> Result<ContainerContent> {
        let container = self.container(id)?;
        let mut left = bytes_max as usize;
        let mut indices = Vec::new();
        for (index, records) in container.content.indices.iter().take(CONTENT_INDICES_MAX) {
            let version = self.seams.control.word(IndexKey { container: id, index: *index }.word_hash());
            let (begin, mut missing) = (Bound::Included(&[][..]), Vec::new());
            let (records, more) = records.copy(begin, &[], (limit.max(1) as usize, left), &mut missing);
            // Values in the value log need a job to read them: clients ask for these by themselves.
            let (records, more) = if missing.is_empty() { (records, more) } else { (Records::default(), true) };
            let is_over = more || records.bytes().len() >= left;
            left = left.saturating_sub(records.bytes().len());
            indices.push(IndexContent { id: *index, version, records, more });
            if is_over {
                break;
            }
        }
        let small = |slot: u32| self.state.objects.get(slot).map.extents() <= CONTENT_EXTENTS_MAX;
        let first = container.content.objects.iter().filter(|(id, _)| !container.is_value_log(**id));
        let first = first.take(CONTENT_OBJECTS_MAX).filter(|(_, slot)| small(**slot));
        let map = |(object, slot): (&ObjectId, &u32)| {
            let key = ObjectKey { container: id, object: *object };
            (*object, self.map_of(key, *slot, (0, OBJECT_BYTES_MAX), LIMIT_MAX))
        };
        let maps = first.map(map).collect();
        Ok(ContainerContent { info: self.info(id)?, indices, maps })
    }

    /// Returns the map of a range of an object, and notes the object as used. Fails if the object does not
    /// exist.
    pub fn lookup(&mut self, key: ObjectKey, offset: u64, len: u64, limit: u32) -> Result<Lookup> {
        let slot = self.object(key)?;
        let now_s = self.state.now.s;
        self.state.objects.get_mut(slot).last.touched = now_s;
        Ok(self.map_of(key, slot, (offset, len), limit))
    }

    /// Returns the map of a range of an object, at most `limit` extents. `covered_to` is where the answer
    /// ends.
    pub fn map_of(&self, key: ObjectKey, slot: u32, (offset, len): (u64, u64), limit: u32) -> Lookup {
        let version = self.seams.control.word(key.word_hash());
        let to = offset.saturating_add(len);
        let mut extents = Vec::new();
        let mut covered_to = to;
        let object = self.state.objects.get(slot);
        for (at, ext) in object.map.overlapping(offset, to) {
            if extents.len() >= limit.clamp(1, LIMIT_MAX) as usize {
                covered_to = at;
                break;
            }
            extents.push((at, ext.to_model(self.state.space.address(ext.dev))));
        }
        let (epoch, size, block_shift) = (object.epoch, object.size, object.block_shift);
        Lookup { version, epoch, size, block_shift, extents, covered_to }
    }

    /// Returns size, extents and space of an object. Fails if the object does not exist.
    pub fn stat(&mut self, key: ObjectKey) -> Result<ObjectStat> {
        let slot = self.object(key)?;
        let pinned_bytes = self.pinned_bytes_of(key, slot);
        let object = self.state.objects.get(slot);
        Ok(ObjectStat {
            size: object.size,
            block_shift: object.block_shift,
            extents: object.map.extents(),
            mapped_bytes: object.map.mapped_bytes(),
            epoch: object.epoch,
            pinned_bytes,
            taken_bytes: self.taken_bytes(&object.map),
        })
    }

    /// Space that extents take at their first place, in whole allocation units. A unit that neighbours
    /// share counts once. Longer maps are extrapolated from their first extents.
    pub fn taken_bytes(&self, map: &ExtentMap) -> u64 {
        const COUNTED_MAX: usize = 16_384;
        let (mut taken, mut mapped) = (UnitBytes::default(), 0u64);
        for (_, ext) in map.iter().take(COUNTED_MAX) {
            let unit = u64::from(self.state.space.get(ext.dev).space.unit_bytes);
            mapped += u64::from(ext.len);
            let (begin, end) = if ext.packed().is_some() {
                let (place, hull) = (ext.place(), ext.hull());
                (place.unit_at(hull.begin), place.end_at(hull.end))
            } else {
                (ext.run_offset + u64::from(ext.skip), ext.run_offset + u64::from(ext.end()))
            };
            taken.add(ext.dev, unit, begin, end);
        }
        if map.extents() <= COUNTED_MAX as u64 {
            return taken.bytes();
        }
        (u128::from(taken.bytes()) * u128::from(map.mapped_bytes()) / u128::from(mapped.max(1))) as u64
    }

    /// Approximate memory of the metadata, in bytes.
    pub fn metadata_bytes(&self) -> u64 {
        const TREE_ENTRY: u64 = 29; // id and slot, and their part of a node that is two thirds full
        const EXTENT: u64 = 80;
        let mut bytes = self.state.objects.memory_bytes();
        let mut objects = 0;
        for container in self.state.containers.iter() {
            objects += container.content.objects.len() as u64;
            bytes += container.content.indices.values().map(|index| index.memory_bytes()).sum::<u64>();
            bytes += container.back.undo.capacity() as u64 * size_of::<crate::undo::Undo>() as u64;
            bytes += container.unsaved.fresh.capacity() as u64 * size_of::<crate::container::Fresh>() as u64;
        }
        bytes += self.state.space.shared.len() as u64 * 24 + self.state.space.kin.memory_bytes();
        bytes + objects * TREE_ENTRY + self.state.space.extents.saturating_sub(objects) * EXTENT
    }
}
