//! Where stripes lie at each size of a cluster, by the real placing of `layout`: how evenly, at what cost, and what a rack
//! or some nodes that die together take with them.

use std::time::Instant;

use cenote_layout::{Candidate, Layout, Place, StripeKey, choose, choose_instead, near};
use cenote_model::{ContainerId, DeviceId, NodeId, ObjectId, ObjectKey};

use crate::rng::Rng;

/// Beyond so many nodes each stripe looks at [`NEAR`] of them.
pub const ALL_MAX: usize = 256;
/// How many candidates a stripe of a large cluster looks at.
pub const NEAR: usize = 128;

/// The key of the `number`-th stripe of a home: a stripe of an object of its own.
pub fn key(home: usize, number: u64) -> StripeKey {
    let object =
        ObjectKey { container: ContainerId(((home as u64 + 1) << 44) + 1), object: ObjectId(u128::from(number)) };
    StripeKey { object, stripe: 0 }
}

/// One device for each node, with equal space, neighbours in different racks.
pub fn candidates(nodes: usize, per_rack: usize) -> Vec<Candidate> {
    let place = |node: usize| Place { node: NodeId(node as u16), device: DeviceId(0) };
    let mut all: Vec<usize> = (0..nodes).collect();
    all.sort_by_key(|node| (node % per_rack, node / per_rack));
    all.into_iter().map(|node| Candidate { place: place(node), weight: 1 << 40 }).collect()
}

/// The places of a stripe as a node of such a cluster chooses them.
pub fn places(key: StripeKey, layout: &Layout, candidates: &[Candidate]) -> Vec<Place> {
    places_instead(key, layout, &vec![None; layout.parts()], candidates)
}

/// The same for a stripe of which some parts have a place.
pub fn places_instead(key: StripeKey, layout: &Layout, kept: &[Option<Place>], candidates: &[Candidate]) -> Vec<Place> {
    let chosen = if candidates.len() > ALL_MAX {
        choose_instead(key, layout, kept, &near(key, candidates, NEAR))
    } else {
        choose_instead(key, layout, kept, candidates)
    };
    chosen.expect("a cluster has more nodes than a stripe has parts")
}

/// How many others a node shares stripes with.
pub fn sharers(nodes: usize) -> usize {
    if nodes > ALL_MAX { 2 * NEAR - 2 } else { nodes - 1 }
}

/// How stripes lie over nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Nodes.
    pub nodes: usize,
    /// How many candidates were looked at for each stripe.
    pub looked_at: usize,
    /// Parts on a node: mean, most, fewest.
    pub parts: (f64, u64, u64),
    /// How many other nodes share a stripe with the first node.
    pub sharers: usize,
    /// Of so many stripes…
    pub stripes: u64,
    /// …those that lose more parts than they survive when one rack dies: the worst rack.
    pub lost_by_rack: u64,
    /// Of a thousand choices of `losses_max + 1` nodes that die together, those that lose some stripe.
    pub lost_by_nodes: u64,
}

/// Places `per_node` stripes for each node and looks at how they lie.
pub fn spread(nodes: usize, per_rack: usize, layout: &Layout, per_node: u64, is_near: bool, seed: u64) -> Spread {
    let all = candidates(nodes, per_rack);
    let looked_at = if is_near { NEAR.min(nodes) } else { nodes };
    let stripes = nodes as u64 * per_node;
    let placed: Vec<Vec<u16>> = (0..stripes)
        .map(|stripe| {
            let key = key((stripe % nodes as u64) as usize, stripe);
            let chosen = choose(key, layout, &near(key, &all, looked_at)).unwrap_or_default();
            chosen.iter().map(|place| place.node.0).collect()
        })
        .collect();
    let mut parts = vec![0_u64; nodes];
    let mut of_node: Vec<Vec<u32>> = vec![Vec::new(); nodes];
    for (stripe, places) in placed.iter().enumerate() {
        for node in places {
            parts[usize::from(*node)] += 1;
            of_node[usize::from(*node)].push(stripe as u32);
        }
    }
    let sharers: std::collections::BTreeSet<u16> = of_node[0]
        .iter()
        .flat_map(|stripe| placed[*stripe as usize].iter().copied())
        .filter(|node| *node != 0)
        .collect();
    Spread {
        nodes,
        looked_at,
        parts: (
            parts.iter().sum::<u64>() as f64 / nodes as f64,
            parts.iter().copied().max().unwrap_or(0),
            parts.iter().copied().min().unwrap_or(0),
        ),
        sharers: sharers.len(),
        stripes,
        lost_by_rack: lost_by_rack(&placed, nodes, per_rack, layout.losses_max()),
        lost_by_nodes: lost_by_nodes(&placed, &of_node, layout.losses_max(), seed),
    }
}

fn lost_by_rack(placed: &[Vec<u16>], nodes: usize, per_rack: usize, losses_max: usize) -> u64 {
    let mut lost = vec![0_u64; nodes.div_ceil(per_rack)];
    for places in placed {
        let racks: Vec<usize> = places.iter().map(|node| usize::from(*node) / per_rack).collect();
        for (at, rack) in racks.iter().enumerate() {
            // Counted once, at the part that is one more than the stripe survives.
            let before = racks[..at].iter().filter(|other| *other == rack).count();
            lost[*rack] += u64::from(before == losses_max);
        }
    }
    lost.into_iter().max().unwrap_or(0)
}

fn lost_by_nodes(placed: &[Vec<u16>], of_node: &[Vec<u32>], losses_max: usize, seed: u64) -> u64 {
    let mut rng = Rng::new(seed);
    let mut lost = 0;
    for _ in 0..1000 {
        let mut dead: Vec<u16> = Vec::new();
        while dead.len() < (losses_max + 1).min(of_node.len()) {
            let node = rng.index(of_node.len()) as u16;
            if !dead.contains(&node) {
                dead.push(node);
            }
        }
        let takes_all = |stripe: &u32| {
            let places = &placed[*stripe as usize];
            places.iter().filter(|node| dead.contains(node)).count() > losses_max
        };
        lost += u64::from(of_node[usize::from(dead[0])].iter().any(takes_all));
    }
    lost
}

/// How likely it is that as many nodes as a layout does not survive, drawn at random, have all that is left of some stripe,
/// if each node has `per_node` stripes and `width` candidates are looked at.
///
/// From the distance of such nodes in the order of candidates: which begins have all of them among their candidates, and how
/// many of the stripes that begin there choose all of them. A test holds it to what [`spread`] counts.
pub fn joint_loss(nodes: usize, width: usize, layout: &Layout, per_node: u64, seed: u64) -> f64 {
    const DRAWS: usize = 20_000;
    let (width, dead) = (width.min(nodes), layout.losses_max() + 1);
    // Of the choices of `parts` among `width`, those with these: (parts / width) * (parts - 1) / (width - 1) * ...
    let chosen: f64 = (0..dead).map(|at| (layout.parts() - at) as f64 / (width - at) as f64).product();
    let mut rng = Rng::new(seed);
    let mut sum = 0.0;
    for _ in 0..DRAWS {
        let mut at: Vec<usize> = Vec::new();
        while at.len() < dead {
            let one = rng.index(nodes);
            if !at.contains(&one) {
                at.push(one);
            }
        }
        at.sort_unstable();
        // The shortest arc of the ring with all of them leaves out the longest gap between two neighbours.
        let gap = |pair: usize| (at[(pair + 1) % dead] + nodes - at[pair] - 1) % nodes + 1;
        let arc = nodes + 1 - (0..dead).map(gap).max().unwrap_or(nodes);
        let begins = if width == nodes { nodes } else { (width + 1).saturating_sub(arc) };
        sum += 1.0 - (-(begins as f64 * per_node as f64 * chosen)).exp();
    }
    sum / DRAWS as f64
}

/// Microseconds of a choice, measured now on this machine: the only thing here that a clock decides.
pub fn cost_us(nodes: usize, is_near: bool, layout: &Layout) -> f64 {
    let all = candidates(nodes, 40);
    let count = (2_000_000 / if is_near { NEAR } else { nodes }).clamp(100, 20_000) as u64;
    let begin = Instant::now();
    let width = if is_near { NEAR } else { nodes };
    let chosen: usize = (0..count)
        .map(|stripe| key(0, stripe))
        .map(|key| {
            if is_near { choose(key, layout, &near(key, &all, width)) } else { choose(key, layout, &all) }
                .map_or(0, |places| places.len())
        })
        .sum();
    std::hint::black_box(chosen);
    begin.elapsed().as_secs_f64() * 1e6 / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_every_stripe_is_somewhere() {
        let layout: Layout = "4+2".parse().unwrap();
        for (nodes, is_near) in [(10, false), (300, false), (300, true)] {
            let spread = spread(nodes, 40, &layout, 50, is_near, 1);
            let (mean, most, fewest) = spread.parts;
            assert!((mean - 300.0).abs() < 1e-9, "{spread:?}");
            assert!(most < 400 && fewest > 200, "{spread:?}");
            let sharers = if is_near { 2 * NEAR - 2 } else { nodes - 1 };
            assert!(spread.sharers <= sharers && spread.sharers * 10 > sharers * 8, "{spread:?}");
        }
    }

    #[test]
    fn a_stripe_is_lost_with_one_part_more_than_it_survives() {
        let placed = vec![vec![0, 1, 2, 80], vec![0, 1, 81, 82], vec![0, 40, 80, 120]];
        assert_eq!(lost_by_rack(&placed, 160, 40, 2), 1);
        assert_eq!(lost_by_rack(&placed, 160, 40, 1), 2);
        assert_eq!(lost_by_rack(&placed, 160, 40, 3), 0);
    }

    #[test]
    fn joint_losses_are_as_likely_as_counting_says() {
        let layout: Layout = "4+2".parse().unwrap();
        for (nodes, is_near, width) in [(100, false, 100), (300, false, 300), (400, true, NEAR)] {
            let counted = spread(nodes, 40, &layout, 100, is_near, 3).lost_by_nodes as f64 / 1000.0;
            let likely = joint_loss(nodes, width, &layout, 100, 4);
            // A thousand draws: five standard deviations.
            let bound = 5.0 * (likely * (1.0 - likely) / 1000.0).sqrt() + 0.002;
            assert!((counted - likely).abs() < bound, "{nodes} {width}: {counted} {likely}");
        }
        let [all, some] = [10_000, NEAR].map(|width| joint_loss(10_000, width, &layout, 25_000, 5));
        assert!(some * 20.0 < all, "{all} {some}");
    }
}
