//! The allocator beside a plain vector of units.

use cenote_workload::property::{Held, Plan, hold, plans};
use cenote_workload::{Rng, Step};
use proptest::{prop_assert, prop_assert_eq};
use std::collections::HashMap;

use super::*;

#[test]
fn runs_stay_within_segments_and_minimum() {
    let mut map = Bitmap::new(1000, 100);
    let runs = map.take(250, 50, 99);
    assert_eq!(runs, [(0, 100), (100, 100), (200, 50)]);
    map.clear(10, 20);
    map.clear(60, 60);
    assert_eq!(map.take(40, 40, 99), [(250, 40)]);
    assert_eq!(map.free_units(), 1000 - 290 + 80);
    map.mark(290, 710);
    assert_eq!(map.take(100, 40, 99), [(60, 40)], "20 are too few, 20 after the segment's end too");
    assert!(map.take(101, 101, 99).is_empty());
    assert_eq!(map.take(100, 1, 99), [(100, 20), (10, 20)], "next fit");
    assert!(map.take(1, 1, 99).is_empty());
    assert_eq!(map.free_units(), 0);
}

#[test]
fn zones_agree_with_a_plain_vector() {
    let units = ZONE_UNITS * 2 + 777;
    let mut map = Bitmap::new(units, units);
    let mut plain = vec![false; units as usize];
    let mut seed = 7u64;
    let mut random = |bound: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % bound
    };
    for _ in 0..600 {
        let first = random(units);
        let len = 1 + random(units - first).min(40_000);
        let used = random(2) == 0;
        let wrong = plain[first as usize..(first + len) as usize].iter().filter(|u| **u == used).count() as u64;
        assert_eq!(if used { map.mark(first, len) } else { map.clear(first, len) }, wrong);
        plain[first as usize..(first + len) as usize].fill(used);
        let free = plain.iter().filter(|u| !**u).count() as u64;
        assert_eq!(map.free_units(), free);
        let expected = plain.iter().skip(first as usize).position(|u| !u).map(|i| first + i as u64);
        assert_eq!(map.find_free(first, 1), expected);
    }
    let free = map.free_units();
    let taken: u64 = map.take(free, 1, usize::MAX).iter().map(|(_, len)| len).sum();
    assert_eq!(taken, free);
    assert!(!map.is_free(0, 1));
}

/// What [`Bitmap::take`] promises, unit by unit.
fn take_plainly(
    used: &mut [bool],
    segment: usize,
    begin: usize,
    want: usize,
    run_min: usize,
    runs_max: usize,
) -> Vec<(u64, u64)> {
    let (mut runs, mut left) = (Vec::new(), want);
    let units = used.len();
    for (from, to) in [(begin, units), (0, begin)] {
        let mut at = from;
        while at < units && left >= run_min && runs.len() < runs_max {
            let Some(first) = (at..units).find(|unit| !used[*unit]).filter(|first| *first < to) else { break };
            let limit = (first + left).min((first / segment + 1) * segment).min(units);
            let end = (first..limit).find(|unit| used[*unit]).unwrap_or(limit);
            if end - first >= run_min {
                used[first..end].fill(true);
                runs.push((first as u64, (end - first) as u64));
                left -= end - first;
            }
            at = end;
        }
    }
    runs
}

fn longest_plainly(used: &[bool], segment: u64, run_min: u64) -> Option<u64> {
    let runs = used.chunks(segment as usize).flat_map(|segment| segment.split(|used| *used)).map(<[bool]>::len);
    runs.max().map(|longest| longest as u64).filter(|longest| *longest >= run_min)
}

#[test]
fn takes_what_a_search_unit_by_unit_would() {
    let one = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    for seed in one.map_or(0..6, |seed| seed..seed + 1) {
        println!("CENOTE_SEED={seed}");
        let mut state = seed;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let units = ZONE_UNITS * 3 + [0, 500, ZONE_UNITS - 1][random(3) as usize];
        let segment = [units, ZONE_UNITS, 5000, ZONE_UNITS * 2][random(4) as usize];
        let mut map = Bitmap::new(units, segment);
        let mut plain = vec![false; units as usize];
        for _ in 0..400 {
            if random(2) == 0 {
                for _ in 0..[3, 300][random(2) as usize] {
                    let first = random(units);
                    let most = [2, 40, 2000][random(3) as usize];
                    let len = (1 + random(most)).min(units - first);
                    let used = random(5) < 3;
                    if used {
                        map.mark(first, len)
                    } else {
                        map.clear(first, len)
                    };
                    plain[first as usize..(first + len) as usize].fill(used);
                }
            }
            if random(3) == 0 {
                map.rewind();
            }
            let most = [3, 30, 3000][random(3) as usize];
            let run_min = 1 + random(most);
            let (want, runs_max) = (run_min + random(20_000), 1 + random(200) as usize);
            assert_eq!(map.longest(run_min), longest_plainly(&plain, segment, run_min), "CENOTE_SEED={seed}");
            let begin = if map.cursor < units { map.cursor } else { 0 };
            let taken = map.take(want, run_min, runs_max);
            let (want, run_min) = (want as usize, run_min as usize);
            let expected = if run_min as u64 > segment {
                Vec::new()
            } else {
                take_plainly(&mut plain, segment as usize, begin as usize, want, run_min, runs_max)
            };
            assert_eq!(taken, expected, "CENOTE_SEED={seed}");
        }
    }
}

/// Audits check every zone, beside requests: for 64 TiB in units of 4 KiB they may take no more than a moment.
#[test]
fn large_maps_are_checked_at_once() {
    let mut map = Bitmap::new(1 << 34, 1 << 34);
    map.mark(5 * ZONE_UNITS + 7, 3 * ZONE_UNITS);
    let begun = std::time::Instant::now();
    assert_eq!(map.check(), Ok(()));
    assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
}

#[test]
fn wrong_counts_are_found() {
    let map = || {
        let mut map = Bitmap::new(3 * ZONE_UNITS + 100, ZONE_UNITS);
        map.mark(10, 20);
        map.mark(ZONE_UNITS, ZONE_UNITS);
        map.mark(3 * ZONE_UNITS + 64, 36);
        assert_eq!(
            map.take(ZONE_UNITS, ZONE_UNITS, 1),
            [(2 * ZONE_UNITS, ZONE_UNITS)],
            "it knows the longest runs before"
        );
        assert_eq!(map.check(), Ok(()));
        map
    };
    let found = |harm: fn(&mut Bitmap)| {
        let mut map = map();
        harm(&mut map);
        map.check().expect_err("not found")
    };
    assert_eq!(found(|map| map.free_units += 1), "its free units are counted wrongly");
    assert_eq!(found(|map| map.zones[0].free -= 1), "a zone counts its free units wrongly");
    assert_eq!(found(|map| map.zones[3].free += 1), "a zone counts its free units wrongly");
    assert_eq!(found(|map| map.zones[1].free = 1), "a zone without bits is neither free nor used");
    assert_eq!(found(|map| map.zones[2].free = 9), "a zone without bits is neither free nor used");
    assert_eq!(found(|map| map.zones[0].longest = 10), "a zone has a longer run of free units than it says");
    assert_eq!(found(|map| map.zones[3].longest = 63), "a zone has a longer run of free units than it says");
}

/// Tenants take and return space at random; no two hold the same units.
fn follow(plan: &Plan) -> Held {
    let mut rng = Rng::new(plan.seed);
    let units = *rng.pick(&[300, 700, ZONE_UNITS + 100]);
    let segment = *rng.pick(&[units, 64, 250]);
    let mut map = Bitmap::new(units, segment);
    let mut plain = vec![false; units as usize];
    let mut tenants: HashMap<u64, Vec<(u64, u64)>> = HashMap::new();
    let of = |(first, len): (u64, u64)| first as usize..(first + len) as usize;
    plan.each(|step| {
        let gone = tenants.remove(&step.ordinal()).unwrap_or_default();
        for run in gone {
            prop_assert_eq!(map.clear(run.0, run.1), 0);
            plain[of(run)].fill(false);
        }
        if let Step::Put(tenant) = step {
            let run_min = 1 + rng.below(8);
            let runs = map.take(run_min + rng.below(40), run_min, 9);
            for run in &runs {
                prop_assert!(run.1 >= run_min && run.0 / segment == (run.0 + run.1 - 1) / segment);
                prop_assert!(plain[of(*run)].iter().all(|used| !used));
                plain[of(*run)].fill(true);
            }
            tenants.insert(tenant, runs);
        }
        prop_assert_eq!(map.check(), Ok(()));
        prop_assert_eq!(map.free_units(), plain.iter().filter(|used| !**used).count() as u64);
        Ok(())
    })
}

#[test]
fn tenants_that_come_and_go_in_all_orders() {
    hold("allocator", 40, plans(60, 8), follow);
}
