//! Encodings of the payloads of records.

use std::sync::Arc;

use cenote_model::{ContainerId, DeviceId, IndexKey, KeyCode, Packed, Run, Update};

use super::update::{decode_extent, decode_index, decode_object, encode_extent, encode_index};
pub(crate) use super::update::{decode_spec, decode_update, encode_spec, encode_update};
use super::{Draft, Kind};
use crate::codec::{Decoded, Decoder, Encode, Malformed, OTHER_ENCODINGS, OTHER_NODES, Ordinals as _};
use crate::index::Key;
use crate::map::DeviceIndex;
use crate::packing::{decode_packed, encode_packed};
use crate::pins::PinChange;
use crate::placing::{Action, Identity, Placing, Target};
use crate::session::Detail;
use crate::value_log::{Spill, Spilled};
use crate::{SessionId, SessionInfo};

/// A record of the journal.
#[derive(Debug)]
pub(crate) enum Entry {
    Apply {
        session: SessionId,
        seq: u64,
        updates: Vec<Update>,
        detail: Option<Box<Detail>>,
    },
    SessionOpen {
        id: SessionId,
        info: SessionInfo,
    },
    SessionClose {
        id: SessionId,
    },
    Lease {
        session: SessionId,
        seq: u64,
        runs: Vec<Run>,
    },
    Unlease {
        session: SessionId,
        runs: Vec<Run>,
    },
    /// `later`: see [`crate::state::State::begin_cut`]; empty if nothing is forgotten.
    Cut {
        id: u64,
        epoch: u64,
        members: Vec<ContainerId>,
        later: Vec<u32>,
    },
    Mark {
        id: u64,
        epoch: u64,
        members: Vec<ContainerId>,
    },
    /// Names devices by id, not by slot.
    Place(Vec<Placed>),
    Synced,
    /// A session pins a snapshot (or, with `yes` false, unpins it), so that the snapshot stays even if it is deleted.
    Pin {
        session: SessionId,
        id: ContainerId,
        yes: bool,
    },
    /// Ranges are pinned to their tier, or unpinned.
    Keep(Vec<PinChange>),
    /// The values of these records are in a value log from now on.
    Spill(Box<Spill>),
    /// Batches of a value log, by offset, that nobody needs any more.
    GiveUp {
        container: ContainerId,
        offsets: Vec<u64>,
    },
}

/// A [`Placing`] that names devices by their ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placed {
    pub target: Target,
    /// Its first place.
    pub was: Was,
    /// 1 copy, 2 move, 3 evict, 4 split at byte `base`, 5 promote, 6 drop a copy.
    pub action: u8,
    /// Which copy it is about.
    pub copy: Which,
    /// Another extent has the place that this one gets.
    pub shares: bool,
    pub device: DeviceId,
    pub base: u64,
    pub packed: Option<Arc<Packed>>,
}

/// The first place of an extent, by the device's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Was {
    pub device: DeviceId,
    pub run_offset: u64,
    pub skip: u32,
    pub len: u32,
}

/// The copy that a placing replaces, drops or makes the first place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Which {
    /// None: a copy is added, or the action is about none.
    NoCopy,
    Copy(u8),
    /// The only one, if there is one: records before version 4 do not say it.
    AnyCopy,
}

/// Before version 4: added to the number of an action whose place is compressed.
const OLD_PACKED: u8 = 16;
/// Before version 4: added to the number of an action whose place belongs to an earlier extent of the same record.
const OLD_SHARED: u8 = 32;
/// Flags of an entry of `Place`.
const PACKED: u8 = 1;
const SHARED: u8 = 2;
/// Stands for [`Which::NoCopy`].
const NO_COPY: u8 = u8::MAX;

impl Placed {
    pub fn new(placing: &Placing, shares: bool, id_of: impl Fn(DeviceIndex) -> DeviceId) -> Self {
        let Identity { dev, run_offset, skip, len } = placing.was;
        let (action, device, base) = match placing.action {
            Action::Copy { dev, base, .. } => (1, id_of(dev), base),
            Action::Move { dev, base, .. } => (2, id_of(dev), base),
            Action::Evict { .. } => (3, DeviceId(0), 0),
            Action::Split { at } => (4, DeviceId(0), u64::from(at)),
            Action::Promote { dev, base, .. } => (5, id_of(dev), base),
            Action::DropCopy { .. } => (6, DeviceId(0), 0),
        };
        let copy = match placing.action {
            Action::Copy { replaces: Some(copy), .. } | Action::Evict { copy } | Action::DropCopy { copy } => {
                Which::Copy(copy)
            }
            _ => Which::NoCopy,
        };
        let was = Was { device: id_of(dev), run_offset, skip, len };
        let packed = placing.action.packed().cloned();
        let shares = shares && is_to_a_place(action);
        Self { target: placing.target, was, action, copy, shares, device, base, packed }
    }
    /// Returns the placing of an extent that has a copy or not. `None`: it names what is not there.
    pub fn placing(&self, slot_of: impl Fn(DeviceId) -> Option<DeviceIndex>, has_copy: bool) -> Option<Placing> {
        let Was { device, run_offset, skip, len } = self.was;
        let was = Identity { dev: slot_of(device)?, run_offset, skip, len };
        let copy = match self.copy {
            Which::Copy(copy) => Some(copy),
            Which::AnyCopy if has_copy => Some(0),
            Which::NoCopy | Which::AnyCopy => None,
        };
        let packed = self.packed.clone();
        let action = match self.action {
            1 => Action::Copy { dev: slot_of(self.device)?, base: self.base, packed, replaces: copy },
            2 => Action::Move { dev: slot_of(self.device)?, base: self.base, packed },
            3 => Action::Evict { copy: copy? },
            4 => Action::Split { at: u32::try_from(self.base).ok()? },
            5 => Action::Promote { dev: slot_of(self.device)?, base: self.base, packed },
            6 => Action::DropCopy { copy: copy? },
            _ => return None,
        };
        Some(Placing { target: self.target, was, action })
    }
}

fn is_to_a_place(action: u8) -> bool {
    matches!(action, 1 | 2 | 5)
}

/// Writes the fixed part of an `Apply` record; updates follow, then [`finish_apply`].
pub(crate) fn begin_apply(draft: &mut Draft, session: SessionId, seq: u64) {
    draft.bytes.put_u64(session.0);
    draft.bytes.put_u64(seq);
    draft.bytes.put_u32(0);
}

/// Fills in the number of updates and appends the codes.
pub(crate) fn finish_apply(draft: &mut Draft, updates: u32, codes: &[KeyCode]) {
    let at = super::RECORD_HEADER + 16;
    draft.bytes[at..at + 4].copy_from_slice(&updates.to_le_bytes());
    draft.bytes.put_u32(codes.len() as u32);
    for code in codes {
        draft.bytes.put_u8(*code as u8);
    }
}

pub(crate) fn encode_info(bytes: &mut Vec<u8>, info: &SessionInfo) {
    bytes.put_u128(info.nonce);
    bytes.put_u32(info.pid);
    bytes.put_u64(info.started);
    bytes.put_u32(info.uid);
    // Before there were groups this byte was 0 or 1, and came last.
    let bound = u8::from(info.bound.is_some());
    bytes.put_u8(HAS_GROUP | bound << 1 | u8::from(info.write));
    bytes.put_u32(info.gid);
    if let Some(groups) = &info.bound {
        bytes.put_u32(groups.len() as u32);
        groups.iter().for_each(|gid| bytes.put_u32(*gid));
    }
}
pub(crate) fn decode_info(from: &mut Decoder<'_>) -> Decoded<SessionInfo> {
    let (nonce, pid, started, uid, flags) = (from.u128()?, from.u32()?, from.u64()?, from.u32()?, from.u8()?);
    let mut info = SessionInfo { nonce, pid, started, uid, write: flags & 1 != 0, ..SessionInfo::default() };
    match flags {
        0 | 1 => {}
        HAS_GROUP..=7 => {
            info.gid = from.u32()?;
            if flags & 2 != 0 {
                let count = from.count(4)?;
                info.bound = Some((0..count).map(|_| from.u32()).collect::<Decoded<_>>()?);
            }
        }
        _ => return Err(Malformed("an unknown kind of session")),
    }
    Ok(info)
}

/// Flag in the byte of a session's rights: its groups follow.
const HAS_GROUP: u8 = 4;

pub(crate) fn encode_runs(bytes: &mut Vec<u8>, runs: &[Run]) {
    bytes.put_u32(runs.len() as u32);
    for run in runs {
        bytes.put_u16(run.device.0);
        bytes.put_u64(run.offset);
        bytes.put_u64(run.len);
    }
}
pub(crate) fn decode_runs(from: &mut Decoder<'_>) -> Decoded<Vec<Run>> {
    let count = from.count(18)?;
    (0..count).map(|_| Ok(Run { device: DeviceId(from.u16()?), offset: from.u64()?, len: from.u64()? })).collect()
}

pub(crate) fn encode_codes(bytes: &mut Vec<u8>, codes: &[KeyCode]) {
    bytes.put_u32(codes.len() as u32);
    for code in codes {
        bytes.put_u8(*code as u8);
    }
}
pub(crate) fn decode_codes(from: &mut Decoder<'_>) -> Decoded<Vec<KeyCode>> {
    let count = from.count(1)?;
    (0..count).map(|_| code(from.u8()?)).collect()
}

fn code(byte: u8) -> Decoded<KeyCode> {
    Ok(match byte {
        0 => KeyCode::Ok,
        1 => KeyCode::NotFound,
        2 => KeyCode::Exists,
        3 => KeyCode::Invalid,
        4 => KeyCode::Limit,
        _ => return Err(Malformed("an unknown code")),
    })
}

/// Writes the payload of a `Cut` or `Mark`.
pub(crate) fn encode_cut(bytes: &mut Vec<u8>, id: u64, epoch: u64, members: &[ContainerId]) {
    bytes.put_u64(id);
    bytes.put_u64(epoch);
    bytes.put_u32(members.len() as u32);
    for member in members {
        bytes.put_u64(member.0);
    }
}

fn decode_cut(from: &mut Decoder<'_>) -> Decoded<(u64, u64, Vec<ContainerId>)> {
    let (id, epoch) = (from.ordinal()?, from.ordinal()?);
    let count = from.count(8)?;
    let members = (0..count).map(|_| Ok(ContainerId(from.u64()?))).collect::<Decoded<_>>()?;
    Ok((id, epoch, members))
}

/// Writes the payload of a `Place`.
pub(crate) fn encode_places(bytes: &mut Vec<u8>, places: &[Placed]) {
    bytes.put_u32(places.len() as u32);
    for place in places {
        match place.target {
            Target::Live { key, offset } => {
                bytes.put_u8(1);
                bytes.put_u64(key.container.0);
                bytes.put_u128(key.object.0);
                bytes.put_u64(offset);
            }
            Target::Undo { container, number, piece } => {
                bytes.put_u8(2);
                bytes.put_u64(container.0);
                bytes.put_u64(number);
                bytes.put_u32(piece);
            }
            Target::Detached { container, number, offset } => {
                bytes.put_u8(3);
                bytes.put_u64(container.0);
                bytes.put_u64(number);
                bytes.put_u64(offset);
            }
        }
        put_address(bytes, place.was.device);
        bytes.put_u64(place.was.run_offset);
        bytes.put_u32(place.was.skip);
        bytes.put_u32(place.was.len);
        bytes.put_u8(place.action);
        let packed = if place.packed.is_some() { PACKED } else { 0 };
        bytes.put_u8(packed | if place.shares { SHARED } else { 0 });
        bytes.put_u8(if let Which::Copy(copy) = place.copy { copy } else { NO_COPY });
        put_address(bytes, place.device);
        bytes.put_u64(place.base);
        if let Some(packed) = &place.packed {
            encode_packed(bytes, packed);
        }
    }
}

/// Writes the node and the id of a device.
fn put_address(bytes: &mut Vec<u8>, device: DeviceId) {
    bytes.put_u16(0); // node: a store is on one yet
    bytes.put_u16(device.0);
}

/// Reads what [`put_address`] wrote. Fails if the device is on another node.
fn address(from: &mut Decoder<'_>) -> Decoded<DeviceId> {
    if from.u16()? != 0 {
        return Err(Malformed(OTHER_NODES));
    }
    Ok(DeviceId(from.u16()?))
}

fn decode_target(from: &mut Decoder<'_>) -> Decoded<Target> {
    Ok(match from.u8()? {
        1 => Target::Live { key: decode_object(from)?, offset: from.u64()? },
        2 => Target::Undo { container: ContainerId(from.u64()?), number: from.u64()?, piece: from.u32()? },
        3 => Target::Detached { container: ContainerId(from.u64()?), number: from.u64()?, offset: from.u64()? },
        _ => return Err(Malformed("an unknown target")),
    })
}

fn decode_place(from: &mut Decoder<'_>) -> Decoded<Placed> {
    let target = decode_target(from)?;
    let was = Was { device: address(from)?, run_offset: from.u64()?, skip: from.u32()?, len: from.u32()? };
    let (action, flags, copy) = (from.u8()?, from.u8()?, from.u8()?);
    let copy = if copy == NO_COPY { Which::NoCopy } else { Which::Copy(copy) };
    let (device, base) = (address(from)?, from.u64()?);
    if flags & !(PACKED | SHARED) != 0 {
        return Err(Malformed(OTHER_ENCODINGS));
    }
    if flags != 0 && !is_to_a_place(action) {
        return Err(Malformed("a new place for an extent that gets none"));
    }
    let packed = if flags & PACKED != 0 { Some(decode_packed(from)?) } else { None };
    Ok(Placed { target, was, action, copy, shares: flags & SHARED != 0, device, base, packed })
}

/// Reads an entry as it was before version 4.
fn decode_place_of_one(from: &mut Decoder<'_>) -> Decoded<Placed> {
    let target = decode_target(from)?;
    let was = Was { device: DeviceId(from.u16()?), run_offset: from.u64()?, skip: from.u32()?, len: from.u32()? };
    let action = from.u8()?;
    let shares = action & OLD_SHARED != 0 && is_to_a_place(action & !(OLD_SHARED | OLD_PACKED));
    let action = if shares { action - OLD_SHARED } else { action };
    let (device, base) = (DeviceId(from.u16()?), from.u64()?);
    let is_packed = action.checked_sub(OLD_PACKED).is_some_and(is_to_a_place);
    let packed = if is_packed { Some(decode_packed(from)?) } else { None };
    let action = if is_packed { action - OLD_PACKED } else { action };
    Ok(Placed { target, was, action, copy: Which::AnyCopy, shares, device, base, packed })
}

/// Writes the payload of a `Keep`: pins set or removed.
pub(crate) fn encode_pins(bytes: &mut Vec<u8>, changes: impl Iterator<Item = PinChange>) {
    let at = bytes.len();
    bytes.put_u32(0);
    let mut count = 0u32;
    for change in changes {
        change.encode(bytes);
        count += 1;
    }
    bytes[at..at + 4].copy_from_slice(&count.to_le_bytes());
}
pub(crate) fn decode_pins(from: &mut Decoder<'_>) -> Decoded<Vec<PinChange>> {
    let count = from.count(PinChange::BYTES_MIN)?;
    (0..count).map(|_| PinChange::decode(from)).collect()
}

/// Writes the payload of a `Spill`.
pub(crate) fn encode_spill(bytes: &mut Vec<u8>, spill: &Spill) {
    encode_index(bytes, IndexKey { container: spill.container, index: spill.index });
    bytes.put_u64(spill.offset);
    encode_extent(bytes, &spill.extent);
    bytes.put_u32(spill.records.len() as u32);
    for record in &spill.records {
        bytes.put_bytes(record.key.bytes());
        bytes.put_u64(record.epoch);
        bytes.put_u32(record.at);
        bytes.put_u32(record.len);
        bytes.put_u64(record.digest);
    }
}

fn decode_spill(from: &mut Decoder<'_>) -> Decoded<Spill> {
    let IndexKey { container, index } = decode_index(from)?;
    let (offset, extent) = (from.u64()?, decode_extent(from)?);
    let count = from.count(28)?;
    let mut records = Vec::with_capacity(count);
    for _ in 0..count {
        let key = Key::new(from.bytes()?);
        let (epoch, at, len, digest) = (from.u64()?, from.u32()?, from.u32()?, from.u64()?);
        records.push(Spilled { key, epoch, at, len, digest });
    }
    Ok(Spill { container, index, offset, extent, records })
}

/// Writes the payload of a `GiveUp`.
pub(crate) fn encode_give_up(bytes: &mut Vec<u8>, container: ContainerId, offsets: &[u64]) {
    bytes.put_u64(container.0);
    bytes.put_u32(offsets.len() as u32);
    for offset in offsets {
        bytes.put_u64(*offset);
    }
}

/// Reads a record's payload. Fails if it is malformed.
pub(crate) fn decode(kind: Kind, epoch: u64, payload: &[u8]) -> Decoded<Entry> {
    let mut from = Decoder::new(payload);
    let from = &mut from;
    let entry = match kind {
        Kind::Apply => decode_apply(from, epoch)?,
        Kind::SessionOpen => Entry::SessionOpen { id: SessionId(from.ordinal()?), info: decode_info(from)? },
        Kind::SessionClose => Entry::SessionClose { id: SessionId(from.u64()?) },
        Kind::Lease => Entry::Lease { session: SessionId(from.u64()?), seq: from.u64()?, runs: decode_runs(from)? },
        Kind::Unlease => Entry::Unlease { session: SessionId(from.u64()?), runs: decode_runs(from)? },
        Kind::Cut => {
            let (id, epoch, members) = decode_cut(from)?;
            Entry::Cut { id, epoch, members, later: Vec::new() }
        }
        Kind::Recut => {
            let (id, epoch, members) = decode_cut(from)?;
            let later = members.iter().map(|_| from.u32()).collect::<Decoded<_>>()?;
            Entry::Cut { id, epoch, members, later }
        }
        Kind::Mark => {
            let (id, epoch, members) = decode_cut(from)?;
            Entry::Mark { id, epoch, members }
        }
        Kind::PlaceOfOne => {
            let count = from.count(40)?;
            Entry::Place((0..count).map(|_| decode_place_of_one(from)).collect::<Decoded<_>>()?)
        }
        Kind::Place => {
            let count = from.count(40)?;
            Entry::Place((0..count).map(|_| decode_place(from)).collect::<Decoded<_>>()?)
        }
        Kind::Synced => {
            from.u64()?;
            Entry::Synced
        }
        Kind::Pin | Kind::Unpin => {
            Entry::Pin { session: SessionId(from.u64()?), id: ContainerId(from.u64()?), yes: kind == Kind::Pin }
        }
        Kind::Keep => Entry::Keep(decode_pins(from)?),
        Kind::Spill => Entry::Spill(Box::new(decode_spill(from)?)),
        Kind::GiveUp => {
            let container = ContainerId(from.u64()?);
            let count = from.count(8)?;
            Entry::GiveUp { container, offsets: (0..count).map(|_| from.u64()).collect::<Decoded<_>>()? }
        }
        Kind::Continued => return Err(Malformed("a record that only readers of files know")),
    };
    from.end()?;
    Ok(entry)
}

fn decode_apply(from: &mut Decoder<'_>, _epoch: u64) -> Decoded<Entry> {
    let (session, seq) = (SessionId(from.u64()?), from.u64()?);
    let count = from.count(9)?;
    let mut updates = Vec::with_capacity(count);
    let mut created = None;
    for _ in 0..count {
        let update = decode_update(from)?;
        if let Update::ContainerCreate { id, .. } | Update::SnapshotCreate { id, .. } = &update {
            created = Some(*id);
        }
        updates.push(update);
    }
    let codes = decode_codes(from)?;
    let plain = codes.is_empty() && created.is_none();
    let detail = (!plain).then(|| Box::new(Detail::Applied { codes, created }));
    Ok(Entry::Apply { session, seq, updates, detail })
}
