//! Keys, and sorted keys that are quick to search.

use std::borrow::Borrow;
use std::cmp::Ordering;

const INLINE: usize = 30;

/// A key that stands alone; short ones need no memory of their own.
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

/// The first eight bytes of a key as a number that orders like them; short keys are filled up with zeros.
#[inline]
pub(super) fn head_of(key: &[u8]) -> u64 {
    if let Some(first) = key.first_chunk::<8>() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    first[..key.len()].copy_from_slice(key);
    u64::from_be_bytes(first)
}

/// How many of some sorted heads are less than `head`. Few are counted rather than searched: all their cache lines are
/// then fetched at once, where a search waits for each before it knows the next.
#[inline]
fn below(heads: &[u64], head: u64) -> usize {
    const FEW: usize = 64;
    if heads.len() > FEW {
        return heads.partition_point(|other| *other < head);
    }
    heads.iter().map(|other| usize::from(*other < head)).sum()
}

/// How many of some sorted keys are less than `key`, and whether the next one is equal to it. `heads` are the heads of
/// those keys and `at` gives the keys themselves: it is asked only about those whose head is the same.
#[inline]
pub(super) fn search<'a>(heads: &[u64], key: &[u8], at: impl Fn(usize) -> &'a [u8]) -> Result<usize, usize> {
    let head = head_of(key);
    let mut low = below(heads, head);
    if heads.get(low) != Some(&head) {
        return Err(low);
    }
    let mut high = low + 1;
    if heads.get(high) == Some(&head) {
        high += heads[high..].partition_point(|other| *other == head);
    }
    while low < high {
        let middle = usize::midpoint(low, high);
        match at(middle).cmp(key) {
            Ordering::Less => low = middle + 1,
            Ordering::Equal => return Ok(middle),
            Ordering::Greater => high = middle,
        }
    }
    Err(low)
}

/// What tells the children of a node apart: child `i` holds the keys from separator `i - 1` on, up to separator `i`
/// (without it). The first child has no lower bound and the last no upper one, so that every key belongs to a child and no
/// child that goes can leave a stretch of keys to the wrong one (as in a B+ tree; Bayer and Unterauer 1977).
#[derive(Clone, Debug, Default)]
pub(super) struct Separators {
    heads: Vec<u64>,
    keys: Vec<Key>,
}

impl Separators {
    /// The child where `key` belongs.
    #[inline]
    pub fn find(&self, key: &[u8]) -> usize {
        match search(&self.heads, key, |i| self.keys[i].bytes()) {
            Ok(at) => at + 1,
            Err(at) => at,
        }
    }
    /// Children that are told apart.
    #[cfg(test)]
    pub fn children(&self) -> usize {
        self.keys.len() + 1
    }
    /// Makes room for a child behind child `i`; the new child's keys begin with `key`.
    pub fn insert_after(&mut self, i: usize, key: &[u8]) {
        self.heads.insert(i, head_of(key));
        self.keys.insert(i, Key::new(key));
    }
    /// Child `i` goes, one of several: the keys that it could have belong to the child before it from now on, or to the
    /// next one if it was the first.
    pub fn remove_child(&mut self, i: usize) {
        let at = i.saturating_sub(1);
        self.heads.remove(at);
        self.keys.remove(at);
    }
    /// The separators of the children from `i` on, which is not the first, and the key that tells these from those before.
    pub fn split_off(&mut self, i: usize) -> (Key, Self) {
        let right = Self { heads: self.heads.split_off(i), keys: self.keys.split_off(i) };
        self.heads.truncate(i - 1);
        let between = self.keys.split_off(i - 1).swap_remove(0);
        (between, right)
    }
    /// The bounds of child `i`: its keys are not below the first, and below the second.
    #[cfg(test)]
    pub fn around(&self, i: usize) -> (Option<&[u8]>, Option<&[u8]>) {
        let key = |i: usize| self.keys.get(i).map(Key::bytes);
        (i.checked_sub(1).and_then(key), key(i))
    }
    /// True if heads and keys belong together.
    #[cfg(test)]
    pub fn heads_agree(&self) -> bool {
        heads_agree(&self.heads, self.keys.iter().map(Key::bytes))
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> u64 {
        (self.heads.capacity() * 8 + self.keys.capacity() * size_of::<Key>()) as u64
    }
}

/// True if each head is that of its key, and there is one for each.
#[cfg(test)]
pub(super) fn heads_agree<'a>(heads: &[u64], keys: impl ExactSizeIterator<Item = &'a [u8]>) -> bool {
    heads.len() == keys.len() && heads.iter().zip(keys).all(|(head, key)| *head == head_of(key))
}
