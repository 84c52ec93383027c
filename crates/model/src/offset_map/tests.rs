//! Compares with the standard library's map, under changes drawn from a seed.

use std::collections::BTreeMap;

use cenote_workload::Step;
use cenote_workload::property::{Held, Plan, hold, plans};
use proptest::{prop_assert, prop_assert_eq};

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.0) * u128::from(bound)) >> 64) as u64
    }
}

fn seeds(count: u64) -> impl Iterator<Item = u64> {
    let one = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    (0..count).map(move |seed| one.unwrap_or(seed)).take(if one.is_some() { 1 } else { count as usize })
}

fn compare(map: &OffsetMap<u64>, model: &BTreeMap<u64, u64>, key: u64, seed: u64) {
    assert_eq!(map.get(key), model.get(&key), "CENOTE_SEED={seed}, get {key}");
    let floor = model.range(..=key).next_back().map(|(at, value)| (*at, value));
    assert_eq!(map.floor(key), floor, "CENOTE_SEED={seed}, floor {key}");
    let from = floor.map_or(key, |(at, _)| at);
    let ahead = model.range(from..).take(70).map(|(at, value)| (*at, value));
    assert!(map.from_floor(key).take(70).eq(ahead), "CENOTE_SEED={seed}, from the floor of {key}");
}

/// One history: phases that grow, shrink or churn the map, at random positions, ascending, or in a narrow
/// range.
fn history(seed: u64, steps: u64) {
    let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let mut map = OffsetMap::default();
    let mut model = BTreeMap::new();
    let (mut span, mut grows, mut order, mut next) = (1000, 6, 0, 0);
    for step in 0..steps {
        if random.below(700) == 0 {
            span = [40, 3_000, 100_000, 1 << 62][random.below(4) as usize];
            (grows, order, next) = (random.below(11), random.below(3), random.below(span));
        }
        let key = match order {
            0 => random.below(span),
            1 => {
                next = (next + 1 + random.below(4)) % span;
                next
            }
            _ => (next + random.below(50)) % span,
        };
        if random.below(10) < grows {
            assert_eq!(map.insert(key, step), model.insert(key, step), "CENOTE_SEED={seed}");
        } else {
            let key = if random.below(3) == 0 { key } else { map.floor(key).map_or(key, |(at, _)| at) };
            assert_eq!(map.remove(key), model.remove(&key), "CENOTE_SEED={seed}");
        }
        match random.below(12) {
            0 => compare(&map, &model, random.below(span), seed),
            1 => compare(&map, &model, key, seed),
            2 => {
                let changed = map.floor_mut(key).map(|(at, value)| (at, std::mem::replace(value, step)));
                let expected = model.range_mut(..=key).next_back().map(|(at, old)| (*at, std::mem::replace(old, step)));
                assert_eq!(changed, expected, "CENOTE_SEED={seed}");
            }
            _ => {}
        }
        assert_eq!(map.len(), model.len(), "CENOTE_SEED={seed}");
        if random.below(1000) == 0 {
            check(&mut map, &mut model, seed);
            map.touch((0..100).map(|_| random.below(span)), |value| *value);
            if random.below(6) == 0 {
                map.clear();
                model.clear();
            }
        }
    }
    check(&mut map, &mut model, seed);
    while let Some((key, _)) = map.last() {
        assert_eq!(map.remove(key), model.remove(&key), "CENOTE_SEED={seed}");
    }
    assert!(model.is_empty(), "CENOTE_SEED={seed}");
}

fn check(map: &mut OffsetMap<u64>, model: &mut BTreeMap<u64, u64>, seed: u64) {
    if let Shape::Many(tree) = &map.0 {
        assert_eq!(tree.check(), Ok(()));
    }
    assert!(map.iter().eq(model.iter().map(|(at, value)| (*at, value))), "CENOTE_SEED={seed}");
    assert_eq!(map.last(), model.last_key_value().map(|(at, value)| (*at, value)), "CENOTE_SEED={seed}");
    map.for_each_mut(|key, value| *value ^= key);
    for (key, value) in model.iter_mut() {
        *value ^= key;
    }
}

#[test]
fn agrees_with_the_standard_map() {
    for seed in seeds(40) {
        history(seed, 20_000);
    }
}

#[test]
fn many_branches_agree() {
    for seed in seeds(2) {
        let mut random = Random(seed + 99);
        let mut map = OffsetMap::default();
        let mut model = BTreeMap::new();
        let keys: Vec<u64> = (0..120_000).map(|i| if i < 60_000 { i * 16 } else { random.below(2_000_000) }).collect();
        for key in &keys {
            assert_eq!(map.insert(*key, *key), model.insert(*key, *key), "CENOTE_SEED={seed}");
        }
        check(&mut map, &mut model, seed);
        // Removes whole ranges, the first one included, and then everything in another order.
        for key in (0..30_000).chain(700_000..1_100_000) {
            assert_eq!(map.remove(key), model.remove(&key), "CENOTE_SEED={seed}");
        }
        check(&mut map, &mut model, seed);
        for key in [0, 29_999, 30_000, 900_000, 1_100_000, u64::MAX - 1] {
            compare(&map, &model, key, seed);
        }
        for key in keys.iter().rev() {
            assert_eq!(map.remove(*key), model.remove(key), "CENOTE_SEED={seed}");
        }
        assert!(map.is_empty() && model.is_empty(), "CENOTE_SEED={seed}");
    }
}

#[test]
fn takes_little_memory() {
    let mut map = OffsetMap::default();
    map.insert(0, [0u8; 48]);
    map.insert(1, [0u8; 48]);
    assert_eq!(map.memory_bytes(), 2 * 56);
    for key in 0..100_000 {
        map.insert(key, [0; 48]);
    }
    assert!((100_000 * 56..100_000 * 64).contains(&map.memory_bytes()), "{} bytes in order", map.memory_bytes());
    let mut random = Random(1);
    let mut map = OffsetMap::default();
    while map.len() < 100_000 {
        map.insert(random.below(1 << 60), [0u8; 48]);
    }
    assert!((100_000 * 56..100_000 * 88).contains(&map.memory_bytes()), "{} bytes at random", map.memory_bytes());
}

#[test]
fn touching_looks_at_the_entry_before_each_key() {
    let mut map = OffsetMap::default();
    for key in 0..100_000u64 {
        map.insert(key * 10, key);
    }
    let seen = std::cell::RefCell::new(Vec::new());
    map.touch((0..1000).map(|key| key * 990 + 5), |value| {
        seen.borrow_mut().push(*value);
        *value
    });
    assert!(seen.into_inner().into_iter().eq((0..1000).map(|key| key * 99)));
}

/// Offsets with gaps, so that searches between two offsets occur too.
fn follow(plan: &Plan) -> Held {
    let (mut map, mut model) = (OffsetMap::default(), BTreeMap::new());
    plan.each(|step| {
        let key = step.ordinal() * 4096 + plan.seed % 3;
        match step {
            Step::Put(value) => prop_assert_eq!(map.insert(key, value), model.insert(key, value)),
            Step::Del(_) => prop_assert_eq!(map.remove(key), model.remove(&key)),
        }
        prop_assert_eq!(map.check(), Ok(()));
        prop_assert_eq!(map.len(), model.len());
        for key in [key, key - 1, key + 1] {
            let floor = model.range(..=key).next_back().map(|(at, value)| (*at, value));
            prop_assert_eq!(map.floor(key), floor);
        }
        prop_assert_eq!(map.last(), model.last_key_value().map(|(at, value)| (*at, value)));
        Ok(())
    })?;
    prop_assert!(map.iter().eq(model.iter().map(|(at, value)| (*at, value))));
    Ok(())
}

#[test]
fn offsets_that_come_and_go_in_all_orders() {
    hold("offset map", 100, plans(300, 8), follow);
}
