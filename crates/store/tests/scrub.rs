//! The scrub repairs extents that have a good copy, and reports what it could not repair.

mod world;

use std::sync::atomic::Ordering;

use cenote_model::*;
use world::*;

const MIB: u64 = 1 << 20;

/// Runs a round of the scrub with the resulting jobs. Returns its findings.
fn round(world: &mut World) -> Vec<Finding> {
    for _ in 0..3 {
        world.clock.advance_ns(61_000_000_000);
        world.work();
    }
    world.engine().take_findings()
}

#[test]
fn what_has_a_good_copy_is_repaired_and_the_rest_is_said_once() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let bytes = vec![7; 100_000];
    world.write(key, 0, &bytes).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    assert_eq!(round(&mut world), []);
    let id = world.engine().id();
    let place = |world: &mut World| {
        let extent = world.lookup(key).unwrap().extents[0].1.clone();
        (extent.device, extent.run_offset + 70_000)
    };
    let (memory, at) = place(&mut world);
    assert!(world.devices.corrupt(id, memory, at, 1));
    assert_eq!(round(&mut world), [], "it has a copy");
    assert_ne!(place(&mut world).0, memory);
    assert!(world.read(key).unwrap() == bytes);
    // Now there is one place alone.
    let (disk, at) = place(&mut world);
    assert!(world.devices.corrupt(id, disk, at, 1));
    let found = round(&mut world);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].key == key && found[0].what.contains("no copy"), "{found:?}");
    assert_eq!(round(&mut world), [], "said once");
    let Response::Stats(stats) = world.ask(Request::Stats) else { panic!() };
    assert_eq!(stats.scrub_findings, 1);
}

/// A copy is bad, which nobody notices while reads come from memory: it must not become the only place.
#[test]
fn a_bad_copy_is_written_again_before_anything_leaves_for_it() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at / 7) as u8).collect();
    world.write(key, 0, &bytes).unwrap();
    // The device accepts the write, but holds other bytes then.
    world.writes_lie.store(true, Ordering::Relaxed);
    world.flush(FlushTarget::Store).unwrap();
    world.writes_lie.store(false, Ordering::Relaxed);
    let report = world.verify();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    // The requester knows now, and so does the store.
    let place = |world: &mut World| world.lookup(key).unwrap().extents[0].1.device;
    let memory = place(&mut world);
    let Response::Arranged(done) = evict(&mut world, key) else { panic!() };
    assert_eq!(done.staying_bytes, 200_000, "{done:?}");
    assert_eq!(place(&mut world), memory);
    assert_eq!(round(&mut world), []);
    assert!(world.verify().findings.is_empty());
    let Response::Arranged(done) = evict(&mut world, key) else { panic!() };
    assert_ne!(place(&mut world), memory, "{done:?}");
    assert!(world.read(key).unwrap() == bytes);
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(key).unwrap() == bytes);
}

#[test]
fn two_bad_places_are_told_as_such() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[7; 5000]).unwrap();
    let extent = world.lookup(key).unwrap().extents[0].1.clone();
    world.flush(FlushTarget::Store).unwrap();
    let id = world.engine().id();
    assert!(world.devices.corrupt(id, extent.device, extent.run_offset + 10, 1));
    // The copy is the first data on the only persistent device that has any.
    let used: Vec<String> = world.used().into_iter().filter(|(_, used, _)| *used > 0).map(|(name, ..)| name).collect();
    let names = ["memory", "file", "capacity"];
    let disk = names.iter().position(|name| *name != "memory" && used.contains(&(*name).to_owned())).unwrap();
    let disk = DeviceId(disk as u16 + 1);
    let device = world.engine().device(disk).unwrap();
    let mut bytes = vec![0; MIB as usize];
    device.read_at(0, &mut bytes).unwrap();
    let at = bytes.windows(100).position(|window| window == [7; 100]).unwrap();
    assert!(world.devices.corrupt(id, disk, at as u64, 1));
    let found = round(&mut world);
    assert!(found.iter().any(|finding| finding.what.contains("its copy cannot be read either")), "{found:?}");
}

/// Writes objects of these bytes, and corrupts their copies on the disk behind the store's back.
fn spoiled(world: &mut World, objects: &[(u128, u8)]) -> Vec<ObjectKey> {
    let container = world.container("c", Durability::Async);
    let mut keys = Vec::new();
    for (number, byte) in objects {
        let key = object(container, *number);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![*byte; 100_000]).unwrap();
        keys.push(key);
    }
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    let devices = world.engine().device_infos();
    let disk = devices.iter().find(|info| info.spec.name != "memory" && info.used_bytes > 0).unwrap().id;
    let mut all = vec![0; MIB as usize];
    world.engine().device(disk).unwrap().read_at(0, &mut all).unwrap();
    for (_, byte) in objects {
        let at = all.windows(100).position(|window| window.iter().all(|other| other == byte)).unwrap();
        let id = world.engine().id();
        assert!(world.devices.corrupt(id, disk, at as u64 + 70_000, 1));
    }
    keys
}

fn evict(world: &mut World, key: ObjectKey) -> Response {
    let target = Box::new(ArrangeTarget::Object(key));
    world.ask(Request::Arrange { target, what: Arrange::Evict, dry_run: false })
}

/// One copy on a device was found bad; the scrub has not reached the other one, which is bad as well.
#[test]
fn bytes_leave_for_a_copy_on_a_damaged_device_only_if_that_is_good() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let keys = spoiled(&mut world, &[(1, 7), (2, 9)]);
    let report = match world.ask(Request::Verify { target: FlushTarget::Object(keys[0]) }) {
        Response::Verified(report) => report,
        other => panic!("{other:?}"),
    };
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let Response::Failed(error) = evict(&mut world, keys[1]) else { panic!("it left for a bad copy") };
    let said = error.to_string();
    assert!(
        said.contains("its copy on another tier is bad") && said.contains(&format!("object {}", keys[1])),
        "{said}"
    );
    assert!(world.read(keys[1]).unwrap() == vec![9; 100_000]);
    // The copy is written again, so that the object may leave.
    world.settle();
    let Response::Arranged(done) = evict(&mut world, keys[1]) else { panic!() };
    assert_eq!(done.bytes, 100_000, "{done:?}");
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(keys[1]).unwrap() == vec![9; 100_000]);
}

/// The next opening remembers it, for a day; then nothing is doubted any more, not by later openings either.
#[test]
fn that_a_device_has_shown_damage_is_remembered_across_openings() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let keys = spoiled(&mut world, &[(1, 7), (2, 9)]);
    let Response::Verified(_) = world.ask(Request::Verify { target: FlushTarget::Object(keys[0]) }) else { panic!() };
    world.settle();
    world.kill();
    world.open().unwrap();
    let Response::Failed(error) = evict(&mut world, keys[1]) else { panic!("it left for a bad copy") };
    assert!(error.to_string().contains("its copy on another tier is bad"), "{error}");
    world.settle();
    world.clock.advance_ns(25 * 3600 * 1_000_000_000);
    world.settle();
    world.kill();
    world.open().unwrap();
    world.byte_ns.store(1, Ordering::Relaxed);
    let before = world.now_ns();
    let Response::Arranged(done) = evict(&mut world, keys[1]) else { panic!() };
    assert_eq!((done.bytes, world.now_ns() - before), (100_000, 0));
}

/// The same where the store itself makes room: writers wait for it, and do not get `Full`.
#[test]
fn room_is_made_by_copies_that_were_read_where_a_device_is_damaged() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let keys = spoiled(&mut world, &[(1, 7), (2, 9)]);
    let Response::Verified(_) = world.ask(Request::Verify { target: FlushTarget::Object(keys[0]) }) else { panic!() };
    let container = keys[0].container;
    for number in 3..120 {
        let key = object(container, number);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![number as u8; 100_000]).unwrap();
        world.settle();
    }
    for (key, byte) in keys.iter().zip([7, 9]) {
        assert!(world.read(*key).unwrap() == vec![byte; 100_000], "{key}");
    }
    let in_memory = |world: &mut World| {
        (3..120)
            .filter(|number| world.lookup(object(container, *number)).unwrap().extents[0].1.device == DeviceId(1))
            .count()
    };
    assert!(in_memory(&mut world) < 60, "much left memory all the same");
}

/// An eviction to a copy on a device without damage costs no I/O at all.
#[test]
fn bytes_leave_without_io_where_no_device_has_shown_damage() {
    let mut world = World::new(&three_tiers(4 * MIB, 16 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &vec![7; 100_000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    world.byte_ns.store(1, Ordering::Relaxed);
    let before = world.now_ns();
    let Response::Arranged(done) = evict(&mut world, key) else { panic!() };
    assert_eq!((done.bytes, world.now_ns() - before), (100_000, 0));
}
