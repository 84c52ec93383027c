//! A bucket of an object service as the only persistent tier.

mod world;

use cenote_device::mem::Keep;
use cenote_device::object::fake::Trouble;
use cenote_model::*;
use cenote_store::Outcome;
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
        // Space freed by the first is tidied by the second.
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

#[test]
fn copies_fill_packs_and_each_job_is_synced_once() {
    let mut config = memory_and_bucket(48 << 20, 64 << 20);
    config.devices[1].options.set("pack", "4MiB");
    let mut world = World::new(&config);
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    // Jobs to other tiers have 128 KiB here.
    let chunk: Vec<u8> = (0..1u32 << 18).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    for n in 0..32 {
        world.write(key, n << 20, &chunk).unwrap();
    }
    world.flush(FlushTarget::Store).unwrap();
    assert!((8..=12).contains(&packs(&world)), "{} packs for 32 MiB", packs(&world));
}

#[test]
fn a_service_that_dawdles_when_a_tier_is_added_holds_nobody_up() {
    let (mut world, key) = world_with_an_object();
    let mut spec = memory_and_bucket(1 << 20, 8 << 20).devices.remove(1);
    (spec.name, spec.path) = ("colder".into(), "bucket/q".into());
    world.seq += 1;
    let (session, seq) = (world.session, world.seq);
    let add = Request::DeviceAdd { spec: spec.clone() };
    let Outcome::Wait(ticket) = world.engine().handle(session, seq, add.clone()) else { panic!("it was made at once") };
    let job = world.engine().next_job().expect("a job that makes it");
    // Meanwhile the engine answers, and knows which device is being made.
    assert!(
        matches!(world.engine().handle(session, 0, Request::Devices), Outcome::Ready(Response::Devices(all)) if all.len() == 2)
    );
    assert!(matches!(
        world.engine().handle(session, 0, Request::ObjectStat { key }),
        Outcome::Ready(Response::Stat(_))
    ));
    world.seq += 1;
    let seq = world.seq;
    let Outcome::Ready(Response::Failed(again)) = world.engine().handle(session, seq, add) else { panic!("twice") };
    assert_eq!(again.kind(), ErrorKind::Exists);
    let done = job.run();
    world.engine().finish_job(done);
    let answers = world.engine().take_finished();
    assert!(matches!(answers[..], [(found, Response::Device(_))] if found == ticket), "{answers:?}");
    // A service that is away: the tier does not exist, and its name is free again.
    (spec.name, spec.path) = ("coldest".into(), "bucket/r".into());
    world.service.trouble_always(Some(Trouble::Refused(ErrorKind::Io)));
    for _ in 0..2 {
        let Response::Failed(error) = world.ask(Request::DeviceAdd { spec: spec.clone() }) else {
            panic!("it is away")
        };
        assert_eq!(error.kind(), ErrorKind::Io);
    }
    world.service.trouble_always(None);
    let Response::Device(_) = world.ask(Request::DeviceAdd { spec }) else { panic!("it is back") };
    for name in ["coldest", "colder"] {
        assert_eq!(world.ask(Request::DeviceRemove { name: name.into() }), Response::Done);
    }
    world.kill();
    world.open().unwrap();
    assert_eq!(world.used().len(), 2);
}
