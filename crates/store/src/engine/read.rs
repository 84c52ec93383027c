//! Requests that change nothing.

use std::ops::Bound;

use cenote_model::{
    ContainerId, ContainerInfo, Error, ErrorKind, IndexKey, Lookup, NextFrom, ObjectKey, ObjectStat, Request, Response,
    Result, StoreStats,
};

use super::Engine;
use crate::container::Container;
use crate::index::Index;

/// Most things in one answer.
const LIMIT_MAX: u32 = 65_536;
/// Most bytes of records in one answer, beyond the first.
const BYTES_MAX: u32 = 64 << 20;

impl Engine {
    pub(super) fn read(&mut self, request: Request) -> Result<Response> {
        match request {
            Request::Lookup { key, offset, len, limit } => self.lookup(key, offset, len, limit).map(Response::Lookup),
            Request::ObjectStat { key } => self.stat(key).map(Response::Stat),
            Request::ObjectList { container, after, limit } => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let ids = self.container(container)?.objects.range((from, Bound::Unbounded)).map(|(id, _)| *id);
                Ok(Response::Objects(ids.take(limit.min(LIMIT_MAX) as usize).collect()))
            }
            Request::Get { index, keys } => {
                let records = self.index(index)?;
                let value = |key: &Vec<u8>| records.get(key).map(|record| (record.value.to_vec(), record.epoch));
                Ok(Response::Values(keys.iter().map(value).collect()))
            }
            Request::Next { index, from, prefix, limit, bytes_max } => {
                Ok(next(self.index(index)?, &from, &prefix, limit.min(LIMIT_MAX), bytes_max.min(BYTES_MAX)))
            }
            Request::IndexExists { key } => {
                let container = self.container(key.container)?;
                Ok(Response::Exists(container.indices.contains_key(&key.index)))
            }
            Request::IndexList { container, after, limit } => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let ids = self.container(container)?.indices.range((from, Bound::Unbounded)).map(|(id, _)| *id);
                Ok(Response::Indices(ids.take(limit.min(LIMIT_MAX) as usize).collect()))
            }
            Request::ContainerByLabel { label } => match self.state.containers.by_label(&label) {
                Some(container) => Ok(Response::Container(container.info())),
                None => Err(Error::new(ErrorKind::NotFound, format!("container `{label}`"))
                    .try_next("check the label, or create the container")),
            },
            Request::SnapshotList { container, after, limit } => self.snapshots(container, after.as_deref(), limit),
            Request::ContainerById { id } => Ok(Response::Container(self.info(id)?)),
            Request::ContainerList { after, limit } => {
                let found = self.state.containers.after_label(after.as_deref());
                let infos: Vec<ContainerInfo> =
                    found.take(limit.min(LIMIT_MAX) as usize).map(Container::info).collect();
                Ok(Response::Containers(infos))
            }
            Request::Devices => {
                let mut infos = self.device_infos();
                infos.sort_by_key(|info| (info.spec.kind, info.id));
                Ok(Response::Devices(infos))
            }
            Request::Explain { key } => self.explain(key).map(Response::Explanation),
            Request::Stats => Ok(Response::Stats(self.stats())),
            _ => Err(Error::new(ErrorKind::Internal, "a request").because("it is no reading one")),
        }
    }

    pub(super) fn container(&self, id: ContainerId) -> Result<&Container> {
        let container = self.state.containers.get(id).filter(|container| !self.is_out_of_sight(container));
        container.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("container {id}")).because("it was deleted, or never was")
        })
    }

    fn index(&self, key: IndexKey) -> Result<&Index> {
        self.container(key.container)?.indices.get(&key.index).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("index {key}")).try_next("check its id, or create it")
        })
    }

    /// The slot of an object that must be there.
    pub(super) fn object(&mut self, key: ObjectKey) -> Result<u32> {
        let slot = self.state.find_object(key).filter(|slot| {
            let container = self.state.objects.get(*slot).container;
            !self.is_out_of_sight(self.state.containers.at(container))
        });
        slot.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("object {key}")).try_next("check its id, or create it")
        })
    }

    fn lookup(&mut self, key: ObjectKey, offset: u64, len: u64, limit: u32) -> Result<Lookup> {
        let slot = self.object(key)?;
        let version = self.seams.control.word(key.word_hash());
        let now_s = self.state.now_s;
        let object = self.state.objects.get_mut(slot);
        object.touched = now_s;
        let to = offset.saturating_add(len);
        let mut extents = Vec::new();
        let mut covered_to = to;
        let object = self.state.objects.get(slot);
        for (at, ext) in object.map.overlapping(offset, to) {
            if extents.len() >= limit.clamp(1, LIMIT_MAX) as usize {
                covered_to = at;
                break;
            }
            extents.push((at, ext.to_model(self.state.space.get(ext.dev).id)));
        }
        let (epoch, size, block_shift) = (object.epoch, object.size, object.block_shift);
        Ok(Lookup { version, epoch, size, block_shift, extents, covered_to })
    }

    pub(super) fn stat(&mut self, key: ObjectKey) -> Result<ObjectStat> {
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
        })
    }

    fn stats(&self) -> StoreStats {
        let mut stats = StoreStats {
            epoch: self.state.epoch,
            containers: self.state.containers.len() as u64 - self.state.containers.snapshots() as u64,
            extents: self.state.extents,
            journal_bytes: self.journal.position().saturating_sub(self.checkpoint.position),
            moved_bytes: self.moved_bytes,
            sessions: self.state.sessions.open.len() as u64,
            scrub_findings: self.verify.scrub_findings,
            metadata_bytes: self.metadata_bytes(),
            ..StoreStats::default()
        };
        for container in self.state.containers.iter().filter(|container| container.snapshot.is_none()) {
            stats.objects += container.objects.len() as u64;
            stats.indices += container.indices.len() as u64;
            stats.records += container.records;
        }
        stats
    }

    /// Bytes of memory that the metadata take, about.
    pub(super) fn metadata_bytes(&self) -> u64 {
        const TREE_ENTRY: u64 = 29; // id and slot, and their part of a node that is two thirds full
        const EXTENT: u64 = 80;
        let mut bytes = self.state.objects.memory_bytes();
        let mut objects = 0;
        for container in self.state.containers.iter() {
            objects += container.objects.len() as u64;
            bytes += container.indices.values().map(Index::memory_bytes).sum::<u64>();
            bytes += container.undo.capacity() as u64 * size_of::<crate::undo::Undo>() as u64;
            bytes += container.fresh.capacity() as u64 * size_of::<crate::container::Fresh>() as u64;
        }
        bytes += self.state.space.shared.len() as u64 * 24 + self.state.kin.memory_bytes();
        bytes + objects * TREE_ENTRY + self.state.extents.saturating_sub(objects) * EXTENT
    }
}

fn next(index: &Index, from: &NextFrom, prefix: &[u8], limit: u32, bytes_max: u32) -> Response {
    let begin = match from {
        NextFrom::At(key) => Bound::Included(key.as_slice().max(prefix)),
        NextFrom::After(key) if key.as_slice() >= prefix => Bound::Excluded(key.as_slice()),
        NextFrom::Start | NextFrom::After(_) => Bound::Included(prefix),
    };
    let (records, more) = index.copy(begin, prefix, limit.max(1) as usize, bytes_max as usize);
    Response::Records { records, more }
}
