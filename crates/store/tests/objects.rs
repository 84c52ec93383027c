//! A bucket of an object service as the only persistent tier.

mod world;

use cenote_device::mem::Keep;
use cenote_device::object::fake::Trouble;
use cenote_model::*;
use world::*;

const MIB: u64 = 1 << 20;

fn packs(world: &World) -> usize {
    world.service.keys().iter().filter(|key| key.contains("/pack-")).count()
}

fn world_with_an_object() -> (World, ObjectKey) {
    let mut world = World::new(&memory_and_bucket(4 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    (world, key)
}

#[test]
fn what_was_flushed_survives_power_loss() {
    let (mut world, key) = world_with_an_object();
    let bytes: Vec<u8> = (0..700_000_u32).map(|i| (i % 251) as u8).collect();
    world.write(key, 0, &bytes).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(key).unwrap() == bytes);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn space_that_is_free_is_given_back_to_the_service() {
    let (mut world, key) = world_with_an_object();
    for round in 0..12_u8 {
        world.write(key, 0, &vec![round; 600_000]).unwrap();
        world.flush(FlushTarget::Store).unwrap();
        world.settle();
    }
    assert!(packs(&world) < 40, "{} packs for 10", packs(&world));
    world.must(vec![Update::ObjectDelete { key }]);
    for _ in 0..2 {
        // What was freed by the first is tidied by the second.
        world.flush(FlushTarget::Store).unwrap();
        world.settle();
        let other = object(key.container, 2);
        world.apply(vec![Update::ObjectCreate { key: other, block_shift: 12 }], false);
        world.write(other, 0, b"so that there is something to sync").unwrap();
    }
    world.flush(FlushTarget::Store).unwrap();
    assert!(packs(&world) < 8, "{} packs for next to nothing", packs(&world));
}

#[test]
fn space_that_the_device_forgot_to_be_free_is_given_back_at_opening() {
    let (mut world, key) = world_with_an_object();
    world.write(key, 0, &vec![1; 900_000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.must(vec![Update::ObjectDelete { key }]);
    // Frees the space, but nothing can be deleted now.
    world.service.trouble_always(Some(Trouble::Refused(ErrorKind::Io)));
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    world.engine().close().unwrap();
    world.engine = None;
    world.service.trouble_always(None);
    let before = packs(&world);
    world.open().unwrap();
    assert!(packs(&world) + 10 < before, "{} of {before} packs", packs(&world));
}

#[test]
fn a_service_that_is_away_delays_and_loses_nothing() {
    let (mut world, key) = world_with_an_object();
    world.write(key, 0, &vec![1; 300_000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.write(key, 0, &vec![2; 300_000]).unwrap();
    for kind in [ErrorKind::Io, ErrorKind::PermissionDenied, ErrorKind::Full] {
        world.service.trouble_always(Some(Trouble::Refused(kind)));
        let error = world.flush(FlushTarget::Store).unwrap_err();
        assert!(error.to_string().contains("cold"), "{error}");
        assert!(world.read(key).unwrap() == vec![2; 300_000], "from memory");
    }
    world.service.trouble_always(None);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(key).unwrap() == vec![2; 300_000]);
}

#[test]
fn a_service_that_was_away_when_the_store_was_opened_comes_back() {
    for kind in [ErrorKind::Io, ErrorKind::PermissionDenied] {
        let (mut world, key) = world_with_an_object();
        let bytes = vec![7; 300_000];
        world.write(key, 0, &bytes).unwrap();
        world.flush(FlushTarget::Store).unwrap();
        world.power_loss(Keep::Nothing);
        world.service.trouble_always(Some(Trouble::Refused(kind)));
        world.open().unwrap();
        assert_eq!(world.report.failed_devices.len(), 1);
        assert!(world.report.failed_devices[0].1.contains("`cold`"), "{:?}", world.report.failed_devices);
        for _ in 0..3 {
            world.clock.advance_ns(6_000_000_000);
            world.work();
        }
        let cold = |world: &mut World| world.engine().device_infos()[1].state;
        assert_eq!(cold(&mut world), DeviceState::Failed, "it is still away");
        world.service.trouble_always(None);
        world.clock.advance_ns(6_000_000_000);
        world.work();
        assert!(world.read(key).unwrap() == bytes, "without the store being opened again");
        assert_eq!(cold(&mut world), DeviceState::Online);
        world.write(key, 0, &[8; 100]).unwrap();
        world.flush(FlushTarget::Store).unwrap();
        world.power_loss(Keep::Nothing);
        world.open().unwrap();
        assert_eq!(world.read(key).unwrap()[..101], [vec![8; 100], vec![7]].concat());
    }
}
