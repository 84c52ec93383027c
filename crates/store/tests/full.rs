//! Stores without room: deletes make room at once, whatever waits for room; and power loss meanwhile leaves a prefix.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

/// A store of which every tier is full, and the objects in it.
fn full_world() -> (World, ContainerId, Vec<ObjectKey>) {
    let mut world = World::new(&three_tiers(256 << 10, 64 << 10, 64 << 10));
    let container = world.container("c", Durability::Async);
    let mut written = Vec::new();
    for n in 1..200 {
        let key = object(container, n);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        if let Err(error) = world.write(key, 0, &[n as u8; 4096]) {
            assert_eq!(error.kind(), ErrorKind::Full, "{error}");
            break;
        }
        written.push(key);
        world.step();
    }
    assert!(written.len() > 20, "{}", written.len());
    (world, container, written)
}

#[test]
fn a_full_store_is_emptied_by_deletes_at_once() {
    let (mut world, container, written) = full_world();
    let _ = world.flush(FlushTarget::Store);
    let before = world.now_ns();
    for key in &written {
        world.must(vec![Update::ObjectDelete { key: *key }]);
    }
    for _ in 0..5 {
        world.clock.advance_ns(20_000_000);
        world.work();
    }
    let waited_ms = (world.now_ns() - before) / 1_000_000;
    assert!(waited_ms < 500, "{waited_ms} ms");
    for (name, used, _) in world.used() {
        assert_eq!(used, 0, "{name}");
    }
    let key = object(container, 500);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[1; 4096]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
}

#[test]
fn power_loss_while_deletes_wait_for_room_leaves_a_prefix() {
    for deleted in [0, 1, 5, 17] {
        for keep in [Keep::Nothing, Keep::Everything] {
            let (mut world, _, written) = full_world();
            for key in &written[..deleted] {
                world.must(vec![Update::ObjectDelete { key: *key }]);
                world.step();
            }
            world.clock.advance_ns(20_000_000);
            world.work();
            world.power_loss(keep);
            world.open().unwrap();
            // Objects were made in order, then deleted in order: a prefix is a stretch of them.
            let there: Vec<bool> = written.iter().map(|key| world.read(*key).is_ok_and(|b| !b.is_empty())).collect();
            let first = there.iter().position(|there| *there).unwrap_or(there.len());
            let last = there.iter().rposition(|there| *there).map_or(first, |at| at + 1);
            let nothing = first == there.len(); // no cut found room
            assert!((first <= deleted || nothing) && there[first..last].iter().all(|there| *there), "{there:?}");
            assert!(first == 0 || nothing || last == written.len(), "deletes outlived writes before them: {there:?}");
            for (n, key) in written.iter().enumerate().filter(|(n, _)| there[*n]) {
                assert_eq!(world.read(*key).unwrap(), [n as u8 + 1; 4096]);
            }
        }
    }
}

#[test]
fn a_store_at_rest_says_at_once_that_it_is_full() {
    let (mut world, container, written) = full_world();
    let lease = Request::Lease { container, bytes: 4096, run_min: 4096, avoid: vec![] };
    let kind = |world: &mut World| match world.ask(lease.clone()) {
        Response::Failed(error) => Some(error.kind()),
        _ => None,
    };
    for _ in 0..5 {
        world.clock.advance_ns(20_000_000);
        world.work();
    }
    assert_eq!(kind(&mut world), Some(ErrorKind::Full));
    // What deleting frees is worth waiting for.
    for key in &written {
        world.must(vec![Update::ObjectDelete { key: *key }]);
    }
    assert_eq!(kind(&mut world), Some(ErrorKind::Busy));
    world.room(container, 4096).unwrap();
}

/// What [`overwritten_world`] has written in a round: blocks with holes between them.
fn content_of(round: u8) -> Vec<u8> {
    let mut all = [vec![round; 4096], vec![0; 4096]].concat().repeat(16);
    all.truncate(31 * 4096);
    all
}

/// Writes an object over and over, more than its container can bring on media.
fn overwritten_world(rounds: u8) -> (World, ContainerId, ObjectKey) {
    let mut world = World::new(&three_tiers(512 << 10, 64 << 10, 48 << 10));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    for round in 1..=rounds {
        for block in 0..16 {
            world.write(key, block * 8192, &[round; 4096]).unwrap();
            world.step();
        }
        if round == 1 {
            world.flush(FlushTarget::Store).unwrap();
        }
        world.clock.advance_ns(700_000_000); // until cuts are due, and renewed
        world.work();
    }
    (world, container, key)
}

#[test]
fn what_has_no_room_on_media_does_not_pile_up_in_memory() {
    let (mut world, container, key) = overwritten_world(60);
    assert_eq!(world.flush(FlushTarget::Store).unwrap_err().kind(), ErrorKind::Full);
    let (_, used, _) = world.used().remove(0);
    assert!(used <= 256 << 10, "{used} bytes of memory for 64 KiB");
    assert_eq!(world.read(key).unwrap(), content_of(60));
    // Room for it comes, and all is well.
    let other = object(container, 2);
    world.must(vec![Update::ObjectCreate { key: other, block_shift: 12 }]);
    world.must(vec![Update::Truncate { key, size: 4096 }]);
    world.clock.advance_ns(700_000_000);
    world.work();
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap(), [60; 4096]);
}

#[test]
fn what_was_brought_on_media_is_gone_back_to_whatever_piled_up() {
    for rounds in [2, 3, 20] {
        for reopened in [false, true] {
            let (mut world, _, key) = overwritten_world(rounds);
            if reopened {
                world.open().unwrap(); // after the death of the process
                world.clock.advance_ns(700_000_000);
                world.work();
            }
            world.power_loss(Keep::Nothing);
            world.open().unwrap();
            assert_eq!(world.read(key).unwrap(), content_of(1), "{rounds} rounds, reopened: {reopened}");
        }
    }
}
