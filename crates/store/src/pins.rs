//! Pins: the ranges that people keep on a tier.

use std::collections::BTreeMap;

use cenote_model::{ContainerId, DeviceId, ObjectId, ObjectKey};

use crate::codec::{Decoded, Decoder, Encode, Malformed};

/// The place of data pinned to wherever they are.
pub(crate) const WHERE_IT_IS: DeviceId = DeviceId(0);

/// One change of the pins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PinChange {
    /// All of a container, now and later. `None`: unpins everything in it.
    Container(ContainerId, Option<DeviceId>),
    /// A range of an object, from and to.
    Range(ObjectKey, (u64, u64), Option<DeviceId>),
}

impl PinChange {
    /// Bytes of the shorter kind on media.
    pub const BYTES_MIN: usize = 11;

    /// Returns true if it pins, false if it unpins.
    pub fn pins(&self) -> bool {
        let (Self::Container(_, place) | Self::Range(.., place)) = self;
        place.is_some()
    }
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let put = |bytes: &mut Vec<u8>, place: Option<DeviceId>| {
            bytes.put_u8(u8::from(place.is_some()));
            bytes.put_u16(place.map_or(0, |device| device.0));
        };
        match self {
            Self::Container(id, place) => {
                bytes.put_u8(1);
                bytes.put_u64(id.0);
                put(bytes, *place);
            }
            Self::Range(key, (from, to), place) => {
                bytes.put_u8(2);
                bytes.put_u64(key.container.0);
                bytes.put_u128(key.object.0);
                bytes.put_u64(*from);
                bytes.put_u64(*to);
                put(bytes, *place);
            }
        }
    }
    pub fn decode(from: &mut Decoder<'_>) -> Decoded<Self> {
        let place = |from: &mut Decoder<'_>| -> Decoded<Option<DeviceId>> {
            let yes = from.flag()?;
            let device = DeviceId(from.u16()?);
            Ok(yes.then_some(device))
        };
        match from.u8()? {
            1 => Ok(Self::Container(ContainerId(from.u64()?), place(from)?)),
            2 => {
                let key = ObjectKey { container: ContainerId(from.u64()?), object: ObjectId(from.u128()?) };
                let range = (from.u64()?, from.u64()?);
                if range.0 >= range.1 {
                    return Err(Malformed("a pinned range without bytes"));
                }
                Ok(Self::Range(key, range, place(from)?))
            }
            _ => Err(Malformed("a pin of something unknown")),
        }
    }
}

/// Ranges of an object, in order and disjoint: from, to, place.
type Ranges = Vec<(u64, u64, DeviceId)>;

/// All pins. A pin of an object goes before that of its container.
#[derive(Clone, Default, Debug)]
pub(crate) struct Pins {
    containers: BTreeMap<ContainerId, DeviceId>,
    objects: BTreeMap<ObjectKey, Ranges>,
}

impl Pins {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty() && self.objects.is_empty()
    }
    /// Returns the place to which the range, or a part of it, is pinned.
    pub fn of(&self, key: ObjectKey, from: u64, to: u64) -> Option<DeviceId> {
        if self.is_empty() {
            return None;
        }
        let ranges = self.objects.get(&key);
        let own = ranges.and_then(|ranges| ranges.iter().find(|(begin, end, _)| *begin < to && from < *end));
        own.map(|(.., place)| *place).or_else(|| self.containers.get(&key.container).copied())
    }
    /// Returns the place to which a whole container is pinned.
    pub fn of_container(&self, id: ContainerId) -> Option<DeviceId> {
        self.containers.get(&id).copied()
    }
    pub fn containers(&self) -> impl Iterator<Item = ContainerId> {
        self.containers.keys().copied()
    }
    /// Objects with pins of their own, in order, from one on.
    pub fn objects_from(&self, from: ObjectKey) -> impl Iterator<Item = ObjectKey> {
        self.objects.range(from..).map(|(key, _)| *key)
    }
    pub fn change(&mut self, change: PinChange) {
        match change {
            PinChange::Container(id, Some(place)) => drop(self.containers.insert(id, place)),
            PinChange::Container(id, None) => {
                self.containers.remove(&id);
                self.objects.retain(|key, _| key.container != id);
            }
            PinChange::Range(key, (from, to), place) => {
                let ranges = self.objects.entry(key).or_default();
                // Checkpoints list ranges in order: append quickly.
                if let (Some(place), Some(last)) = (place, ranges.last())
                    && (last.1 < from || (last.1 == from && last.2 != place))
                {
                    ranges.push((from, to, place));
                    return;
                }
                let mut left: Ranges = Vec::with_capacity(ranges.len() + 2);
                for (begin, end, place) in ranges.drain(..) {
                    if begin < from {
                        left.push((begin, end.min(from), place));
                    }
                    if end > to {
                        left.push((begin.max(to), end, place));
                    }
                }
                left.extend(place.map(|place| (from, to, place)));
                left.retain(|(begin, end, _)| begin < end);
                left.sort_unstable();
                left.dedup_by(|next, before| {
                    let is_one = before.1 == next.0 && before.2 == next.2;
                    if is_one {
                        before.1 = next.1;
                    }
                    is_one
                });
                if left.is_empty() {
                    self.objects.remove(&key);
                } else {
                    *ranges = left;
                }
            }
        }
    }
    /// Drops the pins of an earlier object with this id.
    pub fn forget(&mut self, key: ObjectKey) {
        if !self.objects.is_empty() {
            self.objects.remove(&key);
        }
    }
    /// Drops the pins of objects and containers that do not exist.
    pub fn prune(&mut self, is_there: impl Fn(ObjectKey) -> bool, has_container: impl Fn(ContainerId) -> bool) {
        self.objects.retain(|key, _| is_there(*key));
        self.containers.retain(|id, _| has_container(*id));
    }
    /// All pins, as changes.
    pub fn changes(&self) -> impl Iterator<Item = PinChange> {
        let ranges = self.objects.iter().flat_map(|(key, ranges)| {
            ranges.iter().map(|(from, to, place)| PinChange::Range(*key, (*from, *to), Some(*place)))
        });
        self.containers.iter().map(|(id, place)| PinChange::Container(*id, Some(*place))).chain(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_and_joined() {
        let key = ObjectKey { container: ContainerId(1), object: ObjectId(7) };
        let other = ObjectKey { container: ContainerId(1), object: ObjectId(8) };
        let mut pins = Pins::default();
        let mut say = |from, to, place: Option<u16>| {
            pins.change(PinChange::Range(key, (from, to), place.map(DeviceId)));
            pins.objects.get(&key).cloned().unwrap_or_default()
        };
        assert_eq!(say(0, 100, Some(1)), [(0, 100, DeviceId(1))]);
        assert_eq!(say(40, 60, None), [(0, 40, DeviceId(1)), (60, 100, DeviceId(1))]);
        assert_eq!(say(30, 60, Some(2)), [(0, 30, DeviceId(1)), (30, 60, DeviceId(2)), (60, 100, DeviceId(1))]);
        assert_eq!(say(30, 60, Some(1)), [(0, 100, DeviceId(1))]);
        assert_eq!(say(0, u64::MAX, None), []);
        pins.change(PinChange::Container(ContainerId(1), Some(DeviceId(3))));
        pins.change(PinChange::Range(key, (10, 20), Some(DeviceId(2))));
        assert_eq!(pins.of(key, 0, 11), Some(DeviceId(2)));
        assert_eq!(pins.of(key, 20, 30), Some(DeviceId(3)));
        assert_eq!(pins.of(other, 0, 1), Some(DeviceId(3)));
        let mut bytes = Vec::new();
        pins.changes().for_each(|change| change.encode(&mut bytes));
        let mut from = Decoder::new(&bytes);
        let mut again = Pins::default();
        for _ in 0..2 {
            again.change(PinChange::decode(&mut from).unwrap());
        }
        assert!(again.changes().eq(pins.changes()) && from.end().is_ok());
        pins.change(PinChange::Container(ContainerId(1), None));
        assert!(pins.is_empty());
    }
}
