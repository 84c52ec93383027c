//! Clients and containers that want a fast tier: each gets its share.

mod world;

use std::collections::BTreeMap;

use cenote_model::*;
use cenote_store::SessionInfo;
use world::*;

/// Bytes leased on `memory` by clients that ask for pieces of these sizes in turn until nobody gets
/// any there.
fn leased_on_memory(world: &mut World, container: ContainerId, pieces: &[u64]) -> BTreeMap<usize, u64> {
    leased_by(world, &pieces.iter().map(|piece| (container, *piece)).collect::<Vec<_>>())
}

/// The same for clients of several containers.
fn leased_by(world: &mut World, pieces: &[(ContainerId, u64)]) -> BTreeMap<usize, u64> {
    let sessions: Vec<_> = (0..pieces.len())
        .map(|i| {
            let who = SessionInfo {
                nonce: 100 + i as u128,
                pid: 2,
                started: 1,
                uid: 0,
                write: true,
                ..SessionInfo::default()
            };
            world.engine().session_open(who).unwrap()
        })
        .collect();
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    let memory = devices.iter().find(|d| d.spec.name == "memory").unwrap().id;
    let mut got: BTreeMap<usize, u64> = BTreeMap::new();
    for seq in 1..200 {
        for (i, (container, piece)) in pieces.iter().enumerate() {
            let container = *container;
            let (bytes, run_min, avoid) = (*piece, *piece as u32, vec![]);
            world.session = sessions[i];
            let lease = Request::Lease { container, bytes, run_min, avoid, durability: None };
            let Response::Lease(lease) = world.ask_as(seq, lease) else { return got };
            let there = lease.runs.iter().filter(|run| run.device == memory).map(|run| run.len);
            *got.entry(i).or_default() += there.sum::<u64>();
        }
        world.clock.advance_ns(1_000_000);
    }
    got
}

#[test]
fn a_greedy_client_leaves_the_others_room_on_the_fast_tier() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let container = world.container("c", Durability::Async);
    let got = leased_on_memory(&mut world, container, &[4 << 20, 256 << 10]);
    let (greedy, modest) = (got[&0], got[&1]);
    // Requests are 16 to 1; three quarters of the room are given out before it is scarce.
    assert!(modest >= 10 << 20, "{greedy} and {modest}");
    assert!(greedy + modest > 50 << 20, "the tier is used: {greedy} and {modest}");
}

#[test]
fn who_is_alone_gets_all_of_it() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let container = world.container("c", Durability::Async);
    let got = leased_on_memory(&mut world, container, &[4 << 20]);
    assert!(got[&0] >= 52 << 20, "{got:?}");
}

fn weighted(world: &mut World, label: &str, weight: u16) -> ContainerId {
    let spec = ContainerSpec { weight, ..ContainerSpec::default() };
    match world.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }], true) {
        Response::Applied { created: Some(id), .. } => id,
        other => panic!("{other:?}"),
    }
}

fn weight(world: &mut World, id: ContainerId) -> u16 {
    let Response::Container(info) = world.ask(Request::ContainerById { id }) else { panic!("no container") };
    info.spec.weight
}

/// Bytes on `memory` of two containers with these weights, whose clients want as much as they can get.
fn divided(weights: [u16; 2]) -> [u64; 2] {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let all = [weighted(&mut world, "a", weights[0]), weighted(&mut world, "b", weights[1])];
    let got = leased_by(&mut world, &all.map(|container| (container, 512 << 10)));
    [got[&0], got[&1]]
}

#[test]
fn containers_share_by_weight() {
    let [a, b] = divided([1, 1]);
    assert!(a.abs_diff(b) <= 1 << 20 && a + b > 50 << 20, "{a} and {b}");
    // Until room is scarce all get what they want; then the one with more weight goes on alone.
    let [light, heavy] = divided([1, 4]);
    assert!(heavy >= light + (8 << 20) && light + heavy > 50 << 20, "{light} and {heavy}");
    let [heavy, light] = divided([4, 1]);
    assert!(heavy >= light + (8 << 20), "{light} and {heavy}");
    let [a, b] = divided([300, 300]);
    assert!(a.abs_diff(b) <= 1 << 20, "only the ratio counts: {a} and {b}");
}

#[test]
fn weights_are_kept_and_bounded() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let (plain, heavy) = (weighted(&mut world, "plain", 1), weighted(&mut world, "heavy", 4));
    let set = |weight| Update::ContainerSet { id: heavy, spec: ContainerSpec { weight, ..ContainerSpec::default() } };
    world.must(vec![set(7)]);
    for weight in [0, CONTAINER_WEIGHT_MAX + 1] {
        let Response::Failed(error) = world.apply(vec![set(weight)], true) else { panic!("{weight} was taken") };
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.cause().contains("1 to 1000"), "{error}");
    }
    // From the journal, and from a checkpoint.
    for _ in 0..2 {
        world.kill();
        world.open().unwrap();
        assert_eq!([plain, heavy].map(|id| weight(&mut world, id)), [1, 7]);
        assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    }
}
