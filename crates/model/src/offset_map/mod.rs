//! An ordered map from offsets to values, for random searches in maps of some to millions of entries.
//!
//! A search in a map that exceeds the caches costs the memory accesses that it waits for, one after the other. So keys
//! are contiguous and separate from the values, 29 to a leaf, and two levels of bounds above them are small enough to
//! stay in a cache: a search waits twice, for the keys of a leaf and for the value, however large the map is. A caller
//! that knows its keys in advance can load them all at once ([`OffsetMap::touch`]). A small map is two plain vectors.

mod branch;
mod leaf;
#[cfg(test)]
mod tests;

use std::hint::black_box;

use branch::{Spot, Tree};
use leaf::{ENTRIES_MAX, Leaf, grow};

/// Upper bound of the entries in a small map.
const FEW_MAX: usize = ENTRIES_MAX;
/// Maps with fewer entries are assumed to be in a cache.
const TOUCHED_MIN: usize = 512;
/// Number of searches that load in parallel.
const TOUCHED_AT_ONCE: usize = 64;

/// An ordered map from `u64` below `u64::MAX`.
#[derive(Clone, Debug)]
pub struct OffsetMap<V>(Shape<V>);

#[derive(Clone, Debug)]
enum Shape<V> {
    /// Counts as branch 0, leaf 0.
    Few(Vec<u64>, Vec<V>),
    Many(Tree<V>),
}

impl<V> Default for OffsetMap<V> {
    fn default() -> Self {
        Self(Shape::Few(Vec::new(), Vec::new()))
    }
}

impl<V> OffsetMap<V> {
    /// Entries in the map.
    pub fn len(&self) -> usize {
        match &self.0 {
            Shape::Few(keys, _) => keys.len(),
            Shape::Many(tree) => tree.len(),
        }
    }
    /// Checks the order and the counts; the error names the violated invariant. Takes time proportional to the entries.
    pub fn check(&self) -> Result<(), &'static str> {
        match &self.0 {
            Shape::Few(keys, values) if keys.len() != values.len() => Err("a map has not one value for each key"),
            Shape::Few(keys, _) if keys.windows(2).any(|pair| pair[0] >= pair[1]) => {
                Err("the keys of a map are not in ascending order")
            }
            Shape::Few(..) => Ok(()),
            Shape::Many(tree) => tree.check(),
        }
    }
    /// Returns true if the map is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Removes all entries.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
    /// Position of the first entry after `key`, existing or not.
    #[inline]
    fn after(&self, key: u64) -> Spot {
        match &self.0 {
            Shape::Few(keys, _) => Spot { branch: 0, leaf: 0, entry: keys.partition_point(|at| *at <= key) },
            Shape::Many(tree) => {
                let (branch, leaf) = tree.place(key);
                Spot { branch, leaf, entry: tree.leaf(branch, leaf).map_or(0, |leaf| leaf.rank(key)) }
            }
        }
    }
    /// The entry before a position.
    #[inline]
    fn before_spot(&self, spot: Spot) -> Option<Spot> {
        match (&self.0, spot.entry.checked_sub(1)) {
            (_, Some(entry)) => Some(Spot { entry, ..spot }),
            (Shape::Few(..), None) => None,
            (Shape::Many(tree), None) => tree.last_before(spot.branch, spot.leaf),
        }
    }
    #[inline]
    fn find(&self, key: u64) -> Option<Spot> {
        let after = self.after(key);
        let spot = Spot { entry: after.entry.checked_sub(1)?, ..after };
        self.entry(spot).filter(|(at, _)| *at == key).map(|_| spot)
    }
    #[inline]
    fn leaf(&self, branch: usize, leaf: usize) -> Option<(&[u64], &[V])> {
        match &self.0 {
            Shape::Few(keys, values) => (branch == 0 && leaf == 0).then_some((keys, values)),
            Shape::Many(tree) => tree.leaf(branch, leaf).map(|leaf| (leaf.keys(), leaf.values())),
        }
    }
    #[inline]
    fn entry(&self, spot: Spot) -> Option<(u64, &V)> {
        let (keys, values) = self.leaf(spot.branch, spot.leaf)?;
        Some((*keys.get(spot.entry)?, values.get(spot.entry)?))
    }
    #[inline]
    fn entry_mut(&mut self, spot: Spot) -> Option<(u64, &mut V)> {
        match &mut self.0 {
            Shape::Few(keys, values) => Some((*keys.get(spot.entry)?, values.get_mut(spot.entry)?)),
            Shape::Many(tree) => {
                let leaf = tree.leaf_mut(spot.branch, spot.leaf)?;
                let key = *leaf.keys().get(spot.entry)?;
                leaf.values_mut().get_mut(spot.entry).map(|value| (key, value))
            }
        }
    }
    /// The value at `key`.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&V> {
        self.entry(self.find(key)?).map(|(_, value)| value)
    }
    /// The value at `key`, mutable.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut V> {
        self.entry_mut(self.find(key)?).map(|(_, value)| value)
    }
    /// The last entry at or before `key`.
    #[inline]
    pub fn floor(&self, key: u64) -> Option<(u64, &V)> {
        self.entry(self.before_spot(self.after(key))?)
    }
    /// The last entry at or before `key`, mutable.
    #[inline]
    pub fn floor_mut(&mut self, key: u64) -> Option<(u64, &mut V)> {
        self.entry_mut(self.before_spot(self.after(key))?)
    }
    /// The last entry of all.
    pub fn last(&self) -> Option<(u64, &V)> {
        match &self.0 {
            Shape::Few(keys, values) => keys.last().copied().zip(values.last()),
            Shape::Many(tree) => self.entry(tree.last()?),
        }
    }
    /// Entries from the last one at or before `key` on, ascending: all that can overlap a range that begins at `key`.
    #[inline]
    pub fn from_floor(&self, key: u64) -> Entries<'_, V> {
        let after = self.after(key);
        Entries { map: self, at: self.before_spot(after).unwrap_or(after) }
    }
    /// All entries, ascending.
    pub fn iter(&self) -> Entries<'_, V> {
        Entries { map: self, at: Spot { branch: 0, leaf: 0, entry: 0 } }
    }
    /// Calls `each` with every value, mutable, ascending.
    pub fn for_each_mut(&mut self, mut each: impl FnMut(u64, &mut V)) {
        match &mut self.0 {
            Shape::Few(keys, values) => keys.iter().zip(values).for_each(|(key, value)| each(*key, value)),
            Shape::Many(tree) => {
                for leaf in tree.leaves_mut() {
                    for i in 0..leaf.len() {
                        let key = leaf.keys()[i];
                        each(key, &mut leaf.values_mut()[i]);
                    }
                }
            }
        }
    }
    /// Sets an entry; returns the previous value.
    pub fn insert(&mut self, key: u64, value: V) -> Option<V> {
        debug_assert_ne!(key, u64::MAX);
        let after = self.after(key);
        if let Some(entry) = after.entry.checked_sub(1)
            && let Some((at, old)) = self.entry_mut(Spot { entry, ..after })
            && at == key
        {
            return Some(std::mem::replace(old, value));
        }
        match &mut self.0 {
            Shape::Few(keys, values) if keys.len() < FEW_MAX => {
                grow(keys, FEW_MAX);
                grow(values, FEW_MAX);
                keys.insert(after.entry, key);
                values.insert(after.entry, value);
            }
            Shape::Few(keys, values) => {
                let mut tree = Tree::new(Leaf::new(keys, std::mem::take(values)));
                tree.insert(after, key, value);
                self.0 = Shape::Many(tree);
            }
            Shape::Many(tree) => tree.insert(after, key, value),
        }
        None
    }
    /// Removes an entry.
    pub fn remove(&mut self, key: u64) -> Option<V> {
        let spot = self.find(key)?;
        match &mut self.0 {
            Shape::Few(keys, values) => {
                keys.remove(spot.entry);
                Some(values.remove(spot.entry))
            }
            Shape::Many(tree) => {
                let value = tree.remove(spot);
                if tree.is_one_leaf() && tree.len() < FEW_MAX / 2 {
                    let Shape::Many(tree) = std::mem::replace(&mut self.0, Self::default().0) else { unreachable!() };
                    let (keys, values) = tree.into_leaf().map_or_else(Default::default, Leaf::into_vecs);
                    self.0 = Shape::Few(keys, values);
                }
                Some(value)
            }
        }
    }
    /// Loads into the cache what searches for these keys will read, and the entries at or before them: the memory
    /// accesses wait in parallel instead of one after the other. `look` must read a part of an entry's value; its
    /// result has no meaning.
    pub fn touch(&self, keys: impl IntoIterator<Item = u64>, look: impl Fn(&V) -> u64) {
        let Shape::Many(tree) = &self.0 else { return };
        if tree.len() < TOUCHED_MIN {
            return;
        }
        let mut keys = keys.into_iter();
        let mut found = [(0, 0, 0); TOUCHED_AT_ONCE];
        loop {
            let (mut count, mut seen) = (0, 0);
            for (place, key) in found.iter_mut().zip(&mut keys) {
                let (branch, leaf) = tree.place(key);
                *place = (key, branch, leaf);
                seen ^= tree.leaf(branch, leaf).map_or(0, Leaf::touch);
                count += 1;
            }
            for (key, branch, leaf) in &found[..count] {
                let Some(leaf) = tree.leaf(*branch, *leaf) else { continue };
                seen ^= leaf.values().get(leaf.rank(*key).saturating_sub(1)).map_or(0, &look);
            }
            black_box(seen);
            if count < TOUCHED_AT_ONCE {
                return;
            }
        }
    }
    /// Approximate memory in bytes beside the map itself, without memory owned by values.
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Shape::Few(keys, values) => keys.capacity() * 8 + values.capacity() * size_of::<V>(),
            Shape::Many(tree) => tree.memory_bytes(),
        }
    }
}

/// Entries of a map, ascending.
#[derive(Clone, Debug)]
pub struct Entries<'a, V> {
    map: &'a OffsetMap<V>,
    at: Spot,
}

impl<'a, V> Iterator for Entries<'a, V> {
    type Item = (u64, &'a V);
    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(found) = self.map.entry(self.at) {
                self.at.entry += 1;
                return Some(found);
            }
            let Shape::Many(tree) = &self.map.0 else { return None };
            tree.leaf(self.at.branch, self.at.leaf)?;
            let (branch, leaf) = tree.next_leaf(self.at.branch, self.at.leaf);
            self.at = Spot { branch, leaf, entry: 0 };
        }
    }
}

impl<'a, V> IntoIterator for &'a OffsetMap<V> {
    type Item = (u64, &'a V);
    type IntoIter = Entries<'a, V>;
    fn into_iter(self) -> Entries<'a, V> {
        self.iter()
    }
}
