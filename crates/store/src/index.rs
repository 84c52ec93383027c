//! An index: ordered records in memory.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

const INLINE: usize = 30;

/// A key; short ones sit in the tree's nodes, which saves a cache miss for every comparison.
#[derive(Clone)]
pub(crate) enum Key {
    Inline(u8, [u8; INLINE]),
    Heap(Box<[u8]>),
}

impl Key {
    pub fn new(bytes: &[u8]) -> Self {
        if bytes.len() > INLINE {
            return Self::Heap(bytes.into());
        }
        let mut inline = [0; INLINE];
        inline[..bytes.len()].copy_from_slice(bytes);
        Self::Inline(bytes.len() as u8, inline)
    }
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Inline(len, bytes) => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({})", self.bytes().escape_ascii())
    }
}
impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bytes() == other.bytes()
    }
}
impl Eq for Key {}
impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}
impl Borrow<[u8]> for Key {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

/// A value with the epoch at which it was set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Record {
    pub epoch: u64,
    pub value: Box<[u8]>,
}

/// An index.
#[derive(Debug, Default)]
pub(crate) struct Index {
    records: BTreeMap<Key, Record>,
    /// Bytes of keys and values.
    pub bytes: u64,
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
    pub fn get(&self, key: &[u8]) -> Option<&Record> {
        self.records.get(key)
    }
    /// Sets a record; gives what it replaced.
    pub fn put(&mut self, key: Key, record: Record) -> Option<Record> {
        self.bytes += record.value.len() as u64;
        match self.records.entry(key) {
            Entry::Occupied(mut entry) => {
                let old = entry.insert(record);
                self.bytes -= old.value.len() as u64;
                Some(old)
            }
            Entry::Vacant(entry) => {
                self.bytes += entry.key().bytes().len() as u64;
                entry.insert(record);
                None
            }
        }
    }
    pub fn del(&mut self, key: &[u8]) -> Option<Record> {
        let old = self.records.remove(key)?;
        self.bytes -= (old.value.len() + key.len()) as u64;
        Some(old)
    }
    /// Records from a bound on, ascending.
    pub fn range(&self, from: std::ops::Bound<&[u8]>) -> impl Iterator<Item = (&Key, &Record)> {
        self.records.range::<[u8], _>((from, std::ops::Bound::Unbounded))
    }
    /// Adds a record greater than all others, when a checkpoint is read.
    pub fn load(&mut self, records: Vec<(Key, Record)>) {
        self.bytes = records.iter().map(|(key, record)| (key.bytes().len() + record.value.len()) as u64).sum();
        self.records = records.into_iter().collect();
    }
    /// Takes up to `count` records out and forgets them; true if none is left.
    pub fn forget(&mut self, count: usize) -> bool {
        for _ in 0..count {
            if self.records.pop_first().is_none() {
                return true;
            }
        }
        self.records.is_empty()
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        const NODE_PART: u64 = 80; // key, record and their part of a node that is two thirds full
        self.bytes + self.len() * (NODE_PART + 16)
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Bound;

    use super::*;

    #[test]
    fn orders_short_and_long_keys_as_bytes() {
        assert!(size_of::<Key>() <= 32);
        let mut index = Index::default();
        let keys: Vec<Vec<u8>> = vec![vec![], b"a".to_vec(), vec![b'a'; 30], vec![b'a'; 31], b"b".to_vec()];
        for key in keys.iter().rev() {
            assert!(index.put(Key::new(key), Record { epoch: 1, value: Box::default() }).is_none());
        }
        let found: Vec<Vec<u8>> = index.range(Bound::Unbounded).map(|(key, _)| key.bytes().to_vec()).collect();
        assert_eq!(found, keys);
        assert!(index.get(&[b'a'; 31]).is_some());
        assert!(index.del(&[b'a'; 31]).is_some() && index.del(&[b'a'; 31]).is_none());
        assert_eq!(index.bytes, 32);
    }
}
