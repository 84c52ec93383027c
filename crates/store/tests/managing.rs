//! What people request of placement: pins, archives, queries.

mod world;

use std::sync::atomic::Ordering;

use cenote_device::mem::Keep;
use cenote_model::*;
use world::manage::*;
use world::*;

/// Memory of 2 MiB filled completely from a container that may drain: everything that may leave leaves.
fn press(world: &mut World, container: ContainerId) {
    for n in 100..116 {
        put(world, object(container, n), &pattern(n as u8, 256 * KIB));
        world.clock.advance_ns(1_000_000_000);
        world.settle();
    }
    world.flush(FlushTarget::Store).unwrap();
    // These want the room of the longest unused objects.
    for n in 104..110 {
        arrange(world, ArrangeTarget::Object(object(container, n)), Arrange::Promote { to: to("memory") });
    }
    for _ in 0..20 {
        world.settle();
    }
}

#[test]
fn a_new_object_gets_a_tier_with_its_creation_or_not_at_all() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let device = |world: &mut World, name: &str| {
        let Response::Devices(all) = world.ask(Request::Devices) else { panic!("a list") };
        all.iter().find(|device| device.spec.name == name).map(|device| device.id).unwrap()
    };
    let capacity = device(&mut world, "capacity");
    let create = |n: u128| Update::ObjectCreate { key: object(container, n), block_shift: 12 };
    let keep = |n: u128, device| Update::ObjectKeep { key: object(container, n), device };
    world.must(vec![create(1), keep(1, capacity)]);
    world.must(vec![create(2)]);
    // Of an object that is there, or on a tier that is not, nothing happens; nor does anything stay of a creation that is refused.
    for (updates, why) in [
        (vec![keep(2, capacity)], "only an object that the same request creates"),
        (vec![keep(3, capacity)], "no such object"),
        (vec![create(3), keep(3, DeviceId(99))], "no such tier"),
        (vec![create(3), keep(3, capacity), create(2)], "exists already"),
    ] {
        let Response::Failed(error) = world.apply(updates, true) else { panic!("it was taken: {why}") };
        assert!(error.cause().contains(why), "{error}");
    }
    world.must(vec![create(3)]);
    for n in 1..=3 {
        world.write(object(container, n), 0, &pattern(n as u8, 64 * KIB)).unwrap();
    }
    let pins = |world: &mut World| [1, 2, 3].map(|n| stat(world, object(container, n)).pinned_bytes);
    assert_eq!(pins(&mut world), [64 * KIB as u64, 0, 0]);
    for _ in 0..20 {
        world.clock.advance_ns(1_000_000_000);
        world.settle();
    }
    assert_eq!(places(&mut world, object(container, 1)), ["capacity"]);
    // From the journal, and from a checkpoint.
    world.kill();
    world.open().unwrap();
    assert_eq!(pins(&mut world), [64 * KIB as u64, 0, 0]);
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.open().unwrap();
    assert_eq!(pins(&mut world), [64 * KIB as u64, 0, 0]);
}

#[test]
fn what_is_pinned_stays_under_pressure_and_through_restarts() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let (pinned, free) = (object(container, 1), object(container, 2));
    let content = pattern(1, 512 * KIB);
    put(&mut world, pinned, &content);
    put(&mut world, free, &pattern(2, 512 * KIB));
    world.flush(FlushTarget::Store).unwrap();
    let done = arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Pin { to: None });
    assert_eq!(done.pinned_bytes, 512 * KIB as u64);
    assert_eq!((stat(&mut world, pinned).pinned_bytes, stat(&mut world, free).pinned_bytes), (512 * KIB as u64, 0));
    press(&mut world, container);
    assert_eq!(places(&mut world, pinned), ["memory"], "it was idle for longest, and stays");
    assert_ne!(places(&mut world, free), ["memory"]);
    assert!(explain(&mut world, pinned).1.contains("pinned: it stays here"));
    for what in [Arrange::Evict, Arrange::Demote { to: to("capacity") }] {
        let left = arrange(&mut world, ArrangeTarget::Container(container), what);
        assert!(left.staying_why.contains("unpin it first") && left.staying_bytes >= 512 * KIB as u64);
        assert_eq!(places(&mut world, pinned), ["memory"]);
    }

    world.kill();
    world.open().unwrap();
    for n in 100..116 {
        world.must(vec![Update::ObjectDelete { key: object(container, n) }]);
    }
    press(&mut world, container);
    assert_eq!(places(&mut world, pinned), ["memory"], "said in the journal");
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.open().unwrap();
    assert_eq!(stat(&mut world, pinned).pinned_bytes, 512 * KIB as u64, "and in the checkpoint");

    arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Pin { to: to("memory") });
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_ne!(places(&mut world, pinned), ["memory"], "memory is gone with the power");
    for _ in 0..200 {
        world.settle();
    }
    assert_eq!(places(&mut world, pinned), ["memory"], "it comes back to where it is pinned");
    assert_eq!(world.read(pinned).unwrap(), content);

    arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Unpin);
    arrange(&mut world, ArrangeTarget::Object(pinned), Arrange::Evict);
    assert_ne!(places(&mut world, pinned), ["memory"]);
    assert_eq!(stat(&mut world, pinned).pinned_bytes, 0);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn pins_have_bounds_and_a_tier_that_is_emptied_goes_before() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Bypass);
    for n in 1..=4 {
        put(&mut world, object(container, n), &pattern(n as u8, MIB));
    }
    let all = || ArrangeTarget::Container(container);
    let refused = try_arrange(&mut world, all(), Arrange::Pin { to: to("memory") }, false).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::LimitExceeded);
    assert!(refused.to_string().contains("memory") && refused.to_string().contains("watermark"), "{refused}");
    assert_eq!(stat(&mut world, object(container, 1)).pinned_bytes, 0, "nothing was pinned");
    let unknown = try_arrange(&mut world, all(), Arrange::Pin { to: to("tape") }, false).unwrap_err();
    assert_eq!(unknown.kind(), ErrorKind::NotFound);

    // A range only, moved to the tier to which it is pinned.
    let key = object(container, 1);
    let part = ArrangeTarget::Range { key, offset: 0, len: 64 << 10 };
    let tried = try_arrange(&mut world, part.clone(), Arrange::Pin { to: to("file") }, true).unwrap();
    assert_eq!((tried.moves[0].from.as_str(), tried.moves[0].to.as_str()), ("capacity", "file"));
    assert_eq!(stat(&mut world, key).pinned_bytes, 0, "a dry run");
    arrange(&mut world, part, Arrange::Pin { to: to("file") });
    assert_eq!(places(&mut world, key), ["file"]);

    // New bytes of a container that is pinned go to its tier.
    let other = world.container("other", Durability::Async);
    arrange(&mut world, ArrangeTarget::Container(other), Arrange::Pin { to: to("file") });
    put(&mut world, object(other, 1), &pattern(9, MIB));
    assert_eq!(places(&mut world, object(other, 1)), ["file"]);
    let alone = try_arrange(&mut world, ArrangeTarget::Object(object(other, 1)), Arrange::Unpin, false).unwrap_err();
    assert!(alone.to_string().contains("as a whole"), "{alone}");

    assert_eq!(world.ask(Request::DeviceDrain { name: "file".into() }), Response::Done);
    assert_eq!(places(&mut world, key), ["capacity"]);
    let why = explain(&mut world, key).1;
    assert!(why.contains("pinned to `file`"), "{why}");
    arrange(&mut world, ArrangeTarget::Container(other), Arrange::Unpin);
    assert_eq!(stat(&mut world, object(other, 1)).pinned_bytes, 0);
    // A new object of the same id is not pinned.
    world.must(vec![Update::ObjectDelete { key }]);
    put(&mut world, key, &pattern(5, 4096));
    assert_eq!(stat(&mut world, key).pinned_bytes, 0);
}

#[test]
fn policies_leave_alone_what_is_pinned() {
    for name in ["foresight", "hot-data", "max-bandwidth"] {
        for is_pinned in [true, false] {
            let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
            let spec =
                ContainerSpec { policy: name.into(), durability: Durability::Bypass, ..ContainerSpec::default() };
            let make = Update::ContainerCreate { id: ContainerId(0), label: "c".into(), spec };
            let Response::Applied { created: Some(container), .. } = world.apply(vec![make], true) else { panic!() };
            let key = object(container, 1);
            put(&mut world, key, &pattern(1, MIB));
            world.flush(FlushTarget::Store).unwrap();
            arrange(&mut world, ArrangeTarget::Object(key), Arrange::Demote { to: to("capacity") });
            if is_pinned {
                arrange(&mut world, ArrangeTarget::Object(key), Arrange::Pin { to: None });
            }
            for _ in 0..40 {
                world.clock.advance_ns(50_000_000);
                world.ask(Request::Fetch { key, ranges: vec![(0, MIB as u64)], ahead: false, must: false });
                world.settle();
            }
            let has_moved = places(&mut world, key) != ["capacity"];
            assert_eq!(has_moved, !is_pinned, "{name}");
        }
    }
}

#[test]
fn a_pin_holds_for_what_a_snapshot_shares() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    put(&mut world, key, &pattern(1, MIB));
    world.flush(FlushTarget::Store).unwrap();
    let make =
        Update::SnapshotCreate { of: container, id: ContainerId(0), name: "s".into(), replace: false, unix_ms: 0 };
    let Response::Applied { created: Some(snapshot), .. } = world.apply(vec![make], true) else { panic!() };
    let twin = ObjectKey { container: snapshot, ..key };
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Pin { to: None });
    for what in [Arrange::Evict, Arrange::Demote { to: to("capacity") }] {
        let stays = arrange(&mut world, ArrangeTarget::Object(twin), what);
        assert!(stays.staying_why.contains("shares its place"), "{}", stays.staying_why);
    }
    assert_eq!((places(&mut world, key), places(&mut world, twin)), (vec!["memory".into()], vec!["memory".into()]));
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Unpin);
    arrange(&mut world, ArrangeTarget::Object(twin), Arrange::Evict);
    assert_eq!(places(&mut world, key), ["file"], "both leave together");
    assert!(world.verify().findings.is_empty());
}

#[test]
fn archives_are_copies_that_were_read_back_and_releases_need_them() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    let content = pattern(3, MIB);
    put(&mut world, key, &content);
    let target = || ArrangeTarget::Object(key);
    let refused = try_arrange(&mut world, target(), Arrange::Archive { to: to("memory") }, false).unwrap_err();
    assert!(refused.to_string().contains("power loss"), "{refused}");
    let early = arrange(&mut world, target(), Arrange::Release { to: None });
    assert!(early.staying_why.contains("archive it first"), "{}", early.staying_why);

    let planned = try_arrange(&mut world, target(), Arrange::Archive { to: None }, true).unwrap();
    assert_eq!((planned.bytes, planned.moves[0].to.as_str()), (MIB as u64, "capacity"));
    assert!(planned.cost_ns > 0 && planned.moves[0].why.contains("read back"));
    let done = arrange(&mut world, target(), Arrange::Archive { to: None });
    assert_eq!((done.moved_bytes, done.staying_bytes), (MIB as u64, 0), "{}", done.staying_why);
    assert_eq!(places(&mut world, key), ["memory"], "it stays there, too");
    let again = arrange(&mut world, target(), Arrange::Archive { to: None });
    assert_eq!((again.moved_bytes, again.already_bytes), (0, MIB as u64));
    world.write(key, 0, &pattern(4, 64 * KIB)).unwrap();
    let some = arrange(&mut world, target(), Arrange::Release { to: None });
    assert_eq!(
        (some.bytes, some.staying_bytes),
        ((MIB - 64 * KIB) as u64, 64 * KIB as u64),
        "what is new is not there"
    );
    assert_eq!(some.moved_bytes, 0);
    arrange(&mut world, target(), Arrange::Archive { to: None });
    arrange(&mut world, target(), Arrange::Release { to: None });
    assert_eq!(places(&mut world, key), ["capacity"]);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    let mut expected = content;
    expected[..64 * KIB].copy_from_slice(&pattern(4, 64 * KIB));
    assert_eq!(world.read(key).unwrap(), expected);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn what_does_not_read_back_as_it_was_is_no_archive() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Sync);
    let key = object(container, 1);
    let content = pattern(3, 256 * KIB);
    put(&mut world, key, &content);
    world.writes_lie.store(true, Ordering::Relaxed);
    let target = Box::new(ArrangeTarget::Object(key));
    let request = Request::Arrange { target, what: Arrange::Archive { to: None }, dry_run: false };
    let Response::Failed(error) = world.ask(request) else { panic!("nothing was archived") };
    assert_eq!(error.subject(), "archive of 256.0 KiB", "{error}");
    let cause = error.cause();
    assert!(cause.starts_with("0 B of it are done, 256.0 KiB are not: "), "{cause}");
    assert!(cause.contains("checksum") && cause.contains("capacity"), "{cause}");
    assert!(error.next_step().contains("repeat the command"), "{}", error.next_step());
    world.writes_lie.store(false, Ordering::Relaxed);
    world.clock.advance_ns(60_000_000_000); // a tier that failed of late is avoided
    let none = arrange(&mut world, ArrangeTarget::Object(key), Arrange::Release { to: None });
    assert_eq!((none.bytes, none.staying_bytes), (0, 256 << 10));
    assert_eq!(places(&mut world, key), ["file"]);
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Archive { to: None });
    arrange(&mut world, ArrangeTarget::Object(key), Arrange::Release { to: None });
    assert_eq!(places(&mut world, key), ["capacity"]);
    assert_eq!(world.read(key).unwrap(), content);
    assert!(world.verify().findings.is_empty());
}

#[test]
fn an_archive_goes_on_after_a_crash_at_any_step() {
    for steps in 1..14 {
        let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 32 << 20));
        let container = world.container("c", Durability::Sync);
        for n in 1..=4 {
            put(&mut world, object(container, n), &pattern(n as u8, 512 * KIB));
        }
        let target = Box::new(ArrangeTarget::Container(container));
        let request = Request::Arrange { target, what: Arrange::Archive { to: None }, dry_run: false };
        let session = world.session;
        let _ = world.engine().handle(session, 999, request);
        let mut told = 0;
        for _ in 0..steps {
            world.step();
            let Response::Progress(running) = world.ask(Request::Progress) else { panic!() };
            told += running.len();
        }
        assert!(told > 0, "it is told how far it is");
        world.kill();
        world.open().unwrap();
        let rest = arrange(&mut world, ArrangeTarget::Container(container), Arrange::Archive { to: None });
        assert_eq!(rest.bytes + rest.already_bytes, 2 * MIB as u64, "after {steps} steps");
        assert_eq!(rest.staying_bytes, 0, "{}", rest.staying_why);
        let after = arrange(&mut world, ArrangeTarget::Container(container), Arrange::Release { to: None });
        assert_eq!((after.bytes, after.moved_bytes), (2 * MIB as u64, 0));
        for n in 1..=4 {
            assert_eq!(world.read(object(container, n)).unwrap(), pattern(n as u8, 512 * KIB));
            assert_eq!(places(&mut world, object(container, n)), ["capacity"]);
        }
        world.settle();
        let used: u64 = world.used().into_iter().filter(|(name, ..)| name != "capacity").map(|(_, used, _)| used).sum();
        assert_eq!(used, 0, "no copy is kept twice");
        assert!(world.verify().findings.is_empty());
    }
}

#[test]
fn queries_mean_what_they_say() {
    let mut world = World::new(&three_tiers(8 << 20, 8 << 20, 32 << 20));
    let (runs, other) = (world.container("runs", Durability::Async), world.container("other", Durability::Async));
    put(&mut world, object(runs, 0x1a), &pattern(1, MIB));
    put(&mut world, object(runs, 0x2a), &pattern(2, 64 * KIB));
    put(&mut world, object(other, 0x1a), &pattern(3, MIB));
    world.flush(FlushTarget::Store).unwrap();
    let would = |world: &mut World, text: &str| {
        let told = try_arrange(world, on(text), Arrange::Evict, true).unwrap();
        (told.objects, told.bytes)
    };
    let mib = MIB as u64;
    assert_eq!(would(&mut world, "label=runs"), (2, mib + (64 << 10)));
    assert_eq!(would(&mut world, "size>=1MiB and tier=memory"), (2, 2 * mib));
    assert_eq!(would(&mut world, "object=*1a and not label=other"), (1, mib));
    assert_eq!(would(&mut world, "tier=tape or age>1d"), (0, 0));
    days_pass(&mut world, 2);
    put(&mut world, object(runs, 3), &pattern(4, 64 * KIB));
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(would(&mut world, "age>1d").0, 3);
    assert_eq!(would(&mut world, "temperature=cold and copy=file").0, 3);
    assert_eq!(would(&mut world, "idle<1h").0, 1);
    world.kill();
    world.open().unwrap();
    world.settle();
    assert_eq!(would(&mut world, "age>2d").0, 0, "after a crash what is not known is young");
    let fault = try_arrange(&mut world, on("size>=1MiB and colour=red"), Arrange::Evict, true).unwrap_err();
    assert!(fault.to_string().contains("column 16") && fault.to_string().contains("colour"), "{fault}");
    let done = arrange(&mut world, on("label=runs and size<100KiB"), Arrange::Pin { to: None });
    assert_eq!((done.objects, done.pinned_bytes), (2, 128 << 10));
    assert_eq!(would(&mut world, "pinned=yes").0, 2);
}

#[test]
fn a_query_pins_what_it_means_and_nothing_between() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    for offset in [0, 128 << 10, 256 << 10] {
        world.write(key, offset, &pattern(1, 64 * KIB)).unwrap();
    }
    world.flush(FlushTarget::Store).unwrap();
    arrange(&mut world, ArrangeTarget::Range { key, offset: 256 << 10, len: 64 << 10 }, Arrange::Evict);
    assert_eq!(places(&mut world, key), ["memory", "file"]);
    let done = arrange(&mut world, on("tier=memory"), Arrange::Pin { to: None });
    assert_eq!((done.pinned_bytes, stat(&mut world, key).pinned_bytes), (128 << 10, 128 << 10));
    world.write(key, 64 << 10, &pattern(2, 64 * KIB)).unwrap();
    assert_eq!(stat(&mut world, key).pinned_bytes, 128 << 10, "what comes to lie between is not meant");
    let (_, whys) = explain(&mut world, key);
    let stays: Vec<bool> = whys.lines().map(|why| why.ends_with("; pinned: it stays here")).collect();
    assert_eq!(stays, [true, false, true, false], "{whys}");
}

#[test]
fn what_would_go_the_wrong_way_stays_and_says_why() {
    let mut world = World::new(&three_tiers(2 << 20, 8 << 20, 32 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    put(&mut world, key, &pattern(1, 64 * KIB));
    world.flush(FlushTarget::Store).unwrap();
    let target = || ArrangeTarget::Object(key);
    arrange(&mut world, target(), Arrange::Demote { to: to("file") });
    assert_eq!(places(&mut world, key), ["file"]);
    let up = arrange(&mut world, target(), Arrange::Promote { to: to("capacity") });
    assert_eq!((up.staying_bytes, up.moved_bytes), (64 << 10, 0));
    assert!(up.staying_why.contains("`capacity` is slower than `file`"), "{}", up.staying_why);
    let down = arrange(&mut world, target(), Arrange::Demote { to: to("memory") });
    assert!(down.staying_why.contains("`memory` is faster than `file`"), "{}", down.staying_why);
    let here = arrange(&mut world, target(), Arrange::Demote { to: to("file") });
    assert_eq!((here.already_bytes, here.staying_bytes), (64 << 10, 0));
    assert_eq!(places(&mut world, key), ["file"]);
}
