//! Bursts of writes with pauses between: what is copied in the pauses, and who has room when the next burst
//! comes.

mod world;

use cenote_model::*;
use cenote_store::Outcome;
use world::*;

const MIB: usize = 1 << 20;
const BURST: usize = 6;

/// Writes a burst, each MiB an object of its own. Returns the names of tiers where the bytes went.
fn burst(world: &mut World, container: ContainerId, first: u128) -> Vec<String> {
    let mut places = Vec::new();
    for number in 0..BURST as u128 {
        let key = object(container, first + number);
        let _ = world.apply(vec![Update::ObjectCreate { key, block_shift: 12 }], true);
        world.write(key, 0, &vec![number as u8; MIB]).unwrap();
        let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
        for (_, extent) in world.lookup(key).unwrap().extents {
            places.push(devices.iter().find(|d| d.id == extent.device).unwrap().spec.name.clone());
        }
    }
    places
}

fn pause(world: &mut World, ms: u64) {
    for _ in 0..ms.div_ceil(20) {
        world.clock.advance_ns(20_000_000);
        world.work();
    }
}

fn moved_bytes(world: &mut World) -> u64 {
    let Response::Stats(stats) = world.ask(Request::Stats) else { panic!() };
    stats.moved_bytes
}

#[test]
fn a_burst_finds_room_in_memory_since_the_last_one_was_copied_in_the_pause() {
    for policy in ["fast-first", "foresight"] {
        let mut world = World::new(&three_tiers(8 << 20, 64 << 20, 64 << 20));
        let container = world.container("c", Durability::Async);
        let policy_set = Update::ContainerSet {
            id: container,
            spec: ContainerSpec { policy: policy.into(), ..ContainerSpec::default() },
        };
        world.must(vec![policy_set]);
        for round in 0..5 {
            let places = burst(&mut world, container, 100 * round);
            // `foresight` compares the cost of making room with that of writing elsewhere, and may choose the
            // latter.
            let is_in_memory = places.iter().all(|place| place == "memory") || policy == "foresight";
            assert!(is_in_memory, "{policy}, burst {round}: {places:?}");
            pause(&mut world, 400);
            let copied = moved_bytes(&mut world);
            let written = (round as u64 + 1) * (BURST * MIB) as u64;
            let is_copied = copied >= written || policy == "foresight";
            assert!(is_copied, "{policy}, burst {round}: {copied} of {written} copied before it is old");
        }
        for round in 0..5 {
            for number in 0..BURST as u128 {
                let found = world.read(object(container, 100 * round + number)).unwrap();
                assert!(found == vec![number as u8; MIB], "{policy}: object {number} of burst {round}");
            }
        }
        assert!(world.verify().findings.is_empty());
    }
}

#[test]
fn what_is_overwritten_again_and_again_is_left_to_grow_old() {
    const ROUNDS: u64 = 40;
    let mut world = World::new(&three_tiers(32 << 20, 64 << 20, 64 << 20));
    let container = world.container("c", Durability::Async);
    for _ in 0..ROUNDS {
        burst(&mut world, container, 0);
        pause(&mut world, 200);
    }
    // One version every two seconds, and the first few, about which nothing was known yet.
    let copied = moved_bytes(&mut world) / (BURST * MIB) as u64;
    assert!((2..=ROUNDS / 4).contains(&copied), "{copied} of {ROUNDS} versions copied");
}

#[test]
fn a_trickle_is_left_to_grow_old() {
    let mut world = World::new(&three_tiers(32 << 20, 64 << 20, 64 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    for i in 0..9 {
        world.write(key, i * 4096, &[1; 4096]).unwrap();
        pause(&mut world, 200);
    }
    assert_eq!(moved_bytes(&mut world), 0, "1.8 seconds");
    pause(&mut world, 2000);
    assert!(moved_bytes(&mut world) > 0);
}

#[test]
fn cuts_keep_their_pace_while_a_persistent_tier_drains() {
    let mut world = World::new(&three_tiers(8 << 20, 64 << 20, 64 << 20));
    let ballast = world.container("ballast", Durability::Sync);
    for number in 0..24 {
        let key = object(ballast, number);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![number as u8; MIB]).unwrap();
    }
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let before = moved_bytes(&mut world);
    world.seq += 1;
    let (session, seq) = (world.session, world.seq);
    let request = Request::DeviceDrain { name: "file".into() };
    let Outcome::Wait(ticket) = world.engine().handle(session, seq, request) else { panic!("drained at once") };
    // A writer overwrites the same bytes again and again meanwhile.
    let mut writes = 0;
    while !world.engine().take_finished().into_iter().any(|(over, _)| over == ticket) {
        world.write(key, 0, &[writes as u8; 4096]).unwrap();
        writes += 1;
        assert!(writes < 10_000, "the drain has no end");
        world.clock.advance_ns(2_000_000);
        world.step();
    }
    let copied = (moved_bytes(&mut world) - before - 24 * MIB as u64) / 4096;
    assert!(writes >= 20, "only {writes} writes: nothing was seen");
    assert!(copied <= 3, "{copied} of {writes} versions copied while a tier drained");
    assert!(world.verify().findings.is_empty());
}
