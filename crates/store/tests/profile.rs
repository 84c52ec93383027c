//! Speed of devices: what the engine keeps and learns of it, and the space that measuring takes.

mod world;

use cenote_device::MetaDir as _;
use cenote_model::*;
use cenote_store::Outcome;
use world::*;

fn profile(bandwidth: f64) -> Profile {
    let point =
        |is_write, bytes| ProfilePoint { is_write, bytes, parallel: 1, p50_ns: 9000, p99_ns: 20_000, bandwidth };
    Profile {
        unix_ms: 5,
        points: vec![point(false, 4096), point(true, 4096), point(false, 1 << 20), point(true, 1 << 20)],
    }
}

fn world() -> World {
    World::new(&three_tiers(8 << 20, 16 << 20, 16 << 20))
}

fn info(world: &mut World, name: &str) -> DeviceInfo {
    world.engine().device_infos().into_iter().find(|info| info.spec.name == name).expect("a device of that name")
}

fn free_of_reservations(world: &mut World) {
    for info in world.engine().device_infos() {
        assert_eq!((info.used_bytes, info.reserved_bytes), (0, 0), "{}", info.spec.name);
    }
}

#[test]
fn every_device_is_measured_once_and_kept() {
    let mut world = world();
    assert!(world.engine().measure_next(false).is_none(), "nobody asked");
    assert!(world.engine().is_measuring_due(true) && !world.engine().is_measuring_due(false));
    for _ in 0..3 {
        let measurement = world.engine().measure_next(true).expect("not measured yet");
        assert!(world.engine().measure_next(true).is_none(), "one at a time");
        assert!(
            world.engine().device_infos().iter().any(|info| info.reserved_bytes >= 64 << 10),
            "in space of its own"
        );
        assert_eq!(measurement.run(1_000_000, &|| true).unwrap(), None, "it was told to stop");
        world.engine().measured(&measurement, Ok(Some(profile(1e9))));
    }
    assert!(!world.engine().is_measuring_due(true));
    free_of_reservations(&mut world);
    world.kill();
    world.open().unwrap();
    for info in world.engine().device_infos() {
        let speed = info.speed.expect("kept");
        assert!((speed.read_bandwidth - 1e9).abs() < 1.0, "{speed:?}");
    }
    let Response::Profile(kept) = world.ask(Request::Profile { name: "file".into(), measure_ms: 0 }) else { panic!() };
    assert_eq!(kept, profile(1e9));
}

#[test]
fn measuring_takes_a_quarter_of_what_is_free_at_most() {
    let mut world = World::new(&three_tiers(3 << 20, 5 << 20, 6 << 20));
    for _ in 0..3 {
        let measurement = world.engine().measure_next(true).expect("not measured yet");
        let infos = world.engine().device_infos();
        let held: Vec<_> = infos.iter().filter(|info| info.reserved_bytes > 0).collect();
        let [held] = held[..] else { panic!("{infos:?}") };
        assert!(held.reserved_bytes * 4 <= held.spec.capacity_bytes, "{} of {}", held.reserved_bytes, held.spec.name);
        world.engine().measured(&measurement, Ok(Some(profile(1e9))));
    }
}

#[test]
fn who_asks_is_answered() {
    let mut world = world();
    let session = world.session;
    let ask = |world: &mut World, name: &str| {
        world.engine().handle(session, 0, Request::Profile { name: name.into(), measure_ms: 7 })
    };
    assert!(
        matches!(ask(&mut world, "nothing"), Outcome::Ready(Response::Failed(error)) if error.kind() == ErrorKind::NotFound)
    );
    let Outcome::Wait(ticket) = ask(&mut world, "capacity") else { panic!("it takes time") };
    let measurement = world.engine().measure_next(false).expect("asked for");
    assert_eq!(measurement.asked_ms, Some(7));
    world.engine().measured(&measurement, Ok(Some(profile(2e9))));
    assert_eq!(world.engine().take_finished(), [(ticket, Response::Profile(profile(2e9)))]);
    // A failure is reported, and not retried without a request.
    let Outcome::Wait(ticket) = ask(&mut world, "file") else { panic!("it takes time") };
    let measurement = world.engine().measure_next(false).expect("asked for");
    world.engine().measured(&measurement, Err(Error::new(ErrorKind::Io, "it")));
    let answers = world.engine().take_finished();
    assert!(matches!(&answers[..], [(t, Response::Failed(error))] if *t == ticket && error.kind() == ErrorKind::Io));
    let left = world.engine().measure_next(true).expect("the memory tier");
    world.engine().measured(&left, Ok(Some(profile(1e9))));
    assert!(world.engine().measure_next(true).is_none());
    free_of_reservations(&mut world);
}

/// No room, or not online: an error, at once.
#[test]
fn what_cannot_be_measured_says_so() {
    let mut world = World::new(&three_tiers(8 << 20, 128 << 10, 16 << 20));
    let session = world.session;
    let Response::Done = world.ask(Request::DeviceDrain { name: "capacity".into() }) else { panic!("drained") };
    for name in ["file", "capacity"] {
        let asked = world.engine().handle(session, 0, Request::Profile { name: name.into(), measure_ms: 7 });
        let Outcome::Wait(ticket) = asked else { panic!("it takes time") };
        assert!(world.engine().measure_next(false).is_none(), "{name}");
        let answers = world.engine().take_finished();
        assert!(
            matches!(&answers[..], [(t, Response::Failed(e))] if *t == ticket && e.kind() == ErrorKind::Full),
            "{name}"
        );
    }
}

/// A device may go while it is measured; an engine that dies then leaves nothing behind.
#[test]
fn measuring_holds_nothing_up() {
    let mut world = world();
    let session = world.session;
    let asked = world.engine().handle(session, 0, Request::Profile { name: "file".into(), measure_ms: 1 });
    assert!(matches!(asked, Outcome::Wait(_)));
    let measurement = world.engine().measure_next(false).expect("asked for");
    assert_eq!(world.ask(Request::DeviceDrain { name: "file".into() }), Response::Done);
    assert_eq!(world.ask(Request::DeviceRemove { name: "file".into() }), Response::Done);
    world.engine().measured(&measurement, Ok(Some(profile(1e9))));
    let measurement = world.engine().measure_next(true).expect("another one");
    world.kill();
    world.open().unwrap();
    free_of_reservations(&mut world);
    drop(measurement);
}

/// The engine learns from copies between tiers, even for a tier that nobody measured, and keeps what it
/// learned.
#[test]
fn copies_teach() {
    let mut world = world();
    world.byte_ns.store(20, std::sync::atomic::Ordering::Relaxed); // 50 MB/s and 100 us
    let container = world.container("c", Durability::Async);
    world.must(vec![Update::ObjectCreate { key: object(container, 1), block_shift: 12 }]);
    for round in 0..60_u8 {
        world.write(object(container, 1), 0, &vec![round; 1 << 20]).unwrap();
        world.flush(FlushTarget::Store).unwrap();
    }
    let file = info(&mut world, "file").speed.expect("written to by the copies");
    let took = 100_000.0 + 20.0 * f64::from(1 << 20);
    let expected = file.write_ns(1 << 20);
    assert!((0.9..1.1).contains(&(expected / took)), "{expected} ns of {took}: {file:?}");
    let usual = Speed::usual(DeviceKind::File);
    assert!((file.read_bandwidth - usual.read_bandwidth).abs() < 1.0, "nothing was read from it");
    let memory = info(&mut world, "memory").speed.expect("read by the copies");
    assert!(memory.read_ns(1 << 20) > Speed::usual(DeviceKind::SharedMemory).read_ns(1 << 20) * 10.0, "{memory:?}");
    world.engine().close().unwrap();
    world.kill();
    world.open().unwrap();
    assert_eq!(info(&mut world, "file").speed, Some(file), "kept");
}

/// Nothing depends on the file: whatever is in it, the store opens.
#[test]
fn a_damaged_file_is_as_good_as_none() {
    let mut world = world();
    world.engine().set_profile(DeviceId(2), profile(3e9));
    let good = world.meta.read_file("profile").unwrap();
    let store = StoreId(0xbad);
    for bytes in [Vec::new(), b"CENOTEP".to_vec(), good[..good.len() - 1].to_vec(), vec![0xff; 5000]] {
        world.kill();
        world.meta.write_file("profile", &bytes).unwrap();
        world.open().unwrap();
        assert_eq!(info(&mut world, "file").speed, None, "{} bytes of {store}", bytes.len());
    }
    world.kill();
    world.meta.write_file("profile", &good).unwrap();
    world.open().unwrap();
    assert!(info(&mut world, "file").speed.is_some());
}
