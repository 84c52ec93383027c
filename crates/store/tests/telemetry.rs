//! The engine's telemetry matches what it did.

mod world;

use cenote_model::*;
use world::*;

fn telemetry(world: &mut World) -> Telemetry {
    match world.ask(Request::Telemetry { hot: 10 }) {
        Response::Telemetry(telemetry) => *telemetry,
        other => panic!("{other:?}"),
    }
}

fn flow(telemetry: &Telemetry, why: FlowWhy) -> (u64, u64) {
    let flows = telemetry.flows.iter().filter(|flow| flow.why == why);
    flows.fold((0, 0), |sum, flow| (sum.0 + flow.bytes, sum.1 + flow.operations))
}

#[test]
fn writes_copies_evictions_and_checks_are_counted() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 4 << 20));
    let container = world.container("runs", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    for n in 0..10 {
        world.write(key, n * 65_536, &vec![n as u8; 65_536]).unwrap();
    }
    // Refused updates do not count.
    let missing = object(container, 99);
    assert!(world.write(missing, 0, &[1; 4096]).is_err());
    let seen = telemetry(&mut world);
    assert_eq!(flow(&seen, FlowWhy::Write), (655_360, 10));
    let [client] = seen.clients.as_slice() else { panic!("{:?}", seen.clients) };
    assert_eq!((client.written_bytes, client.writes), (655_360, 10));
    assert!(client.requests >= 12 && seen.counts.requests >= 12, "{client:?}");
    let [first] = seen.hot.as_slice() else { panic!("{:?}", seen.hot) };
    assert_eq!((first.key, first.label.as_str(), first.size), (key, "runs", 655_360));
    let on = |telemetry: &Telemetry| {
        let device = |id: DeviceId| telemetry.devices.iter().find(|info| info.id == id).unwrap().spec.name.clone();
        telemetry.hot[0].tiers.iter().map(|(id, bytes)| (device(*id), *bytes)).collect::<Vec<_>>()
    };
    assert_eq!(on(&seen), [("memory".to_owned(), 655_360)]);
    assert_eq!(seen.heat.iter().map(|row| row.bytes.iter().sum::<u64>()).sum::<u64>(), 655_360);
    assert_eq!(
        seen.containers.iter().map(|c| (c.label.as_str(), c.share_permille)).collect::<Vec<_>>(),
        [("runs", 1000)]
    );
    // Copies for durability, with the places that the heat and the hot objects then show.
    world.flush(FlushTarget::Store).unwrap();
    let seen = telemetry(&mut world);
    assert_eq!(flow(&seen, FlowWhy::Durability).0, 655_360);
    assert_eq!(on(&seen).len(), 2, "{:?}", on(&seen));
    assert!(seen.latencies.is_empty(), "nobody measured: {:?}", seen.latencies);
    // Extents with a copy leave the tier without I/O.
    let _ = world.ask(Request::DeviceDrain { name: "memory".into() });
    world.settle();
    let seen = telemetry(&mut world);
    assert_eq!(flow(&seen, FlowWhy::Eviction).0, 655_360, "{:?}", seen.flows);
    assert_eq!(on(&seen), [("file".to_owned(), 655_360)]);
    let devices: Vec<(String, u64)> =
        seen.devices.iter().map(|info| (info.spec.name.clone(), info.used_bytes)).collect();
    for (name, used, _) in world.used() {
        assert!(devices.contains(&(name.clone(), used)), "{name} {used} {devices:?}");
    }
    // Reads for verification are a flow too.
    let report = world.verify();
    let seen = telemetry(&mut world);
    assert!(flow(&seen, FlowWhy::Verify).0 >= report.bytes, "{report:?}");
    world.engine().note_took(Timed::Copy, 5000);
    let seen = telemetry(&mut world);
    assert_eq!(seen.latencies.iter().map(|l| (l.what, l.histogram.count())).collect::<Vec<_>>(), [(Timed::Copy, 1)]);
}

#[test]
fn an_emptied_tier_and_deleted_objects() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 4 << 20));
    let container = world.container("runs", Durability::Bypass);
    for n in 1..=5 {
        let key = object(container, n);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &[n as u8; 4096]).unwrap();
    }
    let seen = telemetry(&mut world);
    let written: Vec<DeviceId> = seen
        .flows
        .iter()
        .filter_map(|flow| match flow.to {
            FlowEnd::Tier(id) if flow.why == FlowWhy::Write => Some(id),
            _ => None,
        })
        .collect();
    let name = seen.devices.iter().find(|info| [info.id] == written[..]).unwrap().spec.name.clone();
    let _ = world.ask(Request::DeviceDrain { name });
    world.settle();
    world.must((1..=2).map(|n| Update::ObjectDelete { key: object(container, n) }).collect());
    let seen = telemetry(&mut world);
    assert_eq!(flow(&seen, FlowWhy::Evacuation), (5 * 4096, 5), "{:?}", seen.flows);
    assert_eq!(seen.hot.len(), 3, "deleted objects are not hot");
    assert_eq!(seen.stats.moved_bytes, 5 * 4096);
}

#[test]
fn bytes_of_snapshots_and_of_what_was_deleted_are_not_told_as_used() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 4 << 20));
    let warm = |world: &mut World| telemetry(world).heat.iter().map(|row| row.bytes.iter().sum::<u64>()).sum::<u64>();
    let (runs, gone) = (world.container("runs", Durability::Scratch), world.container("gone", Durability::Scratch));
    for (container, bytes) in [(runs, 4096), (gone, 8192)] {
        world.must(vec![Update::ObjectCreate { key: object(container, 1), block_shift: 12 }]);
        world.write(object(container, 1), 0, &vec![1; bytes]).unwrap();
    }
    assert_eq!(warm(&mut world), 4096 + 8192);
    let (id, name) = (ContainerId(0), "s".to_owned());
    world.must(vec![Update::SnapshotCreate { id, of: runs, name, replace: false, unix_ms: 0 }]);
    world.write(object(runs, 1), 0, &[2; 4096]).unwrap();
    assert_eq!(warm(&mut world), 4096 + 8192, "what only a snapshot has is nobody's to use");
    world.must(vec![Update::ContainerDelete { id: gone }]);
    assert_eq!(warm(&mut world), 4096);
}

#[test]
fn bytes_are_told_by_how_long_nobody_used_them() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 4 << 20));
    let container = world.container("runs", Durability::Scratch);
    for n in 1..=2 {
        world.must(vec![Update::ObjectCreate { key: object(container, n), block_shift: 12 }]);
        world.write(object(container, n), 0, &vec![1; 4096 * n as usize]).unwrap();
        world.clock.advance_ns(40_000_000_000);
    }
    let ages = |world: &mut World| {
        let seen = telemetry(world);
        let row = seen.heat.iter().find(|row| row.bytes.iter().sum::<u64>() > 0).unwrap();
        (row.bytes, row.objects)
    };
    assert_eq!(ages(&mut world), ([0, 0, 8192, 4096, 0, 0], [0, 0, 1, 1, 0, 0]));
    world.clock.advance_ns(86_400_000_000_000);
    assert_eq!(ages(&mut world), ([0, 0, 0, 0, 0, 12_288], [0, 0, 0, 0, 0, 2]));
}

#[test]
fn turned_off_it_counts_nothing() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 4 << 20));
    world.engine().set_counting(false);
    let container = world.container("runs", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[1; 4096]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    let seen = telemetry(&mut world);
    assert!(!seen.enabled && seen.flows.is_empty() && seen.hot.is_empty() && seen.counts == Counts::default());
    assert_eq!(seen.devices.len(), 3);
}

#[test]
fn telling_is_quick_with_many_objects() {
    let mut world = World::new(&three_tiers(64 << 20, 4 << 20, 4 << 20));
    let container = world.container("many", Durability::Scratch);
    for base in (0..200_000).step_by(10_000) {
        world.must(
            (1..=10_000).map(|n| Update::ObjectCreate { key: object(container, base + n), block_shift: 12 }).collect(),
        );
    }
    for n in 1..=2000 {
        world.write(object(container, n), 0, &[1; 512]).unwrap();
    }
    let begin = std::time::Instant::now();
    for _ in 0..20 {
        let seen = telemetry(&mut world);
        assert_eq!(seen.hot.len(), 10);
    }
    let each = begin.elapsed() / 20;
    println!("{each:?} each");
    assert!(each.as_millis() < 50, "{each:?}: the engine answers nobody else meanwhile");
    let seen = telemetry(&mut world);
    assert_eq!(seen.heat.iter().map(|row| row.bytes.iter().sum::<u64>()).sum::<u64>(), 2000 * 512);
}
