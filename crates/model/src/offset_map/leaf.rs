//! Neighbouring entries of a map in one stretch of memory.

/// Entries in a leaf: with them it fills four cache lines. More would be fewer bounds above, and more lines in a search.
pub(super) const ENTRIES_MAX: usize = 29;
/// Keys in a cache line.
const LINE: usize = 8;
/// Stands behind the last key.
const UNUSED: u64 = u64::MAX;

/// Some entries, sorted. What a search looks at, the keys, is apart from what it finds.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(super) struct Leaf<V> {
    keys: [u64; ENTRIES_MAX],
    values: Vec<V>,
}

impl<V> Leaf<V> {
    /// From sorted entries, at most [`ENTRIES_MAX`].
    pub fn new(keys: &[u64], values: Vec<V>) -> Self {
        debug_assert_eq!(keys.len(), values.len());
        let mut leaf = Self { keys: [UNUSED; ENTRIES_MAX], values };
        leaf.keys[..keys.len()].copy_from_slice(keys);
        leaf
    }
    pub fn keys(&self) -> &[u64] {
        &self.keys[..self.values.len()]
    }
    pub fn values(&self) -> &[V] {
        &self.values
    }
    pub fn values_mut(&mut self) -> &mut [V] {
        &mut self.values
    }
    pub fn len(&self) -> usize {
        self.values.len()
    }
    pub fn is_full(&self) -> bool {
        self.len() == ENTRIES_MAX
    }
    /// Entries whose key is at most `key`. Counts instead of bisecting: the lines of the keys come all at once.
    #[inline]
    pub fn rank(&self, key: u64) -> usize {
        let is_counted = |at: &&u64| **at <= key;
        let line = self.keys.iter().skip(LINE).step_by(LINE).filter(is_counted).count() * LINE;
        let rank = line + self.keys[line..].iter().take(LINE).filter(is_counted).count();
        rank.min(self.len())
    }
    /// Brings what a search looks at into the cache; the value must be used, so that it is not left out.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.keys.iter().step_by(LINE).fold(self.len() as u64, |sum, key| sum ^ key)
    }
    /// Adds an entry at its place; the leaf must not be full.
    pub fn insert(&mut self, i: usize, key: u64, value: V) {
        let len = self.len();
        self.keys.copy_within(i..len, i + 1);
        self.keys[i] = key;
        grow(&mut self.values, ENTRIES_MAX);
        self.values.insert(i, value);
    }
    pub fn remove(&mut self, i: usize) -> V {
        let value = self.values.remove(i);
        let len = self.len();
        self.keys.copy_within(i + 1..=len, i);
        self.keys[len] = UNUSED;
        value
    }
    /// The entries from `i` on, as a leaf of their own.
    pub fn split_off(&mut self, i: usize) -> Self {
        let right = Self::new(&self.keys[i..self.values.len()], self.values.split_off(i));
        self.keys[i..].fill(UNUSED);
        self.values.shrink_to(i + i / 2);
        right
    }
    /// Adds all entries of the next leaf; there must be room.
    pub fn append(&mut self, mut next: Self) {
        let len = self.len();
        self.keys[len..len + next.len()].copy_from_slice(next.keys());
        self.values.reserve_exact(next.len());
        self.values.append(&mut next.values);
    }
    /// The keys and values, as vectors.
    pub fn into_vecs(self) -> (Vec<u64>, Vec<V>) {
        (self.keys().to_vec(), self.values)
    }
    /// Bytes of memory, about.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<V>() + 32
    }
}

/// Makes room for one more: by halves rather than doubling, since most memory of a store is in such vectors.
pub(super) fn grow<T>(values: &mut Vec<T>, most: usize) {
    let len = values.len();
    if len == values.capacity() {
        values.reserve_exact((len / 2).clamp(1, most.saturating_sub(len).max(1)));
    }
}
