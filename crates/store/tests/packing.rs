//! Tiers that compress: data copied there take less room, are read as they were written, and are given up as any
//! other.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

const MIB: usize = 1 << 20;

/// Memory in front of a directory that compresses.
fn config(compress: &str) -> StoreConfig {
    let mut disk = spec("disk", DeviceKind::Directory, 64 << 20);
    disk.options.set("compress", compress);
    StoreConfig { devices: vec![spec("memory", DeviceKind::SharedMemory, 16 << 20), disk], ..StoreConfig::default() }
}

/// Slowly changing numbers of 8 bytes, which compress to a quarter of their length.
fn floats(from: u32, len: usize) -> Vec<u8> {
    let at = |i: u32| (273.0 + (f64::from(from + i) * 1e-4).sin() * 20.0).to_bits() & !0xFFFF_FFFF;
    let mut bytes: Vec<u8> = (0..len.div_ceil(8) as u32).flat_map(|i| at(i).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

fn device(world: &mut World, name: &str) -> DeviceInfo {
    world.settle();
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    devices.into_iter().find(|device| device.spec.name == name).unwrap()
}

fn evict(world: &mut World, container: ContainerId) {
    let target = Box::new(ArrangeTarget::Container(container));
    let Response::Arranged(_) = world.ask(Request::Arrange { target, what: Arrange::Evict, dry_run: false }) else {
        panic!()
    };
    world.settle();
}

fn packed_extents(world: &mut World, key: ObjectKey) -> usize {
    let extents = world.lookup(key).unwrap().extents;
    extents.iter().filter(|(_, extent)| matches!(extent.encoding, Encoding::Packed(_))).count()
}

#[test]
fn what_is_copied_takes_less_room_and_is_read_as_it_was() {
    for compress in ["lz4", "zstd", "auto"] {
        let mut world = World::new(&config(compress));
        let container = world.container("c", Durability::Async);
        let mut contents = Vec::new();
        for (n, content) in
            [floats(0, 3 * MIB + 12_345), noise(1, MIB), vec![7; 200_001], floats(9, 5000)].into_iter().enumerate()
        {
            let key = object(container, n as u128);
            world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
            world.write(key, 0, &content).unwrap();
            contents.push((key, content));
        }
        world.flush(FlushTarget::Store).unwrap();
        let disk = device(&mut world, "disk");
        let plain: u64 = contents.iter().map(|(_, content)| content.len() as u64).sum();
        assert!(disk.used_bytes < plain / 2, "{compress}: {} of {plain} bytes", disk.used_bytes);
        assert!(disk.packed_bytes * 3 < disk.unpacked_bytes, "{disk:?}");
        assert!(disk.unpacked_bytes < plain - MIB as u64 + 65_536, "noise is not compressed");
        assert_eq!(disk.reserved_bytes, 0);

        for round in 0..4 {
            for (key, content) in &contents {
                assert!(&world.read(*key).unwrap() == content, "{compress}, round {round}, object {key}");
            }
            match round {
                0 => {
                    assert_eq!(packed_extents(&mut world, contents[0].0), 0, "it is read in memory");
                    evict(&mut world, container);
                    assert!(packed_extents(&mut world, contents[0].0) > 0);
                    assert_eq!(packed_extents(&mut world, contents[1].0), 0, "noise");
                }
                1 => {
                    world.kill();
                    world.open().unwrap();
                    assert_eq!(device(&mut world, "disk").unpacked_bytes, disk.unpacked_bytes);
                }
                2 => {
                    world.power_loss(Keep::Nothing);
                    world.open().unwrap();
                }
                _ => {}
            }
        }
        let report = world.verify();
        assert!(report.findings.is_empty(), "{report:?}");

        // The middle is overwritten, a unit is cut in two, and everything is given up bit by bit.
        let (key, content) = &mut contents[0];
        for (at, len) in [(100_000, 70_000), (1 << 20, 65_536), (2 * MIB + 5, 1)] {
            let new = noise(3, len);
            content[at..at + len].copy_from_slice(&new);
            world.write(*key, at as u64, &new).unwrap();
        }
        assert!(&world.read(*key).unwrap() == content);
        world.flush(FlushTarget::Store).unwrap();
        world.power_loss(Keep::Nothing);
        world.open().unwrap();
        assert!(&world.read(*key).unwrap() == content);
        for (key, _) in &contents {
            world.must(vec![Update::ObjectDelete { key: *key }]);
        }
        world.flush(FlushTarget::Store).unwrap();
        let disk = device(&mut world, "disk");
        assert_eq!((disk.used_bytes, disk.packed_bytes, disk.unpacked_bytes), (0, 0, 0));
    }
}

#[test]
fn what_is_compressed_fills_the_tier_without_gaps() {
    let mut world = World::new(&config("lz4"));
    let container = world.container("c", Durability::Async);
    let mut written = 0;
    for n in 0..24 {
        let key = object(container, n);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        let content = floats(n as u32, 7 * MIB - 4321);
        written += content.len() as u64;
        world.write(key, 0, &content).unwrap();
        world.flush(FlushTarget::Store).unwrap();
        evict(&mut world, container);
    }
    let disk = device(&mut world, "disk");
    assert!(written > 2 * disk.spec.capacity_bytes, "{written} bytes fit");
    for n in [0, 11, 23] {
        assert!(world.read(object(container, n)).unwrap() == floats(n as u32, 7 * MIB - 4321), "object {n}");
    }
}

#[test]
fn damage_is_found_and_never_read() {
    let mut world = World::new(&config("zstd"));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let content = floats(0, MIB);
    world.write(key, 0, &content).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    evict(&mut world, container);
    let extent = world.lookup(key).unwrap().extents[0].1.clone();
    let Encoding::Packed(packed) = &extent.encoding else { panic!("it is not compressed") };
    let id = world.engine().id();
    let mut rng = Rng::new(5);
    for _ in 0..40 {
        let unit = rng.below(packed.units() as u64) as usize;
        let at = extent.run_offset + u64::from(packed.start(unit)) + rng.below(u64::from(packed.len_of(unit)));
        let xor = 1 << rng.below(8);
        assert!(world.devices.corrupt(id, extent.device, at, xor));
        let report = world.verify();
        assert_eq!(report.findings.len(), 1, "unit {unit}, byte {at}: {report:?}");
        world.devices.corrupt(id, extent.device, at, xor);
    }
    assert!(world.read(key).unwrap() == content);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn buckets_compress_and_what_is_fetched_is_plain_again() {
    let mut config = memory_and_bucket(8 << 20, 64 << 20);
    config.devices[1].options.set("compress", "auto");
    let mut world = World::new(&config);
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let content = floats(0, 3 * MIB);
    world.write(key, 0, &content).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    assert!(device(&mut world, "cold").used_bytes < MIB as u64);
    evict(&mut world, container);
    assert!(packed_extents(&mut world, key) > 0);
    let fetch = Request::Fetch { key, ranges: vec![(MIB as u64, 100)], ahead: false, must: true };
    assert_eq!(world.ask(fetch), Response::Done);
    assert_eq!(packed_extents(&mut world, key), 0, "it was brought to memory");
    assert!(world.read(key).unwrap() == content);
    // It leaves again without I/O, since the bucket still has it.
    evict(&mut world, container);
    assert!(packed_extents(&mut world, key) > 0);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn snapshots_share_what_is_compressed() {
    let mut world = World::new(&config("lz4"));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let first = floats(0, 2 * MIB);
    world.write(key, 0, &first).unwrap();
    let snapshot = ContainerId(1 << 20);
    let make = Update::SnapshotCreate { of: container, id: snapshot, name: "s".into(), replace: false, unix_ms: 1 };
    let Response::Applied { created, .. } = world.apply(vec![make], true) else { panic!("no snapshot") };
    let snapshot = created.unwrap_or(snapshot);
    world.flush(FlushTarget::Store).unwrap();
    let alone = device(&mut world, "disk");
    assert!(alone.unpacked_bytes >= first.len() as u64 && alone.unpacked_bytes < first.len() as u64 + 65_536);
    let mut now = first.clone();
    now[300_000..500_000].copy_from_slice(&noise(8, 200_000));
    world.write(key, 300_000, &now[300_000..500_000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    evict(&mut world, container);
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    let old = ObjectKey { container: snapshot, ..key };
    assert!(world.read(key).unwrap() == now && world.read(old).unwrap() == first);
    world.must(vec![Update::ObjectDelete { key }]);
    world.flush(FlushTarget::Store).unwrap();
    assert!(world.read(old).unwrap() == first);
    world.must(vec![Update::SnapshotDelete { of: container, name: "s".into() }]);
    world.flush(FlushTarget::Store).unwrap();
    let disk = device(&mut world, "disk");
    assert_eq!((disk.used_bytes, disk.unpacked_bytes), (0, 0));
}

#[test]
fn what_programs_wrote_there_is_compressed_when_it_is_idle() {
    let mut world = World::new(&config("zstd"));
    let container = world.container("c", Durability::Bypass);
    let contents = [floats(0, 2 * MIB + 99), noise(4, MIB), floats(5, 4096)];
    let keys: Vec<ObjectKey> = (0..3).map(|n| object(container, n)).collect();
    for (key, content) in keys.iter().zip(&contents) {
        world.must(vec![Update::ObjectCreate { key: *key, block_shift: 12 }]);
        world.write(*key, 0, content).unwrap();
    }
    world.flush(FlushTarget::Store).unwrap();
    let plain = device(&mut world, "disk");
    assert_eq!(plain.unpacked_bytes, 0, "programs write plain bytes");
    world.clock.advance_ns(16_000_000_000);
    let packed = device(&mut world, "disk");
    assert!((2 * MIB as u64..2 * MIB as u64 + 65_536).contains(&packed.unpacked_bytes), "{packed:?}");
    assert!(packed.used_bytes < plain.used_bytes - MIB as u64, "{} then {}", plain.used_bytes, packed.used_bytes);
    assert_eq!(packed.reserved_bytes, 0);
    let (_, why) = world::manage::explain(&mut world, keys[0]);
    let gain = why.split_once("on `disk` (").and_then(|(_, rest)| rest.split_once("x), by zstd")).expect(&why).0;
    assert!((2.0..20.0).contains(&gain.parse::<f64>().unwrap()), "{why}");
    for round in 0..2 {
        for (key, content) in keys.iter().zip(&contents) {
            assert!(&world.read(*key).unwrap() == content, "round {round}");
        }
        world.power_loss(Keep::Nothing);
        world.open().unwrap();
    }
    // Data that cannot be compressed are not tried again and again.
    let moved = |world: &mut World| match world.ask(Request::Stats) {
        Response::Stats(stats) => stats.moved_bytes,
        other => panic!("{other:?}"),
    };
    let before = moved(&mut world);
    for _ in 0..10 {
        world.clock.advance_ns(20_000_000_000);
        world.settle();
    }
    assert_eq!(moved(&mut world), before);
    assert!(world.verify().findings.is_empty());
}
