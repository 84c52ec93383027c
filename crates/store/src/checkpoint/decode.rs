//! Decodes a checkpoint into the state. Nothing in the bytes is trusted.

use std::sync::Arc;

use cenote_model::{Birth, ContainerId, DeviceId, IndexId, ObjectId, RUN_BYTES_MAX, Result, StoreId};
use smallvec::SmallVec;

use super::records::Unfinished;
use super::{
    HEAD_BYTES, Head, MAGIC, SECTION_CONTAINER, SECTION_END, SECTION_HEAD, SECTION_INDEX, SECTION_META,
    SECTION_OBJECTS, SECTION_PINS, SECTION_RETIRED, SECTION_SESSIONS, SECTION_SHARES, SECTION_SNAPSHOT, SECTION_TIMES,
    SECTION_TWO_PHASE, SECTION_UNDO, SECTION_VALUES, VERSION, corrupt,
};
use crate::SessionId;
use crate::codec::{Decoded, Decoder, Malformed, OTHER_ENCODINGS, OTHER_NODES, Ordinals as _};
use crate::container::{Container, Snapshot};
use crate::index::{Index, Key};
use crate::journal::record::{decode_codes, decode_info, decode_pins, decode_runs, decode_spec};
use crate::map::{DeviceIndex, Ext, Pieces, Replica, Replicas};
use crate::objects::Presence;
use crate::packing::decode_packed;
use crate::persist::{Cut, SyncNeed};
use crate::session::{Detail, Recorded, Session};
use crate::space::Births;
use crate::state::EngineState;
use crate::sums::{UNIT, sum_of, sum_of_both};
use crate::undo::{Change, Undo};

/// Content that is not part of the state proper.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    /// Incarnation of each device when the checkpoint was made.
    pub incarnations: Vec<(DeviceId, u64)>,
    /// Retired space, which readers may have looked at.
    pub retired: Vec<(DeviceId, u64, u64)>,
}

pub(super) struct Reader<'a> {
    pub(super) version: u32,
    pub(super) state: &'a mut EngineState,
    /// The whole file.
    pub(super) file: &'a Arc<Vec<u8>>,
    /// Offset in it of the body of the section that is being read.
    pub(super) body_at: usize,
    beside: Beside,
    /// Slot of the container whose sections are being read.
    pub(super) container: Option<u32>,
    /// The index whose sections are being read.
    pub(super) index: Option<Unfinished>,
}

/// Reads the version and the head. Fails if they are damaged or of a later version.
pub(super) fn decode_head(name: &str, bytes: &[u8]) -> Result<(u32, Head)> {
    if bytes.len() < HEAD_BYTES || bytes[..8] != MAGIC {
        return Err(corrupt(name, 0, "it does not begin like a checkpoint"));
    }
    let mut plain = bytes[..HEAD_BYTES].to_vec();
    let sum = u32::from_le_bytes([plain[12], plain[13], plain[14], plain[15]]);
    plain[12..16].fill(0);
    if sum_of(&plain) != sum {
        return Err(corrupt(name, 0, "its head does not match its checksum"));
    }
    let mut from = Decoder::new(&plain[8..]);
    let mut read = || -> Decoded<(u32, Head)> {
        let version = from.u32()?;
        from.u32()?;
        let store = StoreId(from.u128()?);
        let (sequence, journal_from) = (from.ordinal()?, from.ordinal()?);
        Ok((version, Head { store, sequence, journal_from, position: from.ordinal()?, epoch: from.ordinal()? }))
    };
    let (version, head) = read().map_err(|malformed| corrupt(name, 0, malformed.0))?;
    if !(1..=VERSION).contains(&version) {
        return Err(cenote_model::Error::new(cenote_model::ErrorKind::VersionMismatch, format!("checkpoint `{name}`"))
            .because(format!("its version is {version}, this program reads {VERSION}"))
            .try_next("use the version of Cenote that wrote it"));
    }
    Ok((version, head))
}

/// Reads a checkpoint into an empty state that has its devices. Fails if anything in it is damaged.
pub(crate) fn decode(name: &str, bytes: &Arc<Vec<u8>>, state: &mut EngineState) -> Result<(Head, Beside)> {
    let (version, head) = decode_head(name, bytes)?;
    state.epoch = head.epoch;
    let (file, beside) = (bytes, Beside::default());
    let mut reader = Reader { version, state, file, body_at: 0, beside, container: None, index: None };
    let mut at = HEAD_BYTES;
    loop {
        let Some(section) = bytes.get(at..at + SECTION_HEAD) else {
            return Err(corrupt(name, at, "it ends early"));
        };
        let mut fields = Decoder::new(section);
        let (kind, sum, len) = (fields.u32(), fields.u32(), fields.u64());
        let (Ok(kind), Ok(sum), Ok(len)) = (kind, sum, len) else {
            return Err(corrupt(name, at, "it ends early"));
        };
        let end = usize::try_from(len).ok().and_then(|len| (at + SECTION_HEAD).checked_add(len));
        let Some(body) = end.and_then(|end| bytes.get(at + SECTION_HEAD..end)) else {
            return Err(corrupt(name, at, "a section is longer than the file"));
        };
        let mut plain = [0; SECTION_HEAD];
        plain.copy_from_slice(section);
        plain[4..8].fill(0);
        if sum_of_both(&plain, body) != sum {
            return Err(corrupt(name, at, "a section does not match its checksum"));
        }
        reader.body_at = at + SECTION_HEAD;
        reader.section(kind, body).map_err(|malformed| corrupt(name, at, malformed.0))?;
        at += SECTION_HEAD + body.len();
        if kind == SECTION_END {
            break;
        }
    }
    reader.end_snapshots().map_err(|malformed| corrupt(name, at, malformed.0))?;
    if at != bytes.len() {
        return Err(corrupt(name, at, "bytes left over"));
    }
    Ok((head, reader.beside))
}

/// An extent as it was read, before its parts are compared.
struct ReadExtent {
    offset: u64,
    run_len: u32,
    skip: u32,
    len: u32,
    born: u32,
    birth: Birth,
    /// The first place, and its copies.
    places: Replicas,
    sums: Vec<u32>,
}

fn sums(from: &mut Decoder<'_>) -> Decoded<Vec<u32>> {
    (0..from.count(4)?).map(|_| from.u32()).collect()
}

impl Reader<'_> {
    fn section(&mut self, kind: u32, body: &[u8]) -> Decoded<()> {
        let mut from = Decoder::new(body);
        let from = &mut from;
        if kind != SECTION_INDEX {
            self.end_index()?;
        }
        match kind {
            SECTION_META => self.meta(from)?,
            SECTION_SESSIONS => self.sessions(from)?,
            SECTION_RETIRED => {
                for _ in 0..from.count(18)? {
                    self.beside.retired.push((DeviceId(from.u16()?), from.u64()?, from.u64()?));
                }
            }
            SECTION_CONTAINER => self.container(from, None)?,
            SECTION_SNAPSHOT => {
                let snapshot = Snapshot {
                    of: ContainerId(from.u64()?),
                    name: from.text()?,
                    epoch: from.ordinal()?,
                    unix_ms: from.u64()?,
                    made: from.u32()?,
                    deleted: from.flag()?,
                    in_undo: false,
                };
                self.container(from, Some(snapshot))?;
            }
            SECTION_SHARES => {
                let at = self.container.ok_or(Malformed("sharing without a container"))?;
                self.state.containers.at_mut(at).shares = true;
            }
            SECTION_VALUES => self.value_log(from)?,
            SECTION_OBJECTS => {
                let at = self.container.ok_or(Malformed("objects without a container"))?;
                let count = from.count(41)?;
                let mut ids = Vec::with_capacity(count);
                for _ in 0..count {
                    let slot = self.object(at, from)?;
                    ids.push((self.state.objects.get(slot).id(), slot));
                }
                self.state.containers.at_mut(at).content.objects.extend(ids);
            }
            SECTION_INDEX => self.index(from)?,
            SECTION_UNDO => {
                let at = self.container.ok_or(Malformed("undo without a container"))?;
                for _ in 0..from.count(9)? {
                    let undo = self.undo(at, from)?;
                    self.state.containers.at_mut(at).back.undo.push_back(undo);
                }
            }
            SECTION_PINS => {
                for change in decode_pins(from)? {
                    if !change.pins() {
                        return Err(Malformed("a pin of nothing"));
                    }
                    self.state.pins.change(change);
                }
            }
            SECTION_TWO_PHASE => self.two_phase(from)?,
            SECTION_TIMES => self.state.times = crate::times::Times::decode(from)?,
            SECTION_END => {}
            _ => return Err(Malformed("an unknown section")),
        }
        from.end()
    }

    fn meta(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        self.state.containers.next_id = from.ordinal()?;
        self.state.sessions.next_id = from.ordinal()?;
        self.state.cuts.next_id = from.ordinal()?;
        for _ in 0..from.count(10)? {
            self.beside.incarnations.push((DeviceId(from.u16()?), from.ordinal()?));
        }
        if self.version >= 6 {
            self.state.space.births = Births { generation: from.u16()?, placed: from.ordinal()? };
        }
        for _ in 0..from.count(20)? {
            let (id, epoch) = (from.ordinal()?, from.ordinal()?);
            let count = from.count(8)?;
            let members = (0..count).map(|_| Ok(ContainerId(from.u64()?))).collect::<Decoded<_>>()?;
            let sync = SyncNeed { is_needed: true, ..SyncNeed::default() };
            self.state.cuts.pending.insert(id, Cut { id, epoch, members, sync, ..Cut::default() });
        }
        Ok(())
    }

    fn sessions(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        for _ in 0..from.count(40)? {
            let id = SessionId(from.ordinal()?);
            let mut session = Session::new(decode_info(from)?);
            self.leases(from, &mut session)?;
            for _ in 0..from.count(17)? {
                let (seq, epoch) = (from.u64()?, from.u64()?);
                let detail = match from.u8()? {
                    0 => None,
                    1 => {
                        let codes = decode_codes(from)?;
                        let created = Some(ContainerId(from.u64()?)).filter(|id| id.0 != 0);
                        Some(Box::new(Detail::Applied { codes, created }))
                    }
                    2 => Some(Box::new(Detail::Leased { runs: decode_runs(from)? })),
                    _ => return Err(Malformed("an unknown outcome")),
                };
                session.record(Recorded { seq, epoch, detail });
            }
            if self.version >= 2 {
                for _ in 0..from.count(8)? {
                    session.pins.insert(ContainerId(from.u64()?));
                }
            }
            self.state.sessions.open.insert(id, session);
        }
        Ok(())
    }

    pub(super) fn leases(&self, from: &mut Decoder<'_>, session: &mut Session) -> Decoded<()> {
        for _ in 0..from.count(18)? {
            let (dev, offset, len) = (self.device(from.u16()?)?, from.u64()?, from.u64()?);
            if !self.state.space.get(dev).has_units(offset, len) {
                return Err(Malformed("a lease past the end of its device"));
            }
            session.leases.insert((dev, offset), len);
        }
        Ok(())
    }

    /// Checks the snapshots that undo entries and sessions name. Each must exist, and each deleted one must be named by
    /// somebody.
    fn end_snapshots(&mut self) -> Decoded<()> {
        let mut pinned: Vec<ContainerId> = Vec::new();
        for session in self.state.sessions.open.values() {
            pinned.extend(session.pins.iter().copied());
        }
        if pinned.iter().any(|id| !self.state.containers.is_snapshot(*id)) {
            return Err(Malformed("a session that reads a snapshot which is not there"));
        }
        let names_deleted =
            |it: &&Container| it.back.undo.iter().any(|undo| matches!(undo.change, Change::SnapshotDeleted { .. }));
        for id in self.state.containers.ids_of(names_deleted) {
            let Some(container) = self.state.containers.get(id) else { continue };
            let deleted: Vec<ContainerId> = (container.back.undo.iter())
                .filter_map(|undo| match undo.change {
                    Change::SnapshotDeleted { id } => Some(id),
                    _ => None,
                })
                .collect();
            for snapshot in deleted {
                let snapshot = self.state.containers.get_mut(snapshot).and_then(|it| it.snapshot.as_mut());
                match snapshot.filter(|it| it.of == id && it.deleted && !it.in_undo) {
                    Some(snapshot) => snapshot.in_undo = true,
                    None => return Err(Malformed("the deletion of a snapshot that is not there")),
                }
            }
        }
        let needless = |id: &ContainerId| {
            let snapshot = self.state.containers.get(*id).and_then(|container| container.snapshot.as_ref());
            snapshot.is_some_and(|it| it.deleted && !it.in_undo) && !pinned.contains(id)
        };
        if !self.state.containers.has_no_snapshots() && self.state.containers.ids().iter().any(needless) {
            return Err(Malformed("a deleted snapshot that nobody needs"));
        }
        Ok(())
    }

    fn container(&mut self, from: &mut Decoder<'_>, snapshot: Option<Snapshot>) -> Decoded<()> {
        let id = ContainerId(from.u64()?);
        let label = from.text()?;
        let spec = decode_spec(from)?;
        let taken = match &snapshot {
            None => self.state.containers.by_label(&label).is_some(),
            // An original comes before its snapshots, whose ids are higher, and is no snapshot itself.
            Some(it) => {
                self.state.containers.get(it.of).is_none_or(|of| of.snapshot.is_some())
                    || (!it.deleted && self.state.containers.snapshot_slot(it.of, &it.name).is_some())
            }
        };
        if self.state.containers.get(id).is_some() || taken {
            return Err(Malformed("a container twice, or a snapshot of none"));
        }
        let mut container = Container::new(id, label, spec, from.ordinal()?);
        container.durable.persisted = from.ordinal()?;
        container.durable.cut_epoch = from.ordinal()?;
        container.durable.cuts = from.u32()?;
        container.durable.pending_cut = from.ordinal()?.checked_sub(1);
        // If a cut is pending, the checkpoint does not tell which cut was last marked: assume none, to be safe.
        container.durable.marked_cuts =
            if container.durable.pending_cut.is_none() { container.durable.cuts } else { 0 };
        container.back.undo_first = from.ordinal()?;
        container.unsaved.data_epoch = from.ordinal()?;
        if container.durable.cuts > u32::MAX / 2 {
            return Err(Malformed("a container with more cuts than there can be"));
        }
        container.durable.later = container.durable.cuts;
        container.snapshot = snapshot.map(Box::new);
        for _ in 0..from.count(16)? {
            container.unsaved.links.push((from.u64()?, ContainerId(from.u64()?)));
        }
        let next_id = self.state.containers.next_id;
        self.container = Some(self.state.containers.add(container));
        self.state.containers.next_id = next_id;
        Ok(())
    }

    /// Reads an object into a slot, without adding it to a container's tree.
    fn object(&mut self, at: u32, from: &mut Decoder<'_>) -> Decoded<u32> {
        let id = ObjectId(from.u128()?);
        let (size, epoch, created, block_shift) = (from.u64()?, from.u64()?, from.u32()?, from.u8()?);
        let slot = self.state.objects.add(at, id, block_shift, epoch, created).ok_or(Malformed("too many objects"))?;
        let mut end = 0;
        for _ in 0..from.count(53)? {
            let (offset, ext) = self.extent(from)?;
            if offset < end {
                return Err(Malformed("extents that overlap"));
            }
            end = offset + u64::from(ext.len);
            let container = self.state.containers.at_mut(at);
            if !container.is_value_log(id) {
                container.content.stored_bytes += u64::from(ext.len);
            }
            self.state.space.extents += 1;
            self.state.objects.get_mut(slot).map.insert(offset, ext);
        }
        self.state.objects.get_mut(slot).size = size;
        Ok(slot)
    }

    fn device(&self, id: u16) -> Decoded<DeviceIndex> {
        let found = self.state.space.slots.iter().position(|slot| slot.id.0 == id);
        found.map(|slot| slot as DeviceIndex).ok_or(Malformed("an unknown device"))
    }

    fn extent(&self, from: &mut Decoder<'_>) -> Decoded<(u64, Ext)> {
        let read = if self.version < 6 { self.extent_of_one(from)? } else { self.extent_with_places(from)? };
        let ReadExtent { offset, run_len, skip, len, born, birth, mut places, sums } = read;
        let fits = skip.checked_add(len).is_some_and(|end| end <= run_len) && len > 0 && run_len <= RUN_BYTES_MAX;
        if !fits || sums.len() != run_len.div_ceil(UNIT) as usize || offset.checked_add(u64::from(len)).is_none() {
            return Err(Malformed("an extent that contradicts itself"));
        }
        if places.iter().filter_map(|place| place.packed.as_ref()).any(|packed| packed.run_len() != run_len) {
            return Err(Malformed("a compressed extent that contradicts itself"));
        }
        if places.is_empty() {
            return Err(Malformed("an extent without a place"));
        }
        let first = places.remove(0);
        let mut ext = Ext { birth, run_len, skip, len, born, ..Ext::at(&first) };
        ext.set_run(&sums, first.packed, places);
        Ok((offset, ext))
    }

    fn extent_with_places(&self, from: &mut Decoder<'_>) -> Decoded<ReadExtent> {
        let (offset, run_len, skip, len, born) = (from.u64()?, from.u32()?, from.u32()?, from.u32()?, from.u32()?);
        let (birth, count) = (Birth(from.u64()?), from.u8()?);
        let places = (0..count).map(|_| self.place(from)).collect::<Decoded<_>>()?;
        Ok(ReadExtent { offset, run_len, skip, len, born, birth, places, sums: sums(from)? })
    }

    fn place(&self, from: &mut Decoder<'_>) -> Decoded<Replica> {
        if from.u16()? != 0 {
            return Err(Malformed(OTHER_NODES));
        }
        let (device, encoding) = (from.u16()?, from.u8()?);
        if encoding > 1 {
            return Err(Malformed(OTHER_ENCODINGS));
        }
        let base = from.u64()?;
        let packed = if encoding == 1 { Some(decode_packed(from)?) } else { None };
        Ok(Replica { base, packed, dev: self.device(device)? })
    }

    /// Reads an extent as it was before version 6: with one copy at most, and without births.
    fn extent_of_one(&self, from: &mut Decoder<'_>) -> Decoded<ReadExtent> {
        let offset = from.u64()?;
        if from.u16()? != 0 {
            return Err(Malformed(OTHER_NODES));
        }
        let dev = self.device(from.u16()?)?;
        let encoding = from.u8()?;
        if encoding > 3 {
            return Err(Malformed(OTHER_ENCODINGS));
        }
        let (run_offset, run_len, skip, len) = (from.u64()?, from.u32()?, from.u32()?, from.u32()?);
        let (born, copy, copy_base) = (from.u32()?, from.u16()?, from.u64()?);
        let sums = sums(from)?;
        let birth = Birth::default();
        let packed = |from: &mut Decoder<'_>, bit| (encoding & bit != 0).then(|| decode_packed(from)).transpose();
        let mut places: Replicas = SmallVec::new();
        places.push(Replica { base: run_offset, packed: packed(from, 1)?, dev });
        let packed = packed(from, 2)?;
        if copy != 0 {
            places.push(Replica { base: copy_base, packed, dev: self.device(copy)? });
        } else if packed.is_some() {
            return Err(Malformed("a compressed copy that is not there"));
        }
        Ok(ReadExtent { offset, run_len, skip, len, born, birth, places, sums })
    }

    fn undo(&mut self, at: u32, from: &mut Decoder<'_>) -> Decoded<Undo> {
        let epoch = from.u64()?;
        let change = match from.u8()? {
            1 => {
                let (object, range, size) = (ObjectId(from.u128()?), (from.u64()?, from.u64()?), from.u64()?);
                let mut pieces = Pieces::None;
                for _ in 0..from.count(53)? {
                    let (offset, ext) = self.extent(from)?;
                    pieces.push(offset, ext);
                }
                Change::Range { object, from: range.0, to: range.1, pieces, size }
            }
            2 => Change::ObjectCreated { object: ObjectId(from.u128()?) },
            3 => self.deleted_object(at, epoch, from)?,
            4 => Change::IndexCreated { index: IndexId(from.u128()?) },
            5 => {
                let (index, created) = (IndexId(from.u128()?), from.u32()?);
                let mut records = Vec::new();
                for _ in 0..from.count(16)? {
                    records.push((Key::new(from.bytes()?), self.record(at, from)?));
                }
                let mut was = Index::new(created);
                was.load(records);
                Change::IndexDeleted { index, was: Box::new(was) }
            }
            6 => {
                let index = IndexId(from.u128()?);
                let key = Key::new(from.bytes()?);
                let was = if from.flag()? { Some(self.record(at, from)?) } else { None };
                Change::Record { index, key, was }
            }
            7 => Change::SnapshotMade { id: ContainerId(from.u64()?) },
            8 => Change::SnapshotDeleted { id: ContainerId(from.u64()?) },
            9 => self.renamed(at, epoch, from)?,
            10 => Change::Set { was: Box::new(decode_spec(from)?) },
            11 => Change::Made,
            _ => return Err(Malformed("an unknown undo entry")),
        };
        Ok(Undo { epoch, change })
    }

    fn renamed(&mut self, at: u32, epoch: u64, from: &mut Decoder<'_>) -> Decoded<Change> {
        let was = from.text()?;
        let id = self.state.containers.at(at).id;
        self.state.containers.give_up(&was, id, epoch);
        Ok(Change::Renamed { was })
    }

    fn deleted_object(&mut self, at: u32, epoch: u64, from: &mut Decoder<'_>) -> Decoded<Change> {
        let slot = self.object(at, from)?;
        let number = self.state.containers.at(at).undo_next();
        let object = self.state.objects.get_mut(slot);
        object.presence = Presence::Detached;
        let (extents, mapped) = (object.map.extents(), object.map.mapped_bytes());
        // It was counted as a live object.
        self.state.space.extents -= extents;
        self.state.containers.at_mut(at).content.stored_bytes -= mapped;
        self.state.gone.detached.insert(slot, (number, epoch));
        Ok(Change::ObjectDeleted { slot })
    }
}

#[cfg(test)]
mod tests;
