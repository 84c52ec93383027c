//! Tiers that leave the store while something is to come to them: the requester is told which tier it is, and bytes
//! that a reader waits for come to another tier.

mod world;

use cenote_model::*;
use cenote_store::{Outcome, Ticket};
use world::*;

const LEN: usize = 300_000;

/// An object whose bytes are on the slowest tier alone.
fn low_object(world: &mut World, durability: Durability) -> ObjectKey {
    let container = world.container("c", durability);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &vec![7; LEN]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    let evict = Request::Arrange { target: Box::new(ArrangeTarget::Object(key)), what: Arrange::Evict, dry_run: false };
    assert!(matches!(world.ask(evict), Response::Arranged(_)));
    key
}

/// Begins a request, and does not wait for the response.
fn begin(world: &mut World, request: Request) -> Ticket {
    let session = world.session;
    match world.engine().handle(session, 0, request) {
        Outcome::Wait(ticket) => ticket,
        Outcome::Ready(response) => panic!("{response:?}"),
    }
}

fn answer(world: &mut World, ticket: Ticket) -> Response {
    for _ in 0..100 {
        if let Some(response) = world.engine().take_answer(ticket) {
            return response;
        }
        world.step();
        world.clock.advance_ns(1_000_000);
    }
    panic!("no answer");
}

fn promote(key: ObjectKey, to: &str) -> Request {
    let what = Arrange::Promote { to: Some(to.into()) };
    Request::Arrange { target: Box::new(ArrangeTarget::Object(key)), what, dry_run: false }
}

#[test]
fn who_moves_data_to_a_tier_that_leaves_is_told_which_one() {
    let name = || "file".to_owned();
    let asked = [
        (Request::DeviceRemove { name: name() }, "removed from the store"),
        (Request::DeviceDrain { name: name() }, "is being emptied"),
    ];
    for (leave, cause) in asked {
        let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
        let key = low_object(&mut world, Durability::Bypass);
        let moving = begin(&mut world, promote(key, "file"));
        let session = world.session;
        match world.engine().handle(session, 0, leave) {
            Outcome::Wait(left) => assert_eq!(answer(&mut world, left), Response::Done),
            Outcome::Ready(response) => assert_eq!(response, Response::Done),
        }
        let Response::Failed(error) = answer(&mut world, moving) else { panic!("it was not moved") };
        let text = error.to_string();
        assert!(text.contains("tier `file`") && text.contains(cause), "{text}");
        assert!(text.contains("choose another tier"), "{text}");
        assert_eq!(world.read(key).unwrap(), vec![7; LEN]);
    }
}

#[test]
fn what_a_reader_waits_for_comes_to_another_tier() {
    let config = StoreConfig {
        devices: vec![
            spec("memory", DeviceKind::SharedMemory, 4 << 20),
            spec("file", DeviceKind::File, 8 << 20),
            spec("service", DeviceKind::S3, 64 << 20),
        ],
        ..StoreConfig::default()
    };
    let mut world = World::new(&config);
    let key = low_object(&mut world, Durability::Async);
    let down = Arrange::Demote { to: Some("service".into()) };
    let down = Request::Arrange { target: Box::new(ArrangeTarget::Object(key)), what: down, dry_run: false };
    assert!(matches!(world.ask(down), Response::Arranged(_)));
    let fetch = Request::Fetch { key, ranges: vec![(0, LEN as u64)], ahead: false, must: true };
    let fetching = begin(&mut world, fetch);
    assert_eq!(world.ask(Request::DeviceDrain { name: "memory".into() }), Response::Done);
    assert_eq!(answer(&mut world, fetching), Response::Done);
    assert_eq!(world.read(key).unwrap(), vec![7; LEN]);
    let file = world.engine().device_infos().into_iter().find(|info| info.spec.name == "file").unwrap().id;
    assert!(world.lookup(key).unwrap().extents.iter().all(|(_, extent)| extent.device == file));
}

#[test]
fn a_tier_is_added_again_after_an_engine_that_died_right_after_its_removal() {
    let mut world = World::new(&three_tiers(4 << 20, 16 << 20, 64 << 20));
    world.settle();
    let Response::Devices(mut devices) = world.ask(Request::Devices) else { panic!() };
    let leaves = devices.pop().unwrap().spec;
    assert!(leaves.kind.is_persistent());
    assert!(matches!(world.ask(Request::DeviceDrain { name: leaves.name.clone() }), Response::Done));
    world.settle();
    // The superblock has forgotten it; a job that never runs would delete the files at its path.
    begin(&mut world, Request::DeviceRemove { name: leaves.name.clone() });
    world.kill();
    world.open().unwrap();
    let added = world.ask(Request::DeviceAdd { spec: leaves });
    assert!(matches!(added, Response::Device(_)), "{added:?}");
}
