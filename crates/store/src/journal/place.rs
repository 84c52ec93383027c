//! Encodings of what moves: the payload of a `Place`.

use std::sync::Arc;

use cenote_model::{ContainerId, DeviceId, Packed};

use super::update::{decode_object, encode_object};
use crate::codec::{Decoded, Decoder, Encode, Malformed, OTHER_ENCODINGS, OTHER_NODES};
use crate::map::DeviceIndex;
use crate::packing::{decode_packed, encode_packed};
use crate::placing::{Action, Identity, Placing, Target};

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
/// Least bytes of an entry.
const BYTES_MIN: usize = 40;
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

/// Writes the payload of a `Place`.
pub(crate) fn encode_places(bytes: &mut Vec<u8>, places: &[Placed]) {
    bytes.put_u32(places.len() as u32);
    for place in places {
        match place.target {
            Target::Live { key, offset } => {
                bytes.put_u8(1);
                encode_object(bytes, key);
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

/// Reads the payload of a `Place`.
pub(super) fn decode_places(from: &mut Decoder<'_>) -> Decoded<Vec<Placed>> {
    let count = from.count(BYTES_MIN)?;
    (0..count).map(|_| decode_place(from)).collect()
}

/// Reads the payload of a `Place` as it was before version 4.
pub(super) fn decode_places_of_one(from: &mut Decoder<'_>) -> Decoded<Vec<Placed>> {
    let count = from.count(BYTES_MIN)?;
    (0..count).map(|_| decode_place_of_one(from)).collect()
}

#[cfg(test)]
mod tests {
    use cenote_model::{Codec, ObjectId, ObjectKey};

    use super::*;

    fn id_of(dev: DeviceIndex) -> DeviceId {
        DeviceId(dev + 1)
    }
    #[allow(clippy::unnecessary_wraps, reason = "as the store's own")]
    fn slot_of(id: DeviceId) -> Option<DeviceIndex> {
        Some(id.0 - 1)
    }
    fn key() -> ObjectKey {
        ObjectKey { container: ContainerId(3), object: ObjectId(4) }
    }

    #[test]
    fn all_placings_are_read_as_they_were_written() {
        let packed = Packed::new(Codec::Zstd, 0, 12, 512, &[40]).map(Arc::new);
        let (dev, base) = (300, 0u64.wrapping_sub(65_536));
        let actions = [
            Action::Copy { dev, base, packed: packed.clone(), replaces: None },
            Action::Copy { dev, base, packed: None, replaces: Some(2) },
            Action::Move { dev, base, packed: packed.clone() },
            Action::Promote { dev, base, packed },
            Action::Evict { copy: 1 },
            Action::DropCopy { copy: 0 },
            Action::Split { at: 65_536 },
        ];
        let targets = [
            Target::Live { key: key(), offset: 5 },
            Target::Undo { container: ContainerId(3), number: 9, piece: 2 },
            Target::Detached { container: ContainerId(3), number: 9, offset: 7 },
        ];
        let was = Identity { dev: 299, run_offset: 4096, skip: 1, len: 500 };
        for target in targets {
            let placings: Vec<_> =
                actions.iter().map(|action| Placing { target, was, action: action.clone() }).collect();
            let placed: Vec<_> = placings.iter().map(|placing| Placed::new(placing, true, id_of)).collect();
            let mut bytes = Vec::new();
            encode_places(&mut bytes, &placed);
            let mut from = Decoder::new(&bytes);
            let read = decode_places(&mut from).unwrap();
            from.end().unwrap();
            assert_eq!(read, placed);
            assert!(read.iter().all(|it| it.shares == it.placing(slot_of, true).unwrap().action.dev().is_some()));
            let back: Vec<_> = read.iter().filter_map(|it| it.placing(slot_of, false)).collect();
            assert_eq!(back, placings);
            for at in 0..bytes.len() {
                assert!(decode_places(&mut Decoder::new(&bytes[..at])).is_err(), "cut at {at}");
            }
        }
    }

    /// An entry in an object up to its action.
    fn begun(nodes: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.put_u32(1);
        bytes.put_u8(1);
        encode_object(&mut bytes, key());
        bytes.put_u64(5);
        if nodes {
            bytes.put_u16(0);
        }
        bytes.put_u16(1);
        bytes.put_u64(4096);
        bytes.put_u32(0);
        bytes.put_u32(512);
        bytes
    }

    #[test]
    fn entries_of_version_3_mean_the_only_copy() {
        let read = |action: u8| {
            let mut bytes = begun(false);
            bytes.put_u8(action);
            bytes.put_u16(2);
            bytes.put_u64(8192);
            decode_places_of_one(&mut Decoder::new(&bytes)).unwrap().remove(0)
        };
        let action = |code, has_copy| read(code).placing(slot_of, has_copy).map(|placing| placing.action);
        let copy = |replaces| Some(Action::Copy { dev: 1, base: 8192, packed: None, replaces });
        assert_eq!((action(1, false), action(1, true)), (copy(None), copy(Some(0))));
        assert_eq!((action(3, true), action(3, false)), (Some(Action::Evict { copy: 0 }), None));
        assert_eq!((action(6, true), action(6, false)), (Some(Action::DropCopy { copy: 0 }), None));
        assert!(read(33).shares && !read(1).shares && action(4, false) == Some(Action::Split { at: 8192 }));
    }

    #[test]
    fn what_later_versions_write_is_named() {
        let read = |node: u16, flags: u8, action: u8| {
            let mut bytes = begun(true);
            bytes.extend_from_slice(&[action, flags, NO_COPY]);
            bytes.put_u16(node);
            bytes.put_u16(2);
            bytes.put_u64(8192);
            decode_places(&mut Decoder::new(&bytes)).map_err(|malformed| malformed.0)
        };
        assert!(read(0, 0, 1).is_ok());
        assert_eq!((read(1, 0, 1), read(0, 4, 1)), (Err(OTHER_NODES), Err(OTHER_ENCODINGS)));
        assert!(read(0, SHARED, 3).is_err_and(|why| why != OTHER_ENCODINGS), "an eviction brings no place");
    }
}
