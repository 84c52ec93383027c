//! Encodings of updates in the journal.

use cenote_model::{
    CONTAINER_MODE_BITS, CONTAINER_MODE_PRIVATE, ContainerId, ContainerSpec, DeviceId, Durability, Extent, IndexId,
    IndexKey, NodeId, ObjectId, ObjectKey, Sums, Update,
};

use crate::codec::{Decoded, Decoder, Encode, Malformed, OTHER_ENCODINGS, OTHER_NODES};

pub(crate) fn encode_spec(bytes: &mut Vec<u8>, spec: &ContainerSpec) {
    bytes.put_u8(spec.block_shift);
    bytes.put_u8(spec.durability as u8);
    bytes.put_u64(spec.quota_bytes);
    bytes.put_bytes(spec.policy.as_bytes());
    // Before there were groups and modes this byte was 0 or 1, and the owner came last.
    let owners = u8::from(spec.owner_uid.is_some()) | u8::from(spec.owner_gid.is_some()) << 1;
    let has_weight = if spec.weight == 1 { 0 } else { HAS_WEIGHT };
    bytes.put_u8(HAS_MODE | has_weight | owners);
    bytes.put_u32(spec.owner_uid.unwrap_or(0));
    bytes.put_u32(spec.owner_gid.unwrap_or(0));
    bytes.put_u16(spec.mode);
    if has_weight != 0 {
        bytes.put_u16(spec.weight);
    }
}

/// Flag in the byte of owners: group and mode follow.
const HAS_MODE: u8 = 4;
/// Flag there, with the other one: a weight other than 1 comes last.
const HAS_WEIGHT: u8 = 8;

pub(crate) fn decode_spec(from: &mut Decoder<'_>) -> Decoded<ContainerSpec> {
    let block_shift = from.u8()?;
    let durability = match from.u8()? {
        0 => Durability::Sync,
        1 => Durability::Async,
        2 => Durability::Scratch,
        3 => Durability::Bypass,
        _ => return Err(Malformed("an unknown durability")),
    };
    let quota_bytes = from.u64()?;
    let policy = from.text()?;
    let owners = from.u8()?;
    let owner_uid = Some(from.u32()?).filter(|_| owners & 1 != 0);
    let (owner_gid, mode) = match owners {
        0 | 1 => (None, CONTAINER_MODE_PRIVATE),
        owners if owners & !(HAS_WEIGHT | 3) == HAS_MODE => {
            (Some(from.u32()?).filter(|_| owners & 2 != 0), from.u16()?)
        }
        _ => return Err(Malformed("an unknown kind of owner")),
    };
    if mode & !CONTAINER_MODE_BITS != 0 {
        return Err(Malformed("a mode with unknown bits"));
    }
    let weight = if owners & HAS_WEIGHT == 0 { 1 } else { from.u16()? };
    Ok(ContainerSpec { block_shift, durability, quota_bytes, policy, owner_uid, owner_gid, mode, weight })
}

pub(super) fn encode_object(bytes: &mut Vec<u8>, key: ObjectKey) {
    bytes.put_u64(key.container.0);
    bytes.put_u128(key.object.0);
}
pub(super) fn decode_object(from: &mut Decoder<'_>) -> Decoded<ObjectKey> {
    Ok(ObjectKey { container: ContainerId(from.u64()?), object: ObjectId(from.u128()?) })
}
pub(super) fn encode_index(bytes: &mut Vec<u8>, key: IndexKey) {
    bytes.put_u64(key.container.0);
    bytes.put_u128(key.index.0);
}
pub(super) fn decode_index(from: &mut Decoder<'_>) -> Decoded<IndexKey> {
    Ok(IndexKey { container: ContainerId(from.u64()?), index: IndexId(from.u128()?) })
}

pub(super) fn encode_extent(bytes: &mut Vec<u8>, extent: &Extent) {
    bytes.put_u16(extent.node.0);
    bytes.put_u16(extent.device.0);
    bytes.put_u8(0); // plain: programs write nothing else
    bytes.put_u64(extent.run_offset);
    bytes.put_u32(extent.run_len);
    let sums = extent.sums.as_slice();
    bytes.put_u32(sums.len() as u32);
    for sum in sums {
        bytes.put_u32(*sum);
    }
}

pub(super) fn decode_extent(from: &mut Decoder<'_>) -> Decoded<Extent> {
    let node = NodeId(from.u16()?);
    let device = DeviceId(from.u16()?);
    if from.u8()? != 0 {
        return Err(Malformed(OTHER_ENCODINGS));
    }
    if node.0 != 0 {
        return Err(Malformed(OTHER_NODES));
    }
    let run_offset = from.u64()?;
    let run_len = from.u32()?;
    let count = from.count(4)?;
    let mut sums = Vec::with_capacity(count);
    for _ in 0..count {
        sums.push(from.u32()?);
    }
    let sums = Sums::from_slice(&sums);
    Ok(Extent { node, ..Extent::whole(device, run_offset, run_len, sums) })
}

/// Appends an update. Extents of writes cover their run (the engine takes no others).
pub(crate) fn encode_update(bytes: &mut Vec<u8>, update: &Update) {
    match update {
        Update::Fill { .. } => debug_assert!(false, "it is never in a journal"),
        Update::ContainerCreate { id, label, spec } => {
            bytes.put_u8(1);
            bytes.put_u64(id.0);
            bytes.put_bytes(label.as_bytes());
            encode_spec(bytes, spec);
        }
        Update::ContainerRename { id, label } => {
            bytes.put_u8(2);
            bytes.put_u64(id.0);
            bytes.put_bytes(label.as_bytes());
        }
        Update::ContainerSet { id, spec } => {
            bytes.put_u8(3);
            bytes.put_u64(id.0);
            encode_spec(bytes, spec);
        }
        Update::ContainerDelete { id } => {
            bytes.put_u8(4);
            bytes.put_u64(id.0);
        }
        Update::SnapshotCreate { of, id, name, replace, unix_ms } => {
            bytes.put_u8(14);
            bytes.put_u64(of.0);
            bytes.put_bytes(name.as_bytes());
            bytes.put_u64(id.0);
            bytes.put_u8(u8::from(*replace));
            bytes.put_u64(*unix_ms);
        }
        Update::SnapshotDelete { of, name } => {
            bytes.put_u8(15);
            bytes.put_u64(of.0);
            bytes.put_bytes(name.as_bytes());
        }
        Update::SnapshotRollback { of, name } => {
            bytes.put_u8(16);
            bytes.put_u64(of.0);
            bytes.put_bytes(name.as_bytes());
        }
        Update::ObjectCreate { key, block_shift } => {
            bytes.put_u8(5);
            encode_object(bytes, *key);
            bytes.put_u8(*block_shift);
        }
        Update::ObjectKeep { key, device } => {
            bytes.put_u8(18);
            encode_object(bytes, *key);
            bytes.put_u16(device.0);
        }
        Update::ObjectDelete { key } => {
            bytes.put_u8(6);
            encode_object(bytes, *key);
        }
        Update::Write { key, offset, extent } => {
            bytes.put_u8(7);
            encode_object(bytes, *key);
            bytes.put_u64(*offset);
            encode_extent(bytes, extent);
        }
        Update::Punch { key, offset, len } => {
            bytes.put_u8(8);
            encode_object(bytes, *key);
            bytes.put_u64(*offset);
            bytes.put_u64(*len);
        }
        Update::Truncate { key, size } => {
            bytes.put_u8(9);
            encode_object(bytes, *key);
            bytes.put_u64(*size);
        }
        Update::IndexCreate { key } => {
            bytes.put_u8(10);
            encode_index(bytes, *key);
        }
        Update::IndexDelete { key } => {
            bytes.put_u8(11);
            encode_index(bytes, *key);
        }
        Update::Put { index, key, value, only_new: _ } => {
            bytes.put_u8(12);
            encode_index(bytes, *index);
            bytes.put_bytes(key);
            bytes.put_bytes(value);
        }
        Update::Del { index, key } => {
            bytes.put_u8(13);
            encode_index(bytes, *index);
            bytes.put_bytes(key);
        }
        Update::Share { to, at, from, offset, len } => {
            bytes.put_u8(17);
            encode_object(bytes, *to);
            bytes.put_u64(*at);
            encode_object(bytes, *from);
            bytes.put_u64(*offset);
            bytes.put_u64(*len);
        }
    }
}

/// Reads what [`encode_update`] wrote. Fails if it is malformed.
pub(crate) fn decode_update(from: &mut Decoder<'_>) -> Decoded<Update> {
    Ok(match from.u8()? {
        1 => Update::ContainerCreate { id: ContainerId(from.u64()?), label: from.text()?, spec: decode_spec(from)? },
        2 => Update::ContainerRename { id: ContainerId(from.u64()?), label: from.text()? },
        3 => Update::ContainerSet { id: ContainerId(from.u64()?), spec: decode_spec(from)? },
        4 => Update::ContainerDelete { id: ContainerId(from.u64()?) },
        5 => Update::ObjectCreate { key: decode_object(from)?, block_shift: from.u8()? },
        6 => Update::ObjectDelete { key: decode_object(from)? },
        7 => Update::Write { key: decode_object(from)?, offset: from.u64()?, extent: decode_extent(from)? },
        8 => Update::Punch { key: decode_object(from)?, offset: from.u64()?, len: from.u64()? },
        9 => Update::Truncate { key: decode_object(from)?, size: from.u64()? },
        10 => Update::IndexCreate { key: decode_index(from)? },
        11 => Update::IndexDelete { key: decode_index(from)? },
        12 => Update::Put {
            index: decode_index(from)?,
            key: from.bytes()?.to_vec(),
            value: from.bytes()?.to_vec(),
            only_new: false,
        },
        13 => Update::Del { index: decode_index(from)?, key: from.bytes()?.to_vec() },
        14 => {
            let (of, name) = (ContainerId(from.u64()?), from.text()?);
            Update::SnapshotCreate {
                of,
                id: ContainerId(from.u64()?),
                name,
                replace: from.flag()?,
                unix_ms: from.u64()?,
            }
        }
        15 => Update::SnapshotDelete { of: ContainerId(from.u64()?), name: from.text()? },
        16 => Update::SnapshotRollback { of: ContainerId(from.u64()?), name: from.text()? },
        17 => Update::Share {
            to: decode_object(from)?,
            at: from.u64()?,
            from: decode_object(from)?,
            offset: from.u64()?,
            len: from.u64()?,
        },
        18 => Update::ObjectKeep { key: decode_object(from)?, device: DeviceId(from.u16()?) },
        _ => return Err(Malformed("an unknown update")),
    })
}
