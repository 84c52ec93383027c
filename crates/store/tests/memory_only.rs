//! Stores without a persistent tier: their cuts cannot be completed, which must cost little, be reported to
//! requesters, and end as soon as a tier is added.

mod world;

use cenote_device::Clock;
use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

fn memory_only(memory: u64) -> StoreConfig {
    StoreConfig { devices: vec![spec("memory", DeviceKind::SharedMemory, memory)], ..StoreConfig::default() }
}

fn filled(containers: usize) -> (World, Vec<ObjectKey>) {
    let mut world = World::new(&memory_only(64 << 20));
    let keys = (0..containers).map(|i| {
        let key = object(world.container(&format!("c{i}"), Durability::Async), 1);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, b"some bytes").unwrap();
        key
    });
    let keys = keys.collect();
    (world, keys)
}

/// Ticks of 50 ms for some seconds without requests.
fn rest(world: &mut World, seconds: u64) {
    for _ in 0..seconds * 20 {
        world.clock.advance_ns(50_000_000);
        while world.step() {}
    }
}

#[test]
fn who_flushes_is_answered_soon_though_cuts_are_tried_seldom() {
    let (mut world, keys) = filled(3);
    rest(&mut world, 300);
    let begin = world.clock.now_ns();
    let error = world.flush(FlushTarget::Container(keys[1].container)).expect_err("there is no such tier");
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("`memory`"), "{error}");
    assert!(world.clock.now_ns() - begin < 3_000_000_000, "{} ns", world.clock.now_ns() - begin);
}

#[test]
fn a_tier_that_is_added_gets_all_that_waited_for_one() {
    let (mut world, keys) = filled(30);
    rest(&mut world, 300);
    let added = Request::DeviceAdd { spec: spec("file", DeviceKind::File, 64 << 20) };
    assert!(matches!(world.ask(added), Response::Device(_)));
    rest(&mut world, 5);
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    for key in keys {
        assert_eq!(world.read(key).unwrap(), b"some bytes");
    }
}

#[test]
fn what_is_deleted_makes_room_while_a_disk_is_slow() {
    const LEN: usize = 512 << 10;
    let mut world = World::new(&memory_only(2 << 20));
    let mut slow = Vec::new();
    for round in 0..200 {
        // A slow disk of the journal: files that are made or written there are never done.
        world.clock.advance_ns(5_000_000);
        world.engine().tick();
        while let Some(job) = world.engine().next_job() {
            match job.timed() {
                Timed::MakeJournal | Timed::Checkpoint | Timed::SyncJournal => slow.push(job),
                _ => {
                    let done = job.run();
                    world.engine().finish_job(done);
                }
            }
        }
        let container = world.container("c", Durability::Async);
        let key = object(container, 1);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![7; LEN]).unwrap_or_else(|error| panic!("round {round}: {error}"));
        world.must(vec![Update::ContainerDelete { id: container }]);
    }
    assert!(slow.iter().any(|job| job.timed() != Timed::SyncJournal), "nothing was slow");
}
