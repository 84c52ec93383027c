//! Rendezvous hashing: apart, balanced, by weight, and moving only what it must.

use std::collections::{HashMap, HashSet};

use cenote_layout::{Candidate, Layout, Place, StripeKey, choose, choose_instead, hash_of, near};
use cenote_model::{ContainerId, DeviceId, ErrorKind, NodeId, ObjectId, ObjectKey};
use cenote_workload::Rng;

fn place(node: u16, device: u16) -> Place {
    Place { node: NodeId(node), device: DeviceId(device) }
}

fn candidates(nodes: u16, devices: u16, weight: impl Fn(u16) -> u64) -> Vec<Candidate> {
    let of_node = |node| (0..devices).map(move |device| place(node, device));
    (0..nodes).flat_map(of_node).map(|place| Candidate { place, weight: weight(place.node.0) }).collect()
}

fn key(stripe: u64) -> StripeKey {
    let object = ObjectKey { container: ContainerId(3), object: ObjectId(u128::from(stripe / 16) << 64 | 7) };
    StripeKey { object, stripe: stripe % 16 }
}

fn layout(text: &str) -> Layout {
    text.parse().unwrap()
}

/// Pearson's statistic, and the value that it exceeds once in some 10,000 times (Wilson and Hilferty 1931).
fn chi_square(seen: &[u64], expected: &[f64]) -> (f64, f64) {
    let statistic =
        seen.iter().zip(expected).map(|(seen, expected)| (*seen as f64 - expected).powi(2) / expected).sum();
    let freedom = (seen.len() - 1) as f64;
    let ninth = 2.0 / (9.0 * freedom);
    (statistic, freedom * (1.0 - ninth + 3.72 * ninth.sqrt()).powi(3))
}

#[test]
fn places_are_the_same_on_all_machines_and_versions() {
    // Stripes are found by their maps, not by this; but what changes here moves data of everybody who repairs.
    let all = candidates(8, 2, |node| 100 + u64::from(node));
    let of = |stripe, text: &str| {
        let places = choose(key(stripe), &layout(text), &all).unwrap();
        places.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(hash_of(key(17)), HASH_OF_17);
    assert_eq!([of(0, "4+2"), of(17, "4+2,domain=device"), of(99, "mirror=3")], CHOSEN);
}
const HASH_OF_17: u64 = 3_592_607_945_558_032_544;
const CHOSEN: [&str; 3] =
    ["n3/d0 n5/d1 n0/d1 n7/d1 n6/d1 n1/d1", "n0/d0 n7/d1 n1/d1 n4/d1 n4/d0 n3/d0", "n3/d0 n4/d1 n7/d0"];

#[test]
fn no_two_parts_of_a_stripe_share_a_domain() {
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let (nodes, devices) = (rng.between(1, 12) as u16, rng.between(1, 4) as u16);
        let mut all = candidates(nodes, devices, |_| 0);
        for one in &mut all {
            one.weight = rng.below(4) * rng.size(1 << 40);
        }
        let texts = ["4+2", "mirror=3", "plain", "stripe=5", "2+1,domain=device", "8+3,domain=device"];
        let layout = layout(texts[rng.index(texts.len())]);
        let by_node = layout.domain() == cenote_layout::Domain::Node;
        let name = |place: Place| if by_node { (place.node, DeviceId(0)) } else { (place.node, place.device) };
        let usable: HashSet<_> = all.iter().filter(|one| one.weight > 0).map(|one| name(one.place)).collect();
        let there: HashSet<_> = all.iter().map(|one| name(one.place)).collect();
        match choose(key(seed), &layout, &all) {
            Ok(places) => {
                assert_eq!(places.len(), layout.parts(), "seed {seed}");
                let distinct: HashSet<_> = places.iter().map(|place| name(*place)).collect();
                assert_eq!(distinct.len(), places.len(), "seed {seed}: {places:?}");
                let is_roomy = |place: &Place| all.iter().any(|one| one.place == *place && one.weight > 0);
                assert!(places.iter().all(is_roomy), "seed {seed}: {places:?}");
            }
            Err(error) => {
                assert!(usable.len() < layout.parts(), "seed {seed}: {error}");
                let kind = if there.len() < layout.parts() { ErrorKind::InvalidInput } else { ErrorKind::Full };
                assert_eq!(error.kind(), kind, "seed {seed}: {error}");
                assert!(error.cause().contains(&format!("it needs {} ", layout.parts())), "seed {seed}: {error}");
                let said = if kind == ErrorKind::Full { usable.len() } else { there.len() };
                assert!(error.cause().contains(&format!(" {said} ")), "seed {seed}: {error}");
            }
        }
    }
}

#[test]
fn a_node_of_many_devices_hides_no_other() {
    // The best candidates by far are all of one node: the others have to be found behind them.
    let mut all = candidates(1, 200, |_| 1 << 40);
    all.extend((1..4).map(|node| Candidate { place: place(node, 0), weight: 1 }));
    for stripe in 0..200 {
        let places = choose(key(stripe), &layout("2+2"), &all).unwrap();
        let nodes: HashSet<u16> = places.iter().map(|place| place.node.0).collect();
        assert_eq!(nodes, HashSet::from([0, 1, 2, 3]), "stripe {stripe}");
    }
}

#[test]
fn too_few_domains_are_an_error_that_says_how_many() {
    let error = choose(key(1), &layout("4+2"), &candidates(5, 3, |_| 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "layout `4+2`: invalid: it needs 6 nodes and only 5 nodes can be reached (add nodes, choose a layout of fewer \
         parts, or say domain=device to survive devices only)"
    );
    let error = choose(key(1), &layout("mirror=2"), &candidates(3, 1, |node| u64::from(node == 0))).unwrap_err();
    assert_eq!(error.cause(), "it needs 2 nodes with free space; of the 3 that are there 1 have any");
}

#[test]
fn equal_candidates_get_equal_shares_of_every_part() {
    const STRIPES: u64 = 40_000;
    let (all, layout) = (candidates(20, 1, |_| 1 << 40), layout("4+2"));
    let mut seen = vec![[0_u64; 20]; layout.parts()];
    for stripe in 0..STRIPES {
        for (part, place) in choose(key(stripe), &layout, &all).unwrap().iter().enumerate() {
            seen[part][usize::from(place.node.0)] += 1;
        }
    }
    for (part, seen) in seen.iter().enumerate() {
        let (statistic, bound) = chi_square(seen, &[STRIPES as f64 / 20.0; 20]);
        assert!(statistic < bound, "part {part}: {statistic} of {bound}: {seen:?}");
    }
}

#[test]
fn shares_follow_weights_and_a_node_weighs_what_its_devices_do() {
    const STRIPES: u64 = 60_000;
    let weight = |node| u64::from(node + 1) << 30;
    let all = candidates(8, 3, weight);
    let mut seen = [0_u64; 8];
    for stripe in 0..STRIPES {
        seen[usize::from(choose(key(stripe), &layout("plain"), &all).unwrap()[0].node.0)] += 1;
    }
    let expected: Vec<f64> = (1..=8).map(|weight| STRIPES as f64 * f64::from(weight) / 36.0).collect();
    let (statistic, bound) = chi_square(&seen, &expected);
    assert!(statistic < bound, "{statistic} of {bound}: {seen:?}");
}

#[test]
fn stripes_of_one_object_are_spread_too() {
    const STRIPES: u64 = 20_000;
    let all = candidates(16, 1, |_| 1);
    let object = ObjectKey { container: ContainerId(1), object: ObjectId(1) };
    let mut seen = [0_u64; 16];
    for stripe in 0..STRIPES {
        seen[usize::from(choose(StripeKey { object, stripe }, &layout("plain"), &all).unwrap()[0].node.0)] += 1;
    }
    let (statistic, bound) = chi_square(&seen, &[STRIPES as f64 / 16.0; 16]);
    assert!(statistic < bound, "{statistic} of {bound}: {seen:?}");
}

#[test]
fn a_candidate_that_comes_or_goes_moves_only_its_own_parts() {
    const STRIPES: u64 = 20_000;
    let (all, layout) = (candidates(12, 1, |_| 1), layout("4+2"));
    let gone = place(5, 0);
    let fewer: Vec<Candidate> = all.iter().copied().filter(|one| one.place != gone).collect();
    let mut moved = 0_u64;
    for stripe in 0..STRIPES {
        let with: HashSet<Place> = choose(key(stripe), &layout, &all).unwrap().into_iter().collect();
        let without: HashSet<Place> = choose(key(stripe), &layout, &fewer).unwrap().into_iter().collect();
        let lost: Vec<_> = with.difference(&without).collect();
        assert!(lost.iter().all(|place| **place == gone), "stripe {stripe} moved {lost:?}");
        assert_eq!(lost.len(), without.difference(&with).count(), "stripe {stripe}");
        assert_eq!(lost.is_empty(), !with.contains(&gone), "stripe {stripe}");
        moved += lost.len() as u64;
    }
    // One of 12 equal candidates has 1/12 of all parts; five standard deviations are 1.3% of that.
    let share = moved as f64 / (STRIPES * 6) as f64;
    assert!((share * 12.0 - 1.0).abs() < 0.06, "{share} moved, of 1/12");
}

#[test]
fn a_lost_part_goes_where_it_would_have_gone_and_the_others_stay() {
    let (all, layout) = (candidates(9, 2, |_| 5), layout("4+2"));
    let mut heirs: HashMap<Place, u64> = HashMap::new();
    for stripe in 0..3000 {
        let places = choose(key(stripe), &layout, &all).unwrap();
        let lost = (stripe % 6) as usize;
        let mut kept: Vec<Option<Place>> = places.iter().copied().map(Some).collect();
        kept[lost] = None;
        let live: Vec<Candidate> = all.iter().copied().filter(|one| one.place.node != places[lost].node).collect();
        let again = choose_instead(key(stripe), &layout, &kept, &live).unwrap();
        for part in 0..6 {
            assert_eq!(again[part] == places[part], part != lost, "stripe {stripe}: {places:?} {again:?}");
        }
        let anew: HashSet<Place> = choose(key(stripe), &layout, &live).unwrap().into_iter().collect();
        assert_eq!(again.iter().copied().collect::<HashSet<_>>(), anew, "stripe {stripe}");
        *heirs.entry(again[lost]).or_default() += 1;
    }
    assert_eq!(heirs.len(), 18, "every device inherits some");
}

#[test]
fn of_many_candidates_some_that_follow_each_other_are_looked_at_each_as_often() {
    const STRIPES: u64 = 40_000;
    let (all, layout) = (candidates(300, 1, |_| 1), layout("4+2"));
    let mut seen = [0_u64; 300];
    let mut peers: HashSet<u16> = HashSet::new();
    for stripe in 0..STRIPES {
        let some = near(key(stripe), &all, 20);
        let at = usize::from(some[0].place.node.0);
        assert!(some.iter().enumerate().all(|(step, one)| *one == all[(at + step) % 300]), "stripe {stripe}: {some:?}");
        let nodes: Vec<u16> = choose(key(stripe), &layout, &some).unwrap().iter().map(|place| place.node.0).collect();
        for node in &nodes {
            seen[usize::from(*node)] += 1;
        }
        if nodes.contains(&7) {
            peers.extend(nodes);
        }
    }
    let (statistic, bound) = chi_square(&seen, &[STRIPES as f64 * 6.0 / 300.0; 300]);
    assert!(statistic < bound, "{statistic} of {bound}");
    assert!(peers.iter().all(|node| *node <= 26 || *node >= 288) && peers.len() > 30, "{peers:?}");
}

#[test]
fn a_candidate_more_or_less_moves_those_looked_at_by_one_or_two() {
    let all = candidates(300, 1, |_| 1);
    let fewer: Vec<Candidate> = all.iter().copied().filter(|one| one.place.node.0 != 150).collect();
    for stripe in 0..2000 {
        let with: HashSet<Place> = near(key(stripe), &all, 20).iter().map(|one| one.place).collect();
        let without = near(key(stripe), &fewer, 20);
        let new = without.iter().filter(|one| !with.contains(&one.place)).count();
        assert!(new <= 2, "stripe {stripe}: {new}");
    }
    assert_eq!(near(key(1), &all[..20], 20), &all[..20]);
}
