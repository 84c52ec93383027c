//! Encodings of the payloads of records.

use cenote_model::{Check, ContainerId, DeviceId, HomeId, IndexKey, KeyCode, NodeId, Run, TransactionId, Update};

pub(crate) use super::place::{Placed, encode_places};
use super::place::{decode_places, decode_places_of_one};
use super::two_phase::{decode_homes, decode_part, decode_transaction};
use super::update::{decode_extent, decode_index, encode_extent, encode_index};
pub(crate) use super::update::{decode_spec, decode_update, encode_spec, encode_update};
use super::{Draft, Kind};
use crate::codec::{Decoded, Decoder, Encode, Malformed, Ordinals as _};
use crate::index::Key;
use crate::pins::PinChange;
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
        /// The transaction over several homes that this decides, and the homes that have prepared it.
        decision: Option<(TransactionId, Vec<HomeId>)>,
    },
    /// A transaction over several homes is prepared here.
    Prepared {
        session: SessionId,
        seq: u64,
        transaction: TransactionId,
        checks: Vec<Check>,
        updates: Vec<Update>,
    },
    /// It is carried out here.
    Settled {
        transaction: TransactionId,
    },
    /// It is given up: its part here, or its decision. `returns`: the space of its writes is its session's again.
    GivenUp {
        transaction: TransactionId,
        returns: bool,
    },
    /// A participant has settled a transaction that was decided here.
    Forgotten {
        transaction: TransactionId,
        participant: HomeId,
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
    /// `later`: see [`crate::state::EngineState::begin_cut`]; empty if nothing is forgotten.
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
    let node = if info.node.is_some() { HAS_NODE } else { 0 };
    bytes.put_u8(HAS_GROUP | node | bound << 1 | u8::from(info.write));
    bytes.put_u32(info.gid);
    if let Some(node) = info.node {
        bytes.put_u16(node.0);
    }
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
        HAS_GROUP..=15 if flags & HAS_GROUP != 0 => {
            info.gid = from.u32()?;
            if flags & HAS_NODE != 0 {
                info.node = Some(NodeId(from.u16()?));
            }
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
/// Flag in the same byte: the number of the session's node follows the group.
const HAS_NODE: u8 = 8;

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
pub(crate) fn decode(kind: Kind, payload: &[u8]) -> Decoded<Entry> {
    let mut from = Decoder::new(payload);
    let from = &mut from;
    let entry = match kind {
        Kind::Apply | Kind::Decided => decode_apply(from, kind)?,
        Kind::Prepared => {
            let (session, seq) = (SessionId(from.u64()?), from.u64()?);
            let transaction = decode_transaction(from)?;
            let (checks, updates) = decode_part(from)?;
            Entry::Prepared { session, seq, transaction, checks, updates }
        }
        Kind::Settled => Entry::Settled { transaction: decode_transaction(from)? },
        Kind::GivenUp => Entry::GivenUp { transaction: decode_transaction(from)?, returns: from.flag()? },
        Kind::Forgotten => {
            Entry::Forgotten { transaction: decode_transaction(from)?, participant: HomeId(from.u16()?) }
        }
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
        Kind::PlaceOfOne => Entry::Place(decode_places_of_one(from)?),
        Kind::Place => Entry::Place(decode_places(from)?),
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

fn decode_apply(from: &mut Decoder<'_>, kind: Kind) -> Decoded<Entry> {
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
    let decision = if kind == Kind::Decided { Some((decode_transaction(from)?, decode_homes(from)?)) } else { None };
    Ok(Entry::Apply { session, seq, updates, detail, decision })
}
