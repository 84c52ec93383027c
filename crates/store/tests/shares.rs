//! Two clients that want a fast tier: each gets its share.

mod world;

use std::collections::BTreeMap;

use cenote_model::*;
use cenote_store::SessionInfo;
use world::*;

/// Bytes leased on `memory` by clients that ask for pieces of these sizes in turn until nobody gets
/// any there.
fn leased_on_memory(world: &mut World, container: ContainerId, pieces: &[u64]) -> BTreeMap<usize, u64> {
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
        for (i, piece) in pieces.iter().enumerate() {
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
