//! The engine through its requests: space, sessions, tiers, limits.
#![allow(clippy::large_stack_arrays, reason = "bytes to write, by the ten thousand")]

mod world;

use cenote_device::MetaDir as _;
use cenote_device::mem::MemDevices;
use cenote_model::ErrorKind::{Exists, InvalidInput, LimitExceeded, NotFound};
use cenote_model::*;
use cenote_store::{Engine, Outcome, SessionId, SessionInfo};
use world::*;

const SMALL: u64 = 1 << 20;

#[test]
fn full_tiers_are_named_and_what_is_there_stays_readable() {
    let mut world = World::new(&three_tiers(SMALL, SMALL, 2 * SMALL));
    let container = world.container("c", Durability::Async);
    let mut written = Vec::new();
    let error = loop {
        let key = object(container, written.len() as u128);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        let bytes = vec![written.len() as u8; 60_000];
        match world.write(key, 0, &bytes) {
            Ok(_) => written.push((key, bytes)),
            Err(error) => break error,
        }
        world.clock.advance_ns(50_000_000);
        world.work();
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    for name in ["memory", "file", "capacity", "%"] {
        assert!(error.cause().contains(name), "{error}");
    }
    assert!(written.len() as u64 * 60_000 > 2 * SMALL, "only {} objects fitted", written.len());
    for (key, bytes) in &written {
        assert_eq!(&world.read(*key).unwrap(), bytes);
    }
    // Deletion makes room again.
    for (key, _) in written.drain(..10) {
        world.must(vec![Update::ObjectDelete { key }]);
    }
    for _ in 0..5 {
        world.clock.advance_ns(1_100_000_000);
        world.work();
    }
    let (key, _) = written[0];
    world.write(key, 0, &[9; 60_000]).unwrap();
    assert!(world.verify().findings.is_empty());
}

#[test]
fn memory_drains_to_lower_tiers_and_reads_go_on() {
    let mut world = World::new(&three_tiers(SMALL, 8 * SMALL, 8 * SMALL));
    let container = world.container("c", Durability::Async);
    let scratch = world.container("s", Durability::Scratch);
    let mut expected = Vec::new();
    for i in 0..100u8 {
        let key = object(if i % 3 == 0 { scratch } else { container }, u128::from(i));
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &vec![i; 40_000]).unwrap();
        expected.push((key, vec![i; 40_000]));
        world.clock.advance_ns(100_000_000);
        world.work();
    }
    let used = world.used();
    assert!(used[0].1 < SMALL * 92 / 100, "{used:?}");
    for (key, bytes) in expected {
        assert_eq!(world.read(key).unwrap(), bytes);
    }
    let Response::Explanation(why) = world.ask(Request::Explain { key: object(container, 1) }) else { panic!() };
    assert!(!why.ranges.is_empty() && why.ranges.iter().all(|range| !range.why.is_empty()) && !why.notes.is_empty());
}

#[test]
fn space_returns_when_everything_is_deleted() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let mut rng = Rng::new(5);
    for i in 0..20 {
        let key = object(container, i % 4);
        if i < 4 {
            world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        }
        for _ in 0..5 {
            let bytes = vec![i as u8; 1 + rng.below(30_000) as usize];
            world.write(key, rng.below(100_000), &bytes).unwrap();
        }
        world.clock.advance_ns(rng.below(1_000_000_000));
        world.work();
    }
    let Response::Applied { .. } = world.apply(vec![Update::ContainerDelete { id: container }], true) else { panic!() };
    let session = world.session;
    world.engine().session_close(session);
    world.attach();
    for _ in 0..4 {
        world.clock.advance_ns(3_000_000_000);
        world.work();
    }
    for (name, used, reserved) in world.used() {
        assert_eq!((used, reserved), (0, 0), "on {name}");
    }
}

#[test]
fn readers_keep_retired_space_from_being_used() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Scratch);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[1; 4096]).unwrap();
    let old = world.lookup(key).unwrap();
    world.control.announce(3);
    world.write(key, 0, &[2; 4096]).unwrap();
    let new = world.lookup(key).unwrap();
    assert_ne!(old.version, new.version, "a cached map is noticed");
    let run = old.extents[0].1.run_offset;
    let freed = |world: &mut World| {
        world.work();
        world.used()[0].2
    };
    let held = freed(&mut world);
    let device = world.engine().device(old.extents[0].1.device).unwrap();
    let mut bytes = [0; 4096];
    device.read_at(run, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4096]);
    world.control.clear(3);
    assert_eq!(freed(&mut world), held - 4096);
}

#[test]
fn a_tier_stays_while_somebody_may_read_from_it() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Scratch);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[1; 4096]).unwrap();
    world.control.announce(3);
    world.must(vec![Update::ObjectDelete { key }]);
    let session = world.session;
    world.engine().session_close(session);
    world.attach();
    world.settle();
    let remove = Request::DeviceRemove { name: "memory".into() };
    let Response::Failed(error) = world.ask(remove.clone()) else { panic!("it was removed") };
    assert!(error.kind() == ErrorKind::Busy && error.cause().contains("readers"), "{error}");
    world.control.clear(3);
    world.settle();
    assert_eq!(world.ask(remove), Response::Done);
}

#[test]
fn a_write_must_lie_in_space_leased_by_its_session() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let good = world.stage(key, 0, &[1; 4096]).unwrap();
    let Update::Write { extent, .. } = good.clone() else { panic!() };
    let before = world.read(key).unwrap();
    let other = world.engine().session_open(SessionInfo { nonce: 8, write: true, ..SessionInfo::default() }).unwrap();
    let refused = |world: &mut World, session: SessionId, extent: Extent| {
        let updates = vec![Update::Write { key, offset: 0, extent }];
        match world.engine().handle(session, 0, Request::Apply { checks: vec![], updates, atomic: true }) {
            Outcome::Ready(Response::Failed(error)) => assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}"),
            other => panic!("{other:?}"),
        }
    };
    let mine = world.session;
    refused(&mut world, other, extent.clone());
    for change in 0..11 {
        let mut bad = extent.clone();
        match change {
            0 => bad.run_offset += 4096,
            1 => bad.run_offset += 1,
            2 => bad.device = DeviceId(99),
            3 => bad.node = NodeId(1),
            4 => (bad.len, bad.run_len) = (0, 0),
            5 => (bad.len, bad.run_len) = (u32::MAX, u32::MAX),
            6 => bad.skip = 1,
            7 => bad.sums = Sums::Many([1, 2].into()),
            8 => bad.len -= 1,
            9 => bad.encoding = Encoding::Packed(Packed::new(Codec::Lz4, 0, 12, 4096, &[4096]).unwrap().into()),
            _ => bad.run_offset = u64::MAX - 4095,
        }
        refused(&mut world, mine, bad);
    }
    assert_eq!(world.read(key).unwrap(), before);
    world.must(vec![good.clone()]);
    refused(&mut world, mine, extent);
    assert_eq!(world.read(key).unwrap(), [1; 4096]);
}

#[test]
fn the_same_request_again_gets_the_same_answer_also_from_the_next_engine() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    for durability in [Durability::Async, Durability::Sync] {
        let container = world.container(&format!("{durability:?}"), durability);
        let records = index(container, 1);
        world.must(vec![Update::IndexCreate { key: records }]);
        let put = |n: u8| Update::Put { index: records, key: vec![n], value: vec![n], only_new: true };
        let request = Request::Apply { checks: vec![], updates: vec![put(1), put(1), put(2)], atomic: false };
        let first = world.ask(request.clone());
        let Response::Applied { epoch, codes, .. } = &first else { panic!("{first:?}") };
        assert_eq!(codes, &[KeyCode::Ok, KeyCode::Exists, KeyCode::Ok]);
        let seq = world.seq;
        for way in 0..4 {
            let again = world.ask_as(seq, request.clone());
            let Response::Applied { epoch: epoch_again, codes: codes_again, .. } = &again else { panic!("{again:?}") };
            assert_eq!((epoch_again, codes_again), (epoch, codes));
            if way == 1 {
                world.engine().close().unwrap();
            }
            world.kill();
            world.open().unwrap();
        }
        let lease = Request::Lease { container, bytes: 8192, run_min: 4096, avoid: vec![], durability: None };
        let leased = world.ask(lease.clone());
        let seq = world.seq;
        world.kill();
        world.open().unwrap();
        assert_eq!(world.ask_as(seq, lease), leased);
    }
}

#[test]
fn a_failing_transaction_leaves_nothing() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let (key, records) = (object(container, 1), index(container, 1));
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }, Update::IndexCreate { key: records }]);
    world.write(key, 0, &[7; 200_000]).unwrap();
    let before = (world.read(key).unwrap(), world.lookup(key).unwrap(), world.used());
    let staged = world.stage(key, 70_000, &[8; 10_000]).unwrap();
    let updates = vec![
        staged.clone(),
        Update::Punch { key, offset: 1, len: 5 },
        Update::Truncate { key, size: 150_000 },
        Update::ObjectCreate { key: object(container, 2), block_shift: 12 },
        Update::Put { index: records, key: vec![1], value: vec![1], only_new: false },
        Update::IndexCreate { key: index(container, 9) },
        Update::IndexDelete { key: records },
        Update::ObjectDelete { key },
        Update::ObjectDelete { key: object(container, 77) },
    ];
    let Response::Failed(error) = world.apply(updates, true) else { panic!() };
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.subject().contains(&object(container, 77).to_string()), "{error}");
    assert_eq!(world.lookup(key).unwrap(), before.1, "the map is split exactly as before");
    assert_eq!(world.read(key).unwrap(), before.0);
    let Response::Exists(false) = world.ask(Request::IndexExists { key: index(container, 9) }) else { panic!() };
    world.must(vec![staged]);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap()[70_000..80_000], [8; 10_000]);
}

#[test]
fn conflicts_are_detected() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let records = index(container, 1);
    world.must(vec![Update::IndexCreate { key: records }]);
    let put = Update::Put { index: records, key: vec![1], value: vec![1], only_new: false };
    let epoch = world.must(vec![put.clone()]);
    let mut with = |epoch| {
        let checks = vec![Check::Record { index: records, key: vec![1], epoch }];
        match world.ask(Request::Apply { checks, updates: vec![put.clone()], atomic: true }) {
            Response::Applied { epoch, .. } => Ok(epoch),
            Response::Failed(error) => Err(error.kind()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(with(0), Err(ErrorKind::Conflict));
    let second = with(epoch).unwrap();
    assert_eq!(with(epoch), Err(ErrorKind::Conflict));
    assert!(with(second).is_ok());
}

#[test]
fn devices_come_and_go() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let scratch = world.container("s", Durability::Scratch);
    let bypass = world.container("b", Durability::Bypass);
    let mut expected = Vec::new();
    for (i, c) in [container, scratch, bypass].into_iter().cycle().take(12).enumerate() {
        let key = object(c, i as u128);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 3, &vec![i as u8 + 1; 70_000]).unwrap();
        let mut bytes = vec![0; 3];
        bytes.extend(vec![i as u8 + 1; 70_000]);
        expected.push((key, bytes));
    }
    world.flush(FlushTarget::Store).unwrap();
    let Response::Device(_) = world.ask(Request::DeviceAdd { spec: spec("more", DeviceKind::File, 8 * SMALL) }) else {
        panic!()
    };
    let Response::Failed(error) = world.ask(Request::DeviceAdd { spec: spec("more", DeviceKind::File, SMALL) }) else {
        panic!()
    };
    assert_eq!(error.kind(), ErrorKind::Exists);
    for name in ["file", "capacity", "memory"] {
        let Response::Failed(_) = world.ask(Request::DeviceRemove { name: name.into() }) else {
            panic!("{name} is in use")
        };
        let Response::Done = world.ask(Request::DeviceDrain { name: name.into() }) else { panic!("{name}") };
        for (key, bytes) in &expected {
            assert_eq!(&world.read(*key).unwrap(), bytes, "while {name} leaves");
        }
        let session = world.session;
        world.engine().session_close(session);
        world.attach();
        world.clock.advance_ns(1_000_000_000);
        world.work();
        let removed = world.ask(Request::DeviceRemove { name: name.into() });
        assert_eq!(removed, Response::Done, "{name}");
        world.kill();
        world.open().unwrap();
    }
    assert_eq!(world.used().len(), 1);
    for (key, bytes) in &expected {
        assert_eq!(&world.read(*key).unwrap(), bytes);
    }
    assert!(world.verify().findings.is_empty());
}

#[test]
fn bad_bytes_are_found_and_never_copied() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[5; 100_000]).unwrap();
    let extent = world.lookup(key).unwrap().extents[0].1.clone();
    assert!(world.devices.corrupt(STORE, extent.device, extent.run_offset + 70_000, 4));
    let error = world.flush(FlushTarget::Object(key)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.subject().contains(&key.to_string()), "{error}");
    let report = world.verify();
    assert_eq!(report.objects, 1);
    assert!(report.findings.iter().any(|f| f.key == key && f.device == "memory"), "{report:?}");
    world.write(key, 0, &[6; 100_000]).unwrap();
    world.clock.advance_ns(3_000_000_000);
    world.work();
    world.flush(FlushTarget::Store).unwrap();
    assert!(world.verify().findings.is_empty());
}

#[test]
fn absurd_requests_are_refused() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let kind = |response| match response {
        Response::Failed(error) => error.kind(),
        other => panic!("{other:?}"),
    };
    let spec = ContainerSpec::default();
    let cases = vec![
        (Update::ObjectCreate { key: object(container, 2), block_shift: 5 }, InvalidInput),
        (Update::ObjectCreate { key: object(container, 2), block_shift: 255 }, InvalidInput),
        (Update::ObjectCreate { key, block_shift: 12 }, Exists),
        (Update::ObjectCreate { key: object(ContainerId(u64::MAX), 2), block_shift: 12 }, NotFound),
        (Update::Punch { key, offset: u64::MAX, len: 2 }, InvalidInput),
        (Update::Punch { key, offset: 1 << 63, len: 1 }, InvalidInput),
        (Update::Truncate { key, size: u64::MAX }, InvalidInput),
        (Update::ContainerCreate { id: ContainerId(0), label: String::new(), spec: spec.clone() }, InvalidInput),
        (Update::ContainerCreate { id: ContainerId(0), label: "c".into(), spec: spec.clone() }, Exists),
        (Update::ContainerCreate { id: container, label: "d".into(), spec: spec.clone() }, InvalidInput),
        (Update::ContainerCreate { id: ContainerId(u64::MAX), label: "d".into(), spec: spec.clone() }, InvalidInput),
        (Update::ContainerCreate { id: ContainerId(1 << 62), label: "d".into(), spec: spec.clone() }, InvalidInput),
        (Update::ContainerCreate { id: ContainerId(0), label: "x".repeat(4097), spec: spec.clone() }, InvalidInput),
        (Update::ContainerSet { id: container, spec: ContainerSpec { block_shift: 99, ..spec.clone() } }, InvalidInput),
        (Update::ContainerRename { id: ContainerId(99), label: "d".into() }, NotFound),
        (Update::Put { index: index(container, 9), key: vec![], value: vec![], only_new: false }, NotFound),
        (Update::IndexDelete { key: index(container, 9) }, NotFound),
    ];
    for (update, expected) in cases {
        let what = format!("{update:?}");
        assert_eq!(kind(world.apply(vec![update], true)), expected, "{what}");
    }
    let records = index(container, 1);
    world.must(vec![Update::IndexCreate { key: records }]);
    let put = |key: usize, value: usize| Update::Put {
        index: records,
        key: vec![0; key],
        value: vec![0; value],
        only_new: false,
    };
    assert_eq!(kind(world.apply(vec![put((128 << 10) + 1, 0)], true)), InvalidInput);
    assert_eq!(kind(world.apply(vec![put(1, (16 << 20) + 1)], true)), InvalidInput);
    world.must(vec![put(128 << 10, 16 << 20), put(0, 0)]);
    world.must(vec![Update::Truncate { key, size: 1 << 63 }, Update::Punch { key, offset: (1 << 63) - 1, len: 1 }]);
    for (bytes, run_min) in [(0, 0), (1, 2), (u64::MAX, 1), (1 << 29, u32::MAX)] {
        assert_eq!(
            kind(world.ask(Request::Lease { container, bytes, run_min, avoid: vec![], durability: None })),
            InvalidInput
        );
    }
    let quota = ContainerSpec { quota_bytes: 10_000, ..ContainerSpec::default() };
    let bounded = world.container("bounded", Durability::Async);
    let within = object(bounded, 1);
    world.must(vec![Update::ContainerSet { id: bounded, spec: quota }]);
    world.must(vec![Update::ObjectCreate { key: within, block_shift: 12 }]);
    world.write(within, 0, &[1; 9000]).unwrap();
    world.write(within, 1000, &[1; 9000]).unwrap();
    assert_eq!(world.write(within, 20_000, &[1; 9000]).unwrap_err().kind(), LimitExceeded);
    let Response::Lookup(_) = world.ask(Request::Lookup { key, offset: u64::MAX, len: u64::MAX, limit: 0 }) else {
        panic!()
    };
    world.kill();
    world.open().unwrap();
    let huge = world.lookup(key).unwrap();
    assert_eq!(huge.size, 1 << 63);
}

#[test]
fn neighbours_merge_and_their_checksums_hold() {
    let mut world = World::new(&three_tiers(16 * SMALL, 16 * SMALL, 16 * SMALL));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let bytes: Vec<u8> = (0..1_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 20) as u8).collect();
    let Response::Lease(lease) =
        world.ask(Request::Lease { container, bytes: SMALL, run_min: SMALL as u32, avoid: vec![], durability: None })
    else {
        panic!()
    };
    let run = lease.runs[0];
    let device = world.engine().device(run.device).unwrap();
    device.write_at(run.offset, &bytes).unwrap();
    for (i, block) in bytes.chunks(4096).enumerate() {
        let offset = i as u64 * 4096;
        let extent = Extent::whole(run.device, run.offset + offset, block.len() as u32, Sums::One(crc(block)));
        world.must(vec![Update::Write { key, offset, extent }]);
    }
    assert_eq!(world.lookup(key).unwrap().extents.len(), 1);
    assert_eq!(world.read(key).unwrap(), bytes);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap(), bytes);
    world.flush(FlushTarget::Store).unwrap();
    world.write(key, 500_001, &[1; 10]).unwrap();
    assert_eq!(world.lookup(key).unwrap().extents.len(), 3);
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap(), bytes);
}

#[test]
fn device_requests_sent_again_after_a_death_are_answered_as_before() {
    let mut world = World::new(&three_tiers(16 * SMALL, 16 * SMALL, 16 * SMALL));
    let more = spec("more", DeviceKind::File, 4 * SMALL);
    let add = Request::DeviceAdd { spec: more.clone() };
    let remove = Request::DeviceRemove { name: "more".into() };
    let Response::Device(id) = world.ask_as(100, add.clone()) else { panic!("not added") };
    assert!(matches!(world.ask_as(101, add.clone()), Response::Failed(e) if e.kind() == ErrorKind::Exists));
    world.kill();
    world.open().unwrap();
    assert_eq!(world.ask_as(100, add.clone()), Response::Device(id), "the same session, the same request");
    let other = Request::DeviceAdd { spec: DeviceSpec { capacity_bytes: 8 * SMALL, ..more } };
    assert!(matches!(world.ask_as(102, other), Response::Failed(e) if e.kind() == ErrorKind::Exists), "another one");
    assert_eq!(world.ask_as(103, remove.clone()), Response::Done);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.ask_as(103, remove.clone()), Response::Done);
    // A session that began with this engine asks for the first time.
    let who = SessionInfo { nonce: 8, pid: 1, started: 1, uid: 0, write: true, ..SessionInfo::default() };
    world.session = world.engine().session_open(who).unwrap();
    assert!(matches!(world.ask_as(1, remove), Response::Failed(e) if e.kind() == ErrorKind::NotFound));
}

#[test]
fn a_size_that_goes_there_and_back_in_one_request_is_rolled_back_to_what_it_was() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 8 << 20));
    let key = object(world.container("c", Durability::Async), 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.flush(FlushTarget::Store).unwrap();
    world.must(vec![Update::Truncate { key, size: 1581 }, Update::Truncate { key, size: 0 }]);
    world.power_loss(cenote_device::mem::Keep::Everything);
    world.open().unwrap();
    assert_eq!(world.lookup(key).unwrap().size, 0);
}

#[test]
fn a_transaction_stays_whole_when_a_container_between_two_others_is_deleted() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 8 << 20));
    let ids: Vec<ContainerId> =
        ["a", "b", "c"].into_iter().map(|label| world.container(label, Durability::Async)).collect();
    let keys: Vec<ObjectKey> = ids.iter().map(|id| object(*id, 1)).collect();
    world.must(keys.iter().map(|key| Update::ObjectCreate { key: *key, block_shift: 12 }).collect());
    world.must(vec![Update::ContainerDelete { id: ids[1] }]);
    for first in [ids[0], ids[2]] {
        world.flush(FlushTarget::Container(first)).unwrap();
        world.power_loss(cenote_device::mem::Keep::Nothing);
        world.open().unwrap();
        assert!(world.lookup(keys[0]).is_ok() && world.lookup(keys[2]).is_ok(), "flushed {first}");
    }
}

#[test]
fn a_sync_does_not_cover_a_copy_that_was_under_way() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 8 << 20));
    let keys: Vec<ObjectKey> =
        ["a", "b"].into_iter().map(|label| object(world.container(label, Durability::Async), 1)).collect();
    world.must(keys.iter().map(|key| Update::ObjectCreate { key: *key, block_shift: 12 }).collect::<Vec<_>>());
    world.flush(FlushTarget::Store).unwrap();
    for (n, key) in keys.iter().enumerate() {
        world.write(*key, 0, &[n as u8 + 1; 5000]).unwrap();
    }
    // Both copies begin, the first one is done and synced, and only then the second one writes.
    world.clock.advance_ns(10_000_000_000);
    world.engine().tick();
    let jobs: Vec<_> = std::iter::from_fn(|| world.engine().next_job()).collect();
    assert!(jobs.len() >= 2, "{} jobs", jobs.len());
    for job in jobs {
        let done = job.run();
        world.engine().finish_job(done);
        while let Some(next) = world.engine().next_job() {
            let done = next.run();
            world.engine().finish_job(done);
        }
    }
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(world.read(*key).unwrap(), [n as u8 + 1; 5000], "object {n}");
    }
}

#[test]
fn what_ends_a_sync_container_is_on_media_when_it_is_acknowledged() {
    let mut world = World::new(&three_tiers(1 << 20, 4 << 20, 8 << 20));
    let ids: Vec<ContainerId> = ["a", "b"].into_iter().map(|label| world.container(label, Durability::Sync)).collect();
    world.must(vec![Update::ContainerDelete { id: ids[0] }]);
    let spec = ContainerSpec { durability: Durability::Async, ..ContainerSpec::default() };
    world.must(vec![Update::ContainerSet { id: ids[1], spec }]);
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    let Response::Containers(found) = world.ask(Request::ContainerList { after: None, limit: 9 }) else { panic!() };
    let found: Vec<_> = found.into_iter().map(|info| (info.label, info.spec.durability)).collect();
    assert_eq!(found, [("b".to_owned(), Durability::Async)]);
}

/// Clients that wait for room ask again and again how much has moved: that must not inspect every index.
#[test]
fn how_much_has_moved_costs_the_same_however_many_indices_there_are() {
    let mut world = World::new(&three_tiers(4 << 20, 16 << 20, 16 << 20));
    let container = world.container("c", Durability::Async);
    for number in 0..100 {
        let made = (0..100).map(|more| Update::IndexCreate { key: index(container, 100 * number + more) });
        world.must(made.collect());
    }
    world.settle();
    let mut least_of = |request: Request, times: u32| {
        let took = |_| {
            let begin = std::time::Instant::now();
            (0..times).for_each(|_| drop(world.ask(request.clone())));
            begin.elapsed() / times
        };
        (0..5).map(took).min().unwrap()
    };
    let (moved, stats) = (least_of(Request::Moved, 100), least_of(Request::Stats, 10));
    assert!(moved * 10 < stats, "{moved:?} and {stats:?}");
    let (Response::Moved(moved), Response::Stats(stats)) = (world.ask(Request::Moved), world.ask(Request::Stats))
    else {
        panic!()
    };
    assert_eq!(moved, stats.moved_bytes);
}

/// A tier that holds only leased room stays, and names the sessions that lease it; given back, it is free at once.
#[test]
fn leased_room_holds_a_tier_and_is_given_back() {
    let mut world = World::new(&three_tiers(SMALL, 4 * SMALL, 4 * SMALL));
    let container = world.container("c", Durability::Bypass);
    let run = world.room(container, 128 << 10).unwrap();
    let tiers = world.engine().device_infos();
    let tier = tiers.into_iter().find(|tier| tier.id == run.device).unwrap();
    assert_eq!((tier.reserved_bytes, tier.leased_bytes), (128 << 10, 128 << 10));
    let remove = Request::DeviceRemove { name: tier.spec.name };
    let Response::Failed(error) = world.ask(remove.clone()) else { panic!("it was removed") };
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.cause().contains("by process 1 (128.0 KiB)"), "{error}");
    assert_eq!(world.ask(Request::Unlease { runs: vec![run] }), Response::Done);
    assert_eq!(world.ask(remove), Response::Done);
    let Response::Failed(_) = world.ask(Request::Unlease { runs: vec![run] }) else { panic!("given back twice") };
}

/// A new creation removes what an incomplete creation left; it does not delete other files.
#[test]
fn what_a_creation_left_is_removed_by_the_next() {
    let config = three_tiers(SMALL, SMALL, SMALL);
    let mut next = World::new(&config);
    next.kill();
    for name in next.meta.list().unwrap() {
        next.meta.remove(&name).unwrap();
    }
    for name in ["journal-000900", "checkpoint-000900", "notes.txt"] {
        next.meta.write_file(name, b"of somebody").unwrap();
    }
    next.devices = MemDevices::new(16 << 20);
    drop(Engine::create(next.seams(), &config).unwrap());
    let others = next.meta.list().unwrap();
    assert!(!others.iter().any(|name| name.ends_with("000900")), "{others:?}");
    assert!(others.iter().any(|name| name == "notes.txt"), "{others:?}");
}

#[test]
fn memory_of_metadata_grows_with_objects_extents_and_records() {
    let mut world = World::new(&three_tiers(SMALL, SMALL, SMALL));
    let container = world.container("c", Durability::Scratch);
    let bytes = |world: &mut World| match world.ask(Request::Stats) {
        Response::Stats(stats) => stats.metadata_bytes,
        other => panic!("{other:?}"),
    };
    let empty = bytes(&mut world);
    world.must(vec![Update::IndexCreate { key: index(container, 1) }]);
    let put = |n: u32| Update::Put {
        index: index(container, 1),
        key: n.to_be_bytes().to_vec(),
        value: vec![7; 100],
        only_new: false,
    };
    world.must((0..2000).map(put).collect());
    let records = bytes(&mut world);
    assert!((2000 * 104..2000 * 200).contains(&(records - empty)), "{}", records - empty);
    world.must((1..=20).map(|n| Update::ObjectCreate { key: object(container, n), block_shift: 12 }).collect());
    let objects = bytes(&mut world);
    assert!(objects - records >= 20 * 29, "{}", objects - records);
    for n in 0..220 {
        world.write(object(container, 1), n * 8192, &[1; 512]).unwrap();
    }
    let extents = bytes(&mut world);
    assert!((200 * 60..200 * 200).contains(&(extents - objects)), "{}", extents - objects);
}

#[test]
fn a_store_that_is_destroyed_leaves_what_others_put_beside_it() {
    let mut world = World::new(&three_tiers(SMALL, SMALL, SMALL));
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.meta.write_file("notes.txt", b"of somebody").unwrap();
    assert!(Engine::destroy(world.seams(), false).unwrap().is_empty());
    assert_eq!(world.meta.list().unwrap(), ["notes.txt"]);
}
