//! Clocks that jump: a machine that slept, a calendar that somebody set. Nothing leaves its tier for that alone, and
//! policies go on.

mod world;

use cenote_model::*;
use world::*;

const TEN_YEARS_MS: i64 = 10 * 365 * 24 * 3_600_000;
const LEN: usize = 256 << 10;
const OBJECTS: u128 = 8;

fn created(world: &mut World, policy: &str) -> ContainerId {
    let spec = ContainerSpec { durability: Durability::Bypass, policy: policy.into(), ..ContainerSpec::default() };
    world.must(vec![Update::ContainerCreate { id: ContainerId(77), label: policy.into(), spec }]);
    for n in 0..OBJECTS {
        let key = object(ContainerId(77), n);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![n as u8 + 1; LEN]).unwrap();
    }
    world.flush(FlushTarget::Store).unwrap();
    ContainerId(77)
}

/// Reads objects of these numbers again and again, as a client does that finds the reads slow.
fn read_much(world: &mut World, container: ContainerId, numbers: std::ops::Range<u128>) {
    for _ in 0..40 {
        for n in numbers.clone() {
            let (key, ranges) = (object(container, n), vec![(0, LEN as u64)]);
            world.ask(Request::Fetch { key, ranges, ahead: false, must: false });
            assert!(world.read(key).unwrap() == vec![n as u8 + 1; LEN]);
        }
        pass(world, 5);
    }
}

fn pass(world: &mut World, ticks: u32) {
    for _ in 0..ticks {
        world.clock.advance_ns(50_000_000);
        world.work();
    }
}

/// Number of the objects that are read from memory.
fn in_memory(world: &mut World, container: ContainerId, numbers: std::ops::Range<u128>) -> usize {
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    let memory = devices.iter().find(|info| info.spec.kind == DeviceKind::SharedMemory).unwrap().id;
    let whole = |world: &mut World, n| {
        world.lookup(object(container, n)).unwrap().extents.iter().all(|(_, extent)| extent.device == memory)
    };
    numbers.filter(|n| whole(world, *n)).count()
}

#[test]
fn a_clock_that_jumps_empties_no_tier_and_stops_no_plan() {
    for policy in ["hot-data", "foresight"] {
        for years in [10, -10] {
            let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
            let container = created(&mut world, policy);
            read_much(&mut world, container, 0..4);
            let before = in_memory(&mut world, container, 0..4);
            assert!(before > 0, "{policy}: what is read much is brought");
            if years > 0 {
                world.clock.advance_ns((TEN_YEARS_MS as u64) * 1_000_000); // the machine slept
            }
            world.clock.shift_calendar_ms(TEN_YEARS_MS * years / 10);
            pass(&mut world, 40);
            let after = in_memory(&mut world, container, 0..4);
            assert_eq!(after, before, "{policy}, {years} years: nothing needs the room");
            read_much(&mut world, container, 4..8);
            let more = in_memory(&mut world, container, 4..8);
            assert!(more > 0, "{policy}, {years} years: plans go on");
            // Back again, as when a wrong clock is set right.
            world.clock.shift_calendar_ms(-TEN_YEARS_MS * years / 10);
            pass(&mut world, 40);
            assert_eq!(in_memory(&mut world, container, 4..8), more, "{policy}, back by {years} years");
            assert!(world.verify().findings.is_empty());
        }
    }
}

#[test]
fn a_store_is_opened_with_any_calendar() {
    for years in [10, -10, -60] {
        let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
        let container = created(&mut world, "fast-first");
        for _ in 0..3 {
            world.clock.shift_calendar_ms(TEN_YEARS_MS * years / 10);
            world.clock.boot();
            world.power_loss(cenote_device::mem::Keep::Nothing);
            world.open().unwrap();
            for n in 0..OBJECTS {
                assert!(world.read(object(container, n)).unwrap() == vec![n as u8 + 1; LEN], "{years} years");
            }
            world.write(object(container, 0), 0, &[1; 100]).unwrap();
            world.flush(FlushTarget::Store).unwrap();
        }
    }
}
