//! An ordered map that mostly has very few entries, which then lie side by side and take no more memory than they need.
//! A node of the standard library's map has room for eleven, and the cost of an opening is the memory that it touches.

use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;
use std::slice;

/// With more entries it becomes a tree, and stays one.
const FEW_MAX: usize = 8;

/// An ordered map.
#[derive(Clone, Debug)]
pub(crate) enum SmallMap<K, V> {
    /// In ascending order.
    Side(Vec<(K, V)>),
    Tree(BTreeMap<K, V>),
}

impl<K, V> Default for SmallMap<K, V> {
    fn default() -> Self {
        Self::Side(Vec::new())
    }
}

impl<K: Ord + Copy, V> SmallMap<K, V> {
    pub fn len(&self) -> usize {
        match self {
            Self::Side(side) => side.len(),
            Self::Tree(tree) => tree.len(),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    fn find(side: &[(K, V)], key: &K) -> Result<usize, usize> {
        side.binary_search_by(|(other, _)| other.cmp(key))
    }
    pub fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Side(side) => Self::find(side, key).ok().map(|at| &side[at].1),
            Self::Tree(tree) => tree.get(key),
        }
    }
    pub fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Self::Side(side) => Self::find(side, key).ok().map(|at| &mut side[at].1),
            Self::Tree(tree) => tree.get_mut(key),
        }
    }
    pub fn contains_key(&self, key: &K) -> bool {
        self.get(key).is_some()
    }
    /// Inserts an entry; returns the old value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::Side(side) => match Self::find(side, &key) {
                Ok(at) => Some(std::mem::replace(&mut side[at].1, value)),
                Err(at) if side.len() < FEW_MAX => {
                    if side.len() == side.capacity() {
                        side.reserve_exact(side.len().max(1));
                    }
                    side.insert(at, (key, value));
                    None
                }
                Err(_) => {
                    let mut tree: BTreeMap<K, V> = std::mem::take(side).into_iter().collect();
                    tree.insert(key, value);
                    *self = Self::Tree(tree);
                    None
                }
            },
            Self::Tree(tree) => tree.insert(key, value),
        }
    }
    /// Adds entries; many at once make a tree without gaps.
    pub fn extend(&mut self, more: Vec<(K, V)>) {
        match self {
            Self::Side(side) if side.len() + more.len() <= FEW_MAX => {
                side.reserve_exact(more.len());
                for (key, value) in more {
                    self.insert(key, value);
                }
            }
            Self::Side(side) => *self = Self::Tree(std::mem::take(side).into_iter().chain(more).collect()),
            Self::Tree(tree) => tree.append(&mut more.into_iter().collect()),
        }
    }
    pub fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Self::Side(side) => Self::find(side, key).ok().map(|at| side.remove(at).1),
            Self::Tree(tree) => tree.remove(key),
        }
    }
    pub fn pop_first(&mut self) -> Option<(K, V)> {
        match self {
            Self::Side(side) if side.is_empty() => None,
            Self::Side(side) => Some(side.remove(0)),
            Self::Tree(tree) => tree.pop_first(),
        }
    }
    pub fn iter(&self) -> Iter<'_, K, V> {
        self.iter_from(Bound::Unbounded)
    }
    /// The entries from this key on.
    pub fn iter_from(&self, from: Bound<K>) -> Iter<'_, K, V> {
        match self {
            Self::Side(side) => {
                let is_before = |key: &K| match &from {
                    Bound::Included(from) => key < from,
                    Bound::Excluded(from) => key <= from,
                    Bound::Unbounded => false,
                };
                Iter::Side(side[side.partition_point(|(key, _)| is_before(key))..].iter())
            }
            Self::Tree(tree) => Iter::Tree(tree.range((from, Bound::Unbounded))),
        }
    }
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        let (side, tree) = match self {
            Self::Side(side) => (Some(side), None),
            Self::Tree(tree) => (None, Some(tree)),
        };
        let side = side.into_iter().flat_map(|side| side.iter_mut().map(|(_, value)| value));
        side.chain(tree.into_iter().flat_map(BTreeMap::values_mut))
    }
    pub fn into_values(self) -> impl Iterator<Item = V> {
        let (side, tree) = match self {
            Self::Side(side) => (side, BTreeMap::new()),
            Self::Tree(tree) => (Vec::new(), tree),
        };
        side.into_iter().map(|(_, value)| value).chain(tree.into_values())
    }
}

impl<K: Ord + Copy, V> FromIterator<(K, V)> for SmallMap<K, V> {
    fn from_iter<T: IntoIterator<Item = (K, V)>>(all: T) -> Self {
        let mut few = Self::default();
        for (key, value) in all {
            few.insert(key, value);
        }
        few
    }
}

impl<'a, K: Ord + Copy, V> IntoIterator for &'a SmallMap<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = Iter<'a, K, V>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K: Ord + Copy, V> std::ops::Index<&K> for SmallMap<K, V> {
    type Output = V;
    fn index(&self, key: &K) -> &V {
        self.get(key).expect("an entry that is there")
    }
}

/// Entries in ascending order.
pub(crate) enum Iter<'a, K, V> {
    Side(slice::Iter<'a, (K, V)>),
    Tree(btree_map::Range<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Side(side) => side.next().map(|(key, value)| (key, value)),
            Self::Tree(tree) => tree.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random changes to this map and to the standard library's, small and large, have the same results.
    #[test]
    fn it_is_an_ordered_map() {
        let mut chance = 7u64;
        for keys in [3, 9, 40] {
            let (mut few, mut all) = (SmallMap::default(), BTreeMap::new());
            for step in 0..2000u64 {
                chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let key = (chance >> 33) % keys;
                match (chance >> 60) % 8 {
                    0..4 => assert_eq!(few.insert(key, step), all.insert(key, step)),
                    4..7 => assert_eq!(few.remove(&key), all.remove(&key)),
                    _ => assert_eq!(few.pop_first(), all.pop_first()),
                }
                assert_eq!((few.len(), few.is_empty()), (all.len(), all.is_empty()));
                assert_eq!((few.get(&key), few.contains_key(&key)), (all.get(&key), all.contains_key(&key)));
                assert!(few.iter().eq(&all) && few.keys().eq(all.keys()) && few.values().eq(all.values()));
                for from in [Bound::Unbounded, Bound::Included(key), Bound::Excluded(key)] {
                    assert!(few.iter_from(from).eq(all.range((from, Bound::Unbounded))));
                }
                few.values_mut().chain(all.values_mut()).for_each(|value| *value += 1);
                if let (Some(one), Some(other)) = (few.get_mut(&key), all.get_mut(&key)) {
                    (*one, *other) = (0, 0);
                }
            }
            for (at, count) in [(0, 2), (1, 3), (2, 40), (30, 20)] {
                let more: Vec<(u64, u64)> = (at..at + count).map(|key| (key * 7, key)).collect();
                few.extend(more.clone());
                all.extend(more);
                assert!(few.iter().eq(&all));
            }
            assert!(few.clone().into_values().eq(all.clone().into_values()));
            assert!(all.clone().into_iter().collect::<SmallMap<_, _>>().iter().eq(&all));
        }
    }
}
