//! Random puts, reads, deletions, losses, rot, returns and repairs, against an oracle that looks into the places.

use std::collections::{BTreeMap, BTreeSet};

use cenote_device::conformance::seed;
use cenote_device::mem::SplitMix;
use cenote_device::object::ObjectService;
use cenote_device::object::raid::RaidService;
use cenote_device::object::raid::fake::{FakePlace, Mood};

use super::{bytes, flip, mend, places, put, service};

struct Oracle {
    places: Vec<FakePlace>,
    moods: Vec<Mood>,
    /// Acknowledged objects; and those that may or may not be there.
    known: BTreeMap<String, Vec<u8>>,
    unsure: BTreeMap<String, Vec<u8>>,
    /// Files whose bytes were changed.
    rotten: BTreeSet<(usize, String)>,
}

/// Of the name of a part: its number, and how many are needed.
fn part_and_needed(name: &str) -> (u32, usize) {
    let words: Vec<&str> = name.rsplit_once('@').unwrap().1.split('.').collect();
    let data: usize = words[1].split_once('+').unwrap().0.parse().unwrap();
    let unit: u32 = words[2][1..].parse().unwrap();
    let len = usize::from_str_radix(words[3], 16).unwrap();
    let needed = if data == 1 { 1 } else { len.div_ceil(1 << unit).clamp(1, data) };
    (words[0].parse().unwrap(), needed)
}

impl Oracle {
    /// How many more parts an object has than it needs, among these places; negative: it cannot be read.
    fn spare(&self, key: &str, is_usable: impl Fn(usize) -> bool, without: Option<(usize, Option<&str>)>) -> i64 {
        let mut parts = BTreeSet::new();
        let mut needed = 1;
        for at in (0..self.places.len()).filter(|at| is_usable(*at)) {
            for name in self.places[at].names_from(&format!("{key}@")) {
                let (part, of) = part_and_needed(&name);
                needed = of;
                let is_lost =
                    without.is_some_and(|(place, lost)| place == at && lost.is_none_or(|lost| *lost == *name));
                if !is_lost && !self.rotten.contains(&(at, name.clone())) {
                    parts.insert(part);
                }
            }
        }
        parts.len() as i64 - needed as i64
    }
    /// Returns true if every object survives this loss for good.
    fn may_lose(&self, place: usize, name: Option<&str>) -> bool {
        self.known.keys().all(|key| self.spare(key, |_| true, Some((place, name))) >= 0)
    }
    fn is_readable(&self, key: &str) -> bool {
        let usable = |at: usize| !matches!(self.moods[at], Mood::Away | Mood::Wrong | Mood::Unreadable);
        self.spare(key, usable, None) >= 0
    }
    fn away(&self) -> usize {
        self.moods.iter().filter(|mood| matches!(mood, Mood::Away | Mood::Wrong)).count()
    }
    fn set(&mut self, at: usize, mood: Mood) {
        self.places[at].set(mood);
        self.moods[at] = mood;
    }
}

#[test]
fn nothing_is_lost_and_no_wrong_byte_is_read() {
    let seed = seed();
    let rounds = std::env::var("CENOTE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(8);
    for round in 0..rounds {
        life(seed.wrapping_add(round));
    }
}

/// One tier, from an empty one to its last repair.
fn life(seed: u64) {
    let mut rng = SplitMix::new(seed);
    let layouts =
        [("mirror=2", 2), ("mirror=3", 3), ("2+1,unit=4KiB", 3), ("3+2,unit=16KiB", 5), ("4+2,unit=64KiB", 6)];
    let (layout, least) = layouts[rng.below(layouts.len() as u64) as usize];
    let count = least + rng.below(3) as u16;
    let losses = layout.parse::<cenote_layout::Layout>().unwrap().losses_max();
    let places = places(count);
    let mut service = service(layout, &places);
    let moods = vec![Mood::Well; places.len()];
    let mut oracle = Oracle { places, moods, known: BTreeMap::new(), unsure: BTreeMap::new(), rotten: BTreeSet::new() };
    // The good content of rotten files, to see that they were written again.
    let mut good: BTreeMap<(usize, String), Vec<u8>> = BTreeMap::new();
    let about = format!("seed {seed}, {layout} on {count} places");
    for step in 0..300 {
        match rng.below(14) {
            0..=3 => put_one(&service, &mut oracle, &mut rng, step),
            4..=7 => check_one(&service, &oracle, &mut rng, &about),
            8 => delete_one(&service, &mut oracle, &mut rng),
            9 => {
                let mood = [Mood::Away, Mood::ReadOnly, Mood::Full, Mood::Unreadable][rng.below(4) as usize];
                oracle.set(rng.below(u64::from(count)) as usize, mood);
            }
            10 => (0..oracle.places.len()).for_each(|at| oracle.set(at, Mood::Well)),
            11 => oracle.rot(&mut rng, &mut good),
            12 => {
                let at = rng.below(u64::from(count)) as usize;
                if oracle.may_lose(at, None) {
                    oracle.places[at].wipe();
                    oracle.rotten.retain(|(place, _)| *place != at);
                }
            }
            _ if rng.below(2) == 0 => mend(&service),
            _ => service = super::service(layout, &oracle.places),
        }
        oracle.forgive_written(&good);
        if step % 8 == 0 && oracle.away() <= losses {
            check_list(&service, &oracle, &about);
        }
    }
    finish(&service, &mut oracle, &about);
}

fn put_one(service: &RaidService, oracle: &mut Oracle, rng: &mut SplitMix, step: usize) {
    let key = format!("store/pack-{step:05}");
    let len = [100, 60_000, 70_000, 400_000][rng.below(4) as usize];
    let content = bytes(rng.next_u64(), 1 + rng.below(len) as usize);
    match put(service, &key, &content) {
        Ok(()) => drop(oracle.known.insert(key, content)),
        Err(_) => drop(oracle.unsure.insert(key, content)),
    }
}

fn delete_one(service: &RaidService, oracle: &mut Oracle, rng: &mut SplitMix) {
    let key = oracle.known.keys().nth(rng.below(oracle.known.len().max(1) as u64) as usize).cloned();
    if let Some((key, content)) = key.and_then(|key| oracle.known.remove_entry(&key)) {
        let _ = service.delete(&key); // then it may be there or not
        oracle.unsure.insert(key, content);
    }
}

impl Oracle {
    /// Changes a bit of some part, unless an object would not survive that.
    fn rot(&mut self, rng: &mut SplitMix, good: &mut BTreeMap<(usize, String), Vec<u8>>) {
        let at = rng.below(self.places.len() as u64) as usize;
        let names = self.places[at].names();
        let Some(name) = names.get(rng.below(names.len().max(1) as u64) as usize) else { return };
        if !self.may_lose(at, Some(name)) || !self.rotten.insert((at, name.clone())) {
            return;
        }
        let place = &self.places[at];
        place.meddle(name, |file| {
            good.insert((at, name.clone()), file.clone().unwrap());
            file
        });
        let bit = rng.next_u64() as usize;
        flip(place, name, |len| bit % len);
    }
    /// Forgets rotten files that are gone, or have their good content again.
    fn forgive_written(&mut self, good: &BTreeMap<(usize, String), Vec<u8>>) {
        let places = &self.places;
        self.rotten.retain(|(at, name)| {
            let mut is_rotten = false;
            places[*at].meddle(name, |file| {
                is_rotten = file.is_some() && file.as_ref() != good.get(&(*at, name.clone()));
                file
            });
            is_rotten
        });
    }
}

fn check_one(service: &RaidService, oracle: &Oracle, rng: &mut SplitMix, about: &str) {
    let all: Vec<(&String, &Vec<u8>)> = oracle.known.iter().chain(&oracle.unsure).collect();
    if all.is_empty() {
        return;
    }
    let (key, content) = all[rng.below(all.len() as u64) as usize];
    let from = rng.below(content.len() as u64) as usize;
    let len = 1 + rng.below(100_000) as usize;
    match service.get(key, from as u64, len as u64) {
        Ok(found) => {
            let expected = &content[from..(from + len).min(content.len())];
            assert!(found[..] == *expected, "{about}: wrong bytes of {key}");
        }
        Err(refusal) => {
            let is_due = oracle.known.contains_key(key) && oracle.is_readable(key);
            assert!(!is_due, "{about}: {key} has enough parts: {refusal:?}");
        }
    }
}

fn check_list(service: &RaidService, oracle: &Oracle, about: &str) {
    let Ok(found) = service.list("store/") else {
        return; // a place that cannot be listed counts as away
    };
    for (key, len) in &found {
        let content = oracle.known.get(key).or_else(|| oracle.unsure.get(key));
        assert_eq!(content.map(|content| content.len() as u64), Some(*len), "{about}: {key}");
    }
    let usable = |at: usize| !matches!(oracle.moods[at], Mood::Away | Mood::Wrong);
    for key in oracle.known.keys().filter(|key| oracle.spare(key, usable, None) >= 0) {
        assert!(found.iter().any(|(other, _)| other == key), "{about}: {key} is not listed");
    }
}

/// When all places are there again, every acknowledged object is whole.
fn finish(service: &RaidService, oracle: &mut Oracle, about: &str) {
    (0..oracle.places.len()).for_each(|at| oracle.set(at, Mood::Well));
    for _ in 0..3 {
        mend(service);
    }
    for (key, content) in &oracle.known {
        let found = service.get(key, 0, u64::MAX);
        assert!(found.as_ref().is_ok_and(|found| found[..] == content[..]), "{about}: {key}: {:?}", found.err());
    }
    let state = service.state();
    // Remains of refused puts with a bad part among them stay: they may be a loss.
    let is_clean = state.bad_parts == 0 || state.unreadable > 0;
    assert!(state.lacking == state.unreadable && is_clean, "{about}: {state:?}");
}
