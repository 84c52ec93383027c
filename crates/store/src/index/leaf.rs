//! Leaf of an index: neighbouring records in one stretch of memory.
//!
//! A search reads the heads of the keys, which are stored apart from the records: a get touches few cache lines, and a
//! walk from record to record touches neighbouring ones. A head is the eight bytes after the common prefix of all keys
//! of the leaf, which is a multiple of eight bytes, so that keys like paths also differ in their heads. The place of
//! each key is beside its head: the wait for the key's memory begins as soon as the heads are there, and runs beside
//! that for the slot's memory.

use std::cmp::Ordering;

use cenote_model::Records;

use super::value::{Away, Value, ValueRef};
use super::{Record, RecordRef};

/// Most records in a leaf…
pub(super) const RECORDS_MAX: usize = 64;
/// …and most bytes of keys and values; beyond either it is split.
const BYTES_MAX: usize = 8 << 10;
/// Longer values have memory of their own.
const INLINE_MAX: usize = 1 << 10;

/// Bytes that a record takes besides its key and value.
pub(super) const RECORD_BYTES: u64 = (size_of::<KeyPosition>() + size_of::<Slot>()) as u64;

/// The part of a record that a search reads.
#[derive(Clone, Copy, Debug)]
struct KeyPosition {
    /// The first bytes of the key after the common prefix, as a number that orders like them.
    head: u64,
    /// Where the key begins in `bytes`.
    at: u32,
    key_len: u32,
}

/// The rest of a record.
#[derive(Clone, Debug)]
struct Slot {
    epoch: u64,
    value_len: u32,
    /// A value that is not stored after its key.
    apart: Option<Box<Apart>>,
}

#[derive(Clone, Debug)]
enum Apart {
    Large(Box<[u8]>),
    Away(Away),
}

impl KeyPosition {
    #[inline]
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.at as usize..][..self.key_len as usize]
    }
    /// Bytes of the record in the leaf's memory.
    #[inline]
    fn len(&self, slot: &Slot) -> usize {
        self.key_len as usize + if slot.apart.is_none() { slot.value_len as usize } else { 0 }
    }
}

/// Some records, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    places: Vec<KeyPosition>,
    slots: Vec<Slot>,
    /// Keys and short values, in order of insertion.
    bytes: Vec<u8>,
    /// Bytes that no slot names any more.
    dead: u32,
    /// Length of a prefix that all keys share; it may be shorter than the longest.
    common: u32,
}

impl Leaf {
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Bytes of keys and short values.
    fn live_bytes(&self) -> usize {
        self.bytes.len() - self.dead as usize
    }
    pub fn is_too_large(&self) -> bool {
        self.len() > RECORDS_MAX || self.live_bytes() > BYTES_MAX && self.len() > 1
    }
    /// Returns true if it should be joined with a neighbour.
    pub fn is_sparse(&self) -> bool {
        self.len() < RECORDS_MAX / 4 && self.live_bytes() < BYTES_MAX / 4
    }
    /// Returns true if this leaf and the next are together small enough not to be split again soon.
    pub fn may_take(&self, next: &Self) -> bool {
        self.len() + next.len() <= RECORDS_MAX * 3 / 4 && self.live_bytes() + next.live_bytes() <= BYTES_MAX * 3 / 4
    }
    #[inline]
    pub fn key(&self, i: usize) -> &[u8] {
        self.places[i].key(&self.bytes)
    }
    #[inline]
    pub fn record(&self, i: usize) -> RecordRef<'_> {
        let (KeyPosition { at, key_len, .. }, slot) = (self.places[i], &self.slots[i]);
        let value = match slot.apart.as_deref() {
            None => ValueRef::Here(&self.bytes[(at + key_len) as usize..][..slot.value_len as usize]),
            Some(Apart::Large(value)) => ValueRef::Here(value),
            Some(Apart::Away(away)) => ValueRef::Away(away),
        };
        RecordRef { epoch: slot.epoch, value }
    }
    /// The places and slots of the records from `from` up to `to` (without it).
    #[inline]
    fn both(&self, from: usize, to: usize) -> impl Iterator<Item = (&KeyPosition, &Slot)> {
        self.places[from..to].iter().zip(&self.slots[from..to])
    }
    pub fn records(&self) -> impl Iterator<Item = (&[u8], RecordRef<'_>)> {
        (0..self.len()).map(|i| (self.key(i), self.record(i)))
    }

    /// Returns the position of a key that is there. Does not compare the common prefix: a key without it does not match
    /// any key in full.
    #[inline]
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.search_alike(key.get(self.common as usize..)?, key).ok()
    }
    /// Returns the position of a key, or where it would be inserted.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        let common = self.common as usize;
        if common > 0 && !self.slots.is_empty() {
            match key[..key.len().min(common)].cmp(&self.key(0)[..common]) {
                Ordering::Less => return Err(0),
                Ordering::Greater => return Err(self.len()),
                Ordering::Equal => {}
            }
        }
        self.search_alike(&key[common.min(key.len())..], key)
    }
    /// Returns the same for a key with the common prefix; `rest` is the key after that prefix.
    #[inline]
    fn search_alike(&self, rest: &[u8], key: &[u8]) -> Result<usize, usize> {
        let head = head_of(rest);
        // Count rather than search: all cache lines of the heads are fetched at once.
        let mut low = self.places.iter().map(|other| usize::from(other.head < head)).sum();
        let mut high = low + self.places[low..].iter().take_while(|other| other.head == head).count();
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle).cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Inserts a record at its position.
    pub fn insert(&mut self, i: usize, key: &[u8], record: Record) {
        self.fit_common(key);
        let value_len = record.value.len() as u32;
        let (inline, apart) = match record.value {
            Value::Here(value) if value.len() <= INLINE_MAX => (value, None),
            Value::Here(value) => (Box::default(), Some(Box::new(Apart::Large(value)))),
            Value::Away(away) => (Box::default(), Some(Box::new(Apart::Away(*away)))),
        };
        self.make_room(key.len() + inline.len());
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(&inline);
        let head = head_of(&key[self.common as usize..]);
        self.places.insert(i, KeyPosition { head, at, key_len: key.len() as u32 });
        self.slots.insert(i, Slot { epoch: record.epoch, value_len, apart });
    }
    /// Changes a record; returns the old one.
    pub fn replace(&mut self, i: usize, key: &[u8], record: Record) -> Record {
        let old = self.record(i).to_owned();
        let (place, slot) = (self.places[i], &mut self.slots[i]);
        match record.value {
            Value::Here(value) if slot.apart.is_none() && slot.value_len as usize == value.len() => {
                let at = (place.at + place.key_len) as usize;
                self.bytes[at..at + value.len()].copy_from_slice(&value);
                slot.epoch = record.epoch;
            }
            value => {
                self.forget(i);
                self.insert(i, key, Record { value, ..record });
            }
        }
        old
    }
    /// Moves the value of a record to the value log.
    pub fn spill(&mut self, i: usize, away: &Away) {
        let slot = &mut self.slots[i];
        if slot.apart.is_none() {
            self.dead += slot.value_len;
        }
        (slot.value_len, slot.apart) = (away.len, Some(Box::new(Apart::Away(away.clone()))));
        self.tidy();
    }
    /// Removes a record.
    pub fn remove(&mut self, i: usize) -> Record {
        let old = self.record(i).to_owned();
        self.forget(i);
        self.tidy();
        old
    }
    fn forget(&mut self, i: usize) {
        let (place, slot) = (self.places.remove(i), self.slots.remove(i));
        self.dead += place.len(&slot) as u32;
    }
    /// Splits the upper records off: half of them, or the last alone if it was just put there, since ascending keys
    /// would leave half-full leaves behind.
    pub fn split_off(&mut self, put_at: usize) -> Self {
        let at = if put_at + 1 == self.len() { put_at } else { self.len() / 2 };
        let mut right = Self { places: self.places.split_off(at), slots: self.slots.split_off(at), ..Self::default() };
        right.bytes = packed(&mut right.places, &right.slots, &self.bytes);
        right.find_common();
        self.pack();
        self.find_common();
        right
    }
    /// Appends all records of the next leaf.
    pub fn append(&mut self, mut next: Self) {
        let base = self.bytes.len() as u32;
        next.places.iter_mut().for_each(|place| place.at += base);
        self.bytes.append(&mut next.bytes);
        self.places.append(&mut next.places);
        self.slots.append(&mut next.slots);
        self.dead += next.dead;
        self.tidy();
        self.find_common();
    }

    /// Shortens the common prefix, if the new key shares less of it.
    fn fit_common(&mut self, key: &[u8]) {
        if self.slots.is_empty() {
            self.common = whole_words(key.len());
            return;
        }
        if self.common == 0 {
            return;
        }
        let common = whole_words(common_len(&self.key(0)[..self.common as usize], key));
        if common < self.common {
            self.common = common;
            self.find_heads();
        }
    }
    /// Finds the common prefix: that of the first and the last key, since keys are in order.
    fn find_common(&mut self) {
        self.common = match self.len() {
            0 => 0,
            len => whole_words(common_len(self.key(0), self.key(len - 1))),
        };
        self.find_heads();
    }
    fn find_heads(&mut self) {
        for place in &mut self.places {
            place.head = head_of(&place.key(&self.bytes)[self.common as usize..]);
        }
    }
    /// Grows by halves rather than doubling: a store is mostly leaves.
    fn make_room(&mut self, more: usize) {
        self.tidy();
        if self.bytes.capacity() - self.bytes.len() < more {
            self.bytes.reserve_exact(more.max(self.bytes.len() / 2).max(64));
        }
        if self.slots.len() == self.slots.capacity() {
            let more = (self.slots.len() / 2).max(2);
            self.places.reserve_exact(more);
            self.slots.reserve_exact(more);
        }
    }
    /// Compacts the bytes once a third of them are dead.
    fn tidy(&mut self) {
        if self.dead as usize > 512 + self.bytes.len() / 3 || self.slots.is_empty() {
            self.pack();
        }
    }
    fn pack(&mut self) {
        self.bytes = packed(&mut self.places, &self.slots, &self.bytes);
        self.dead = 0;
    }

    /// Copies the records from `from` up to `to` (without it) to `records`; neighbours in memory are copied together.
    /// Values in the value log go to `missing`: the record's number and the value's place.
    pub fn copy(&self, from: usize, to: usize, records: &mut Records, missing: &mut Vec<(usize, Away)>) {
        let mut at = from;
        while at < to {
            match self.slots[at].apart.as_deref() {
                None => {
                    let begin = self.places[at].at as usize;
                    let mut end = begin;
                    let run = self.both(at, to).take_while(|(place, slot)| {
                        let goes_on = place.at as usize == end && slot.apart.is_none();
                        end += if goes_on { (place.key_len + slot.value_len) as usize } else { 0 };
                        goes_on
                    });
                    let behind = at + run.count();
                    let run = self.both(at, behind);
                    let lengths = run.map(|(place, slot)| (place.key_len as usize, slot.value_len as usize));
                    records.push_run(&self.bytes[begin..end], lengths);
                    at = behind;
                    continue;
                }
                Some(Apart::Large(value)) => records.push(self.key(at), value),
                Some(Apart::Away(away)) => {
                    missing.push((records.len(), away.clone()));
                    records.push_zeros(self.key(at), away.len as usize);
                }
            }
            at += 1;
        }
    }
    /// Bytes of the keys and values of the records from `from` up to `to` (without it).
    pub fn size(&self, from: usize, to: usize) -> usize {
        self.both(from, to).map(|(place, slot)| place.key_len as usize + slot.value_len as usize).sum()
    }
    /// Prefetches its memory, so that it is there when an iteration comes to it.
    #[inline]
    pub fn touch(&self) {
        const LINE: usize = 64;
        std::hint::black_box(self.bytes.iter().step_by(LINE).fold(0, |sum: u8, byte| sum ^ byte));
    }

    /// Checks the leaf. Fails with what is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..self.len()).all(|i| self.key(i - 1) < self.key(i)) {
            return Err("its records are not in ascending order");
        }
        let common = self.common as usize;
        let is_head = |place: &KeyPosition| {
            let key = place.key(&self.bytes);
            key.len() >= common && key[..common] == self.key(0)[..common] && place.head == head_of(&key[common..])
        };
        if self.places.len() != self.len() || !self.places.iter().all(is_head) {
            return Err("its heads are not those of its keys");
        }
        let is_value = |slot: &Slot| match slot.apart.as_deref() {
            None => slot.value_len as usize <= INLINE_MAX,
            Some(Apart::Large(value)) => value.len() == slot.value_len as usize && value.len() > INLINE_MAX,
            Some(Apart::Away(away)) => away.len == slot.value_len,
        };
        if !self.slots.iter().all(is_value) {
            return Err("its values are not where they should be");
        }
        let live: usize = self.both(0, self.len()).map(|(place, slot)| place.len(slot)).sum();
        if live == self.live_bytes() { Ok(()) } else { Err("a leaf counts its bytes wrongly") }
    }
}

/// Length of the common prefix of two keys.
pub(super) fn common_len(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Rounds down to whole words: fewer bytes than a word gain nothing, and would make each search read the first key.
fn whole_words(bytes: usize) -> u32 {
    (bytes & !7) as u32
}

/// The first eight bytes as a number that orders like them, padded with zeros.
#[inline]
fn head_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}

/// Returns the bytes of some records in their order, copied from `bytes`, and updates their places.
fn packed(places: &mut [KeyPosition], slots: &[Slot], bytes: &[u8]) -> Vec<u8> {
    let len = places.iter().zip(slots).map(|(place, slot)| place.len(slot)).sum();
    let mut packed = Vec::with_capacity(len);
    for (place, slot) in places.iter_mut().zip(slots) {
        let from = place.at as usize;
        place.at = packed.len() as u32;
        packed.extend_from_slice(&bytes[from..from + place.len(slot)]);
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_takes_five_words_besides_its_bytes() {
        assert_eq!(RECORD_BYTES, 40);
        assert_eq!(size_of::<Apart>(), size_of::<Away>());
    }

    /// Keys that match a key of the leaf after the common prefix, but have another prefix.
    #[test]
    fn keys_of_another_beginning_are_not_found() {
        let mut leaf = Leaf::default();
        for (i, key) in [b"a beginning/1", b"a beginning/3"].iter().enumerate() {
            leaf.insert(i, *key, Record { epoch: 1, value: Value::Here(Box::default()) });
        }
        assert_eq!(leaf.common, 8);
        assert_eq!((leaf.find(b"a beginning/3"), leaf.search(b"a beginning/3")), (Some(1), Ok(1)));
        for (key, at) in
            [(&b"a bEginning/3"[..], 0), (b"b beginning/3", 2), (b"a be", 0), (b"b", 2), (b"a beginning/2", 1)]
        {
            assert_eq!((leaf.find(key), leaf.search(key)), (None, Err(at)), "{}", key.escape_ascii());
        }
    }
}
