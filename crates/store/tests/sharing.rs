//! Shared ranges: what they cost, what becomes of them, and who may share with whom.

mod world;

use cenote_device::mem::Keep;
use cenote_model::ErrorKind::{Conflict, InvalidInput, LimitExceeded, NotFound};
use cenote_model::*;
use world::*;

const LEN: usize = 300_000;

fn share(from: ObjectKey, offset: u64, to: ObjectKey, at: u64, len: u64) -> Update {
    Update::Share { to, at, from, offset, len }
}
fn create(key: ObjectKey) -> Update {
    Update::ObjectCreate { key, block_shift: 12 }
}
fn refused(world: &mut World, updates: Vec<Update>) -> ErrorKind {
    match world.apply(updates, true) {
        Response::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}
/// Used bytes on all devices, at rest.
fn used(world: &mut World) -> u64 {
    world.settle();
    world.used().iter().map(|(_, used, _)| used).sum()
}
fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}
/// A container with object 1, whose bytes are given.
fn filled(durability: Durability) -> (World, ContainerId, Vec<u8>) {
    let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", durability);
    let content = bytes(7, LEN);
    world.must(vec![create(object(container, 1))]);
    world.write(object(container, 1), 0, &content).unwrap();
    (world, container, content)
}

#[test]
fn what_is_shared_takes_no_space_until_it_is_changed_and_goes_with_the_last_one() {
    for durability in [Durability::Async, Durability::Sync, Durability::Scratch, Durability::Bypass] {
        let (mut world, container, content) = filled(durability);
        let (one, other) = (object(container, 1), object(container, 2));
        world.flush(FlushTarget::Store).unwrap();
        let before = used(&mut world);
        world.must(vec![create(other), share(one, 0, other, 0, LEN as u64)]);
        world.flush(FlushTarget::Store).unwrap();
        assert_eq!(used(&mut world), before, "{durability:?}");
        assert_eq!(world.read(other).unwrap(), content);
        world.write(one, 70_000, &[200; 10]).unwrap();
        assert_eq!(world.read(other).unwrap(), content, "writing goes beside");
        world.must(vec![Update::ObjectDelete { key: one }]);
        world.flush(FlushTarget::Store).unwrap();
        assert_eq!(used(&mut world), before, "what the other one has stays, and no more");
        assert_eq!(world.read(other).unwrap(), content);
        assert!(world.verify().findings.is_empty());
        world.kill();
        world.open().unwrap();
        assert_eq!(world.read(other).unwrap(), content);
        world.must(vec![Update::ObjectDelete { key: other }]);
        world.flush(FlushTarget::Store).unwrap();
        assert_eq!(used(&mut world), 0);
    }
}

#[test]
fn fresh_bytes_get_one_copy_however_many_share_them() {
    let (mut world, container, content) = filled(Durability::Async);
    for n in 2..6 {
        world.must(vec![
            create(object(container, n)),
            share(object(container, 1), 0, object(container, n), 0, LEN as u64),
        ]);
    }
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    let of = |world: &mut World, name: &str| world.used().iter().find(|(found, ..)| found == name).unwrap().1;
    let names: Vec<String> = world.used().iter().map(|(name, ..)| name.clone()).collect();
    let padded = (LEN as u64).next_multiple_of(4096);
    let persistent: u64 = names[1..].iter().map(|name| of(&mut world, name)).sum();
    assert_eq!(persistent, padded, "{:?}", world.used());
    // They leave memory together, come back together, and stay so in the next engine.
    for round in 0..2 {
        let key = object(container, 3);
        let evict =
            Request::Arrange { target: Box::new(ArrangeTarget::Object(key)), what: Arrange::Evict, dry_run: false };
        assert!(matches!(world.ask(evict), Response::Arranged(_)));
        world.settle();
        assert_eq!(of(&mut world, &names[0]), 0, "round {round}");
        let target = Box::new(ArrangeTarget::Object(object(container, 5)));
        let promote = Arrange::Promote { to: Some(names[0].clone()) };
        assert!(matches!(world.ask(Request::Arrange { target, what: promote, dry_run: false }), Response::Arranged(_)));
        world.settle();
        assert_eq!(of(&mut world, &names[0]), (LEN as u64).next_multiple_of(512), "round {round}");
        for n in 1..6 {
            assert_eq!(world.read(object(container, n)).unwrap(), content);
        }
        world.kill();
        world.open().unwrap();
    }
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    for n in 1..6 {
        assert_eq!(world.read(object(container, n)).unwrap(), content);
    }
}

#[test]
fn parts_go_anywhere_holes_with_them() {
    let (mut world, container, content) = filled(Durability::Async);
    let (one, other) = (object(container, 1), object(container, 2));
    world.must(vec![Update::Punch { key: one, offset: 100_000, len: 50_000 }]);
    world.must(vec![create(other)]);
    world.write(other, 0, &vec![9; 200_000]).unwrap();
    world.must(vec![share(one, 90_000, other, 10_000, 100_000)]);
    let mut expected = vec![9; 200_000];
    expected[10_000..20_000].copy_from_slice(&content[90_000..100_000]);
    expected[20_000..70_000].fill(0);
    expected[70_000..110_000].copy_from_slice(&content[150_000..190_000]);
    assert_eq!(world.read(other).unwrap(), expected);
    // Within one object; and past its end, which grows.
    world.must(vec![share(other, 0, other, 200_000, 150_000)]);
    expected.extend_from_within(0..150_000);
    assert_eq!(world.read(other).unwrap(), expected);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(other).unwrap(), expected);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn a_transaction_that_fails_leaves_nothing_of_it() {
    let (mut world, container, content) = filled(Durability::Async);
    let (one, other) = (object(container, 1), object(container, 2));
    world.must(vec![create(other)]);
    world.write(other, 0, &[5; 1000]).unwrap();
    let before = used(&mut world);
    let updates = vec![
        share(one, 0, other, 500, 100_000),
        share(other, 0, one, 10_000, 100_000),
        Update::ObjectDelete { key: object(container, 77) },
    ];
    assert_eq!(refused(&mut world, updates), NotFound);
    assert_eq!((world.read(one).unwrap(), world.read(other).unwrap()), (content, vec![5; 1000]));
    assert_eq!(used(&mut world), before);
    world.must(vec![Update::ObjectDelete { key: one }, Update::ObjectDelete { key: other }]);
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(used(&mut world), 0);
}

#[test]
fn power_loss_takes_it_back_with_the_rest() {
    let (mut world, container, content) = filled(Durability::Async);
    let (one, other) = (object(container, 1), object(container, 2));
    world.must(vec![create(other)]);
    world.write(other, 0, &vec![5; 100_000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.must(vec![share(one, 0, other, 1000, 50_000)]);
    world.must(vec![Update::ObjectDelete { key: one }]);
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!((world.read(one).unwrap(), world.read(other).unwrap()), (content, vec![5; 100_000]));
    assert!(world.verify().findings.is_empty());
}

#[test]
fn objects_of_snapshots_give_and_do_not_take() {
    let (mut world, container, content) = filled(Durability::Async);
    let one = object(container, 1);
    let made =
        Update::SnapshotCreate { of: container, id: ContainerId(0), name: "s".into(), replace: false, unix_ms: 0 };
    world.must(vec![made]);
    let Response::Snapshots(found) = world.ask(Request::SnapshotByName { container, name: "s".into(), pin: false })
    else {
        panic!("no snapshot")
    };
    let kept = object(found[0].id, 1);
    world.write(one, 0, &vec![1; LEN]).unwrap();
    world.must(vec![share(kept, 0, one, 0, LEN as u64)]);
    assert_eq!(world.read(one).unwrap(), content);
    assert_eq!(refused(&mut world, vec![share(one, 0, kept, 0, 10)]), InvalidInput);
    world.must(vec![Update::SnapshotDelete { of: container, name: "s".into() }]);
    world.flush(FlushTarget::Store).unwrap();
    assert!(matches!(refused(&mut world, vec![share(kept, 0, one, 0, 10)]), NotFound | InvalidInput));
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(one).unwrap(), content);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let (mut world, container, _) = filled(Durability::Async);
    let (one, other, missing) = (object(container, 1), object(container, 2), object(container, 3));
    let elsewhere = world.container("d", Durability::Async);
    world.must(vec![create(other)]);
    world.must(vec![create(object(elsewhere, 1))]);
    let len = LEN as u64;
    for (update, kind) in [
        (share(one, 0, other, 0, 0), InvalidInput),
        (share(one, 1, other, 0, len), InvalidInput),
        (share(one, u64::MAX, other, 0, 2), InvalidInput),
        (share(one, 0, other, OBJECT_BYTES_MAX, 2), InvalidInput),
        (share(one, 0, one, 10, 100), InvalidInput),
        (share(one, 0, object(elsewhere, 1), 0, 10), InvalidInput),
        (share(missing, 0, other, 0, 10), NotFound),
        (share(one, 0, missing, 0, 10), NotFound),
    ] {
        assert_eq!(refused(&mut world, vec![update.clone()]), kind, "{update:?}");
    }
    let spec = ContainerSpec { quota_bytes: len + 1000, ..ContainerSpec::default() };
    world.must(vec![Update::ContainerSet { id: container, spec }]);
    assert_eq!(refused(&mut world, vec![share(one, 0, other, 0, 1001)]), LimitExceeded);
    world.must(vec![share(one, 0, other, 0, 1000)]);
    world.must(vec![share(one, 5000, other, 0, 1000)]); // replaces as much
}

#[test]
fn premises_are_about_what_was_there_before() {
    let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", Durability::Async);
    let (records, key) = (index(container, 1), object(container, 1));
    world.must(vec![Update::IndexCreate { key: records }, create(key)]);
    let put = |name: &[u8]| Update::Put { index: records, key: name.to_vec(), value: vec![1], only_new: false };
    let none = |prefix: &[u8]| Check::NoKeys { index: records, prefix: prefix.to_vec() };
    let mut attempt =
        |checks: Vec<Check>, updates: Vec<Update>| match world.ask(Request::Apply { checks, updates, atomic: true }) {
            Response::Applied { .. } => None,
            Response::Failed(error) => Some(error.kind()),
            other => panic!("{other:?}"),
        };
    assert_eq!(attempt(vec![none(b"a/"), none(b"")], vec![put(b"a/x")]), None, "what it puts itself does not count");
    assert_eq!(attempt(vec![none(b"a/")], vec![put(b"b")]), Some(Conflict));
    let del = Update::Del { index: records, key: b"a/x".to_vec() };
    assert_eq!(attempt(vec![none(b"a/")], vec![del.clone()]), Some(Conflict), "what it deletes itself does");
    assert_eq!(attempt(vec![none(b"a0"), none(b"a/y"), none(b"A")], vec![del]), None);
    assert_eq!(attempt(vec![none(b"a")], vec![put(b"b")]), None);
    assert_eq!(attempt(vec![Check::NoKeys { index: index(container, 9), prefix: vec![] }], vec![put(b"c")]), None);
    let size = |size| Check::Size { key, size };
    assert_eq!(attempt(vec![size(0)], vec![Update::Truncate { key, size: 10 }]), None);
    assert_eq!(attempt(vec![size(0)], vec![Update::Truncate { key, size: 20 }]), Some(Conflict));
    assert_eq!(attempt(vec![Check::Size { key: object(container, 5), size: 0 }], vec![put(b"d")]), Some(Conflict));
}
