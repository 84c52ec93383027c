//! An index: ordered records in memory.
//!
//! The standard library's ordered map with what the engine counts beside it (`docs/dependencies.md`, "Ordered maps", says
//! what was measured). It knows nothing of transactions: whoever changes it keeps what was there.

mod key;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use cenote_model::Records;
pub(crate) use key::Key;

/// A value with the epoch at which it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub epoch: u64,
    pub value: Box<[u8]>,
}

impl Record {
    pub fn by_ref(&self) -> RecordRef<'_> {
        RecordRef { epoch: self.epoch, value: &self.value }
    }
}

/// The same where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordRef<'a> {
    pub epoch: u64,
    pub value: &'a [u8],
}

impl RecordRef<'_> {
    #[cfg(test)]
    pub fn to_owned(self) -> Record {
        Record { epoch: self.epoch, value: self.value.into() }
    }
}

/// What an index had that did not belong there. Cenote before November 2026 could lose the order of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Disorder {
    /// Records of a checkpoint behind one with a key that is not less.
    pub misplaced: u64,
    /// Records of a key that was there already; those set last are kept.
    pub twice: u64,
    /// Changes in the journal that did not see what was there: new keys that were known, or deletions of what was gone.
    pub blind: u64,
}

impl Disorder {
    pub fn add(&mut self, more: Self) {
        self.misplaced += more.misplaced;
        self.twice += more.twice;
        self.blind += more.blind;
    }
}

impl std::fmt::Display for Disorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { misplaced, twice, blind } = self;
        write!(
            f,
            "an earlier version of Cenote lost the order of this index: {misplaced} records were in the wrong place, \
             {twice} were there twice (those set last are kept), {blind} changes had not seen what was there; the index is \
             in order now, but records that had been deleted may be back: compare it with what should be there"
        )
    }
}

/// An index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    records: BTreeMap<Key, Record>,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Bytes of keys that have memory of their own.
    long_keys: u64,
    /// The container's cut count when it was created.
    pub created: u32,
}

impl Index {
    /// Empty; `created` is the container's cut count.
    pub fn new(created: u32) -> Self {
        Self { created, ..Self::default() }
    }
    pub fn len(&self) -> u64 {
        self.records.len() as u64
    }
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        self.records.get(key).map(Record::by_ref)
    }
    /// Sets a record; gives what it replaced.
    pub fn put(&mut self, key: &[u8], record: Record) -> Option<Record> {
        let (own, bytes) = (Key::new(key), record.value.len() as u64);
        let own_bytes = own.heap_bytes();
        let old = self.records.insert(own, record);
        self.bytes += bytes;
        if let Some(old) = &old {
            self.bytes -= old.value.len() as u64;
        } else {
            self.bytes += key.len() as u64;
            self.long_keys += own_bytes;
        }
        old
    }
    pub fn del(&mut self, key: &[u8]) -> Option<Record> {
        let (own, old) = self.records.remove_entry(key)?;
        self.long_keys -= own.heap_bytes();
        self.bytes -= (old.value.len() + key.len()) as u64;
        Some(old)
    }
    /// Records from a bound on, ascending.
    pub fn range(&self, from: Bound<&[u8]>) -> Range<'_> {
        Range(self.records.range::<[u8], _>((from, Bound::Unbounded)))
    }
    /// Up to `limit` records from a bound on whose keys begin with `prefix`, at least one and otherwise at most `bytes_max`
    /// bytes of them; and whether there are more. The bound must not be before the prefix.
    pub fn copy(&self, from: Bound<&[u8]>, prefix: &[u8], limit: usize, bytes_max: usize) -> (Records, bool) {
        let room = limit.min(self.records.len());
        let bytes = room * (self.bytes / self.len().max(1)) as usize * 9 / 8;
        let mut records = Records::with_capacity(room.min(1024), bytes.min(bytes_max).min(1 << 20));
        for (key, record) in self.range(from) {
            if !key.starts_with(prefix) {
                return (records, false);
            }
            let bytes = records.bytes().len() + key.len() + record.value.len();
            if records.len() >= limit || bytes > bytes_max && !records.is_empty() {
                return (records, true);
            }
            records.push(key, record.value);
        }
        (records, false)
    }
    /// Adds the records of a checkpoint. They should be in ascending order; of several with one key the one set last counts.
    pub fn load(&mut self, records: Vec<(Key, Record)>) -> Disorder {
        let mut disorder = Disorder::default();
        for (key, record) in records {
            if self.records.last_key_value().is_some_and(|(last, _)| key <= *last) {
                disorder.misplaced += 1;
                if let Some(known) = self.get(key.bytes()) {
                    disorder.twice += 1;
                    if known.epoch >= record.epoch {
                        continue;
                    }
                }
            }
            self.put(key.bytes(), record);
        }
        disorder
    }
    /// Forgets some records, at least `count` if there are so many; true if none is left.
    pub fn forget(&mut self, count: usize) -> bool {
        for _ in 0..count {
            let Some((key, record)) = self.records.pop_last() else { return true };
            self.long_keys -= key.heap_bytes();
            self.bytes -= (key.bytes().len() + record.value.len()) as u64;
        }
        self.records.is_empty()
    }
    /// What is wrong with what it counts, if anything is. Takes time in proportion to its records.
    pub fn check(&self) -> Result<(), &'static str> {
        let (mut bytes, mut long_keys, mut last) = (0, 0, None);
        for (key, record) in &self.records {
            if last.is_some_and(|last: &Key| last >= key) {
                return Err("its records are not in ascending order");
            }
            last = Some(key);
            bytes += (key.bytes().len() + record.value.len()) as u64;
            long_keys += key.heap_bytes();
        }
        if (bytes, long_keys) == (self.bytes, self.long_keys) { Ok(()) } else { Err("it counts its bytes wrongly") }
    }
    /// Bytes of memory, about: nodes of the map are some two thirds full, and allocations carry some 16 bytes.
    pub fn memory_bytes(&self) -> u64 {
        const ENTRY: u64 = (size_of::<Key>() + size_of::<Record>()) as u64;
        const OVERHEAD: u64 = 16;
        self.len() * (ENTRY * 3 / 2 + OVERHEAD) + self.bytes + self.long_keys
    }
}

/// Records in order. See [`Index::range`].
pub(crate) struct Range<'a>(btree_map::Range<'a, Key, Record>);

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], RecordRef<'a>);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(key, record)| (key.bytes(), record.by_ref()))
    }
}
