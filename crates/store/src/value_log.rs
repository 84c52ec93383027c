//! The value log of a container: an unlisted object with the values of its records that are not in memory.
//!
//! Values are written to it in batches, one after the other, and never overwritten. A batch is needed as long as any
//! record has a value in it: in the container, in its snapshots, or in an undo list. [`Away`] is the reference count of
//! that. A batch that nobody needs becomes a hole. Everything that moves, compresses and verifies bytes treats the log
//! as an ordinary object. But no update of a client reaches it, and no snapshot has one (their records name the
//! original's). Undo does not know it: bytes are on persistent media before a record names them, and are given up when
//! no state that a rollback can reach names them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use cenote_model::{ContainerId, Durability, Extent, IndexId, ObjectId, ObjectKey};

use crate::container::Container;
use crate::index::{Away, Batch, Key};
use crate::map::{Ext, ExtentMap, Pieces};
use crate::space::Tag;
use crate::state::EngineState;

/// The id of every container's value log.
pub(crate) const VALUE_LOG: ObjectId = ObjectId(u128::MAX);

/// What a container knows of its value log.
#[derive(Debug, Default)]
pub(crate) struct ValueLog {
    /// By the offset at which they begin.
    batches: BTreeMap<u64, LoggedBatch>,
}

/// A batch in the log.
#[derive(Clone, Debug)]
pub(crate) struct LoggedBatch {
    batch: Weak<Batch>,
    pub len: u32,
    /// Values that were written to it.
    pub records: u32,
}

impl LoggedBatch {
    /// Values in it that are still needed.
    pub fn live(&self) -> u32 {
        self.batch.strong_count() as u32
    }
    /// Approximate bytes of values in it that nobody needs.
    pub fn wasted_bytes(&self) -> u64 {
        let gone = self.records.saturating_sub(self.live());
        u64::from(self.len) * u64::from(gone) / u64::from(self.records.max(1))
    }
}

/// Values that were written to the log, and their records.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spill {
    /// The container whose log it is; the records are in it, in its snapshots, or in both.
    pub container: ContainerId,
    pub index: IndexId,
    /// Where in the log the batch begins.
    pub offset: u64,
    pub extent: Extent,
    pub records: Vec<Spilled>,
}

/// One of the values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spilled {
    pub key: Key,
    /// Applies only to the record that was set at this epoch.
    pub epoch: u64,
    pub at: u32,
    pub len: u32,
    pub digest: u64,
}

impl ValueLog {
    /// Returns where the next batch begins.
    pub fn end(&self) -> u64 {
        self.batches.last_key_value().map_or(0, |(offset, known)| offset + u64::from(known.len))
    }
    /// Bytes of its batches.
    pub fn bytes(&self) -> u64 {
        self.batches.values().map(|known| u64::from(known.len)).sum()
    }
    /// Adds a batch after the others. Returns false if it is not after them.
    pub fn add(&mut self, offset: u64, len: u32, records: u32) -> bool {
        let fits = offset >= self.end() && len > 0 && offset.checked_add(u64::from(len)).is_some();
        if fits {
            self.batches.insert(offset, LoggedBatch { batch: Weak::new(), len, records });
        }
        fits
    }
    /// Returns a value of `len` bytes at `offset` of the log, if a batch has it.
    pub fn value(&mut self, offset: u64, len: u32, digest: u64) -> Option<Away> {
        let (begin, known) = self.batches.range_mut(..=offset).next_back()?;
        let at = u32::try_from(offset - begin).ok()?;
        at.checked_add(len).filter(|end| *end <= known.len)?;
        let batch = known.batch.upgrade().unwrap_or_else(|| {
            let batch = Arc::new(Batch { offset: *begin, len: known.len });
            known.batch = Arc::downgrade(&batch);
            batch
        });
        Some(Away { batch, at, len, digest })
    }
    pub fn batches(&self) -> impl Iterator<Item = (u64, &LoggedBatch)> {
        self.batches.iter().map(|(offset, known)| (*offset, known))
    }
}

impl Container {
    /// Number of objects that programs see.
    pub fn objects_seen(&self) -> u64 {
        self.content.objects.len() as u64 - u64::from(self.content.values.is_some())
    }
    /// Returns the durability of one of its objects. Values of records survive as their keys do.
    pub fn durability_of(&self, object: ObjectId) -> Durability {
        let scratch = self.spec.durability == Durability::Scratch;
        if scratch && self.is_value_log(object) { Durability::Async } else { self.spec.durability }
    }
    /// Returns true if it is the id of its value log.
    pub fn is_value_log(&self, object: ObjectId) -> bool {
        object == VALUE_LOG && self.content.values.is_some()
    }
}

impl EngineState {
    /// Returns the container whose log holds the values of a container's records: for a snapshot, the original.
    pub fn log_owner(&self, id: ContainerId) -> Option<ContainerId> {
        let container = self.containers.get(id)?;
        Some(container.snapshot.as_ref().map_or(id, |snapshot| snapshot.of))
    }

    /// Returns where the next batch of a container's log begins; `None` if it can have no log.
    pub fn log_end(&self, owner: ContainerId) -> Option<u64> {
        let container = self.containers.get(owner)?;
        match &container.content.values {
            Some(log) => Some(log.end()),
            None => (!container.content.objects.contains_key(&VALUE_LOG)).then_some(0),
        }
    }

    /// Moves the values of records to the log, if the records still have them. Fails, and changes nothing, if this
    /// contradicts the state.
    pub fn spill(&mut self, spill: &Spill) -> Result<(), &'static str> {
        let dev = self.space.slot_of(spill.extent.device).ok_or("values on an unknown device")?;
        let end = self.log_end(spill.container).ok_or("values for a log that cannot be")?;
        if spill.offset < end || spill.extent.len == 0 || spill.extent.skip != 0 {
            return Err("values that are not behind those in the log");
        }
        let owner = self.containers.slot_of(spill.container).ok_or("values of a container that is not there")?;
        let slot = self.log_slot(owner).ok_or("too many objects")?;
        let container = self.containers.at_mut(owner);
        let ext = Ext::from_model(&spill.extent, dev, container.durable.cuts, self.space.births.of_place(false));
        let log = container.content.values.get_or_insert_default();
        if !log.add(spill.offset, ext.len, spill.records.len() as u32) {
            return Err("values that are not behind those in the log");
        }
        let object = self.objects.get_mut(slot);
        object.size = spill.offset + u64::from(ext.len);
        object.last.touched = self.now.s;
        object.map.insert(spill.offset, ext);
        self.space.extents += 1;
        let members: Vec<ContainerId> = std::iter::once(spill.container)
            .chain(self.containers.snapshots_of(spill.container).iter().copied())
            .collect();
        for record in &spill.records {
            let offset = spill.offset + u64::from(record.at);
            let log = self.containers.at_mut(owner).content.values.as_mut();
            let away = log
                .and_then(|log| log.value(offset, record.len, record.digest))
                .ok_or("a value outside of its batch")?;
            for member in &members {
                let index = self.containers.get_mut(*member).and_then(|it| it.content.indices.get_mut(&spill.index));
                if let Some(index) = index {
                    index.spill(record.key.bytes(), record.epoch, &away);
                }
            }
        }
        Ok(())
    }

    /// Returns the slot of a container's log, which is made if it does not exist yet.
    fn log_slot(&mut self, owner: u32) -> Option<u32> {
        let container = self.containers.at(owner);
        if let Some(slot) = container.content.objects.get(&VALUE_LOG) {
            return Some(*slot);
        }
        let (epoch, cuts) = (self.epoch, container.durable.cuts);
        let slot = self.objects.add(owner, VALUE_LOG, 12, epoch, cuts)?;
        let container = self.containers.at_mut(owner);
        container.content.objects.insert(VALUE_LOG, slot);
        container.content.values = Some(Box::default());
        Some(slot)
    }

    /// Makes a hole of batches that nobody needs. Fails if this contradicts the state.
    pub fn give_up_batches(&mut self, owner: ContainerId, offsets: &[u64], tag: Tag) -> Result<(), &'static str> {
        let at = self.containers.slot_of(owner).ok_or("batches of a container that is not there")?;
        for offset in offsets {
            let container = self.containers.at_mut(at);
            let known = container.content.values.as_mut().and_then(|log| log.batches.remove(offset));
            let known = known.ok_or("a batch that is not there")?;
            let slot = *container.content.objects.get(&VALUE_LOG).ok_or("batches without a log")?;
            let mut pieces = Pieces::None;
            let map = &mut self.objects.get_mut(slot).map;
            let before = map.extents();
            map.cut_out(*offset, offset + u64::from(known.len), &mut self.space.shared, &mut pieces);
            self.space.extents = self.space.extents - before + map.extents();
            for (_, ext) in pieces {
                self.space.drop_ext(&ext, tag);
            }
        }
        Ok(())
    }

    /// Drops the log of a container, which is lost with all values in it.
    pub fn lose_log(&mut self, at: u32) {
        let container = self.containers.at_mut(at);
        container.content.values = None;
        if let Some(slot) = container.content.objects.remove(&VALUE_LOG) {
            let object = self.objects.get_mut(slot);
            self.space.extents -= object.map.extents();
            object.map = ExtentMap::Empty;
            self.objects.remove(slot);
        }
        let id = self.containers.at(at).id;
        for member in std::iter::once(id).chain(self.containers.snapshots_of(id).to_vec()) {
            let Some(container) = self.containers.get_mut(member) else { continue };
            let (mut records, mut bytes) = (0, 0);
            for index in container.content.indices.values_mut() {
                let before = (index.len(), index.bytes);
                index.drop_away();
                (records, bytes) = (records + before.0 - index.len(), bytes + before.1 - index.bytes);
            }
            container.content.records -= records;
            container.content.record_bytes -= bytes;
        }
    }

    /// Checks a container's log: batches without bytes, or values outside of it.
    pub fn audit_log(&self, id: ContainerId) -> Option<String> {
        let owner = self.log_owner(id)?;
        let (container, log) = (self.containers.get(id)?, self.containers.get(owner)?.content.values.as_ref());
        let wrong = |why: &str| Some(format!("the value log of container {owner}: {why}"));
        let away: u64 = container.content.indices.values().map(|index| index.away).sum();
        let Some(log) = log else {
            return if away == 0 { None } else { wrong("it is not there, and records have values in it") };
        };
        if id != owner {
            return None;
        }
        let key = ObjectKey { container: owner, object: VALUE_LOG };
        let Some(map) = container.content.objects.get(&key.object).map(|slot| &self.objects.get(*slot).map) else {
            return wrong("it has no object");
        };
        let live: u64 = log.batches().map(|(_, known)| u64::from(known.live())).sum();
        if live < away {
            return wrong("records have values in batches that it does not know");
        }
        if log.bytes() != map.mapped_bytes() {
            return wrong("its batches are not what it has bytes of");
        }
        let is_mapped = |(offset, known): (u64, &LoggedBatch)| {
            let to = offset + u64::from(known.len);
            map.overlapping(offset, to).map(|(at, ext)| (at + u64::from(ext.len)).min(to) - at.max(offset)).sum::<u64>()
                == u64::from(known.len)
        };
        if log.batches().all(is_mapped) { None } else { wrong("a batch has no bytes") }
    }
}
