//! Room on fast tiers: what can leave them at once, what leaves first, how much moves may take of devices, and who
//! gets which tier.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use cenote_store::Outcome;
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

/// Makes a request that needs no job.
fn at_once(world: &mut World, request: Request) -> Response {
    world.seq += 1;
    let (session, seq) = (world.session, world.seq);
    match world.engine().handle(session, seq, request) {
        Outcome::Ready(response) => response,
        Outcome::Wait(_) => panic!("an answer that waits"),
    }
}

#[test]
fn moves_that_take_long_keep_no_memory_that_they_do_not_read() {
    let mut world = World::new(&three_tiers(8 << 20, 16 << 20, 32 << 20));
    let ballast = world.container("ballast", Durability::Sync);
    make(&mut world, ballast, 1, 4 * MIB);
    let scratch = world.container("scratch", Durability::Scratch);
    let key = make(&mut world, scratch, 1, MIB);
    world.settle();
    let used = |world: &mut World| world.used().into_iter().find(|(name, ..)| name == "memory").unwrap().1;
    let before = used(&mut world);
    // Bytes on the file tier move to the slow one, and the jobs for that take long.
    world.seq += 1;
    let (session, seq) = (world.session, world.seq);
    let drain = Request::DeviceDrain { name: "file".into() };
    assert!(matches!(world.engine().handle(session, seq, drain), Outcome::Wait(_)));
    let jobs = |world: &mut World| {
        world.clock.advance_ns(20_000_000);
        world.engine().tick();
        std::iter::from_fn(|| world.engine().next_job()).partition(cenote_store::Job::is_brief)
    };
    let (_, moves): (Vec<_>, Vec<_>) = jobs(&mut world);
    assert_eq!(moves.len(), tuning().copy_jobs / 2, "room is left for copies that make memory free");
    // Meanwhile bytes in memory are overwritten, several times as often as there is room for.
    let run_all = |world: &mut World, jobs: Vec<cenote_store::Job>| {
        for job in jobs {
            let done = job.run();
            world.engine().finish_job(done);
        }
    };
    for round in 0..40 {
        let at = round % 2 * (MIB / 2);
        let request =
            Request::Lease { container: scratch, bytes: MIB / 2, run_min: 1 << 19, avoid: vec![], durability: None };
        let Response::Lease(lease) = at_once(&mut world, request) else { panic!("round {round}: no room in memory") };
        let bytes = vec![round as u8; 1 << 19];
        world.engine().device(lease.runs[0].device).unwrap().write_at(lease.runs[0].offset, &bytes).unwrap();
        let sums: Vec<u32> = bytes.chunks(65536).map(crc).collect();
        let extent = Extent::whole(lease.runs[0].device, lease.runs[0].offset, 1 << 19, Sums::from_slice(&sums));
        at_once(
            &mut world,
            Request::Apply { checks: vec![], updates: vec![Update::Write { key, offset: at, extent }], atomic: true },
        );
        let (brief, long): (Vec<_>, Vec<_>) = jobs(&mut world);
        assert!(long.iter().all(|job| job.timed() != Timed::Copy), "round {round}: more moves");
        run_all(&mut world, brief.into_iter().chain(long).collect());
        let now = used(&mut world);
        assert!(now <= before + MIB, "round {round}: {now} bytes in memory, {before} before");
    }
    run_all(&mut world, moves);
    world.work();
    assert_eq!(world.used().into_iter().find(|(name, ..)| name == "file").unwrap().1, 0, "drained");
    assert!(world.verify().findings.is_empty());
}

#[test]
fn what_was_given_up_and_is_still_read_by_a_job_is_not_given_up_again_and_again() {
    let mut world = World::new(&three_tiers(8 << 20, 16 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let keys: Vec<ObjectKey> = (1..=112).map(|n| make(&mut world, container, n, 64 << 10)).collect();
    world.flush(FlushTarget::Store).unwrap();
    world.write(keys[0], 0, &vec![9; 64 << 10]).unwrap();
    // A copy from memory runs all the time: space that leaves memory is not free before the copy ends.
    world.clock.advance_ns(10_000_000_000);
    world.engine().tick();
    let jobs: Vec<_> = std::iter::from_fn(|| world.engine().next_job()).collect();
    assert!(jobs.iter().any(|job| job.timed() == Timed::Copy), "no copy is made");
    let before = evictable(&mut world, "memory");
    for _ in 0..6 {
        let lease = Request::Lease { container, bytes: 256 << 10, run_min: 4096, avoid: vec![], durability: None };
        let answer = at_once(&mut world, lease);
        assert!(matches!(answer, Response::Lease(_)), "{answer:?}");
    }
    let after = evictable(&mut world, "memory");
    assert!(after + MIB >= before, "{} bytes left memory for leases of 1.5 MiB", before - after);
    for job in jobs {
        let done = job.run();
        world.engine().finish_job(done);
    }
    world.settle();
    assert!(world.verify().findings.is_empty());
}
