//! Adjacent leaves, and the branches of a map.

use super::leaf::{ENTRIES_MAX, Leaf};

/// Upper bound of the leaves in a branch; a branch that exceeds it splits.
const LEAVES_MAX: usize = 256;
/// A leaf with fewer entries merges with an adjacent one if the result is not too full.
const ENTRIES_MIN: usize = ENTRIES_MAX / 4;
const ENTRIES_JOINED_MAX: usize = ENTRIES_MAX * 3 / 4;

/// A position: branch, leaf in it, entry in that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Spot {
    pub branch: usize,
    pub leaf: usize,
    pub entry: usize,
}

/// Some leaves. `bounds[i]` is at most every key of leaf `i`, and above all earlier keys; no leaf is empty.
#[derive(Clone, Debug)]
struct Branch<V> {
    bounds: Vec<u64>,
    #[allow(clippy::vec_box, reason = "a leaf that is split must not move its 256 neighbours, of 256 bytes each")]
    leaves: Vec<Box<Leaf<V>>>,
}

/// A map of many entries: two levels of bounds above the leaves. The first bound of a branch equals the branch's
/// bound, and that of the first branch is zero.
#[derive(Clone, Debug)]
pub(super) struct Tree<V> {
    bounds: Vec<u64>,
    branches: Vec<Branch<V>>,
    len: usize,
}

/// The last bound that is not above `key`.
#[inline]
fn find(bounds: &[u64], key: u64) -> usize {
    bounds.partition_point(|bound| *bound <= key).saturating_sub(1)
}

impl<V> Tree<V> {
    /// A tree of one leaf, which must not be empty.
    pub fn new(leaf: Leaf<V>) -> Self {
        let len = leaf.len();
        Self { bounds: vec![0], branches: vec![Branch { bounds: vec![0], leaves: vec![Box::new(leaf)] }], len }
    }
    pub fn len(&self) -> usize {
        self.len
    }
    #[inline]
    pub fn leaf(&self, branch: usize, leaf: usize) -> Option<&Leaf<V>> {
        self.branches.get(branch)?.leaves.get(leaf).map(|leaf| &**leaf)
    }
    #[inline]
    pub fn leaf_mut(&mut self, branch: usize, leaf: usize) -> Option<&mut Leaf<V>> {
        self.branches.get_mut(branch)?.leaves.get_mut(leaf).map(|leaf| &mut **leaf)
    }
    pub fn leaves_mut(&mut self) -> impl Iterator<Item = &mut Leaf<V>> {
        self.branches.iter_mut().flat_map(|branch| branch.leaves.iter_mut().map(|leaf| &mut **leaf))
    }
    /// The leaf for a key.
    #[inline]
    pub fn place(&self, key: u64) -> (usize, usize) {
        let branch = find(&self.bounds, key);
        (branch, find(&self.branches[branch].bounds, key))
    }
    /// The next leaf.
    pub fn next_leaf(&self, branch: usize, leaf: usize) -> (usize, usize) {
        if leaf + 1 < self.branches[branch].leaves.len() { (branch, leaf + 1) } else { (branch + 1, 0) }
    }
    /// The last entry before the leaf.
    pub fn last_before(&self, branch: usize, leaf: usize) -> Option<Spot> {
        let (branch, leaf) = if leaf > 0 {
            (branch, leaf - 1)
        } else {
            let branch = branch.checked_sub(1)?;
            (branch, self.branches[branch].leaves.len() - 1)
        };
        Some(Spot { branch, leaf, entry: self.branches[branch].leaves[leaf].len() - 1 })
    }
    /// The last entry of all.
    pub fn last(&self) -> Option<Spot> {
        self.last_before(self.branches.len(), 0)
    }
    /// Inserts a new entry at its position.
    pub fn insert(&mut self, at: Spot, key: u64, value: V) {
        self.len += 1;
        let Spot { branch: b, leaf: l, entry } = at;
        let leaf = &mut self.branches[b].leaves[l];
        if !leaf.is_full() {
            return leaf.insert(entry, key, value);
        }
        // Inserting in ascending order leaves full leaves behind.
        let right = if entry == ENTRIES_MAX {
            Leaf::new(&[key], vec![value])
        } else {
            let mut right = leaf.split_off(ENTRIES_MAX / 2);
            match entry.checked_sub(leaf.len()) {
                Some(entry) if entry > 0 => right.insert(entry, key, value),
                _ => leaf.insert(entry, key, value),
            }
            right
        };
        let branch = &mut self.branches[b];
        branch.bounds.insert(l + 1, right.keys()[0]);
        branch.leaves.insert(l + 1, Box::new(right));
        if branch.leaves.len() > LEAVES_MAX {
            self.split_branch(b);
        }
    }
    #[cold]
    fn split_branch(&mut self, b: usize) {
        let is_last = b + 1 == self.branches.len();
        let branch = &mut self.branches[b];
        let at = if is_last { branch.leaves.len() - 1 } else { branch.leaves.len() / 2 };
        let right = Branch { bounds: branch.bounds.split_off(at), leaves: branch.leaves.split_off(at) };
        self.bounds.insert(b + 1, right.bounds[0]);
        self.branches.insert(b + 1, right);
    }
    /// Removes an entry.
    pub fn remove(&mut self, at: Spot) -> V {
        self.len -= 1;
        let leaf = &mut self.branches[at.branch].leaves[at.leaf];
        let value = leaf.remove(at.entry);
        if leaf.len() < ENTRIES_MIN {
            self.join(at.branch, at.leaf);
        }
        value
    }
    /// Merges a small leaf with an adjacent one in its branch, and removes an empty one.
    fn join(&mut self, b: usize, l: usize) {
        let branch = &mut self.branches[b];
        let fits = |left: usize| {
            let both = branch.leaves.get(left).zip(branch.leaves.get(left + 1));
            both.is_some_and(|(left, right)| left.len() + right.len() <= ENTRIES_JOINED_MAX)
        };
        let left = if fits(l) { Some(l) } else { l.checked_sub(1).filter(|left| fits(*left)) };
        if let Some(left) = left {
            branch.bounds.remove(left + 1);
            let right = branch.leaves.remove(left + 1);
            branch.leaves[left].append(*right);
        } else if branch.leaves[l].len() == 0 && branch.leaves.len() > 1 {
            // The previous leaf takes over the range; for the first leaf, the next one does.
            branch.leaves.remove(l);
            branch.bounds.remove(l.max(1));
        } else if branch.leaves[l].len() == 0 && self.branches.len() > 1 {
            self.branches.remove(b);
            self.bounds.remove(b.max(1));
            if b == 0 {
                self.branches[0].bounds[0] = 0;
            }
        }
    }
    /// The leaf, if there is only one.
    pub fn into_leaf(mut self) -> Option<Leaf<V>> {
        Some(*self.branches.pop()?.leaves.pop()?)
    }
    /// Returns true if all entries are in one leaf.
    pub fn is_one_leaf(&self) -> bool {
        self.branches.len() == 1 && self.branches[0].leaves.len() == 1
    }
    /// Approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        let leaves = self.branches.iter().flat_map(|branch| &branch.leaves).map(|leaf| leaf.memory_bytes() + 16);
        leaves.sum::<usize>() + self.branches.len() * (size_of::<Branch<V>>() + 40)
    }
    /// Checks the invariants; the error names the violated one.
    pub fn check(&self) -> Result<(), &'static str> {
        if self.bounds.len() != self.branches.len() || self.bounds.first() != Some(&0) {
            return Err("a map has not one bound for each branch, from zero on");
        }
        let (mut before, mut len) = (None, 0);
        for (bound, branch) in self.bounds.iter().zip(&self.branches) {
            if branch.bounds.len() != branch.leaves.len() || branch.bounds.first() != Some(bound) {
                return Err("a branch has not one bound for each leaf, from its own on");
            }
            for (bound, leaf) in branch.bounds.iter().zip(&branch.leaves) {
                let keys = leaf.keys();
                if before.is_some_and(|key| key >= *bound) || keys.first().is_none_or(|key| key < bound) {
                    return Err("a leaf has keys on the wrong side of its bound, or none");
                }
                if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
                    return Err("the keys of a leaf are not in ascending order");
                }
                before = keys.last().copied();
                len += leaf.len();
            }
        }
        if len == self.len { Ok(()) } else { Err("a map counts its entries wrongly") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two branches of two leaves each.
    fn whole() -> Tree<u64> {
        let leaf = |from: u64| Box::new(Leaf::new(&[from, from + 1], vec![0, 0]));
        let branch = |bound: u64, from: u64| Branch {
            bounds: vec![bound, from + 10],
            leaves: vec![leaf(from), leaf(from + 10)],
        };
        Tree { bounds: vec![0, 20], branches: vec![branch(0, 0), branch(20, 20)], len: 8 }
    }

    #[test]
    fn a_damaged_tree_is_told_by_its_check() {
        assert_eq!(whole().check(), Ok(()));
        let found = |damage: fn(&mut Tree<u64>)| {
            let mut tree = whole();
            damage(&mut tree);
            tree.check().unwrap_err()
        };
        let of_map = "a map has not one bound for each branch, from zero on";
        assert_eq!(found(|tree| tree.bounds.push(40)), of_map);
        assert_eq!(found(|tree| tree.bounds[0] = 1), of_map);
        let of_branch = "a branch has not one bound for each leaf, from its own on";
        assert_eq!(found(|tree| tree.branches[1].bounds.push(40)), of_branch);
        assert_eq!(found(|tree| tree.bounds[1] = 19), of_branch);
        let of_leaf = "a leaf has keys on the wrong side of its bound, or none";
        assert_eq!(found(|tree| tree.branches[0].bounds[1] = 1), of_leaf, "not above the last key before");
        assert_eq!(found(|tree| tree.branches[0].bounds[1] = 11), of_leaf, "above its first key");
        assert_eq!(found(|tree| *tree.branches[1].leaves[1] = Leaf::new(&[], Vec::new())), of_leaf);
        let order = "the keys of a leaf are not in ascending order";
        assert_eq!(found(|tree| *tree.branches[1].leaves[1] = Leaf::new(&[31, 31], vec![0, 0])), order);
        assert_eq!(found(|tree| tree.len = 9), "a map counts its entries wrongly");
    }
}
