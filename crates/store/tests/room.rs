//! Room on fast tiers: what can leave them at once, who leaves, what movement may take of devices, who asks for which tier.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::*;

const MIB: u64 = 1 << 20;

fn evictable(world: &mut World, name: &str) -> u64 {
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    devices.into_iter().find(|d| d.spec.name == name).unwrap().evictable_bytes
}

fn tracked(world: &mut World, label: &str, policy: &str, durability: Durability) -> ContainerId {
    let spec = ContainerSpec { durability, policy: policy.into(), ..ContainerSpec::default() };
    match world.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }], true) {
        Response::Applied { created: Some(id), .. } => id,
        other => panic!("{other:?}"),
    }
}

fn make(world: &mut World, container: ContainerId, n: u128, len: u64) -> ObjectKey {
    let key = object(container, n);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    for at in (0..len).step_by(64 << 10) {
        world.write(key, at, &vec![n as u8; (64 << 10).min(len - at) as usize]).unwrap();
    }
    key
}

fn arrange(world: &mut World, key: ObjectKey, what: Arrange) {
    let target = Box::new(ArrangeTarget::Object(key));
    let answer = world.ask(Request::Arrange { target, what, dry_run: false });
    assert!(matches!(answer, Response::Arranged(_)), "{answer:?}");
}

#[test]
fn what_can_leave_at_once_is_known_through_overwrites_snapshots_moves_and_crashes() {
    let mut world = World::new(&three_tiers(8 << 20, 16 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let key = make(&mut world, container, 1, MIB);
    assert_eq!(evictable(&mut world, "memory"), 0, "nothing has a copy yet");
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(evictable(&mut world, "memory"), MIB);
    world.write(key, 100, &vec![9; 64 << 10]).unwrap();
    assert_eq!(evictable(&mut world, "memory"), MIB - (64 << 10));
    world.must(vec![Update::Truncate { key, size: MIB / 2 }]);
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(evictable(&mut world, "memory"), MIB / 2);
    let (id, name) = (ContainerId(0), "s".to_owned());
    world.must(vec![Update::SnapshotCreate { id, of: container, name, replace: false, unix_ms: 0 }]);
    world.flush(FlushTarget::Store).unwrap();
    let both = evictable(&mut world, "memory");
    assert!(both >= MIB / 2, "what is in a snapshot can leave, too: {both}");
    world.kill();
    world.open().unwrap();
    assert_eq!(evictable(&mut world, "memory"), both, "as it was before the crash");
    arrange(&mut world, key, Arrange::Evict);
    assert_eq!(evictable(&mut world, "memory"), 0);
    arrange(&mut world, key, Arrange::Promote { to: Some("memory".into()) });
    assert_eq!(evictable(&mut world, "memory"), both);
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(evictable(&mut world, "memory"), 0);
}

#[test]
fn accounts_of_what_can_leave_agree_with_a_fresh_count() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
        let durabilities = [Durability::Async, Durability::Bypass, Durability::Scratch, Durability::Sync];
        let containers: Vec<_> = durabilities.iter().map(|d| tracked(&mut world, d.word(), "foresight", *d)).collect();
        let keys: Vec<_> = containers.iter().map(|container| make(&mut world, *container, 1, 256 << 10)).collect();
        for step in 0..120 {
            let key = keys[rng.below(4) as usize];
            let offset = rng.below(1 << 20);
            match rng.below(9) {
                0..=3 => drop(world.write(key, offset, &vec![step; 1 + rng.below(100_000) as usize])),
                4 => drop(world.ask(Request::Fetch { key, ranges: vec![(offset, 1 << 18)], ahead: true, must: false })),
                5 => drop(world.must(vec![Update::Punch { key, offset, len: 1 + rng.below(200_000) }])),
                6 => drop(world.flush(FlushTarget::Store)),
                7 => arrange(&mut world, key, Arrange::Promote { to: None }),
                _ => arrange(&mut world, key, Arrange::Evict),
            }
            if rng.below(4) == 0 {
                world.settle();
            }
        }
        world.flush(FlushTarget::Store).unwrap();
        world.settle();
        let before: Vec<_> = ["memory", "file", "capacity"].map(|name| evictable(&mut world, name)).to_vec();
        world.kill();
        world.open().unwrap();
        let after: Vec<_> = ["memory", "file", "capacity"].map(|name| evictable(&mut world, name)).to_vec();
        assert_eq!(before, after, "seed {seed}");
    }
}

#[test]
fn who_needs_room_gets_it_from_what_has_a_copy_before_slower_tiers_are_used() {
    let mut world = World::new(&three_tiers(32 << 20, 64 << 20, 64 << 20));
    let container = tracked(&mut world, "c", "foresight", Durability::Async);
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    let memory = devices.iter().find(|d| d.spec.name == "memory").unwrap().id;
    for n in 0..12 {
        let key = object(container, n);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![n as u8; 4 << 20]).unwrap();
        let lookup = world.lookup(key).unwrap();
        assert!(lookup.extents.iter().all(|(_, extent)| extent.device == memory), "object {n} is not in memory");
        world.flush(FlushTarget::Store).unwrap();
    }
}

#[test]
fn a_budget_bounds_what_leaves_a_device() {
    let drained_after_ms = |budget: Option<&str>| {
        let mut config = three_tiers(16 << 20, 16 << 20, 32 << 20);
        if let Some(budget) = budget {
            config.devices[2].options.set("budget", budget);
        }
        let mut world = World::new(&config);
        let container = world.container("c", Durability::Sync);
        make(&mut world, container, 1, 4 * MIB);
        let begun = world.now_ns();
        assert_eq!(world.ask(Request::DeviceDrain { name: "file".into() }), Response::Done);
        (world.now_ns() - begun) / 1_000_000
    };
    assert!(drained_after_ms(None) < 500);
    let bounded = drained_after_ms(Some("1MiB"));
    assert!((3_000..8_000).contains(&bounded), "4 MiB at 1 MiB/s took {bounded} ms");
}

#[test]
fn single_leases_may_ask_for_more_than_the_container_promises_and_not_for_less() {
    use Durability::{Async, Bypass, Scratch, Sync};
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let ask = |world: &mut World, own: Durability, wanted: Durability| {
        let container = match world.ask(Request::ContainerList { after: None, limit: 99 }) {
            Response::Containers(all) => all.into_iter().find(|c| c.spec.durability == own).map(|c| c.id),
            other => panic!("{other:?}"),
        };
        let container = container.unwrap_or_else(|| world.container(own.word(), own));
        let (bytes, run_min, avoid) = (4096, 4096, vec![]);
        let lease = Request::Lease { container, bytes, run_min, avoid, durability: Some(wanted) };
        match world.ask(lease) {
            Response::Lease(lease) => {
                let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
                Ok(devices.into_iter().find(|d| d.id == lease.runs[0].device).unwrap().spec.name)
            }
            Response::Failed(error) => Err(error.kind()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(&mut world, Async, Async).as_deref(), Ok("memory"));
    assert_eq!(ask(&mut world, Async, Sync).as_deref(), Ok("file"));
    assert_eq!(ask(&mut world, Async, Bypass).as_deref(), Ok("capacity"));
    assert_eq!(ask(&mut world, Bypass, Async).as_deref(), Ok("memory"));
    for (own, wanted) in [(Async, Scratch), (Sync, Async), (Sync, Bypass), (Scratch, Sync), (Scratch, Async)] {
        assert_eq!(ask(&mut world, own, wanted), Err(ErrorKind::InvalidInput), "{own:?} {wanted:?}");
    }
}
