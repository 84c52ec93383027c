//! An index: ordered records in memory.
//!
//! A tree of three levels: the root names branches, a branch names leaves, a leaf holds records side by side. Each level
//! is searched by the first eight bytes of the keys, which lie next to each other; that costs few cache misses, which is
//! all that a search in memory costs. It knows nothing of transactions: whoever changes it keeps what was there.

mod key;
mod leaf;

use std::ops::Bound;

use cenote_model::Records;
pub(crate) use key::Key;
use key::Separators;
use leaf::Leaf;

/// Leaves in a branch: more, and it is split.
const LEAVES_MAX: usize = 256;
/// A leaf with fewer bytes is joined with the next one, if both together are small enough.
const BYTES_MIN: usize = leaf::BYTES_MAX / 4;

/// A value with the epoch at which it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub epoch: u64,
    pub value: Box<[u8]>,
}

/// What [`Index::load`] found in the wrong order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Disorder {
    /// Records behind one with a key that is not less.
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
            "an earlier version of Cenote lost the order of this index: {misplaced} records were in the wrong place, {twice} \
             were there twice (those set last are kept), {blind} changes had not seen what was there; the index is in \
             order now, but records that had been deleted may be back: compare it with what should be there"
        )
    }
}

/// The same where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RecordRef<'a> {
    pub epoch: u64,
    pub value: &'a [u8],
}

impl RecordRef<'_> {
    pub fn to_owned(self) -> Record {
        Record { epoch: self.epoch, value: self.value.into() }
    }
}

/// An index.
#[derive(Clone, Debug, Default)]
pub(crate) struct Index {
    separators: Separators,
    /// None if there are no records.
    branches: Vec<Branch>,
    records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The container's cut count when it was created.
    pub created: u32,
}

#[derive(Clone, Debug, Default)]
struct Branch {
    separators: Separators,
    /// At least one.
    leaves: Vec<Leaf>,
}

impl Index {
    /// Empty; `created` is the container's cut count.
    pub fn new(created: u32) -> Self {
        Self { created, ..Self::default() }
    }
    pub fn len(&self) -> u64 {
        self.records
    }
    /// The leaf where a key belongs: branch, and leaf in it. `None` if there is none at all.
    #[inline]
    fn place(&self, key: &[u8]) -> Option<(usize, usize)> {
        let b = self.separators.find(key);
        Some((b, self.branches.get(b)?.separators.find(key)))
    }
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<RecordRef<'_>> {
        let (b, l) = self.place(key)?;
        let leaf = &self.branches[b].leaves[l];
        leaf.search(key).ok().map(|i| leaf.record(i))
    }
    /// Sets a record; gives what it replaced.
    pub fn put(&mut self, key: &[u8], record: Record) -> Option<Record> {
        let (b, l) = self.place(key).unwrap_or_else(|| self.plant());
        self.bytes += record.value.len() as u64;
        let branch = &mut self.branches[b];
        let leaf = &mut branch.leaves[l];
        let (i, old) = match leaf.search(key) {
            Ok(i) => (i, Some(leaf.replace(i, key, record))),
            Err(i) => {
                leaf.insert(i, key, record);
                (i, None)
            }
        };
        if let Some(old) = &old {
            self.bytes -= old.value.len() as u64;
        } else {
            self.bytes += key.len() as u64;
            self.records += 1;
        }
        if leaf.is_too_large() {
            let is_last = b + 1 == self.branches.len() && l + 1 == self.branches[b].leaves.len();
            self.split(b, l, i, is_last);
        }
        old
    }
    #[cold]
    fn plant(&mut self) -> (usize, usize) {
        self.branches.push(Branch { leaves: vec![Leaf::default()], ..Branch::default() });
        (0, 0)
    }
    /// Splits a leaf that is too large; `i` is the record that was one too many. Who adds records in order leaves full
    /// leaves behind.
    fn split(&mut self, b: usize, l: usize, i: usize, is_last: bool) {
        let branch = &mut self.branches[b];
        let leaf = &mut branch.leaves[l];
        let at = if is_last && i + 1 == leaf.len() { i } else { leaf.len() / 2 };
        let right = leaf.split_off(at);
        branch.separators.insert_after(l, right.key(0));
        branch.leaves.insert(l + 1, right);
        if branch.leaves.len() > LEAVES_MAX {
            let at = if is_last { branch.leaves.len() - 1 } else { branch.leaves.len() / 2 };
            let (between, separators) = branch.separators.split_off(at);
            let right = Branch { separators, leaves: branch.leaves.split_off(at) };
            self.separators.insert_after(b, between.bytes());
            self.branches.insert(b + 1, right);
        }
    }
    pub fn del(&mut self, key: &[u8]) -> Option<Record> {
        let (b, l) = self.place(key)?;
        let leaf = &mut self.branches[b].leaves[l];
        let old = leaf.remove(leaf.search(key).ok()?);
        self.records -= 1;
        self.bytes -= (old.value.len() + key.len()) as u64;
        let small = leaf.live_bytes() < BYTES_MIN;
        if small {
            self.thin_out(b, l);
        }
        Some(old)
    }
    /// Joins a small leaf with the next one, or removes an empty one; a branch that has none left goes, too.
    fn thin_out(&mut self, b: usize, l: usize) {
        let branch = &mut self.branches[b];
        let (len, bytes) = (branch.leaves[l].len(), branch.leaves[l].live_bytes());
        let joins = branch.leaves.get(l + 1).is_some_and(|next| {
            len + next.len() <= leaf::RECORDS_MAX / 2 && bytes + next.live_bytes() <= leaf::BYTES_MAX / 2
        });
        if joins {
            branch.separators.remove_child(l + 1);
            let next = branch.leaves.remove(l + 1);
            branch.leaves[l].append(next);
        } else if len == 0 && branch.leaves.len() > 1 {
            branch.separators.remove_child(l);
            branch.leaves.remove(l);
        } else if len == 0 && self.branches.len() > 1 {
            self.separators.remove_child(b);
            self.branches.remove(b);
        } else if len == 0 {
            self.branches.clear();
        }
    }
    /// What is wrong with the order of its records or with what it counts, if anything is. Takes time in proportion to it.
    #[cfg(test)]
    pub fn check(&self) -> Result<(), &'static str> {
        let (mut records, mut bytes) = (0, 0);
        let children = if self.branches.is_empty() { 1 } else { self.branches.len() };
        if self.separators.children() != children || !self.separators.heads_agree() {
            return Err("the root of an index does not have a separator between each two branches");
        }
        for (b, branch) in self.branches.iter().enumerate() {
            if branch.separators.children() != branch.leaves.len() || !branch.separators.heads_agree() {
                return Err("a branch of an index does not have a separator between each two leaves");
            }
            let outer = self.separators.around(b);
            for (l, leaf) in branch.leaves.iter().enumerate() {
                if let Some(fault) = leaf.fault() {
                    return Err(fault);
                }
                let Some(last) = leaf.len().checked_sub(1) else { return Err("a leaf of an index is empty") };
                let (low, high) = branch.separators.around(l);
                let is_within = |low: Option<&[u8]>, high: Option<&[u8]>| {
                    low.is_none_or(|low| low <= leaf.key(0)) && high.is_none_or(|high| leaf.key(last) < high)
                };
                if !is_within(low, high) || !is_within(outer.0, outer.1) {
                    return Err("a leaf of an index has keys that belong to another");
                }
                records += leaf.len() as u64;
                bytes += leaf.size(0, leaf.len()) as u64;
            }
        }
        if (records, bytes) != (self.records, self.bytes) {
            return Err("an index does not have as many records or bytes as it counts");
        }
        Ok(())
    }
    /// Records from a bound on, ascending.
    pub fn range(&self, from: Bound<&[u8]>) -> Range<'_> {
        let (b, l, i) = match from {
            Bound::Unbounded => (0, 0, 0),
            Bound::Included(key) | Bound::Excluded(key) => self.place(key).map_or((0, 0, 0), |(b, l)| {
                let after = usize::from(matches!(from, Bound::Excluded(_)));
                let i = self.branches[b].leaves[l].search(key).map_or_else(|i| i, |i| i + after);
                (b, l, i)
            }),
        };
        Range { index: self, leaf: self.branches.get(b).and_then(|branch| branch.leaves.get(l)), b, l, i }
    }
    /// Up to `limit` records from a bound on whose keys begin with `prefix`, at least one and otherwise at most `bytes_max`
    /// bytes of them; and whether there are more. The bound must not be before the prefix.
    pub fn copy(&self, from: Bound<&[u8]>, prefix: &[u8], limit: usize, bytes_max: usize) -> (Records, bool) {
        let room = limit.min(self.records as usize);
        let bytes = room * (self.bytes / self.records.max(1)) as usize * 9 / 8;
        let mut records = Records::with_capacity(room.min(1024), bytes.min(bytes_max).min(1 << 20));
        let mut range = self.range(from);
        while let Some(leaf) = range.leaf {
            let begin = range.i;
            let mut end = leaf.len().min(begin + limit - records.len());
            if end > begin && !leaf.key(end - 1).starts_with(prefix) {
                end = begin + (begin..end).take_while(|i| leaf.key(*i).starts_with(prefix)).count();
            }
            if records.bytes().len() + leaf.size(begin, end) > bytes_max {
                let mut size = records.bytes().len();
                let fits = (begin..end).take_while(|i| {
                    size += leaf.size(*i, i + 1);
                    size <= bytes_max
                });
                end = begin + fits.count().max(usize::from(records.is_empty()));
            }
            leaf.copy(begin, end, &mut records);
            if end < leaf.len() {
                return (records, leaf.key(end).starts_with(prefix));
            }
            range.next_leaf();
        }
        (records, false)
    }
    /// Adds records when a checkpoint is read. They should be in ascending order; Cenote before
    /// November 2026 could lose the order of an index and write some twice. Of such, the one that was set last counts.
    pub fn load(&mut self, records: Vec<(Key, Record)>) -> Disorder {
        let mut disorder = Disorder::default();
        let mut highest: Option<Key> = None;
        for (key, record) in records {
            if highest.as_ref().is_some_and(|highest| key <= *highest) {
                disorder.misplaced += 1;
                if self.get(key.bytes()).is_some_and(|known| known.epoch >= record.epoch) {
                    disorder.twice += 1;
                    continue;
                }
            }
            disorder.twice += u64::from(self.put(key.bytes(), record).is_some());
            if highest.as_ref().is_none_or(|highest| key > *highest) {
                highest = Some(key);
            }
        }
        disorder
    }
    /// Forgets some records, at least `count` if there are so many; true if none is left. Good for nothing else then.
    pub fn forget(&mut self, count: usize) -> bool {
        let mut gone = 0;
        while gone < count {
            let Some(branch) = self.branches.last_mut() else { return true };
            match branch.leaves.pop() {
                Some(leaf) => gone += leaf.len().max(1),
                None => drop(self.branches.pop()),
            }
        }
        self.branches.is_empty()
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        let branch = |branch: &Branch| {
            branch.separators.memory_bytes() + branch.leaves.iter().map(Leaf::memory_bytes).sum::<u64>()
        };
        self.separators.memory_bytes() + self.branches.iter().map(branch).sum::<u64>()
    }
}

/// Records in order. See [`Index::range`].
pub(crate) struct Range<'a> {
    index: &'a Index,
    leaf: Option<&'a Leaf>,
    b: usize,
    l: usize,
    i: usize,
}

impl Range<'_> {
    fn next_leaf(&mut self) {
        self.i = 0;
        self.l += 1;
        let mut next = self.index.branches[self.b].leaves.get(self.l);
        if next.is_none() {
            (self.b, self.l) = (self.b + 1, 0);
            next = self.index.branches.get(self.b).and_then(|branch| branch.leaves.first());
        }
        self.leaf = next;
        if let Some(leaf) = next {
            leaf.touch();
        }
    }
}

impl<'a> Iterator for Range<'a> {
    type Item = (&'a [u8], RecordRef<'a>);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let leaf = self.leaf?;
            if self.i < leaf.len() {
                let i = self.i;
                self.i += 1;
                return Some((leaf.key(i), leaf.record(i)));
            }
            self.next_leaf();
        }
    }
}

#[cfg(test)]
mod tests;
