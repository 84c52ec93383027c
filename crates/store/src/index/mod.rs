//! An index: ordered records in memory.
//!
//! The standard library's ordered map with what the engine counts beside it (`docs/dependencies.md`, "Ordered maps", says
//! what was measured). It knows nothing of transactions: whoever changes it keeps what was there. Records of a checkpoint
//! come into the map when the first of them is asked for.

mod encoded;
mod key;
#[cfg(test)]
mod tests;
mod value;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use cenote_model::Records;
pub(crate) use encoded::{Counts, Encoded};
pub(crate) use key::Key;
pub(crate) use value::{Away, Batch, Value, digest};

/// A value with the epoch at which it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub epoch: u64,
    pub value: Value,
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
    pub value: &'a Value,
}

impl RecordRef<'_> {
    #[cfg(test)]
    pub fn to_owned(self) -> Record {
        Record { epoch: self.epoch, value: self.value.clone() }
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
    /// Empty as long as they are in `encoded`.
    records: OnceCell<BTreeMap<Key, Record>>,
    /// The records of a checkpoint, until they are asked for.
    encoded: RefCell<Option<Encoded>>,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Bytes of keys that have memory of their own.
    long_keys: u64,
    /// Values in the value log, and their bytes.
    pub away: u64,
    pub away_bytes: u64,
    /// Bytes of values in memory that may go there.
    pub spillable: u64,
    /// The container's cut count when it was created.
    pub created: u32,
}

impl Index {
    /// Empty; `created` is the container's cut count.
    pub fn new(created: u32) -> Self {
        Self { created, ..Self::default() }
    }
    /// With the records of a checkpoint as they are there; `counts` is what they come to.
    pub fn of_encoded(created: u32, encoded: Encoded, counts: Counts) -> Self {
        let Counts { bytes, long_keys, spillable, .. } = counts;
        Self { created, encoded: RefCell::new(Some(encoded)), bytes, long_keys, spillable, ..Self::default() }
    }
    /// The records as a checkpoint has them, if nobody has asked for one since.
    pub fn encoded(&self) -> Option<Encoded> {
        self.encoded.borrow().clone()
    }
    /// Bytes of what is encoded still, and those that are in memory for it, with what others have there.
    pub fn encoded_bytes(&self) -> (u64, u64) {
        self.encoded.borrow().as_ref().map_or((0, 0), |encoded| (encoded.bytes(), encoded.kept_bytes()))
    }
    /// What is encoded still gets memory of its own.
    pub fn leave_checkpoint(&mut self) {
        let encoded = self.encoded.get_mut();
        *encoded = encoded.take().map(|shared| shared.alone());
    }
    #[inline]
    fn map(&self) -> &BTreeMap<Key, Record> {
        self.records.get_or_init(|| Self::decode(&self.encoded))
    }
    #[inline]
    fn map_mut(&mut self) -> &mut BTreeMap<Key, Record> {
        let Self { records, encoded, .. } = self;
        records.get_or_init(|| Self::decode(encoded));
        records.get_mut().expect("it was made just now")
    }
    #[cold]
    fn decode(encoded: &RefCell<Option<Encoded>>) -> BTreeMap<Key, Record> {
        encoded.take().map_or_else(BTreeMap::new, |encoded| encoded.decoded().collect())
    }
    pub fn len(&self) -> u64 {
        let encoded = || self.encoded.borrow().as_ref().map_or(0, Encoded::len);
        self.records.get().map_or_else(encoded, |records| records.len() as u64)
    }
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        self.map().get(key).map(Record::by_ref)
    }
    /// Sets a record; gives what it replaced.
    pub fn put(&mut self, key: &[u8], record: Record) -> Option<Record> {
        let own = Key::new(key);
        let own_bytes = own.heap_bytes();
        self.count(&record.value);
        let old = self.map_mut().insert(own, record);
        if let Some(old) = &old {
            self.discount(&old.value);
        } else {
            self.bytes += key.len() as u64;
            self.long_keys += own_bytes;
        }
        old
    }
    pub fn del(&mut self, key: &[u8]) -> Option<Record> {
        let (own, old) = self.map_mut().remove_entry(key)?;
        self.long_keys -= own.heap_bytes();
        self.bytes -= key.len() as u64;
        self.discount(&old.value);
        Some(old)
    }
    /// The value of a record, if that is still the one of this epoch, is in the value log from now on.
    pub fn spill(&mut self, key: &[u8], epoch: u64, away: &Away) {
        let is_it = |record: &&mut Record| record.epoch == epoch && record.value.len() == away.len as usize;
        let Some(record) = self.map_mut().get_mut(key).filter(is_it) else { return };
        let value = Value::Away(Box::new(away.clone()));
        let was = std::mem::replace(&mut record.value, value.clone());
        self.count(&value);
        self.discount(&was);
    }
    #[inline]
    fn count(&mut self, value: &Value) {
        let bytes = value.len() as u64;
        self.bytes += bytes;
        if value.may_spill() {
            self.spillable += bytes;
        } else if value.here().is_none() {
            self.away += 1;
            self.away_bytes += bytes;
        }
    }
    #[inline]
    fn discount(&mut self, value: &Value) {
        let bytes = value.len() as u64;
        self.bytes -= bytes;
        if value.may_spill() {
            self.spillable -= bytes;
        } else if value.here().is_none() {
            self.away -= 1;
            self.away_bytes -= bytes;
        }
    }
    /// Records from a bound on, ascending.
    pub fn range(&self, from: Bound<&[u8]>) -> Range<'_> {
        Range(self.map().range::<[u8], _>((from, Bound::Unbounded)))
    }
    /// Up to `limit` records from a bound on whose keys begin with `prefix`, at least one and otherwise at most `bytes_max`
    /// bytes of them; and whether there are more. The bound must not be before the prefix. Of values in the value log
    /// `missing` gets the number of the record and where they are; as long as they are not read they are zeros.
    pub fn copy(
        &self,
        from: Bound<&[u8]>,
        prefix: &[u8],
        (limit, bytes_max): (usize, usize),
        missing: &mut Vec<(usize, Away)>,
    ) -> (Records, bool) {
        let room = limit.min(self.map().len());
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
            match record.value {
                Value::Here(value) => records.push(key, value),
                Value::Away(away) => {
                    missing.push((records.len(), Away::clone(away)));
                    records.push_zeros(key, away.len as usize);
                }
            }
        }
        (records, false)
    }
    /// Adds the records of a checkpoint. They should be in ascending order; of several with one key the one set last counts.
    pub fn load(&mut self, records: Vec<(Key, Record)>) -> Disorder {
        let mut disorder = Disorder::default();
        if self.map().is_empty() && records.is_sorted_by(|(a, _), (b, _)| a < b) {
            for (key, record) in &records {
                self.bytes += key.bytes().len() as u64;
                self.long_keys += key.heap_bytes();
                self.count(&record.value);
            }
            *self.map_mut() = records.into_iter().collect();
            return disorder;
        }
        for (key, record) in records {
            if self.map().last_key_value().is_some_and(|(last, _)| key <= *last) {
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
    /// Forgets the records whose values are in the value log.
    pub fn drop_away(&mut self) {
        if self.away == 0 {
            return;
        }
        let mut was = std::mem::replace(self, Self::new(self.created));
        for (key, record) in
            std::mem::take(was.map_mut()).into_iter().filter(|(_, record)| record.value.here().is_some())
        {
            self.put(key.bytes(), record);
        }
    }
    /// Forgets some records, at least `count` if there are so many; true if none is left.
    pub fn forget(&mut self, count: usize) -> bool {
        if self.encoded.take().is_some() {
            *self = Self::new(self.created);
        }
        for _ in 0..count {
            let Some((key, record)) = self.map_mut().pop_last() else { return true };
            self.long_keys -= key.heap_bytes();
            self.bytes -= key.bytes().len() as u64;
            self.discount(&record.value);
        }
        self.map().is_empty()
    }
    /// What is wrong with what it counts, if anything is. Takes time in proportion to its records.
    pub fn check(&self) -> Result<(), &'static str> {
        if let Some(encoded) = self.encoded() {
            let (bytes, long_keys, spillable) = (self.bytes, self.long_keys, self.spillable);
            let counts = Counts { records: self.len(), bytes, long_keys, spillable };
            let is_same = encoded.count()? == counts && (self.away, self.away_bytes) == (0, 0);
            return if is_same { Ok(()) } else { Err("it counts its bytes wrongly") };
        }
        let mut counted = Self::default();
        let mut last = None;
        for (key, record) in self.map() {
            if last.is_some_and(|last: &Key| last >= key) {
                return Err("its records are not in ascending order");
            }
            last = Some(key);
            counted.count(&record.value);
            counted.bytes += key.bytes().len() as u64;
            counted.long_keys += key.heap_bytes();
        }
        let counts = |index: &Self| (index.bytes, index.long_keys, index.away, index.away_bytes, index.spillable);
        if counts(&counted) == counts(self) { Ok(()) } else { Err("it counts its bytes wrongly") }
    }
    /// Bytes of memory, about: nodes of the map are some two thirds full, and allocations carry some 16 bytes.
    pub fn memory_bytes(&self) -> u64 {
        const ENTRY: u64 = (size_of::<Key>() + size_of::<Record>()) as u64;
        const OVERHEAD: u64 = 16;
        const AWAY: u64 = size_of::<Away>() as u64;
        let encoded = self.encoded_bytes().0;
        if encoded > 0 {
            return encoded;
        }
        let here = self.bytes - self.away_bytes;
        self.len() * (ENTRY * 3 / 2 + OVERHEAD) + here + self.away * AWAY + self.long_keys
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
