//! Adjacent entries of a map in contiguous memory.

/// Entries in a leaf: they fill four cache lines. More entries would mean fewer bounds above, but more lines in a
/// search.
pub(super) const ENTRIES_MAX: usize = 29;
/// Keys in a cache line.
const LINE: usize = 8;
/// Fills the slots behind the last key.
const UNUSED: u64 = u64::MAX;

/// Some sorted entries. The keys, which a search reads, are separate from the values.
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
    /// Number of entries whose key is at most `key`. Counts instead of bisecting, so that all lines of keys load in
    /// parallel.
    #[inline]
    pub fn rank(&self, key: u64) -> usize {
        let is_counted = |at: &&u64| **at <= key;
        let line = self.keys.iter().skip(LINE).step_by(LINE).filter(is_counted).count() * LINE;
        let rank = line + self.keys[line..].iter().take(LINE).filter(is_counted).count();
        rank.min(self.len())
    }
    /// Loads what a search reads into the cache; use the value, so that the compiler keeps the loads.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.keys.iter().step_by(LINE).fold(self.len() as u64, |sum, key| sum ^ key)
    }
    /// Inserts an entry at its position; the leaf must not be full.
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
    /// Splits off the entries from `i` on as a new leaf.
    pub fn split_off(&mut self, i: usize) -> Self {
        let right = Self::new(&self.keys[i..self.values.len()], self.values.split_off(i));
        self.keys[i..].fill(UNUSED);
        self.values.shrink_to(i + i / 2);
        right
    }
    /// Appends all entries of the next leaf; they must fit.
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
    /// Approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.values.capacity() * size_of::<V>() + 32
    }
}

/// Makes room for one more entry: by a factor of 1.5 rather than 2, since most memory of a store is in such vectors.
pub(super) fn grow<T>(values: &mut Vec<T>, most: usize) {
    let len = values.len();
    if len == values.capacity() {
        values.reserve_exact((len / 2).clamp(1, most.saturating_sub(len).max(1)));
    }
}
