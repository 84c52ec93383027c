//! What is known of the objects: which parts lie on which places. Made by listing, kept up by every put and deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::part::{Edition, PartName};

/// The number of a place in its tier, from 0.
pub(super) type Seat = u16;

/// The parts of one edition of an object that are known.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub edition: Edition,
    /// Part and place, ascending. A part may lie on two places, when one of them was away for a while.
    pub at: Vec<(u8, Seat)>,
    /// Since when there have been too few parts, with all places there: the remains of a put, or of a deletion.
    pub too_few_since: Option<Instant>,
}

impl Kept {
    fn new(edition: Edition) -> Self {
        Self { edition, at: Vec::new(), too_few_since: None }
    }
    /// The place of each part, among the places that `is_here` names.
    pub fn seats(&self, is_here: impl Fn(Seat) -> bool) -> Vec<Option<Seat>> {
        let mut seats = vec![None; self.edition.shape.parts()];
        for (part, seat) in &self.at {
            if is_here(*seat) {
                seats[usize::from(*part)].get_or_insert(*seat);
            }
        }
        seats
    }
    /// How many parts there are, among the places that `is_here` names.
    pub fn count(&self, is_here: impl Fn(Seat) -> bool) -> usize {
        self.seats(is_here).iter().flatten().count()
    }
    pub fn name(&self, key: &str, part: u8) -> String {
        PartName { key: key.to_owned(), part, edition: self.edition }.encode()
    }
}

/// A part on a place.
pub(super) type PartAt = (String, Edition, u8, Seat);

#[derive(Default)]
pub(super) struct Index {
    objects: BTreeMap<String, Vec<Kept>>,
    /// Parts whose files are there and cannot be used.
    bad: BTreeSet<PartAt>,
    /// Raised with each change of a place's parts, so that a listing that was overtaken is not believed.
    changes: BTreeMap<Seat, u64>,
}

impl Index {
    pub fn editions(&self, key: &str) -> &[Kept] {
        self.objects.get(key).map_or(&[], Vec::as_slice)
    }
    pub fn edition(&self, key: &str, edition: Edition) -> Option<&Kept> {
        self.editions(key).iter().find(|kept| kept.edition == edition)
    }
    pub fn keys(&self) -> Vec<String> {
        self.objects.keys().cloned().collect()
    }
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Kept)> {
        self.objects.iter().flat_map(|(key, all)| all.iter().map(move |kept| (key, kept)))
    }
    pub fn len(&self) -> usize {
        self.objects.len()
    }
    pub fn bad_parts(&self) -> usize {
        self.bad.len()
    }
    pub fn all_bad(&self) -> Vec<PartAt> {
        self.bad.iter().cloned().collect()
    }
    /// Objects of which no good part is known, and some bad one.
    pub fn only_bad(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.bad.iter().map(|(key, ..)| key.clone()).collect();
        keys.dedup();
        keys.retain(|key| self.editions(key).is_empty());
        keys
    }
    /// The bad parts of an object.
    pub fn bad_of_key(&self, key: &str) -> Vec<(Edition, u8, Seat)> {
        let of = self.bad.iter().filter(|(bad, ..)| bad == key);
        of.map(|(_, edition, part, seat)| (*edition, *part, *seat)).collect()
    }
    /// The bad parts of an edition.
    pub fn bad_of(&self, key: &str, edition: Edition) -> Vec<(u8, Seat)> {
        let of = self.bad.iter().filter(|(bad, kept, ..)| bad == key && *kept == edition);
        of.map(|(.., part, seat)| (*part, *seat)).collect()
    }
    pub fn changes(&self, seat: Seat) -> u64 {
        self.changes.get(&seat).copied().unwrap_or(0)
    }
    fn changed(&mut self, seat: Seat) {
        *self.changes.entry(seat).or_default() += 1;
    }

    /// A good part is there.
    pub fn add(&mut self, key: &str, edition: Edition, part: u8, seat: Seat) {
        self.changed(seat);
        if !self.bad.is_empty() {
            self.bad.remove(&(key.to_owned(), edition, part, seat));
        }
        self.insert(key, edition, part, seat);
    }
    fn insert(&mut self, key: &str, edition: Edition, part: u8, seat: Seat) {
        if !self.objects.contains_key(key) {
            self.objects.insert(key.to_owned(), Vec::new());
        }
        let Some(all) = self.objects.get_mut(key) else { return };
        let at = all.iter().position(|kept| kept.edition == edition).unwrap_or_else(|| {
            all.push(Kept::new(edition));
            all.len() - 1
        });
        let kept = &mut all[at];
        if let Err(place) = kept.at.binary_search(&(part, seat)) {
            kept.at.insert(place, (part, seat));
        }
    }
    /// A part is not there.
    pub fn remove(&mut self, key: &str, edition: Edition, part: u8, seat: Seat) {
        self.changed(seat);
        self.bad.remove(&(key.to_owned(), edition, part, seat));
        self.forget(key, |kept| kept.edition == edition, |at| at == (part, seat));
    }
    /// A part is there and cannot be used: it is to be written again.
    pub fn mark_bad(&mut self, key: &str, edition: Edition, part: u8, seat: Seat) {
        self.changed(seat);
        self.bad.insert((key.to_owned(), edition, part, seat));
        let Some(kept) = self.objects.get_mut(key).and_then(|all| all.iter_mut().find(|k| k.edition == edition)) else {
            return;
        };
        kept.at.retain(|at| *at != (part, seat));
    }
    fn forget(&mut self, key: &str, of: impl Fn(&Kept) -> bool, is_it: impl Fn((u8, Seat)) -> bool) {
        let Some(all) = self.objects.get_mut(key) else { return };
        for kept in all.iter_mut().filter(|kept| of(kept)) {
            kept.at.retain(|at| !is_it(*at));
        }
        all.retain(|kept| !kept.at.is_empty());
        if all.is_empty() {
            self.objects.remove(key);
        }
    }
    pub fn set_too_few(&mut self, key: &str, edition: Edition, since: Option<Instant>) {
        let all = self.objects.get_mut(key);
        if let Some(kept) = all.and_then(|all| all.iter_mut().find(|kept| kept.edition == edition)) {
            kept.too_few_since = since;
        }
    }

    /// Takes over what a listing of a place says of all names below `prefix`. `changes`: their number before the listing
    /// began; with another one now, the listing says nothing for sure, and only the caller has it.
    pub fn listed(&mut self, seat: Seat, prefix: &str, parts: &[PartName], changes: u64) {
        if self.changes(seat) != changes {
            return;
        }
        let new: BTreeSet<(&str, Edition, u8)> =
            parts.iter().map(|name| (name.key.as_str(), name.edition, name.part)).collect();
        let below = |key: &String| key.starts_with(prefix);
        let mut gone = Vec::new();
        for (key, kept) in self.iter().filter(|(key, _)| below(key)) {
            let lost = kept.at.iter().filter(|at| at.1 == seat).map(|at| at.0);
            let lost = lost.filter(|part| !new.contains(&(key.as_str(), kept.edition, *part)));
            gone.extend(lost.map(|part| (key.clone(), kept.edition, part)));
        }
        for (key, edition, part) in gone {
            self.forget(&key, |kept| kept.edition == edition, |at| at == (part, seat));
        }
        self.bad.retain(|(key, edition, part, at)| {
            *at != seat || !key.starts_with(prefix) || new.contains(&(key.as_str(), *edition, *part))
        });
        for (key, edition, part) in new {
            if !self.bad.contains(&(key.to_owned(), edition, part, seat)) {
                self.insert(key, edition, part, seat);
            }
        }
    }
    /// Forgets everything that a place has.
    pub fn lose(&mut self, seat: Seat) {
        self.changed(seat);
        self.bad.retain(|(.., at)| *at != seat);
        for all in self.objects.values_mut() {
            for kept in all.iter_mut() {
                kept.at.retain(|at| at.1 != seat);
            }
            all.retain(|kept| !kept.at.is_empty());
        }
        self.objects.retain(|_, all| !all.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::super::shape::Shape;
    use super::*;

    fn edition(id: u64) -> Edition {
        Edition { shape: Shape::of(&"2+1".parse().unwrap(), 1 << 20), id }
    }

    #[test]
    fn a_listing_adds_and_removes_unless_it_was_overtaken() {
        let mut index = Index::default();
        let name = |key: &str, part| PartName { key: key.into(), part, edition: edition(1) };
        index.listed(0, "", &[name("a/x", 0), name("b", 1)], 0);
        index.listed(1, "", &[name("a/x", 1)], 0);
        assert_eq!(index.edition("a/x", edition(1)).unwrap().at, [(0, 0), (1, 1)]);
        index.listed(0, "a/", &[], 0);
        assert_eq!(index.edition("a/x", edition(1)).unwrap().at, [(1, 1)]);
        assert_eq!(index.editions("b").len(), 1, "the listing said nothing of it");
        let before = index.changes(0);
        index.add("c", edition(2), 0, 0);
        index.listed(0, "", &[], before);
        assert_eq!(index.keys(), ["a/x", "b", "c"]);
    }

    #[test]
    fn bad_parts_are_not_taken_for_good_ones_by_a_listing() {
        let mut index = Index::default();
        index.add("a", edition(1), 0, 0);
        index.add("a", edition(1), 1, 1);
        index.mark_bad("a", edition(1), 0, 0);
        let name = PartName { key: "a".into(), part: 0, edition: edition(1) };
        index.listed(0, "", std::slice::from_ref(&name), index.changes(0));
        assert_eq!(index.edition("a", edition(1)).unwrap().at, [(1, 1)]);
        assert_eq!(index.bad_parts(), 1);
        index.add("a", edition(1), 0, 0);
        assert_eq!((index.bad_parts(), index.edition("a", edition(1)).unwrap().at.len()), (0, 2));
        index.lose(1);
        assert_eq!(index.edition("a", edition(1)).unwrap().at, [(0, 0)]);
        index.remove("a", edition(1), 0, 0);
        assert_eq!(index.len(), 0);
    }
}
