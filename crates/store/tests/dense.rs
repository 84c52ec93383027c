//! Small writes next to each other share allocation units.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

const MIB: u64 = 1 << 20;

fn used(world: &mut World, name: &str) -> u64 {
    world.used().into_iter().find(|(device, ..)| device == name).unwrap().1
}

/// Bytes that identify their place.
fn line(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8).collect()
}

#[test]
fn a_log_of_short_lines_takes_little_more_than_its_bytes() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 8 * MIB));
    let container = world.container("c", Durability::Async);
    let (one, two) = (object(container, 1), object(container, 2));
    world.must(vec![Update::ObjectCreate { key: one, block_shift: 12 }]);
    world.must(vec![Update::ObjectCreate { key: two, block_shift: 12 }]);
    // Two logs in turns: 2,000 lines of 4 and 7 bytes.
    let mut epoch = 0;
    for n in 0..1000_u64 {
        world.write(one, n * 4, &line(n * 4, 4)).unwrap();
        epoch = world.write(two, n * 7, &line(n * 7, 7)).unwrap();
    }
    let taken = |world: &mut World, key| match world.ask(Request::ObjectStat { key }) {
        Response::Stat(stat) => stat.taken_bytes,
        other => panic!("{other:?}"),
    };
    assert_eq!(taken(&mut world, one), 1000 * 512, "each line has a unit of its own until then");
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(taken(&mut world, one), 4096);
    world.settle();
    // Earlier reads of the object stay valid.
    let checks = vec![Check::Object { key: two, epoch }];
    let updates = vec![Update::Truncate { key: two, size: 7000 }];
    let answer = world.ask(Request::Apply { checks, updates, atomic: true });
    assert!(matches!(answer, Response::Applied { .. }), "{answer:?}");
    let all = |world: &mut World| used(world, "file") + used(world, "capacity");
    // 4,000 and 7,000 bytes in units of 4 KiB, and of 512 bytes in memory; in units of their own they were 8 MiB.
    assert!(all(&mut world) <= 3 * 4096, "{:?}", world.used());
    assert!(used(&mut world, "memory") <= 12 << 10, "{:?}", world.used());
    // Each line is on media before the next one comes.
    for n in 1000..1100_u64 {
        world.write(one, n * 4, &line(n * 4, 4)).unwrap();
        world.flush(FlushTarget::Store).unwrap();
    }
    world.settle();
    assert!(all(&mut world) <= 5 * 4096, "{:?}", world.used());
    let (first, second) = (line(0, 4400), line(0, 7000));
    let is_there = |world: &mut World| world.read(one).unwrap() == first && world.read(two).unwrap() == second;
    assert!(is_there(&mut world));
    world.kill();
    world.open().unwrap();
    assert!(is_there(&mut world));
    let report = world.verify();
    assert!(report.findings.is_empty(), "{report:?}");
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert!(is_there(&mut world));
}

#[test]
fn what_is_overwritten_and_cut_off_between_cuts_stays_right() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 8 * MIB));
        let container = world.container("c", if seed % 3 == 0 { Durability::Sync } else { Durability::Async });
        let keys = [object(container, 1), object(container, 2)];
        let mut is = [Vec::<u8>::new(), Vec::new()];
        for key in keys {
            world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        }
        for step in 0..300_u64 {
            let n = rng.below(2) as usize;
            let size = is[n].len() as u64;
            match rng.below(12) {
                0 => {
                    let size = rng.below(size + 1);
                    world.must(vec![Update::Truncate { key: keys[n], size }]);
                    is[n].truncate(size as usize);
                }
                1 => world.flush(FlushTarget::Store).unwrap(),
                2 if seed % 5 == 0 => {
                    world.kill();
                    world.open().unwrap();
                }
                how => {
                    let at = if how < 9 { size } else { rng.below(size + 1) };
                    let bytes = line(step * 1000, 1 + rng.below(if how == 3 { 30_000 } else { 600 }) as usize);
                    world.write(keys[n], at, &bytes).unwrap();
                    let end = at as usize + bytes.len();
                    is[n].resize(is[n].len().max(end), 0);
                    is[n][at as usize..end].copy_from_slice(&bytes);
                }
            }
            if rng.below(3) == 0 {
                world.clock.advance_ns(20_000_000);
                world.step();
            }
        }
        for n in 0..2 {
            assert_eq!(world.read(keys[n]).unwrap(), is[n], "seed {seed}");
        }
        world.flush(FlushTarget::Store).unwrap();
        let report = world.verify();
        assert!(report.findings.is_empty(), "seed {seed}: {report:?}");
        world.power_loss(Keep::Nothing);
        world.open().unwrap();
        for n in 0..2 {
            assert_eq!(world.read(keys[n]).unwrap(), is[n], "seed {seed}");
        }
    }
}
