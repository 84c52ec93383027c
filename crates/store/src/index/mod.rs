//! An index: ordered records in memory.
//!
//! A tree of three levels: the root names branches, a branch names leaves, a leaf holds records side by side. Each level
//! is searched by the first eight bytes of the keys, which lie next to each other; that costs few cache misses, which is
//! all that a search in memory costs. It knows nothing of transactions: whoever changes it keeps what was there.

mod key;
mod leaf;

use std::ops::Bound;

use cenote_model::Records;
use key::Bounds;
pub(crate) use key::Key;
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
    bounds: Bounds,
    branches: Vec<Branch>,
    records: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
    /// The container's cut count when it was created.
    pub created: u32,
}

#[derive(Clone, Debug, Default)]
struct Branch {
    bounds: Bounds,
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
        let b = self.bounds.find(key);
        Some((b, self.branches.get(b)?.bounds.find(key)))
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
        let mut branch = Branch { leaves: vec![Leaf::default()], ..Branch::default() };
        branch.bounds.insert(0, &[]);
        self.bounds.insert(0, &[]);
        self.branches.push(branch);
        (0, 0)
    }
    /// Splits a leaf that is too large; `i` is the record that was one too many. Who adds records in order leaves full
    /// leaves behind.
    fn split(&mut self, b: usize, l: usize, i: usize, is_last: bool) {
        let branch = &mut self.branches[b];
        let leaf = &mut branch.leaves[l];
        let at = if is_last && i + 1 == leaf.len() { i } else { leaf.len() / 2 };
        let right = leaf.split_off(at);
        branch.bounds.insert(l + 1, right.key(0));
        branch.leaves.insert(l + 1, right);
        if branch.leaves.len() > LEAVES_MAX {
            let at = if is_last { branch.leaves.len() - 1 } else { branch.leaves.len() / 2 };
            let right = Branch { bounds: branch.bounds.split_off(at), leaves: branch.leaves.split_off(at) };
            self.bounds.insert(b + 1, right.bounds.first());
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
    /// Joins a small leaf with the next one, or removes an empty one.
    fn thin_out(&mut self, b: usize, l: usize) {
        let branch = &mut self.branches[b];
        let (len, bytes) = (branch.leaves[l].len(), branch.leaves[l].live_bytes());
        let joins = branch.leaves.get(l + 1).is_some_and(|next| {
            len + next.len() <= leaf::RECORDS_MAX / 2 && bytes + next.live_bytes() <= leaf::BYTES_MAX / 2
        });
        if joins {
            branch.bounds.remove(l + 1);
            let next = branch.leaves.remove(l + 1);
            branch.leaves[l].append(next);
        } else if len == 0 {
            branch.bounds.remove(l);
            branch.leaves.remove(l);
        }
        if self.branches[b].leaves.is_empty() {
            self.bounds.remove(b);
            self.branches.remove(b);
        }
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
    /// Adds records in ascending order, when a checkpoint is read.
    pub fn load(&mut self, records: Vec<(Key, Record)>) {
        for (key, record) in records {
            self.put(key.bytes(), record);
        }
    }
    /// Forgets some records, at least `count` if there are so many; true if none is left.
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
        let branch =
            |branch: &Branch| branch.bounds.memory_bytes() + branch.leaves.iter().map(Leaf::memory_bytes).sum::<u64>();
        self.bounds.memory_bytes() + self.branches.iter().map(branch).sum::<u64>()
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
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn record(epoch: u64, value: &[u8]) -> Record {
        Record { epoch, value: value.into() }
    }

    #[test]
    fn orders_short_and_long_keys_as_bytes() {
        assert!(size_of::<Key>() <= 32);
        let mut index = Index::default();
        let keys: Vec<Vec<u8>> = vec![vec![], vec![0], b"a".to_vec(), vec![b'a'; 30], vec![b'a'; 31], b"b".to_vec()];
        for key in keys.iter().rev() {
            assert!(index.put(key, record(1, b"")).is_none());
        }
        let found: Vec<Vec<u8>> = index.range(Bound::Unbounded).map(|(key, _)| key.to_vec()).collect();
        assert_eq!(found, keys);
        assert!(index.get(&[b'a'; 31]).is_some());
        assert!(index.del(&[b'a'; 31]).is_some() && index.del(&[b'a'; 31]).is_none());
        assert_eq!(index.bytes, 33);
    }

    struct Dice(u64);
    impl Dice {
        fn below(&mut self, end: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % end
        }
        fn key(&mut self) -> Vec<u8> {
            let n = self.below(4000);
            match n % 4 {
                0 => n.to_be_bytes()[6..].to_vec(),
                1 => format!("a common beginning/{n:05}").into_bytes(),
                2 => vec![b'z'; (n % 300) as usize],
                _ => (n * 0x1234_5678_9abc).to_le_bytes().to_vec(),
            }
        }
        fn value(&mut self, epoch: u64) -> Vec<u8> {
            let len = match self.below(20) {
                0 => 3000,
                1 => 1024,
                2 => 0,
                n => 20 * (n % 3),
            };
            vec![epoch as u8; len as usize]
        }
    }

    /// Under random changes it has what a plain ordered map has.
    #[test]
    fn agrees_with_an_ordered_map() {
        let mut dice = Dice(7);
        let mut index = Index::default();
        let mut plain: BTreeMap<Vec<u8>, Record> = BTreeMap::new();
        for epoch in 0..60_000 {
            let key = dice.key();
            // Phases of growing and of shrinking, so that leaves and branches split and go.
            if dice.below(10) < if epoch / 10_000 % 2 == 0 { 2 } else { 8 } {
                assert_eq!(index.del(&key), plain.remove(&key));
            } else {
                let record = record(epoch, &dice.value(epoch));
                assert_eq!(index.put(&key, record.clone()), plain.insert(key.clone(), record));
            }
            assert_eq!(index.len(), plain.len() as u64);
            let key = dice.key();
            assert_eq!(index.get(&key).map(RecordRef::to_owned), plain.get(&key).cloned());
            if epoch % 100 == 0 {
                for from in [Bound::Included(&key[..]), Bound::Excluded(&key[..]), Bound::Unbounded] {
                    let ours = index.range(from).map(|(key, record)| (key.to_vec(), record.to_owned()));
                    let theirs = plain.range::<[u8], _>((from, Bound::Unbounded));
                    assert!(ours.eq(theirs.map(|(key, record)| (key.clone(), record.clone()))), "epoch {epoch}");
                }
                let prefix = &key[..key.len().min(dice.below(4) as usize)];
                let (limit, bytes_max) = (1 + dice.below(300) as usize, dice.below(9000) as usize);
                let (found, more) = index.copy(Bound::Included(&key), prefix, limit, bytes_max);
                let matching = plain.range(key.clone()..).take_while(|(key, _)| key.starts_with(prefix));
                let mut size = 0;
                let wanted = matching.clone().take(limit).enumerate().take_while(|(n, (key, record))| {
                    size += key.len() + record.value.len();
                    *n == 0 || size <= bytes_max
                });
                let wanted: Vec<_> = wanted.map(|(_, (key, record))| (&key[..], &record.value[..])).collect();
                assert!(
                    found.iter().eq(wanted.iter().copied()),
                    "epoch {epoch}: {} of {} limit {limit} bytes {bytes_max} prefix {prefix:?}",
                    found.len(),
                    wanted.len()
                );
                assert_eq!(more, matching.count() > wanted.len(), "epoch {epoch}");
                let bytes: usize = plain.iter().map(|(key, record)| key.len() + record.value.len()).sum();
                assert_eq!(index.bytes, bytes as u64);
                assert!(
                    index.memory_bytes() < 4 * index.bytes + 300 * index.len() + 16_384,
                    "{}",
                    index.memory_bytes()
                );
            }
        }
        let mut left = 0;
        while !index.forget(100) {
            left += 1;
        }
        assert!(left <= plain.len() / 100);
    }

    #[test]
    fn keys_in_order_fill_the_leaves() {
        let mut index = Index::default();
        for n in 0..100_000u64 {
            index.put(&n.to_be_bytes(), record(n, &[1; 32]));
        }
        assert!(index.range(Bound::Unbounded).map(|(_, record)| record.epoch).eq(0..100_000));
        assert!(index.memory_bytes() < 100_000 * 100, "{}", index.memory_bytes());
    }
}
