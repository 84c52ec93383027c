//! Neighbouring records in one stretch of memory.
//!
//! What a search looks at, the heads of the keys, is apart from what it finds: a get touches few cache lines, and going
//! from record to record touches neighbouring ones.

use cenote_model::Records;

#[cfg(test)]
use super::key::heads_agree;
use super::key::{head_of, search};
use super::{Record, RecordRef};

/// Records in a leaf…
pub(super) const RECORDS_MAX: usize = 64;
/// …and bytes of keys and values: more, and it is split.
pub(super) const BYTES_MAX: usize = 8 << 10;
/// Longer values have memory of their own.
const INLINE_MAX: usize = 1 << 10;

#[derive(Clone, Debug)]
enum Value {
    /// Behind its key.
    Inline(u32),
    Large(Box<[u8]>),
}

#[derive(Clone, Debug)]
struct Slot {
    epoch: u64,
    value: Value,
    /// Where the key begins in `bytes`.
    at: u32,
    key_len: u32,
}

impl Slot {
    /// Bytes that it has in the leaf's memory.
    fn len(&self) -> usize {
        self.key_len as usize
            + match &self.value {
                Value::Inline(len) => *len as usize,
                Value::Large(_) => 0,
            }
    }
}

/// Some records, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaf {
    heads: Vec<u64>,
    slots: Vec<Slot>,
    /// Keys and short values, in the order in which they came.
    bytes: Vec<u8>,
    /// Bytes that no slot names any more.
    dead: usize,
}

impl Leaf {
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Bytes of keys and short values.
    pub fn live_bytes(&self) -> usize {
        self.bytes.len() - self.dead
    }
    pub fn is_too_large(&self) -> bool {
        self.len() > RECORDS_MAX || self.live_bytes() > BYTES_MAX && self.len() > 1
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
            Value::Inline(len) => &self.bytes[slot.at as usize + slot.key_len as usize..][..*len as usize],
            Value::Large(value) => value,
        };
        RecordRef { epoch: slot.epoch, value }
    }
    /// Adds the records from `from` up to `to` (without it) to others. What lies side by side is copied in one go.
    pub fn copy(&self, from: usize, to: usize, records: &mut Records) {
        let mut at = from;
        while at < to {
            let first = &self.slots[at];
            if let Value::Large(value) = &first.value {
                records.push(self.key(at), value);
                at += 1;
                continue;
            }
            let begin = first.at as usize;
            let mut end = begin;
            let run = self.slots[at..to].iter().take_while(|slot| {
                let goes_on = slot.at as usize == end && matches!(slot.value, Value::Inline(_));
                end += if goes_on { slot.len() } else { 0 };
                goes_on
            });
            let run = &self.slots[at..at + run.count()];
            let lengths = run.iter().map(|slot| (slot.key_len as usize, slot.len() - slot.key_len as usize));
            records.push_run(&self.bytes[begin..end], lengths);
            at += run.len();
        }
    }
    /// Bytes of the keys and values of the records from `from` up to `to` (without it).
    pub fn size(&self, from: usize, to: usize) -> usize {
        let large = |slot: &Slot| if let Value::Large(value) = &slot.value { value.len() } else { 0 };
        self.slots[from..to].iter().map(|slot| slot.len() + large(slot)).sum()
    }
    /// Asks for its memory, so that it is there when an iteration comes to it.
    #[inline]
    pub fn touch(&self) {
        const LINE: usize = 64;
        let bytes = self.bytes.iter().step_by(LINE).fold(0, |sum: u8, byte| sum ^ byte);
        std::hint::black_box(bytes);
    }
    /// Where the key is, or where it would be.
    #[inline]
    pub fn search(&self, key: &[u8]) -> Result<usize, usize> {
        search(&self.heads, key, |i| self.key(i))
    }
    /// Adds a record at its place.
    pub fn insert(&mut self, i: usize, key: &[u8], record: Record) {
        let inline = record.value.len() <= INLINE_MAX;
        self.make_room(key.len() + if inline { record.value.len() } else { 0 });
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(key);
        let value = if inline {
            self.bytes.extend_from_slice(&record.value);
            Value::Inline(record.value.len() as u32)
        } else {
            Value::Large(record.value)
        };
        self.heads.insert(i, head_of(key));
        self.slots.insert(i, Slot { epoch: record.epoch, value, at, key_len: key.len() as u32 });
    }
    /// Changes the record at `i`, whose key is `key`; gives what it was.
    pub fn replace(&mut self, i: usize, key: &[u8], record: Record) -> Record {
        let old = self.record(i).to_owned();
        let slot = &mut self.slots[i];
        match &mut slot.value {
            Value::Inline(len) if *len as usize == record.value.len() => {
                let at = slot.at as usize + slot.key_len as usize;
                self.bytes[at..at + record.value.len()].copy_from_slice(&record.value);
                slot.epoch = record.epoch;
            }
            Value::Large(value) if record.value.len() > INLINE_MAX => {
                *value = record.value;
                slot.epoch = record.epoch;
            }
            _ => {
                self.forget(i);
                self.insert(i, key, record);
            }
        }
        old
    }
    /// Takes the record at `i` out.
    pub fn remove(&mut self, i: usize) -> Record {
        let old = self.record(i).to_owned();
        self.forget(i);
        self.tidy();
        old
    }
    fn forget(&mut self, i: usize) {
        self.heads.remove(i);
        self.dead += self.slots.remove(i).len();
    }
    /// The records from `i` on, as a leaf of their own.
    pub fn split_off(&mut self, i: usize) -> Self {
        let mut right = Self { heads: self.heads.split_off(i), slots: self.slots.split_off(i), ..Self::default() };
        right.bytes = packed(&mut right.slots, &self.bytes);
        self.bytes = packed(&mut self.slots, &self.bytes);
        self.dead = 0;
        right
    }
    /// Adds all records of the next leaf.
    pub fn append(&mut self, mut next: Self) {
        let base = self.bytes.len() as u32;
        next.slots.iter_mut().for_each(|slot| slot.at += base);
        self.bytes.append(&mut next.bytes);
        self.heads.append(&mut next.heads);
        self.slots.append(&mut next.slots);
        self.dead += next.dead;
        self.tidy();
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
        if self.dead > 512 + self.bytes.len() / 3 || self.slots.is_empty() {
            self.bytes = packed(&mut self.slots, &self.bytes);
            self.dead = 0;
        }
    }
    /// What is wrong with it, if anything is: order, heads, bytes that are counted or named by two.
    #[cfg(test)]
    pub fn fault(&self) -> Option<&'static str> {
        if !heads_agree(&self.heads, (0..self.len()).map(|i| self.key(i))) {
            return Some("the heads of a leaf are not those of its keys");
        }
        if (1..self.len()).any(|i| self.key(i - 1) >= self.key(i)) {
            return Some("the keys of a leaf are not in ascending order");
        }
        let mut spans: Vec<(usize, usize)> = self.slots.iter().map(|slot| (slot.at as usize, slot.len())).collect();
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Some("two records of a leaf have the same bytes");
        }
        if spans.iter().map(|(_, len)| len).sum::<usize>() != self.live_bytes() {
            return Some("the bytes of a leaf are not those of its records");
        }
        None
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        let large = |slot: &Slot| if let Value::Large(value) = &slot.value { value.len() + 16 } else { 0 };
        let large: usize = self.slots.iter().map(large).sum();
        let own = self.heads.capacity() * 8 + self.slots.capacity() * size_of::<Slot>() + self.bytes.capacity();
        (own + large + size_of::<Self>() + 3 * 16) as u64
    }
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
