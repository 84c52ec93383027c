//! An index: ordered records in memory.
//!
//! It is the standard library's ordered map of leaves, in which records lie side by side, with the engine's counts
//! (`docs/dependencies.md`, "Ordered maps", has the measurements). The map keeps the order of the leaves; a leaf that
//! is split off gets its bound there. The index must not know transactions: its callers keep the replaced records.
//! Records of a checkpoint come into leaves when the first of them is read.

mod encoded;
mod key;
mod leaf;
#[cfg(test)]
mod tests;
mod value;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

use cenote_model::Records;
pub(crate) use encoded::{Counts, Encoded};
pub(crate) use key::Key;
use leaf::Leaf;
pub(crate) use value::{Away, Batch, Value, ValueRef, digest};

/// A value with the epoch at which it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub epoch: u64,
    pub value: Value,
}

impl Record {
    pub fn by_ref(&self) -> RecordRef<'_> {
        RecordRef { epoch: self.epoch, value: self.value.by_ref() }
    }
}

/// A borrowed [`Record`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordRef<'a> {
    pub epoch: u64,
    pub value: ValueRef<'a>,
}

impl RecordRef<'_> {
    pub fn to_owned(self) -> Record {
        Record { epoch: self.epoch, value: self.value.to_owned() }
    }
}

/// Records of an index that did not belong where they were. Cenote before November 2026 could lose the order of an
/// index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Disorder {
    /// Records of a checkpoint that follow one with a key that is not less.
    pub misplaced: u64,
    /// Records of a key that was there already; those set last are kept.
    pub twice: u64,
    /// Changes in the journal that did not see the existing records: new keys that existed, or deletions of keys that
    /// did not.
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
    /// Not set while the records are in `encoded`.
    leaves: OnceCell<Leaves>,
    /// The records as a checkpoint encodes them, until one is read.
    encoded: RefCell<Option<Encoded>>,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Number of values in the value log, and their bytes.
    pub away: u64,
    pub away_bytes: u64,
    /// Bytes of values in memory that may go to the value log.
    pub spillable: u64,
    /// The container's cut count when it was created.
    pub created: u32,
}

/// Records in order.
#[derive(Clone, Debug, Default)]
struct Leaves {
    /// The records with keys below all bounds. A small index has no other leaf, and an empty one has this.
    first: Leaf,
    /// The other leaves by bound: no key in a leaf is less than its bound or not less than the next. None is empty.
    rest: BTreeMap<Key, Leaf>,
    records: u64,
}

impl Leaves {
    /// Returns the leaf where a key belongs.
    #[inline]
    fn leaf(&self, key: &[u8]) -> &Leaf {
        key::last_to(&self.rest, key).map_or(&self.first, |(_, leaf)| leaf)
    }
    #[inline]
    fn leaf_mut(&mut self, key: &[u8]) -> &mut Leaf {
        key::last_to_mut(&mut self.rest, key).unwrap_or(&mut self.first)
    }
    fn put(&mut self, key: &[u8], record: Record) -> Option<Record> {
        let leaf = self.leaf_mut(key);
        let (at, old) = match leaf.search(key) {
            Ok(at) => (at, Some(leaf.replace(at, key, record))),
            Err(at) => {
                leaf.insert(at, key, record);
                (at, None)
            }
        };
        let right = leaf.is_too_large().then(|| split(leaf, at));
        self.rest.extend(right);
        self.records += u64::from(old.is_none());
        old
    }
    fn del(&mut self, key: &[u8]) -> Option<Record> {
        let leaf = self.leaf_mut(key);
        let old = leaf.search(key).ok().map(|at| leaf.remove(at))?;
        if leaf.is_sparse() {
            self.thin_out(key);
        }
        self.records -= 1;
        Some(old)
    }
    /// Shrinks around a sparse leaf: the leaf takes the records of the next one if those are few as well, and goes if
    /// it is empty. The first leaf stays: it has no bound that could be too high for later keys.
    fn thin_out(&mut self, key: &[u8]) {
        let own = key::last_to(&self.rest, key);
        if let Some(bound) = own.filter(|(_, leaf)| leaf.len() == 0).map(|(bound, _)| bound.clone()) {
            self.rest.remove(&bound);
            return;
        }
        let next = self.rest.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)).next();
        let next = next.filter(|(_, leaf)| self.leaf(key).may_take(leaf)).map(|(bound, _)| bound.clone());
        if let Some(leaf) = next.and_then(|bound| self.rest.remove(&bound)) {
            self.leaf_mut(key).append(leaf);
        }
    }
    fn range(&self, from: Bound<&[u8]>) -> Range<'_> {
        let (Bound::Included(key) | Bound::Excluded(key)) = from else {
            return Range { leaf: &self.first, at: 0, rest: self.rest.range::<[u8], _>(..) };
        };
        let leaf = self.leaf(key);
        let at = match leaf.search(key) {
            Ok(at) => at + usize::from(matches!(from, Bound::Excluded(_))),
            Err(at) => at,
        };
        Range { leaf, at, rest: self.rest.range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded)) }
    }
    fn last_key(&self) -> Option<&[u8]> {
        let last = self.rest.last_key_value().map_or(&self.first, |(_, leaf)| leaf);
        last.len().checked_sub(1).map(|at| last.key(at))
    }
    /// Removes the last leaf; returns an empty one if there are no records.
    fn pop(&mut self) -> Leaf {
        let leaf = self.rest.pop_last().map_or_else(|| std::mem::take(&mut self.first), |(_, leaf)| leaf);
        self.records -= leaf.len() as u64;
        leaf
    }
}

impl Index {
    /// Returns an empty index; `created` is the container's cut count.
    pub fn new(created: u32) -> Self {
        Self { created, ..Self::default() }
    }
    /// Returns an index with the encoded records of a checkpoint; `counts` are theirs.
    pub fn of_encoded(created: u32, encoded: Encoded, counts: Counts) -> Self {
        let Counts { bytes, spillable, .. } = counts;
        Self { created, encoded: RefCell::new(Some(encoded)), bytes, spillable, ..Self::default() }
    }
    /// Returns the encoded records, if none was read since the checkpoint.
    pub fn encoded(&self) -> Option<Encoded> {
        self.encoded.borrow().clone()
    }
    /// Bytes of the records that are still encoded, and of the shared memory that they keep alive.
    pub fn encoded_bytes(&self) -> (u64, u64) {
        self.encoded.borrow().as_ref().map_or((0, 0), |encoded| (encoded.bytes(), encoded.kept_bytes()))
    }
    /// Gives encoded records memory of their own.
    pub fn leave_checkpoint(&mut self) {
        let encoded = self.encoded.get_mut();
        *encoded = encoded.take().map(|shared| shared.alone());
    }
    #[inline]
    fn leaves(&self) -> &Leaves {
        self.leaves.get_or_init(|| Self::decode(&self.encoded))
    }
    #[inline]
    fn leaves_mut(&mut self) -> &mut Leaves {
        let Self { leaves, encoded, .. } = self;
        leaves.get_or_init(|| Self::decode(encoded));
        leaves.get_mut().expect("they were made just now")
    }
    #[cold]
    fn decode(encoded: &RefCell<Option<Encoded>>) -> Leaves {
        let mut leaves = Leaves::default();
        for (key, record) in encoded.take().iter().flat_map(Encoded::decoded) {
            leaves.put(key.bytes(), record);
        }
        leaves
    }
    pub fn len(&self) -> u64 {
        let encoded = || self.encoded.borrow().as_ref().map_or(0, Encoded::len);
        self.leaves.get().map_or_else(encoded, |leaves| leaves.records)
    }
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        let leaf = self.leaves().leaf(key);
        leaf.find(key).map(|i| leaf.record(i))
    }
    /// Sets a record; returns the replaced one.
    pub fn put(&mut self, key: &[u8], record: Record) -> Option<Record> {
        self.count(record.value.by_ref());
        let old = self.leaves_mut().put(key, record);
        if let Some(old) = &old {
            self.discount(old.value.by_ref());
        } else {
            self.bytes += key.len() as u64;
        }
        old
    }
    pub fn del(&mut self, key: &[u8]) -> Option<Record> {
        let old = self.leaves_mut().del(key)?;
        self.bytes -= key.len() as u64;
        self.discount(old.value.by_ref());
        Some(old)
    }
    /// Moves the value of a record to the value log, if the record still has this epoch.
    pub fn spill(&mut self, key: &[u8], epoch: u64, away: &Away) {
        let leaf = self.leaves_mut().leaf_mut(key);
        let Ok(at) = leaf.search(key) else { return };
        let was = leaf.record(at);
        if was.epoch != epoch || was.value.len() != away.len as usize {
            return;
        }
        let was = was.value.to_owned();
        leaf.spill(at, away);
        self.count(ValueRef::Away(away));
        self.discount(was.by_ref());
    }
    #[inline]
    fn count(&mut self, value: ValueRef<'_>) {
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
    fn discount(&mut self, value: ValueRef<'_>) {
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
        self.leaves().range(from)
    }
    /// Copies up to `limit` records from a bound on whose keys begin with `prefix`: at least one, and otherwise at most
    /// `bytes_max` bytes of them. Also returns whether there are more. The bound must not be before the prefix. Values
    /// in the value log are zeros, and `missing` gets the record's number and the value's place.
    pub fn copy(
        &self,
        from: Bound<&[u8]>,
        prefix: &[u8],
        (limit, bytes_max): (usize, usize),
        missing: &mut Vec<(usize, Away)>,
    ) -> (Records, bool) {
        let room = limit.min(self.len() as usize);
        let bytes = room * (self.bytes / self.len().max(1)) as usize * 9 / 8;
        let mut records = Records::with_capacity(room.min(1024), bytes.min(bytes_max).min(1 << 20));
        let mut range = self.range(from);
        loop {
            let Range { leaf, at: begin, .. } = range;
            let mut end = leaf.len().min(begin.saturating_add(limit - records.len()));
            if end > begin && !leaf.key(end - 1).starts_with(prefix) {
                end = begin + (begin..end).take_while(|i| leaf.key(*i).starts_with(prefix)).count();
            }
            if records.bytes().len() + leaf.size(begin, end) > bytes_max {
                let mut size = records.bytes().len();
                let fits = (begin..end).take_while(|i| {
                    size += leaf.size(*i, i + 1);
                    size <= bytes_max
                });
                end = begin + fits.count().max(usize::from(records.is_empty() && end > begin));
            }
            leaf.copy(begin, end, &mut records, missing);
            if end < leaf.len() {
                return (records, leaf.key(end).starts_with(prefix));
            }
            if !range.next_leaf() {
                return (records, false);
            }
        }
    }
    /// Adds the records of a checkpoint. They should be in ascending order; of several with one key the last one set is
    /// kept.
    pub fn load(&mut self, records: Vec<(Key, Record)>) -> Disorder {
        let mut disorder = Disorder::default();
        for (key, record) in records {
            if self.leaves().last_key().is_some_and(|last| key.bytes() <= last) {
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
    /// Drops the records whose values are in the value log.
    pub fn drop_away(&mut self) {
        if self.away == 0 {
            return;
        }
        let was = std::mem::replace(self, Self::new(self.created));
        for (key, record) in was.range(Bound::Unbounded).filter(|(_, record)| record.value.here().is_some()) {
            self.put(key, record.to_owned());
        }
    }
    /// Drops at least `count` records, if there are so many. Returns true if none is left.
    pub fn forget(&mut self, count: usize) -> bool {
        if self.encoded.take().is_some() {
            *self = Self::new(self.created);
        }
        let until = self.len().saturating_sub(count as u64);
        while self.len() > until {
            let leaf = self.leaves_mut().pop();
            for (key, record) in leaf.records() {
                self.bytes -= key.len() as u64;
                self.discount(record.value);
            }
        }
        self.len() == 0
    }
    /// Checks the index. Fails with what is wrong. Takes time in proportion to its records.
    pub fn check(&self) -> Result<(), &'static str> {
        if let Some(encoded) = self.encoded() {
            let counts = Counts { records: self.len(), bytes: self.bytes, spillable: self.spillable };
            let is_same = encoded.count()? == counts && (self.away, self.away_bytes) == (0, 0);
            return if is_same { Ok(()) } else { Err("it counts its bytes wrongly") };
        }
        let Leaves { first, rest, records } = self.leaves();
        let (mut counted, mut found) = (Self::default(), 0);
        let mut last = None;
        let bounds = std::iter::once(None).chain(rest.keys().map(Some));
        for (bound, leaf) in bounds.zip(std::iter::once(first).chain(rest.values())) {
            leaf.check()?;
            if bound.is_some_and(|bound| leaf.len() == 0 || bound.bytes() > leaf.key(0)) {
                return Err("a leaf is empty, or has keys below its bound");
            }
            if last.is_some_and(|last| bound.is_none_or(|bound| last >= bound.bytes())) {
                return Err("a leaf has keys that belong to the next");
            }
            last = leaf.len().checked_sub(1).map(|at| leaf.key(at)).or(last);
            found += leaf.len() as u64;
            for (key, record) in leaf.records() {
                counted.count(record.value);
                counted.bytes += key.len() as u64;
            }
        }
        let counts = |index: &Self| (index.bytes, index.away, index.away_bytes, index.spillable);
        if found == *records && counts(&counted) == counts(self) { Ok(()) } else { Err("it counts its bytes wrongly") }
    }
    /// Approximate bytes of memory: leaves grow by halves, and have a sixth more than they need.
    pub fn memory_bytes(&self) -> u64 {
        const AWAY: u64 = size_of::<Away>() as u64 + 16;
        let encoded = self.encoded_bytes().0;
        if encoded > 0 {
            return encoded;
        }
        let here = self.bytes - self.away_bytes;
        let leaves = self.leaves().rest.len() as u64 * ((size_of::<Key>() + size_of::<Leaf>()) as u64 * 3 / 2 + 48);
        leaves + (self.len() * leaf::RECORD_BYTES + here) * 7 / 6 + self.away * AWAY
    }
}

/// Splits a leaf, and returns its upper part with a bound: the shortest key between the two parts. `put_at` is the
/// record that was put last.
#[cold]
fn split(leaf: &mut Leaf, put_at: usize) -> (Key, Leaf) {
    let right = leaf.split_off(put_at);
    let next = right.key(0);
    let own = leaf.len().checked_sub(1).map_or(&[][..], |at| leaf.key(at));
    (Key::new(&next[..=leaf::common_len(own, next)]), right)
}

/// Records in order. See [`Index::range`].
pub(crate) struct Range<'a> {
    leaf: &'a Leaf,
    at: usize,
    rest: btree_map::Range<'a, Key, Leaf>,
}

impl Range<'_> {
    /// Goes to the begin of the next leaf, if there is one.
    #[inline]
    fn next_leaf(&mut self) -> bool {
        let next = self.rest.next();
        if let Some((_, leaf)) = next {
            (self.leaf, self.at) = (leaf, 0);
            leaf.touch();
        }
        next.is_some()
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], RecordRef<'a>);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while self.at == self.leaf.len() {
            if !self.next_leaf() {
                return None;
            }
        }
        let at = self.at;
        self.at += 1;
        Some((self.leaf.key(at), self.leaf.record(at)))
    }
}
