//! Snapshots: what they cost, what they keep, and what a rollback restores.

mod world;

use cenote_device::mem::Keep;
use cenote_model::ErrorKind::{Exists, InvalidInput, NotFound};
use cenote_model::*;
use world::*;

const LEN: usize = 300_000;

fn create(of: ContainerId, name: &str, replace: bool) -> Update {
    Update::SnapshotCreate { of, id: ContainerId(0), name: name.into(), replace, unix_ms: 0 }
}

fn find(world: &mut World, container: ContainerId, name: &str, pin: bool) -> Result<SnapshotInfo> {
    match world.ask(Request::SnapshotByName { container, name: name.into(), pin }) {
        Response::Snapshots(mut found) => Ok(found.remove(0)),
        Response::Failed(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn refused(world: &mut World, update: Update) -> ErrorKind {
    match world.apply(vec![update], true) {
        Response::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    }
}

/// All of these in one request.
fn together(world: &mut World, updates: Vec<Update>) -> std::result::Result<(), ErrorKind> {
    match world.apply(updates, true) {
        Response::Failed(error) => Err(error.kind()),
        _ => Ok(()),
    }
}

#[test]
fn snapshots_of_several_containers_are_made_together_or_not_at_all() {
    let (mut world, one) = filled(Durability::Async);
    let two = world.container("d", Durability::Async);
    world.must(vec![Update::IndexCreate { key: index(two, 1) }]);
    let record = |value: u8| Update::Put { index: index(two, 1), key: vec![1], value: vec![value], only_new: false };
    world.must(vec![record(1)]);
    together(&mut world, vec![create(one, "s", false), create(two, "s", false)]).unwrap();
    let ids = [one, two].map(|of| find(&mut world, of, "s", false).unwrap().id);
    assert_ne!(ids[0], ids[1]);
    change(&mut world, one);
    world.must(vec![record(2)]);

    // The second one is refused, so the first one is not made, and numbers are given as if neither had been.
    world.must(vec![create(two, "taken", false)]);
    let refused = together(&mut world, vec![create(one, "taken", false), create(two, "taken", false)]);
    assert_eq!(refused, Err(Exists));
    assert_eq!(find(&mut world, one, "taken", false).unwrap_err().kind(), NotFound);
    let mixed = vec![create(one, "x", false), record(3)];
    assert_eq!(together(&mut world, mixed), Err(InvalidInput));
    let twice = vec![create(one, "x", false), create(one, "y", false)];
    assert_eq!(together(&mut world, twice), Err(InvalidInput));
    assert!(matches!(
        world.apply(vec![create(one, "x", false), create(two, "x", false)], false),
        Response::Failed(error) if error.kind() == InvalidInput
    ));

    let back = |of, name: &str| Update::SnapshotRollback { of, name: name.into() };
    assert_eq!(together(&mut world, vec![back(one, "s"), back(two, "none")]), Err(NotFound));
    assert_eq!(world.read(object(one, 9)).unwrap(), [9; 5000], "the first one was not rolled back either");
    together(&mut world, vec![back(one, "s"), back(two, "s")]).unwrap();
    assert_eq!(world.read(object(one, 1)).unwrap(), vec![1; LEN]);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.read(object(one, 0)).unwrap(), vec![0; LEN]);
    world.settle();
    let delete = |of| Update::SnapshotDelete { of, name: "s".into() };
    together(&mut world, vec![delete(one), delete(two)]).unwrap();
    world.kill();
    world.open().unwrap();
    for of in [one, two] {
        assert_eq!(find(&mut world, of, "s", false).unwrap_err().kind(), NotFound);
    }
}

/// After power loss both snapshots are there, or neither, whichever container is cut.
#[test]
fn snapshots_that_were_made_together_survive_power_loss_together() {
    for flushed in [false, true] {
        let (mut world, one) = filled(Durability::Async);
        let two = world.container("d", Durability::Async);
        world.settle();
        together(&mut world, vec![create(one, "s", false), create(two, "s", false)]).unwrap();
        if flushed {
            world.flush(FlushTarget::Container(two)).unwrap();
        }
        world.power_loss(Keep::Nothing);
        world.open().unwrap();
        let there = [one, two].map(|of| find(&mut world, of, "s", false).is_ok());
        assert_eq!(there, [flushed; 2]);
    }
}

/// Used bytes on all devices, at rest.
fn used(world: &mut World) -> u64 {
    world.settle();
    world.used().iter().map(|(_, used, _)| used).sum()
}

fn filled(durability: Durability) -> (World, ContainerId) {
    let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", durability);
    world.must(vec![Update::IndexCreate { key: index(container, 1) }]);
    for n in 0..4u8 {
        let key = object(container, u128::from(n));
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![n; LEN]).unwrap();
        let record = Update::Put { index: index(container, 1), key: vec![n], value: vec![n; 10], only_new: false };
        world.must(vec![record]);
    }
    (world, container)
}

/// Overwrites a part of one object, deletes another, makes a third, and changes records.
fn change(world: &mut World, container: ContainerId) {
    world.write(object(container, 0), 70_000, &[200; 10]).unwrap();
    world.must(vec![Update::ObjectDelete { key: object(container, 1) }]);
    world.must(vec![Update::ObjectCreate { key: object(container, 9), block_shift: 12 }]);
    world.write(object(container, 9), 0, &[9; 5000]).unwrap();
    world.must(vec![Update::Put { index: index(container, 1), key: vec![0], value: vec![77], only_new: false }]);
    world.must(vec![Update::Del { index: index(container, 1), key: vec![1] }]);
}

fn is_as_filled(world: &mut World, container: ContainerId) {
    for n in 0..4u8 {
        assert_eq!(world.read(object(container, u128::from(n))).unwrap(), vec![n; LEN]);
    }
    assert_eq!(world.read(object(container, 9)).unwrap_err().kind(), NotFound);
    let keys = (0..4u8).map(|n| vec![n]).collect();
    let Response::Values(values) = world.ask(Request::Get { index: index(container, 1), keys }) else { panic!() };
    for (n, value) in values.into_iter().enumerate() {
        assert_eq!(value.unwrap().0, vec![n as u8; 10]);
    }
}

#[test]
fn a_snapshot_takes_no_space_and_keeps_what_was_there() {
    for durability in [Durability::Async, Durability::Sync, Durability::Scratch, Durability::Bypass] {
        let (mut world, container) = filled(durability);
        world.flush(FlushTarget::Store).unwrap();
        let before = used(&mut world);
        world.must(vec![create(container, "first", false)]);
        assert_eq!(used(&mut world), before, "{durability:?}");
        change(&mut world, container);
        let first = find(&mut world, container, "first", false).unwrap();
        assert_eq!((first.objects, first.records, first.stored_bytes), (4, 4, 4 * LEN as u64));
        is_as_filled(&mut world, first.id);
        assert_eq!(world.read(object(container, 0)).unwrap()[70_000], 200);
        assert!(world.verify().findings.is_empty());
        // It survives the process, with all that shares its space.
        world.kill();
        world.open().unwrap();
        is_as_filled(&mut world, first.id);
        // The container is rolled back to it; the snapshot still exists.
        world.must(vec![Update::SnapshotRollback { of: container, name: "first".into() }]);
        is_as_filled(&mut world, container);
        is_as_filled(&mut world, first.id);
        world.verify(); // the counts of records went back, too
        world.kill();
        world.open().unwrap();
        is_as_filled(&mut world, container);
        world.flush(FlushTarget::Store).unwrap();
        world.must(vec![Update::SnapshotDelete { of: container, name: "first".into() }]);
        world.flush(FlushTarget::Store).unwrap();
        assert_eq!(used(&mut world), before, "{durability:?}: all that was shared is there once");
        world.must(vec![Update::ContainerDelete { id: container }]);
        world.flush(FlushTarget::Store).unwrap();
        assert_eq!(used(&mut world), 0, "{durability:?}");
    }
}

#[test]
fn a_flush_copies_shared_bytes_once() {
    let (mut world, container) = filled(Durability::Async);
    world.must(vec![create(container, "a", false)]);
    world.must(vec![create(container, "b", false)]);
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    let persistent: u64 = world.used().iter().filter(|(name, ..)| name != "memory").map(|(_, used, _)| used).sum();
    assert!(persistent >= 4 * LEN as u64 && persistent < 5 * LEN as u64, "{persistent}");
}

#[test]
fn power_loss_takes_a_snapshot_back_with_its_container() {
    let (mut world, container) = filled(Durability::Async);
    world.must(vec![create(container, "kept", false)]);
    world.flush(FlushTarget::Container(container)).unwrap();
    change(&mut world, container);
    world.must(vec![create(container, "kept", true)]);
    world.must(vec![create(container, "lost", false)]);
    world.power_loss(Keep::Everything);
    world.open().unwrap();
    is_as_filled(&mut world, container);
    let kept = find(&mut world, container, "kept", false).unwrap();
    is_as_filled(&mut world, kept.id);
    assert_eq!(find(&mut world, container, "lost", false).unwrap_err().kind(), NotFound);
}

#[test]
fn what_a_session_reads_stays_until_it_says_so() {
    let (mut world, container) = filled(Durability::Async);
    world.must(vec![create(container, "it", false)]);
    let pinned = find(&mut world, container, "it", true).unwrap();
    change(&mut world, container);
    world.must(vec![create(container, "it", true)]);
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    is_as_filled(&mut world, pinned.id);
    assert_ne!(find(&mut world, container, "it", false).unwrap().id, pinned.id);
    world.kill();
    world.open().unwrap();
    world.attach();
    world.must(vec![Update::SnapshotDelete { of: container, name: "it".into() }]);
    let before = used(&mut world);
    is_as_filled(&mut world, pinned.id);
    assert!(matches!(world.ask(Request::SnapshotUnpin { id: pinned.id }), Response::Done));
    assert_eq!(world.read(object(pinned.id, 0)).unwrap_err().kind(), NotFound);
    world.flush(FlushTarget::Store).unwrap();
    assert!(used(&mut world) < before);
}

#[test]
fn snapshots_are_for_reading_and_errors_say_what_is_wrong() {
    let (mut world, container) = filled(Durability::Async);
    world.must(vec![create(container, "it", false)]);
    let id = find(&mut world, container, "it", false).unwrap().id;
    assert_eq!(refused(&mut world, create(container, "it", false)), Exists);
    for name in ["", &"x".repeat(256)] {
        assert_eq!(refused(&mut world, create(container, name, false)), InvalidInput);
    }
    for (of, name) in [(container, "other"), (ContainerId(999), "it")] {
        assert_eq!(refused(&mut world, Update::SnapshotDelete { of, name: name.into() }), NotFound);
        assert_eq!(refused(&mut world, Update::SnapshotRollback { of, name: name.into() }), NotFound);
    }
    let key = object(id, 0);
    for update in [
        Update::ObjectDelete { key },
        Update::Truncate { key, size: 1 },
        Update::Del { index: index(id, 1), key: vec![0] },
        Update::ContainerDelete { id },
        create(id, "of a snapshot", false),
    ] {
        assert_eq!(refused(&mut world, update), InvalidInput);
    }
    let two = vec![create(container, "a", false), create(container, "b", false)];
    assert!(matches!(world.apply(two, false), Response::Failed(error) if error.kind() == InvalidInput));
    is_as_filled(&mut world, id);
    // It is no container with a label, and goes with its original.
    let Response::Containers(all) = world.ask(Request::ContainerList { after: None, limit: 10 }) else { panic!() };
    assert_eq!(all.iter().map(|info| info.label.as_str()).collect::<Vec<_>>(), ["c"]);
    let Response::Container(info) = world.ask(Request::ContainerById { id }) else { panic!() };
    assert_eq!(info.label, "c@it");
    world.must(vec![Update::ContainerDelete { id: container }]);
    assert_eq!(world.read(key).unwrap_err().kind(), NotFound);
}

/// Whether a write extends its left neighbour must be the same in replay, where no deletion waits to be reclaimed: a
/// deleted snapshot that still waited kept the two apart.
#[test]
fn a_write_right_after_a_snapshot_was_deleted_is_the_same_in_the_journal() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[1; 512]).unwrap();
    let (of, id, name) = (container, ContainerId(900), "s".to_owned());
    world.must(vec![Update::SnapshotCreate { of, id, name: name.clone(), replace: false, unix_ms: 1 }]);
    world.must(vec![Update::SnapshotDelete { of, name }]);
    world.write(key, 512, &[2; 64]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.kill();
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap(), [vec![1; 512], vec![2; 64]].concat());
}
