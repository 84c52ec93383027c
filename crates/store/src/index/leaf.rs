//! Neighbouring records in one stretch of memory.
//!
//! What a search looks at, the heads of the keys, is apart from what it finds: a get touches few cache lines, and going
//! from record to record touches neighbouring ones. A head is the eight bytes behind what all keys of the leaf have in
//! common, in words of eight, so that keys like paths are told apart by it as well.

use std::cmp::Ordering;

use cenote_model::Records;

use super::value::{Away, Value, ValueRef};
use super::{Record, RecordRef};

/// Records in a leaf…
pub(super) const RECORDS_MAX: usize = 64;
/// …and bytes of keys and values: more, and it is split.
const BYTES_MAX: usize = 8 << 10;
/// Longer values have memory of their own.
const INLINE_MAX: usize = 1 << 10;

/// Bytes that a record takes besides its key and value.
pub(super) const RECORD_BYTES: u64 = (size_of::<u64>() + size_of::<Slot>()) as u64;

#[derive(Clone, Debug)]
enum Stored {
    /// Behind its key: its length.
    Inline(u32),
    Large(Box<[u8]>),
    Away(Box<Away>),
}

#[derive(Clone, Debug)]
struct Slot {
    epoch: u64,
    value: Stored,
    /// Where the key begins in `bytes`.
    at: u32,
    key_len: u32,
}

impl Slot {
    /// Bytes that it has in the leaf's memory.
    fn len(&self) -> usize {
        self.key_len as usize + if let Stored::Inline(len) = self.value { len as usize } else { 0 }
    }
    fn value_len(&self) -> usize {
        match &self.value {
            Stored::Inline(len) => *len as usize,
            Stored::Large(value) => value.len(),
            Stored::Away(away) => away.len as usize,
        }
    }
}

/// Some records, in ascending order.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    /// Of each key the first bytes behind those that all have in common, as a number that orders like them.
    heads: Vec<u64>,
    slots: Vec<Slot>,
    /// Keys and short values, in the order in which they came.
    bytes: Vec<u8>,
    /// Bytes that no slot names any more.
    dead: u32,
    /// Bytes that all keys begin with, at least.
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
    /// True if it should be joined with a neighbour.
    pub fn is_sparse(&self) -> bool {
        self.len() < RECORDS_MAX / 4 && self.live_bytes() < BYTES_MAX / 4
    }
    /// True if this leaf and the next are together small enough not to be split again soon.
    pub fn may_take(&self, next: &Self) -> bool {
        self.len() + next.len() <= RECORDS_MAX * 3 / 4 && self.live_bytes() + next.live_bytes() <= BYTES_MAX * 3 / 4
    }
    #[inline]
    pub fn key(&self, i: usize) -> &[u8] {
        let slot = &self.slots[i];
        &self.bytes[slot.at as usize..][..slot.key_len as usize]
    }
    #[inline]
    pub fn record(&self, i: usize) -> RecordRef<'_> {
        let slot = &self.slots[i];
        let value = match &slot.value {
            Stored::Inline(len) => ValueRef::Here(&self.bytes[(slot.at + slot.key_len) as usize..][..*len as usize]),
            Stored::Large(value) => ValueRef::Here(value),
            Stored::Away(away) => ValueRef::Away(away),
        };
        RecordRef { epoch: slot.epoch, value }
    }
    pub fn records(&self) -> impl Iterator<Item = (&[u8], RecordRef<'_>)> {
        (0..self.len()).map(|i| (self.key(i), self.record(i)))
    }

    /// Where the key is, or where it would be.
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
        let key = &key[common.min(key.len())..];
        let head = head_of(key);
        // Counted rather than searched: all cache lines of the heads are fetched at once.
        let mut low = self.heads.iter().map(|other| usize::from(*other < head)).sum();
        let mut high = low + self.heads[low..].iter().take_while(|other| **other == head).count();
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle)[common..].cmp(key) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Adds a record at its place.
    pub fn insert(&mut self, i: usize, key: &[u8], record: Record) {
        self.fit_common(key);
        let (inline, value) = match record.value {
            Value::Here(value) if value.len() <= INLINE_MAX => {
                let len = value.len() as u32;
                (value, Stored::Inline(len))
            }
            Value::Here(value) => (Box::default(), Stored::Large(value)),
            Value::Away(away) => (Box::default(), Stored::Away(away)),
        };
        self.make_room(key.len() + inline.len());
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(&inline);
        self.heads.insert(i, head_of(&key[self.common as usize..]));
        self.slots.insert(i, Slot { epoch: record.epoch, value, at, key_len: key.len() as u32 });
    }
    /// Changes a record; gives what it was.
    pub fn replace(&mut self, i: usize, key: &[u8], record: Record) -> Record {
        let old = self.record(i).to_owned();
        let slot = &mut self.slots[i];
        match (&mut slot.value, record.value) {
            (Stored::Inline(len), Value::Here(value)) if *len as usize == value.len() => {
                let at = (slot.at + slot.key_len) as usize;
                self.bytes[at..at + value.len()].copy_from_slice(&value);
                slot.epoch = record.epoch;
            }
            (Stored::Large(place), Value::Here(value)) if value.len() > INLINE_MAX => {
                *place = value;
                slot.epoch = record.epoch;
            }
            (_, value) => {
                self.forget(i);
                self.insert(i, key, Record { value, ..record });
            }
        }
        old
    }
    /// The value of a record is in the value log from now on.
    pub fn spill(&mut self, i: usize, away: &Away) {
        let slot = &mut self.slots[i];
        if let Stored::Inline(len) = slot.value {
            self.dead += len;
        }
        slot.value = Stored::Away(Box::new(away.clone()));
        self.tidy();
    }
    /// Takes a record out.
    pub fn remove(&mut self, i: usize) -> Record {
        let old = self.record(i).to_owned();
        self.forget(i);
        self.tidy();
        old
    }
    fn forget(&mut self, i: usize) {
        self.heads.remove(i);
        self.dead += self.slots.remove(i).len() as u32;
    }
    /// The upper records as a leaf of their own: half of them, or the last alone if it was just put there, since keys
    /// that ascend would leave halves behind.
    pub fn split_off(&mut self, put_at: usize) -> Self {
        let at = if put_at + 1 == self.len() { put_at } else { self.len() / 2 };
        let mut right = Self { slots: self.slots.split_off(at), ..Self::default() };
        right.bytes = packed(&mut right.slots, &self.bytes);
        right.find_common();
        self.pack();
        self.find_common();
        right
    }
    /// Adds all records of the next leaf.
    pub fn append(&mut self, mut next: Self) {
        let base = self.bytes.len() as u32;
        next.slots.iter_mut().for_each(|slot| slot.at += base);
        self.bytes.append(&mut next.bytes);
        self.slots.append(&mut next.slots);
        self.dead += next.dead;
        self.tidy();
        self.find_common();
    }

    /// A key that joins has less in common with the others, perhaps.
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
    /// What all keys have in common are the first and the last, since they are in order.
    fn find_common(&mut self) {
        self.common = match self.len() {
            0 => 0,
            len => whole_words(common_len(self.key(0), self.key(len - 1))),
        };
        self.find_heads();
    }
    fn find_heads(&mut self) {
        let mut heads = std::mem::take(&mut self.heads);
        heads.clear();
        heads.extend((0..self.len()).map(|i| head_of(&self.key(i)[self.common as usize..])));
        self.heads = heads;
    }
    /// Grows by halves rather than doubling: a store is mostly leaves.
    fn make_room(&mut self, more: usize) {
        self.tidy();
        if self.bytes.capacity() - self.bytes.len() < more {
            self.bytes.reserve_exact(more.max(self.bytes.len() / 2).max(64));
        }
        if self.slots.len() == self.slots.capacity() {
            let more = (self.slots.len() / 2).max(2);
            self.slots.reserve_exact(more);
            self.heads.reserve_exact(more);
        }
    }
    /// Packs the bytes once a third of them are dead.
    fn tidy(&mut self) {
        if self.dead as usize > 512 + self.bytes.len() / 3 || self.slots.is_empty() {
            self.pack();
        }
    }
    fn pack(&mut self) {
        self.bytes = packed(&mut self.slots, &self.bytes);
        self.dead = 0;
    }

    /// Adds the records from `from` up to `to` (without it) to others; what lies side by side is copied in one go. Of
    /// values in the value log `missing` gets the number of the record and where they are.
    pub fn copy(&self, from: usize, to: usize, records: &mut Records, missing: &mut Vec<(usize, Away)>) {
        let mut at = from;
        while at < to {
            let first = &self.slots[at];
            match &first.value {
                Stored::Inline(_) => {
                    let begin = first.at as usize;
                    let mut end = begin;
                    let run = self.slots[at..to].iter().take_while(|slot| {
                        let goes_on = slot.at as usize == end && matches!(slot.value, Stored::Inline(_));
                        end += if goes_on { slot.len() } else { 0 };
                        goes_on
                    });
                    let run = &self.slots[at..at + run.count()];
                    let lengths = run.iter().map(|slot| (slot.key_len as usize, slot.value_len()));
                    records.push_run(&self.bytes[begin..end], lengths);
                    at += run.len();
                    continue;
                }
                Stored::Large(value) => records.push(self.key(at), value),
                Stored::Away(away) => {
                    missing.push((records.len(), Away::clone(away)));
                    records.push_zeros(self.key(at), away.len as usize);
                }
            }
            at += 1;
        }
    }
    /// Bytes of the keys and values of the records from `from` up to `to` (without it).
    pub fn size(&self, from: usize, to: usize) -> usize {
        self.slots[from..to].iter().map(|slot| slot.key_len as usize + slot.value_len()).sum()
    }
    /// Asks for its memory, so that it is there when an iteration comes to it.
    #[inline]
    pub fn touch(&self) {
        const LINE: usize = 64;
        std::hint::black_box(self.bytes.iter().step_by(LINE).fold(0, |sum: u8, byte| sum ^ byte));
    }

    /// What is wrong with it, if anything is.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..self.len()).all(|i| self.key(i - 1) < self.key(i)) {
            return Err("its records are not in ascending order");
        }
        let common = self.common as usize;
        let is_head = |(i, head): (usize, &u64)| {
            self.key(i).len() >= common
                && self.key(i)[..common] == self.key(0)[..common]
                && *head == head_of(&self.key(i)[common..])
        };
        if self.heads.len() != self.len() || !self.heads.iter().enumerate().all(is_head) {
            return Err("its heads are not those of its keys");
        }
        let live: usize = self.slots.iter().map(Slot::len).sum();
        if live == self.live_bytes() { Ok(()) } else { Err("a leaf counts its bytes wrongly") }
    }
}

/// How many bytes two keys begin with alike.
pub(super) fn common_len(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

/// Fewer bytes than a word are no gain, and would have the first key looked at in each search.
fn whole_words(bytes: usize) -> u32 {
    (bytes & !7) as u32
}

/// The first eight bytes as a number that orders like them; fewer are filled up with zeros.
#[inline]
fn head_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}

/// The bytes of some slots in their order, taken from `bytes`; the slots name their new places from then on.
fn packed(slots: &mut [Slot], bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::with_capacity(slots.iter().map(Slot::len).sum());
    for slot in slots {
        let from = slot.at as usize;
        slot.at = packed.len() as u32;
        packed.extend_from_slice(&bytes[from..from + slot.len()]);
    }
    packed
}
