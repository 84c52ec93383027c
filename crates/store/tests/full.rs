//! Stores without room: deletions make room at once, whatever waits for room, and power loss meanwhile leaves a
//! prefix.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

/// A store in which every tier is full, and the objects in it.
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
    let lease = Request::Lease { container, bytes: 4096, run_min: 4096, avoid: vec![], durability: None };
    let kind = |world: &mut World| match world.ask(lease.clone()) {
        Response::Failed(error) => Some(error.kind()),
        _ => None,
    };
    for _ in 0..5 {
        world.clock.advance_ns(20_000_000);
        world.work();
    }
    assert_eq!(kind(&mut world), Some(ErrorKind::Full));
    // Space that a deletion frees is worth waiting for.
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

/// Overwrites an object again and again, with more than its container can bring to media.
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
    // Once there is room for it, all is well.
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

/// A store in which all room on the file tier is in pieces of 128 KiB, and an object without bytes.
fn fragmented_world() -> (World, ObjectKey) {
    let mut world = World::new(&three_tiers(4 << 20, (1 << 20) + 4096, 16 << 10));
    let container = world.container("c", Durability::Async);
    let small: Vec<ObjectKey> = (1..=8).map(|n| object(container, n)).collect();
    for key in &small {
        world.must(vec![Update::ObjectCreate { key: *key, block_shift: 12 }]);
        world.write(*key, 0, &vec![key.object.0 as u8; 128 << 10]).unwrap();
        world.flush(FlushTarget::Store).unwrap(); // each by itself, so that they lie in order
    }
    for key in small.iter().step_by(2) {
        world.must(vec![Update::ObjectDelete { key: *key }]);
    }
    world.flush(FlushTarget::Store).unwrap(); // deleted space is about to become free
    let key = object(container, 100);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    (world, key)
}

/// More than the longest piece of room, and no whole number of checksum units.
fn long_content() -> Vec<u8> {
    (0..300_000u32).map(|n| (n / 1000) as u8).collect()
}

#[test]
fn what_is_longer_than_any_piece_of_room_is_copied_in_parts() {
    for reopened in [false, true] {
        let (mut world, key) = fragmented_world();
        world.write(key, 4096, &long_content()).unwrap();
        let extents = world.lookup(key).unwrap().extents.len();
        world.flush(FlushTarget::Store).unwrap();
        assert!(world.lookup(key).unwrap().extents.len() > extents, "in one piece all the same");
        if reopened {
            world.kill();
            world.open().unwrap();
            assert!(world.read(key).unwrap()[4096..] == long_content());
        }
        world.power_loss(Keep::Nothing);
        world.open().unwrap();
        assert!(world.read(key).unwrap()[4096..] == long_content());
        // All of its room is free again.
        world.must(vec![Update::ObjectDelete { key }]);
        world.flush(FlushTarget::Store).unwrap();
        world.settle();
        assert_eq!(world.used()[1].1, 4 * (128 << 10));
    }
}

#[test]
fn what_was_replaced_after_a_cut_is_copied_in_parts() {
    let overwritten = |world: &mut World, key| _ = world.write(key, 4096, &vec![1; 300_000]).unwrap();
    let shortened = |world: &mut World, key| _ = world.must(vec![Update::Truncate { key, size: 70_000 }]);
    let deleted = |world: &mut World, key| _ = world.must(vec![Update::ObjectDelete { key }]);
    for (what, change) in [
        ("overwritten", &overwritten as &dyn Fn(&mut World, ObjectKey)),
        ("shortened", &shortened),
        ("deleted", &deleted),
    ] {
        for reopened in [false, true] {
            let (mut world, key) = fragmented_world();
            world.settle();
            world.write(key, 4096, &long_content()).unwrap();
            world.clock.advance_ns(3_000_000_000);
            world.engine().tick(); // the cut begins
            change(&mut world, key);
            world.work();
            world.clock.advance_ns(20_000_000); // the journal is synced, and without a tick no other cut begins
            while let Some(job) = world.engine().next_job() {
                let done = job.run();
                world.engine().finish_job(done);
            }
            if reopened {
                world.kill();
                world.open().unwrap();
            }
            world.power_loss(Keep::Nothing);
            world.open().unwrap();
            let (found, expected) = (world.read(key).unwrap(), [vec![0; 4096], long_content()].concat());
            let differs = found.iter().zip(&expected).position(|(found, expected)| found != expected);
            assert_eq!((found.len(), differs), (expected.len(), None), "{what}, reopened: {reopened}");
            assert!(world.verify().findings.is_empty());
        }
    }
}

#[test]
fn what_leaves_a_device_finds_room_in_pieces() {
    let (mut world, key) = fragmented_world();
    world.settle();
    let Response::Device(_) = world.ask(Request::DeviceAdd { spec: spec("new", DeviceKind::File, 1 << 20) }) else {
        panic!("it cannot be added")
    };
    world.write(key, 4096, &long_content()).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    assert!(world.used()[2].1 > 300_000, "the copy is on the device that has room for it in one piece");
    for name in ["new", "memory"] {
        let Response::Done = world.ask(Request::DeviceDrain { name: name.into() }) else { panic!("{name}") };
        world.settle();
    }
    let extents = world.lookup(key).unwrap().extents;
    assert!(extents.len() > 1 && extents.iter().all(|(_, extent)| extent.device == extents[0].1.device));
    assert!(world.read(key).unwrap()[4096..] == long_content());
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(key).unwrap()[4096..] == long_content());
}
