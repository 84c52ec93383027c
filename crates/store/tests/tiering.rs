//! Moves between tiers: requested by people, ahead of reads, and by policies.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

const MIB: usize = 1 << 20;

fn pattern(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[2] ^ seed).collect()
}

/// The names of the tiers on which an object is read, each once, in the order of offsets.
fn places(world: &mut World, key: ObjectKey) -> Vec<String> {
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    let mut names: Vec<String> = Vec::new();
    for (_, extent) in world.lookup(key).unwrap().extents {
        let name = devices.iter().find(|d| d.id == extent.device).unwrap().spec.name.clone();
        if names.last() != Some(&name) {
            names.push(name);
        }
    }
    names
}

fn arrange(world: &mut World, target: ArrangeTarget, what: Arrange, dry_run: bool) -> Arrangement {
    match world.ask(Request::Arrange { target: Box::new(target), what, dry_run }) {
        Response::Arranged(arrangement) => *arrangement,
        other => panic!("{other:?}"),
    }
}

fn used(world: &mut World, name: &str) -> u64 {
    world.settle();
    world.used().into_iter().find(|(tier, ..)| tier == name).unwrap().1
}

#[test]
fn an_object_goes_up_and_down_and_nothing_is_lost_with_the_power() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", Durability::Bypass);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let content = pattern(1, MIB);
    world.write(key, 0, &content).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(places(&mut world, key), ["capacity"]);
    let object = ArrangeTarget::Object(key);

    let planned = arrange(&mut world, object.clone(), Arrange::Promote { to: None }, true);
    assert_eq!((planned.ranges, planned.bytes, planned.moved_bytes), (1, MIB as u64, MIB as u64));
    assert_eq!((planned.moves[0].from.as_str(), planned.moves[0].to.as_str()), ("capacity", "memory"));
    assert!(planned.cost_ns > 0);
    assert_eq!(places(&mut world, key), ["capacity"], "a dry run moves nothing");

    let done = arrange(&mut world, object.clone(), Arrange::Promote { to: None }, false);
    assert_eq!((done.ranges, done.bytes), (1, MIB as u64));
    assert_eq!(places(&mut world, key), ["memory"]);
    assert_eq!(world.read(key).unwrap(), content);
    assert!(used(&mut world, "capacity") >= MIB as u64, "it stays where it was, too");

    world.kill();
    world.open().unwrap();
    assert_eq!(places(&mut world, key), ["memory"]);
    assert_eq!(world.read(key).unwrap(), content);
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(places(&mut world, key), ["capacity"]);
    assert_eq!(world.read(key).unwrap(), content);

    arrange(&mut world, object.clone(), Arrange::Promote { to: Some("memory".into()) }, false);
    let left = arrange(&mut world, object.clone(), Arrange::Evict, false);
    assert_eq!((left.bytes, left.moved_bytes), (MIB as u64, 0), "leaving costs no I/O");
    assert_eq!(places(&mut world, key), ["capacity"]);
    assert_eq!(used(&mut world, "memory"), 0);
    let there = arrange(&mut world, object.clone(), Arrange::Evict, false);
    assert_eq!((there.ranges, there.staying_bytes, there.already_bytes), (0, 0, MIB as u64), "no tier is below");

    arrange(&mut world, object.clone(), Arrange::Promote { to: Some("file".into()) }, false);
    assert_eq!(places(&mut world, key), ["file"]);
    world.flush(FlushTarget::Store).unwrap(); // the journal, too
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(places(&mut world, key), ["file"], "it was synced before it counted");
    assert_eq!(world.read(key).unwrap(), content);
    arrange(&mut world, object, Arrange::Demote { to: Some("capacity".into()) }, false);
    assert_eq!(places(&mut world, key), ["capacity"]);
    assert_eq!(used(&mut world, "file"), 0);
    assert_eq!(world.read(key).unwrap(), content);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn a_part_of_a_long_extent_goes_alone() {
    let mut world = World::new(&three_tiers(48 << 20, 0x20_0000, 64 << 20));
    let container = world.container("c", Durability::Bypass);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let content = pattern(9, 15 * MIB);
    world.write(key, 0, &content).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    let range = ArrangeTarget::Range { key, offset: 5 * MIB as u64, len: 10 };
    let done = arrange(&mut world, range, Arrange::Promote { to: Some("memory".into()) }, false);
    assert_eq!(done.bytes, 4 * MIB as u64, "the piece around it");
    assert_eq!(places(&mut world, key), ["capacity", "memory", "capacity"]);
    assert_eq!(world.read(key).unwrap(), content);
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(places(&mut world, key), ["capacity"]);
    assert!(world.verify().findings.is_empty());
}

fn with_a_service(memory: u64) -> StoreConfig {
    StoreConfig {
        devices: vec![spec("memory", DeviceKind::SharedMemory, memory), spec("service", DeviceKind::S3, 64 << 20)],
        ..StoreConfig::default()
    }
}

#[test]
fn what_is_on_a_service_is_brought_before_it_is_read() {
    let mut world = World::new(&with_a_service(2 << 20));
    let container = world.container("c", Durability::Async);
    let contents: Vec<_> = (0..6).map(|i| pattern(i, MIB / 2)).collect();
    for (i, content) in contents.iter().enumerate() {
        let key = object(container, i as u128);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, content).unwrap(); // six halves of a MiB through a memory of two: they drain to the service
        world.flush(FlushTarget::Store).unwrap();
    }
    let all = ArrangeTarget::Container(container);
    arrange(&mut world, all, Arrange::Evict, false);
    for round in 0..3 {
        for (i, content) in contents.iter().enumerate() {
            let key = object(container, i as u128);
            let ranges = vec![(0, content.len() as u64)];
            let brought = world.ask(Request::Fetch { key, ranges, ahead: false, must: true });
            assert_eq!(brought, Response::Done, "round {round}");
            assert_eq!(places(&mut world, key), ["memory"], "round {round}");
            assert_eq!(world.read(key).unwrap(), *content);
        }
    }
    assert!(world.verify().findings.is_empty());
    // A fetch that is impossible fails, instead of never answering.
    let key = object(container, 0);
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Evict, false);
    let full = world.container("full", Durability::Scratch);
    let other = object(full, 1);
    world.must(vec![Update::ObjectCreate { key: other, block_shift: 12 }]);
    let mut offset = 0;
    while world.write(other, offset, &pattern(3, 64 << 10)).is_ok() {
        offset += 64 << 10;
    }
    let ranges = vec![(0, 1 << 19)];
    match world.ask(Request::Fetch { key, ranges, ahead: false, must: true }) {
        Response::Failed(error) => {
            assert_eq!(error.kind(), ErrorKind::Full);
            assert!(error.to_string().contains("memory"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn clients_get_no_space_on_services() {
    let mut world = World::new(&with_a_service(1 << 20));
    for durability in [Durability::Sync, Durability::Bypass] {
        let container = world.container(&format!("{durability:?}"), durability);
        let error = world.room(container, 4096).expect_err("a client cannot write there");
        assert_eq!(error.kind(), ErrorKind::Full);
    }
}

#[test]
fn bad_arrangements_are_refused() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    let refused = |world: &mut World, target, what| match world.ask(Request::Arrange {
        target: Box::new(target),
        what,
        dry_run: false,
    }) {
        Response::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    };
    let promote = |to: Option<&str>| Arrange::Promote { to: to.map(str::to_owned) };
    let nothing = ArrangeTarget::Object(key);
    assert_eq!(refused(&mut world, nothing, promote(None)), ErrorKind::NotFound);
    let gone = ArrangeTarget::Container(ContainerId(99));
    assert_eq!(refused(&mut world, gone, promote(None)), ErrorKind::NotFound);
    let here = || ArrangeTarget::Container(container);
    assert_eq!(refused(&mut world, here(), promote(Some("tape"))), ErrorKind::NotFound);
    let done = arrange(&mut world, here(), promote(None), false);
    assert_eq!(done, Arrangement::default(), "nothing to move is no error");
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &pattern(1, 4096)).unwrap();
    let up = arrange(&mut world, here(), promote(Some("memory")), false);
    assert_eq!((up.already_bytes, up.staying_bytes), (4096, 0), "{}", up.staying_why);
}
