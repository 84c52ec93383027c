//! Tiers that are gone when a store is opened again: extents with another place are read there, nothing falls back to
//! a lost tier, such a tier can be emptied of copies, and unsynced data on it do not count as safe.

mod world;

use cenote_model::*;
use cenote_store::SessionInfo;
use world::*;

const MIB: u64 = 1 << 20;
const LEN: usize = 300_000;

/// An object with its bytes on `capacity`, promoted to `to`.
fn promoted(world: &mut World, to: &str) -> ObjectKey {
    let container = world.container("c", Durability::Bypass);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &vec![7; LEN]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    let what = Arrange::Promote { to: Some(to.into()) };
    let Response::Arranged(done) = arrange(world, key, what) else { panic!() };
    assert_eq!(done.bytes, LEN as u64, "{}", done.staying_why);
    world.flush(FlushTarget::Store).unwrap();
    key
}

fn arrange(world: &mut World, key: ObjectKey, what: Arrange) -> Response {
    world.ask(Request::Arrange { target: Box::new(ArrangeTarget::Object(key)), what, dry_run: false })
}

/// The process dies, and a tier with it.
fn lose(world: &mut World, name: &str) {
    let id = world.engine().device_infos().into_iter().find(|info| info.spec.name == name).unwrap().id;
    world.kill();
    world.devices.destroy(STORE, id);
    world.open().unwrap();
    assert_eq!(world.report.failed_devices.len(), 1, "{:?}", world.report.failed_devices);
}

fn unreadable(world: &mut World, key: ObjectKey) -> Response {
    world.ask(Request::Unreadable { key, ranges: vec![(0, LEN as u64)] })
}

#[test]
fn what_was_promoted_to_a_tier_that_is_gone_falls_back_to_its_copy() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let key = promoted(&mut world, "file");
    lose(&mut world, "file");
    let device = world.lookup(key).unwrap().extents[0].1.device;
    assert!(world.engine().device(device).is_none(), "it is looked for where it was");
    assert!(matches!(unreadable(&mut world, key), Response::Done));
    assert!(world.read(key).unwrap() == vec![7; LEN]);
    let Response::Failed(error) = unreadable(&mut world, key) else { panic!("there is no other place") };
    assert!(error.to_string().contains("no copy on another tier"), "{error}");
    world.kill();
    world.open().unwrap();
    assert!(world.read(key).unwrap() == vec![7; LEN], "it is in the journal");
}

#[test]
fn nothing_falls_back_to_a_tier_that_is_gone() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let key = promoted(&mut world, "memory");
    lose(&mut world, "capacity");
    let Response::Arranged(result) = arrange(&mut world, key, Arrange::Evict) else { panic!() };
    assert_eq!(result.bytes, 0);
    assert!(result.staying_why.contains("`capacity`, where its copy is, is away"), "{}", result.staying_why);
    assert!(world.read(key).unwrap() == vec![7; LEN]);
    // Emptied, it has no copies any more: they are made elsewhere.
    assert!(matches!(world.ask(Request::DeviceDrain { name: "capacity".into() }), Response::Done));
    assert!(world.read(key).unwrap() == vec![7; LEN]);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(key).unwrap() == vec![7; LEN], "its copy is on `file` now");
    assert!(matches!(world.ask(Request::DeviceRemove { name: "capacity".into() }), Response::Done));
}

#[test]
fn a_tier_that_is_gone_with_what_was_only_there_is_said_to_be() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Bypass);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &vec![7; LEN]).unwrap();
    // Not flushed: unsynced data there cannot be synced any more.
    lose(&mut world, "capacity");
    let error = world.flush(FlushTarget::Store).unwrap_err();
    assert!(error.to_string().contains("`capacity`"), "{error}");
    let Response::Failed(error) = world.ask(Request::DeviceDrain { name: "capacity".into() }) else { panic!() };
    assert!(error.to_string().contains("`capacity`") && error.to_string().contains("only there"), "{error}");
    // Without the lost data a flush succeeds.
    world.must(vec![Update::ObjectDelete { key }]);
    world.settle();
    let other = object(container, 2);
    world.must(vec![Update::ObjectCreate { key: other, block_shift: 12 }]);
    world.write(other, 0, &vec![8; LEN]).unwrap();
    world.clock.advance_ns(5_000_000_000);
    world.flush(FlushTarget::Store).unwrap();
    assert!(matches!(world.ask(Request::DeviceDrain { name: "capacity".into() }), Response::Done));
}

#[test]
fn a_tier_that_fails_is_avoided_while_another_has_room() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &vec![7; LEN]).unwrap();
    world.sync_fails.store(true, std::sync::atomic::Ordering::SeqCst);
    world.flush(FlushTarget::Store).unwrap_err();
    let noted: Vec<_> =
        world.engine().device_infos().into_iter().filter(|info| info.note.contains("it fails")).collect();
    assert!(!noted.is_empty(), "`cenote tiers` says so");
    world.sync_fails.store(false, std::sync::atomic::Ordering::SeqCst);
    world.clock.advance_ns(5_000_000_000);
    world.flush(FlushTarget::Store).unwrap();
    world.clock.advance_ns(60_000_000_000);
    world.settle();
    assert!(world.engine().device_infos().iter().all(|info| !info.note.contains("it fails")), "it is forgotten");
}

/// A copy is spare only as long as the other place can be read.
#[test]
fn a_copy_stays_if_the_other_place_has_vanished() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let key = promoted(&mut world, "file");
    let file = world.engine().device_infos().into_iter().find(|info| info.spec.name == "file").unwrap().id;
    world.devices.destroy(STORE, file); // and nobody has noticed yet
    let Response::Failed(error) = world.ask(Request::DeviceDrain { name: "capacity".into() }) else { panic!() };
    assert!(error.to_string().contains("its copy is looked at"), "{error}");
    world.settle();
    assert!(world.read(key).unwrap() == vec![7; LEN], "from where the copy was");
}

/// A client had leased room on a tier and written there when the daemon died and the tier went away. Its update comes
/// to the next daemon, which cannot sync a device that it has never seen.
#[test]
fn what_was_written_to_a_tier_before_it_went_away_is_not_taken_for_synced() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let container = world.container("c", Durability::Bypass);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.flush(FlushTarget::Store).unwrap();
    let staged = world.stage(key, 0, &vec![7; LEN]).unwrap();
    lose(&mut world, "capacity");
    world.must(vec![staged]);
    let error = world.flush(FlushTarget::Store).unwrap_err();
    assert!(error.to_string().contains("`capacity`"), "{error}");
}

/// A read-only session that calls a place unreadable is not believed: the store reads the place itself.
#[test]
fn a_reader_cannot_have_bytes_given_up_that_are_well() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let key = promoted(&mut world, "memory");
    let device = |world: &mut World| world.lookup(key).unwrap().extents[0].1.device;
    let place = device(&mut world);
    let writer = world.session;
    let reader = SessionInfo { nonce: 99, pid: 1, started: 1, uid: 1, write: false, ..SessionInfo::default() };
    world.session = world.engine().session_open(reader).unwrap();
    let Response::Failed(error) = unreadable(&mut world, key) else { panic!("a reader was believed") };
    assert!(error.to_string().contains("the store reads it well where it is"), "{error}");
    assert_eq!(device(&mut world), place, "it is where it was");
    world.session = writer;
    assert!(matches!(unreadable(&mut world, key), Response::Done), "a writer is believed");
    assert_ne!(device(&mut world), place);
}

/// Where a place cannot be read indeed, a read-only session gets the same help.
#[test]
fn a_reader_is_helped_where_a_place_fails() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
    let key = promoted(&mut world, "file");
    lose(&mut world, "file");
    let reader = SessionInfo { nonce: 99, pid: 1, started: 1, uid: 1, write: false, ..SessionInfo::default() };
    world.session = world.engine().session_open(reader).unwrap();
    assert!(matches!(unreadable(&mut world, key), Response::Done));
    assert!(world.read(key).unwrap() == vec![7; LEN]);
}
