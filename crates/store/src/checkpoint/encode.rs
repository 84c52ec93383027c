//! Encodes the state as a checkpoint.

use std::sync::Arc;

use cenote_model::{IndexId, Packed};

use super::{
    HEAD_BYTES, Head, MAGIC, SECTION_CONTAINER, SECTION_END, SECTION_HEAD, SECTION_INDEX, SECTION_META,
    SECTION_OBJECTS, SECTION_PINS, SECTION_RETIRED, SECTION_SESSIONS, SECTION_SHARES, SECTION_SNAPSHOT, SECTION_TIMES,
    SECTION_TWO_PHASE, SECTION_UNDO, SECTION_VALUES, VERSION,
};
use crate::codec::Encode;
use crate::container::Container;
use crate::index::{Encoded, Index, RecordRef, ValueRef};
use crate::journal::record::{encode_codes, encode_info, encode_pins, encode_runs, encode_spec};
use crate::map::{DeviceIndex, Ext};
use crate::objects::Object;
use crate::packing::encode_packed;
use crate::session::{Detail, Session};
use crate::state::EngineState;
use crate::sums::sum_of;
use crate::undo::{Change, Undo};

/// Most bytes of one section, so that damage is located closely and reading takes bounded memory.
const SECTION_BYTES: usize = 4 << 20;

pub(super) struct Writer<'a> {
    pub(super) state: &'a EngineState,
    pub(super) bytes: Vec<u8>,
}

/// Encodes the whole state.
pub(crate) fn encode(state: &EngineState, head: &Head, size_hint: usize) -> Vec<u8> {
    let mut writer = Writer { state, bytes: Vec::with_capacity(size_hint) };
    writer.head(head);
    writer.section(SECTION_META, Writer::meta);
    writer.section(SECTION_SESSIONS, Writer::sessions);
    writer.section(SECTION_RETIRED, Writer::retired);
    for id in state.containers.ids() {
        if let Some(container) = state.containers.get(id) {
            writer.container(container);
        }
    }
    if !state.pins.is_empty() {
        writer.section(SECTION_PINS, |w| encode_pins(&mut w.bytes, state.pins.changes()));
    }
    if !state.two_phase.is_empty() {
        writer.section(SECTION_TWO_PHASE, Writer::two_phase);
    }
    writer.section(SECTION_TIMES, |w| state.times.encode(&mut w.bytes));
    writer.section(SECTION_END, |_| {});
    writer.bytes
}

impl Writer<'_> {
    fn head(&mut self, head: &Head) {
        self.bytes.extend_from_slice(&MAGIC);
        self.bytes.put_u32(VERSION);
        self.bytes.put_u32(0);
        self.bytes.put_u128(head.store.0);
        self.bytes.put_u64(head.sequence);
        self.bytes.put_u64(head.journal_from);
        self.bytes.put_u64(head.position);
        self.bytes.put_u64(head.epoch);
        debug_assert_eq!(self.bytes.len(), HEAD_BYTES);
        let sum = sum_of(&self.bytes);
        self.bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }

    fn section(&mut self, kind: u32, fill: impl FnOnce(&mut Self)) {
        let begin = self.begin(kind);
        fill(self);
        self.end(begin);
    }
    fn begin(&mut self, kind: u32) -> usize {
        let begin = self.bytes.len();
        self.bytes.put_u32(kind);
        self.bytes.put_u32(0);
        self.bytes.put_u64(0);
        begin
    }
    fn end(&mut self, begin: usize) {
        let len = (self.bytes.len() - begin - SECTION_HEAD) as u64;
        self.bytes[begin + 8..begin + 16].copy_from_slice(&len.to_le_bytes());
        let sum = sum_of(&self.bytes[begin..]);
        self.bytes[begin + 4..begin + 8].copy_from_slice(&sum.to_le_bytes());
    }

    fn meta(&mut self) {
        let state = self.state;
        self.bytes.put_u64(state.containers.next_id);
        self.bytes.put_u64(state.sessions.next_id);
        self.bytes.put_u64(state.cuts.next_id);
        self.bytes.put_u32(state.space.slots.len() as u32);
        for slot in &state.space.slots {
            self.bytes.put_u16(slot.id.0);
            self.bytes.put_u64(slot.incarnation);
        }
        self.bytes.put_u16(state.space.births.generation);
        self.bytes.put_u64(state.space.births.placed);
        self.bytes.put_u32(state.cuts.pending.len() as u32);
        for cut in state.cuts.pending.values() {
            self.bytes.put_u64(cut.id);
            self.bytes.put_u64(cut.epoch);
            self.bytes.put_u32(cut.members.len() as u32);
            cut.members.iter().for_each(|member| self.bytes.put_u64(member.0));
        }
    }

    fn sessions(&mut self) {
        self.bytes.put_u32(self.state.sessions.open.len() as u32);
        for (id, session) in &self.state.sessions.open {
            self.bytes.put_u64(id.0);
            self.session(session);
        }
    }

    pub(super) fn leases(&mut self, session: &Session) {
        self.bytes.put_u32(session.leases.len() as u32);
        for ((dev, offset), len) in &session.leases {
            self.bytes.put_u16(self.state.space.get(*dev).id.0);
            self.bytes.put_u64(*offset);
            self.bytes.put_u64(*len);
        }
    }

    fn session(&mut self, session: &Session) {
        encode_info(&mut self.bytes, &session.info);
        self.leases(session);
        let outcomes = session.outcomes();
        self.bytes.put_u32(outcomes.len() as u32);
        for recorded in outcomes {
            self.bytes.put_u64(recorded.seq);
            self.bytes.put_u64(recorded.epoch);
            match recorded.detail.as_deref() {
                None => self.bytes.put_u8(0),
                Some(Detail::Applied { codes, created }) => {
                    self.bytes.put_u8(1);
                    encode_codes(&mut self.bytes, codes);
                    self.bytes.put_u64(created.map_or(0, |id| id.0));
                }
                Some(Detail::Leased { runs }) => {
                    self.bytes.put_u8(2);
                    encode_runs(&mut self.bytes, runs);
                }
            }
        }
        self.bytes.put_u32(session.pins.len() as u32);
        session.pins.iter().for_each(|id| self.bytes.put_u64(id.0));
    }

    fn retired(&mut self) {
        let count: usize = self.state.space.slots.iter().map(|slot| slot.space.retired.iter().count()).sum();
        self.bytes.put_u32(count as u32);
        for slot in &self.state.space.slots {
            for retired in slot.space.retired.iter() {
                self.bytes.put_u16(slot.id.0);
                self.bytes.put_u64(retired.offset);
                self.bytes.put_u64(retired.len);
            }
        }
    }

    fn container(&mut self, container: &Container) {
        let kind = if container.snapshot.is_some() { SECTION_SNAPSHOT } else { SECTION_CONTAINER };
        self.section(kind, |w| {
            if let Some(snapshot) = &container.snapshot {
                w.bytes.put_u64(snapshot.of.0);
                w.bytes.put_bytes(snapshot.name.as_bytes());
                w.bytes.put_u64(snapshot.epoch);
                w.bytes.put_u64(snapshot.unix_ms);
                w.bytes.put_u32(snapshot.made);
                w.bytes.put_u8(u8::from(snapshot.deleted));
            }
            w.bytes.put_u64(container.id.0);
            w.bytes.put_bytes(container.label.as_bytes());
            encode_spec(&mut w.bytes, &container.spec);
            w.bytes.put_u64(container.epoch);
            w.bytes.put_u64(container.durable.persisted);
            w.bytes.put_u64(container.durable.cut_epoch);
            w.bytes.put_u32(container.durable.cuts);
            w.bytes.put_u64(container.durable.pending_cut.map_or(0, |cut| cut + 1));
            w.bytes.put_u64(container.back.undo_first);
            w.bytes.put_u64(container.unsaved.data_epoch);
            w.bytes.put_u32(container.unsaved.links.len() as u32);
            for (epoch, other) in &container.unsaved.links {
                w.bytes.put_u64(*epoch);
                w.bytes.put_u64(other.0);
            }
        });
        if container.shares {
            self.section(SECTION_SHARES, |_| {});
        }
        if let Some(log) = &container.content.values {
            self.section(SECTION_VALUES, |w| w.bytes.put_u32(0)); // the log exists, even if it is empty
            self.many(SECTION_VALUES, log.batches(), |w, (offset, known)| {
                w.bytes.put_u64(offset);
                w.bytes.put_u32(known.len);
                w.bytes.put_u32(known.records);
            });
        }
        self.many(SECTION_OBJECTS, container.content.objects.values(), |w, slot| {
            let object = w.state.objects.get(*slot);
            w.object(object);
        });
        for (id, index) in &container.content.indices {
            match index.encoded() {
                Some(encoded) => self.encoded_index(*id, index.created, &encoded),
                None => self.index(*id, index),
            }
        }
        self.many(SECTION_UNDO, container.back.undo.iter(), Writer::undo);
    }

    fn index(&mut self, id: IndexId, index: &Index) {
        let mut records = index.range(std::ops::Bound::Unbounded).peekable();
        loop {
            // At least one section, so that an empty index is kept.
            let (begin, count_at) = self.begin_index(id, index.created);
            let mut count = 0u32;
            while self.bytes.len() - begin < SECTION_BYTES {
                let Some((key, record)) = records.next() else { break };
                self.bytes.put_bytes(key);
                self.record(record);
                count += 1;
            }
            self.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
            self.end(begin);
            if records.peek().is_none() {
                break;
            }
        }
    }

    /// Copies the sections of an index that nobody has read since the last checkpoint was loaded.
    fn encoded_index(&mut self, id: IndexId, created: u32, encoded: &Encoded) {
        for (count, records) in encoded.parts() {
            let (begin, count_at) = self.begin_index(id, created);
            self.bytes.extend_from_slice(records);
            self.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
            self.end(begin);
        }
    }

    /// Begins a section of an index; returns its begin, and where its count goes.
    fn begin_index(&mut self, id: IndexId, created: u32) -> (usize, usize) {
        let begin = self.begin(SECTION_INDEX);
        self.bytes.put_u128(id.0);
        self.bytes.put_u32(created);
        let count_at = self.bytes.len();
        self.bytes.put_u32(0);
        (begin, count_at)
    }

    /// Writes sections that begin with a count.
    fn many<T>(&mut self, kind: u32, things: impl Iterator<Item = T>, mut each: impl FnMut(&mut Self, T)) {
        let mut things = things.peekable();
        while things.peek().is_some() {
            let begin = self.begin(kind);
            let count_at = self.bytes.len();
            self.bytes.put_u32(0);
            let mut count = 0u32;
            while self.bytes.len() - begin < SECTION_BYTES {
                let Some(thing) = things.next() else { break };
                each(self, thing);
                count += 1;
            }
            self.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
            self.end(begin);
        }
    }

    fn object(&mut self, object: &Object) {
        self.bytes.put_u128(object.id().0);
        self.bytes.put_u64(object.size);
        self.bytes.put_u64(object.epoch);
        self.bytes.put_u32(object.created);
        self.bytes.put_u8(object.block_shift);
        self.bytes.put_u32(object.map.extents() as u32);
        for (offset, ext) in object.map.iter() {
            self.extent(offset, ext);
        }
    }

    fn extent(&mut self, offset: u64, ext: &Ext) {
        self.bytes.put_u64(offset);
        self.bytes.put_u32(ext.run_len);
        self.bytes.put_u32(ext.skip);
        self.bytes.put_u32(ext.len);
        self.bytes.put_u32(ext.born);
        self.bytes.put_u64(ext.birth.0);
        self.bytes.put_u8(1 + ext.copy_count() as u8);
        self.place(ext.dev, ext.run_offset, ext.packed());
        for copy in ext.copies() {
            self.place(copy.dev, copy.base, copy.packed.as_ref());
        }
        self.bytes.put_u32(ext.sums().len() as u32);
        ext.sums().iter().for_each(|sum| self.bytes.put_u32(*sum));
    }

    /// Writes a place of an extent.
    fn place(&mut self, dev: DeviceIndex, base: u64, packed: Option<&Arc<Packed>>) {
        let (node, device) = self.state.space.address(dev);
        self.bytes.put_u16(node.0);
        self.bytes.put_u16(device.0);
        self.bytes.put_u8(u8::from(packed.is_some()));
        self.bytes.put_u64(base);
        if let Some(packed) = packed {
            encode_packed(&mut self.bytes, packed);
        }
    }

    fn record(&mut self, record: RecordRef<'_>) {
        self.bytes.put_u64(record.epoch);
        match record.value {
            ValueRef::Here(value) => {
                self.bytes.put_u8(0);
                self.bytes.put_bytes(value);
            }
            ValueRef::Away(away) => {
                self.bytes.put_u8(1);
                self.bytes.put_u64(away.offset());
                self.bytes.put_u32(away.len);
                self.bytes.put_u64(away.digest);
            }
        }
    }

    fn undo(&mut self, undo: &Undo) {
        self.bytes.put_u64(undo.epoch);
        match &undo.change {
            Change::Range { object, from, to, pieces, size } => {
                self.bytes.put_u8(1);
                self.bytes.put_u128(object.0);
                self.bytes.put_u64(*from);
                self.bytes.put_u64(*to);
                self.bytes.put_u64(*size);
                self.bytes.put_u32(pieces.len() as u32);
                pieces.iter().for_each(|(offset, ext)| self.extent(offset, ext));
            }
            Change::ObjectCreated { object } => {
                self.bytes.put_u8(2);
                self.bytes.put_u128(object.0);
            }
            Change::ObjectDeleted { slot, .. } => {
                self.bytes.put_u8(3);
                let object = self.state.objects.get(*slot);
                self.object(object);
            }
            Change::IndexCreated { index } => {
                self.bytes.put_u8(4);
                self.bytes.put_u128(index.0);
            }
            Change::IndexDeleted { index, was } => {
                self.bytes.put_u8(5);
                self.bytes.put_u128(index.0);
                self.bytes.put_u32(was.created);
                self.bytes.put_u32(was.len() as u32);
                for (key, record) in was.range(std::ops::Bound::Unbounded) {
                    self.bytes.put_bytes(key);
                    self.record(record);
                }
            }
            Change::SnapshotMade { id } => {
                self.bytes.put_u8(7);
                self.bytes.put_u64(id.0);
            }
            Change::SnapshotDeleted { id } => {
                self.bytes.put_u8(8);
                self.bytes.put_u64(id.0);
            }
            Change::Renamed { was } => {
                self.bytes.put_u8(9);
                self.bytes.put_bytes(was.as_bytes());
            }
            Change::Set { was } => {
                self.bytes.put_u8(10);
                encode_spec(&mut self.bytes, was);
            }
            Change::Made => self.bytes.put_u8(11),
            Change::Record { index, key, was } => {
                self.bytes.put_u8(6);
                self.bytes.put_u128(index.0);
                self.bytes.put_bytes(key.bytes());
                self.bytes.put_u8(u8::from(was.is_some()));
                if let Some(record) = was {
                    self.record(record.by_ref());
                }
            }
        }
    }
}
