//! Containers by their labels. An opening only asks of each label whether it is taken: hashes answer that without a
//! second copy of the labels. The order of labels is computed when it is first needed, and kept from then on.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::OnceLock;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// Slots of containers by their labels. The labels themselves are in the containers.
#[derive(Debug, Default)]
pub(crate) struct Labels {
    /// Randomly keyed: programs choose labels, and must not be able to predict collisions.
    hasher: RandomState,
    /// With the hash of the label.
    slots: HashTable<(u64, u32)>,
    ordered: OnceLock<Ordered>,
}

/// The slots in order of labels.
#[derive(Debug, Default)]
pub(crate) struct Ordered(BTreeMap<String, u32>);

impl Ordered {
    /// The slots of the labels after this one.
    pub fn after(&self, after: Option<&str>) -> impl Iterator<Item = u32> {
        let from = after.map_or(Unbounded, Excluded);
        self.0.range::<str, _>((from, Unbounded)).map(|(_, slot)| *slot)
    }
}

impl Labels {
    /// Returns the slot with this label; `has` says whether a slot has it.
    pub fn find(&self, label: &str, has: impl Fn(u32) -> bool) -> Option<u32> {
        let hash = self.hasher.hash_one(label);
        self.slots.find(hash, |(other, slot)| *other == hash && has(*slot)).map(|(_, slot)| *slot)
    }
    /// Adds a slot with a label that no other has.
    pub fn insert(&mut self, label: &str, slot: u32) {
        let hash = self.hasher.hash_one(label);
        self.slots.insert_unique(hash, (hash, slot), |(hash, _)| *hash);
        if let Some(ordered) = self.ordered.get_mut() {
            ordered.0.insert(label.to_owned(), slot);
        }
    }
    /// Removes a slot's label; does nothing if the slot does not have it.
    pub fn remove(&mut self, label: &str, slot: u32) {
        let hash = self.hasher.hash_one(label);
        let Ok(entry) = self.slots.find_entry(hash, |other| *other == (hash, slot)) else { return };
        entry.remove();
        if let Some(ordered) = self.ordered.get_mut().filter(|ordered| ordered.0.get(label) == Some(&slot)) {
            ordered.0.remove(label);
        }
    }
    /// Returns the slots in order of labels.
    pub fn ordered<'a>(&'a self, label_of: impl Fn(u32) -> &'a str) -> &'a Ordered {
        let all = || self.slots.iter().map(|(_, slot)| (label_of(*slot).to_owned(), *slot)).collect();
        self.ordered.get_or_init(|| Ordered(all()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_and_listed_however_they_came_and_went() {
        for asks_early in [false, true] {
            let mut names: Vec<String> = Vec::new();
            let mut labels = Labels::default();
            let list = |labels: &Labels, names: &[String], after: Option<&str>| {
                labels.ordered(|_| "").after(after).map(|slot| names[slot as usize].clone()).collect::<Vec<_>>()
            };
            if asks_early {
                assert!(list(&labels, &names, None).is_empty());
            }
            for slot in 0..500u32 {
                names.push(format!("/data/run-{}.h5", (slot * 7919) % 500));
                labels.insert(&names[slot as usize], slot);
            }
            for slot in (0..500).step_by(3) {
                labels.remove(&names[slot as usize], slot);
                labels.remove("not there", slot);
                // Another slot's entry stays.
                labels.remove(&names[slot as usize + 1], slot);
            }
            let mut left: Vec<String> = (0..500).filter(|slot| slot % 3 != 0).map(|slot| names[slot].clone()).collect();
            left.sort();
            let ordered = labels.ordered(|slot| &names[slot as usize]);
            let found: Vec<String> = ordered.after(None).map(|slot| names[slot as usize].clone()).collect();
            assert_eq!(found, left);
            assert_eq!(list(&labels, &names, Some(&left[100])), left[101..]);
            for (slot, name) in names.iter().enumerate() {
                let found = labels.find(name, |other| names[other as usize] == *name);
                assert_eq!(found, (slot % 3 != 0).then_some(slot as u32));
            }
        }
    }
}
