//! Requests that come twice, too late, or for too much: each gets a clear error, and keeps nothing.

mod world;

use cenote_model::ErrorKind::{Busy, Disconnected, Exists, InvalidInput, LimitExceeded, NotFound};
use cenote_model::*;
use cenote_store::{Engine, Outcome, SessionId, SessionInfo};
use world::*;

const MIB: u64 = 1 << 20;

fn error_of(response: Response) -> Error {
    match response {
        Response::Failed(error) => error,
        other => panic!("{other:?}"),
    }
}

fn deposit(container: ContainerId, bytes: usize) -> Request {
    Request::Deposit { container, bytes: vec![7; bytes], avoid: vec![], durability: None }
}

/// Used and reserved bytes of all tiers together.
fn taken(world: &mut World) -> u64 {
    world.settle();
    world.used().iter().map(|(_, used, reserved)| used + reserved).sum()
}

#[test]
fn a_number_that_another_request_had_is_refused_and_one_of_no_session_too() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let container = world.container("c", Durability::Async);
    let lease = Request::Lease { container, bytes: 8192, run_min: 4096, avoid: vec![], durability: None };
    let leased = world.ask(lease.clone());
    let seq = world.seq;
    let create = Update::ObjectCreate { key: object(container, 1), block_shift: 12 };
    let change = Request::Apply { checks: vec![], updates: vec![create], atomic: true };
    let error = error_of(world.ask_as(seq, change.clone()));
    assert_eq!(error.kind(), InvalidInput);
    assert!(error.cause().contains("another kind"), "{error}");
    assert_eq!(world.lookup(object(container, 1)).unwrap_err().kind(), NotFound);
    assert_eq!(world.ask_as(seq, lease), leased, "and is what it was");
    let Outcome::Ready(response) = world.engine().handle(SessionId(999), 1, change) else { panic!("it waits") };
    assert_eq!(error_of(response).kind(), Disconnected);
}

#[test]
fn no_more_bytes_are_carried_than_a_message_holds() {
    let mut world = World::new(&three_tiers(64 * MIB, 64 * MIB, 64 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    let read = |key, len| Request::Read { key, offset: 0, len };
    assert_eq!(error_of(world.ask(read(key, 1))).kind(), NotFound);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let most = CARRIED_BYTES_MAX as usize;
    for (request, kind) in [
        (read(key, CARRIED_BYTES_MAX + 1), LimitExceeded),
        (deposit(container, most + 1), LimitExceeded),
        (deposit(container, 0), InvalidInput),
        (deposit(ContainerId(99), 1), NotFound),
    ] {
        assert_eq!(error_of(world.ask(request)).kind(), kind);
    }
    let Response::Bytes { size: 0, bytes, .. } = world.ask(read(key, CARRIED_BYTES_MAX)) else { panic!() };
    assert!(bytes.is_empty());
    let answer = world.ask(deposit(container, most));
    let seq = world.seq;
    assert_eq!(world.ask_as(seq, deposit(container, most)), answer, "sent again it is the same space");
    let Response::Lease(lease) = answer else { panic!("no space") };
    // The lease is for all of the bytes or their beginning, and every byte of it is filled.
    assert!((1..=most as u64).contains(&lease.runs.iter().map(|run| run.len).sum()));
    for run in lease.runs {
        let mut there = vec![0; run.len as usize];
        world.engine().device(run.device).unwrap().read_at(run.offset, &mut there).unwrap();
        assert!(there.iter().all(|byte| *byte == 7));
    }
}

#[test]
fn what_a_session_brings_that_ends_before_it_is_stored_leaves_nothing() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let container = world.container("c", Durability::Async);
    let before = taken(&mut world);
    let who = SessionInfo { nonce: 8, write: true, ..SessionInfo::default() };
    let leaving = world.engine().session_open(who).unwrap();
    let Outcome::Wait(ticket) = world.engine().handle(leaving, 1, deposit(container, 100_000)) else { panic!() };
    world.engine().session_close(leaving);
    world.work();
    let answers = world.engine().take_finished();
    let (_, answer) = answers.into_iter().find(|(finished, _)| *finished == ticket).expect("it is answered");
    assert_eq!(error_of(answer).kind(), Disconnected);
    assert_eq!(taken(&mut world), before);
    assert_eq!(world.engine().audit(), Vec::<String>::new());
}

#[test]
fn an_object_that_goes_while_its_bytes_are_waited_for_is_told() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &vec![3; 100_000]).unwrap();
    let (session, read) = (world.session, Request::Read { key, offset: 0, len: 100_000 });
    let Outcome::Wait(ticket) = world.engine().handle(session, 0, read) else { panic!() };
    // It waits for a job; until then other requests go on.
    let updates = vec![Update::ObjectDelete { key }];
    let delete = Request::Apply { checks: vec![], updates, atomic: true };
    world.seq += 1;
    let seq = world.seq;
    let Outcome::Ready(Response::Applied { .. }) = world.engine().handle(session, seq, delete) else { panic!() };
    world.work();
    let answers = world.engine().take_finished();
    let (_, answer) = answers.into_iter().find(|(finished, _)| *finished == ticket).expect("it is answered");
    assert_eq!(error_of(answer).kind(), NotFound);
}

#[test]
fn who_may_only_read_keeps_a_bounded_number_of_snapshots() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let container = world.container("c", Durability::Async);
    for number in 0..70 {
        let (of, id, name) = (container, ContainerId(0), format!("s{number}"));
        world.must(vec![Update::SnapshotCreate { of, id, name, replace: false, unix_ms: 0 }]);
    }
    let reader = world.engine().session_open(SessionInfo { nonce: 8, ..SessionInfo::default() }).unwrap();
    let writer = world.session;
    let pin = |world: &mut World, session, number: u64| {
        let request = Request::SnapshotByName { container, name: format!("s{number}"), pin: true };
        match world.engine().handle(session, 0, request) {
            Outcome::Ready(Response::Snapshots(found)) => Ok(found[0].id),
            Outcome::Ready(response) => Err(error_of(response)),
            Outcome::Wait(_) => panic!("it waits"),
        }
    };
    let kept: Vec<ContainerId> = (0..64).map(|number| pin(&mut world, reader, number).unwrap()).collect();
    let refused = pin(&mut world, reader, 64).unwrap_err();
    assert_eq!(refused.kind(), LimitExceeded);
    assert!(refused.next_step().contains("close"), "{refused}");
    assert_eq!(pin(&mut world, reader, 3).unwrap(), kept[3], "one that it has counts once");
    let unpin = Request::SnapshotUnpin { id: kept[0] };
    assert!(matches!(world.engine().handle(reader, 0, unpin), Outcome::Ready(Response::Done)));
    pin(&mut world, reader, 64).unwrap();
    for number in 0..70 {
        pin(&mut world, writer, number).unwrap();
    }
}

#[test]
fn tiers_that_cannot_be_are_refused_and_the_last_one_stays() {
    let only = StoreConfig { devices: vec![spec("disk", DeviceKind::File, 4 * MIB)], ..StoreConfig::default() };
    let mut world = World::new(&only);
    let remove = |name: &str| Request::DeviceRemove { name: name.into() };
    let error = error_of(world.ask(remove("disk")));
    assert_eq!(error.kind(), Busy);
    assert!(error.cause().contains("only device"), "{error}");
    for request in [remove("tape"), Request::DeviceDrain { name: "tape".into() }] {
        let error = error_of(world.ask(request));
        assert_eq!(error.kind(), NotFound);
        assert!(error.next_step().contains("`disk`"), "{error}");
    }
    let good = spec("more", DeviceKind::File, 4 * MIB);
    for bad in [
        DeviceSpec { name: String::new(), ..good.clone() },
        DeviceSpec { name: "x".repeat(256), ..good.clone() },
        DeviceSpec { watermark_high_permille: 0, watermark_low_permille: 0, ..good.clone() },
        DeviceSpec { watermark_high_permille: 1001, ..good.clone() },
        DeviceSpec { watermark_high_permille: 500, watermark_low_permille: 501, ..good.clone() },
        DeviceSpec { capacity_bytes: 8192, ..good.clone() },
        DeviceSpec { capacity_bytes: u64::MAX, ..good.clone() },
    ] {
        let what = format!("{bad:?}");
        assert_eq!(error_of(world.ask(Request::DeviceAdd { spec: bad })).kind(), InvalidInput, "{what}");
    }
    assert_eq!(world.used().len(), 1);
    assert!(matches!(world.ask(Request::DeviceAdd { spec: good }), Response::Device(_)));
    assert_eq!(world.ask(remove("disk")), Response::Done);
}

#[test]
fn containers_follow_policies_that_there_are_and_modes_of_nine_bits() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let id = world.container("c", Durability::Async);
    let base = ContainerSpec::default();
    let named = |policy: &str| ContainerSpec { policy: policy.into(), ..base.clone() };
    for (spec, cause) in [
        (named("no-such-policy"), "no such placement policy"),
        (named(&"x".repeat(300)), "no such placement policy"),
        (named("user"), "cenote policy set FILE"),
        (ContainerSpec { mode: 0o1000, ..base.clone() }, "nine bits"),
    ] {
        let create = Update::ContainerCreate { id: ContainerId(0), label: "d".into(), spec: spec.clone() };
        for update in [create, Update::ContainerSet { id, spec }] {
            let error = error_of(world.apply(vec![update], true));
            assert_eq!(error.kind(), InvalidInput);
            assert!(error.cause().contains(cause), "{error}");
        }
    }
    world.must(vec![Update::ContainerRename { id, label: "c".into() }]);
    world.must(vec![Update::ContainerSet { id, spec: named("hot-data") }]);
    world.kill();
    world.open().unwrap();
    let Response::Container(info) = world.ask(Request::ContainerById { id }) else { panic!() };
    assert_eq!((info.label.as_str(), info.spec.policy.as_str(), info.spec.mode), ("c", "hot-data", base.mode));
}

#[test]
fn what_is_given_back_is_leased_and_whole_units() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let container = world.container("c", Durability::Async);
    let run = world.room(container, 64 << 10).unwrap();
    let (half, other) = (Run { len: 32 << 10, ..run }, Run { device: DeviceId(99), ..run });
    for bad in [other, Run { len: 0, ..run }, Run { offset: run.offset + 1, len: 100, ..run }, Run { len: 100, ..run }]
    {
        // Earlier runs of the same request stay leased, too.
        let error = error_of(world.ask(Request::Unlease { runs: vec![half, bad] }));
        assert_eq!(error.kind(), InvalidInput, "{bad:?}");
    }
    assert_eq!(world.ask(Request::Unlease { runs: vec![run] }), Response::Done);
    assert_eq!(error_of(world.ask(Request::Unlease { runs: vec![run] })).kind(), InvalidInput, "twice");
    assert_eq!(world.engine().audit(), Vec::<String>::new());
}

#[test]
fn a_container_turns_to_scratch_only_while_it_is_empty() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let id = world.container("c", Durability::Async);
    let set = |durability| Update::ContainerSet { id, spec: ContainerSpec { durability, ..ContainerSpec::default() } };
    world.must(vec![set(Durability::Scratch)]);
    world.must(vec![set(Durability::Async)]);
    world.must(vec![Update::ObjectCreate { key: object(id, 1), block_shift: 12 }]);
    let error = error_of(world.apply(vec![set(Durability::Scratch)], true));
    assert_eq!(error.kind(), InvalidInput);
    assert!(error.cause().contains("empty"), "{error}");
    world.must(vec![set(Durability::Sync)]);
    let Response::Container(info) = world.ask(Request::ContainerById { id }) else { panic!() };
    assert_eq!(info.spec.durability, Durability::Sync);
}

#[test]
fn numbers_of_containers_and_objects_that_are_taken_are_nobodys() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let of = world.container("c", Durability::Async);
    world.must(vec![Update::ObjectCreate { key: object(of, 1), block_shift: 12 }]);
    let snapshot = |id| Update::SnapshotCreate { of, id, name: "s".into(), replace: false, unix_ms: 0 };
    let own = object(of, u128::MAX);
    let write = world.stage(own, 0, &[1; 100]).unwrap();
    for update in [
        snapshot(of),
        snapshot(ContainerId(1 << 62)),
        Update::ObjectCreate { key: own, block_shift: 12 },
        Update::ObjectDelete { key: own },
        Update::Punch { key: own, offset: 0, len: 1 },
        Update::Truncate { key: own, size: 1 },
        Update::Share { to: own, at: 0, from: object(of, 1), offset: 0, len: 1 },
        Update::Share { to: object(of, 1), at: 0, from: own, offset: 0, len: 1 },
        write,
    ] {
        let what = format!("{update:?}");
        assert_eq!(error_of(world.apply(vec![update], true)).kind(), InvalidInput, "{what}");
    }
}

#[test]
fn a_deleted_snapshot_gives_bytes_to_who_still_reads_it_alone() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let of = world.container("c", Durability::Async);
    world.must(vec![Update::ObjectCreate { key: object(of, 1), block_shift: 12 }]);
    world.write(object(of, 1), 0, &[5; 100]).unwrap();
    let name = || "s".to_owned();
    world.must(vec![Update::SnapshotCreate { of, id: ContainerId(0), name: name(), replace: false, unix_ms: 0 }]);
    let pin = Request::SnapshotByName { container: of, name: name(), pin: true };
    let Response::Snapshots(found) = world.ask(pin) else { panic!() };
    world.must(vec![Update::SnapshotDelete { of, name: name() }]);
    world.must(vec![Update::Truncate { key: object(of, 1), size: 0 }]);
    let share = || {
        let update = Update::Share { to: object(of, 1), at: 0, from: object(found[0].id, 1), offset: 0, len: 100 };
        Request::Apply { checks: vec![], updates: vec![update], atomic: true }
    };
    let other = world.engine().session_open(SessionInfo { nonce: 8, write: true, ..SessionInfo::default() }).unwrap();
    let Outcome::Ready(response) = world.engine().handle(other, 1, share()) else { panic!("it waits") };
    assert_eq!(error_of(response).kind(), NotFound);
    assert!(matches!(world.ask(share()), Response::Applied { .. }));
    assert_eq!(world.read(object(of, 1)).unwrap(), [5; 100]);
}

#[test]
fn a_store_is_made_once_and_of_tiers_with_names_of_their_own() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    world.container("c", Durability::Async);
    let create = |world: &World, devices: Vec<DeviceSpec>| {
        let config = StoreConfig { devices, ..StoreConfig::default() };
        Engine::create_tuned(world.seams(), STORE, &config, tuning()).map(drop).map_err(|error| error.kind())
    };
    let disk = || spec("disk", DeviceKind::File, 4 * MIB);
    world.engine().close().unwrap();
    world.kill();
    assert_eq!(create(&world, vec![disk()]), Err(Exists));
    world.open().unwrap();
    assert_eq!(world.used().len(), 3, "it is as it was");
    world.engine().close().unwrap();
    world.engine = None;
    assert!(Engine::destroy(world.seams(), false).unwrap().is_empty());
    assert_eq!(create(&world, vec![]), Err(InvalidInput));
    assert_eq!(create(&world, vec![disk(), disk()]), Err(Exists));
    assert_eq!(
        create(&world, (0..4100).map(|n| spec(&format!("d{n}"), DeviceKind::File, MIB)).collect()),
        Err(InvalidInput)
    );
    assert_eq!(create(&world, vec![disk()]), Ok(()), "what was refused is not in the way");
}

#[test]
fn what_programs_learn_and_users_rule_has_bounds() {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 4 * MIB));
    let container = world.container("c", Durability::Async);
    let learn = |container, program: &str, len| Request::HabitLearned {
        container,
        program: program.into(),
        learned: vec![1; len],
    };
    for (request, kind) in [
        (learn(container, "p", (64 << 10) + 1), InvalidInput),
        (learn(container, &"p".repeat(256), 1), InvalidInput),
        (learn(ContainerId(99), "p", 1), NotFound),
    ] {
        assert_eq!(error_of(world.ask(request)).kind(), kind);
    }
    let habit = || Request::Habit { container, program: "p".into() };
    assert_eq!(world.ask(habit()), Response::Habit(vec![]));
    assert_eq!(world.ask(learn(container, "p", 64 << 10)), Response::Done);
    assert_eq!(world.ask(habit()), Response::Habit(vec![1; 64 << 10]));
    let error = error_of(world.ask(Request::PolicySet { text: Some("#".repeat((1 << 20) + 1)), dry_run: false }));
    assert_eq!(error.kind(), InvalidInput);
    assert!(error.cause().contains("1048577"), "{error}");
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let target = Box::new(ArrangeTarget::Range { key, offset: 5, len: 0 });
    let error = error_of(world.ask(Request::Arrange { target, what: Arrange::Evict, dry_run: true }));
    assert_eq!(error.kind(), InvalidInput);
}

/// A write whose bytes travel with it.
fn filled(key: ObjectKey, run: Run, bytes: &[u8]) -> Vec<Update> {
    let sums: Vec<u32> = bytes.chunks(65536).map(crc).collect();
    let extent = Extent::whole(run.device, run.offset, bytes.len() as u32, Sums::from_slice(&sums));
    let fill = Update::Fill { container: key.container, run, bytes: bytes.to_vec() };
    vec![fill, Update::Write { key, offset: 0, extent }]
}

#[test]
fn bytes_that_travel_with_a_write_are_written_once_and_only_into_own_memory() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 8 * MIB));
    let container = world.container("far", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let run = world.room(container, 4096).unwrap();
    // In a request of its own numbers, each with its code, and again under the same number.
    let updates = filled(key, run, &[7; 4096]);
    let ask = |updates: &[Update]| Request::Apply { checks: vec![], updates: updates.to_vec(), atomic: false };
    let first = world.ask(ask(&updates));
    let seq = world.seq;
    assert!(matches!(&first, Response::Applied { codes, .. } if codes.is_empty()), "{first:?}");
    assert_eq!(world.read(key).unwrap(), [7; 4096]);
    let other = filled(key, run, &[9; 4096]);
    assert!(matches!(world.ask_as(seq, ask(&other)), Response::Applied { .. }));
    assert_eq!(world.read(key).unwrap(), [7; 4096], "a repetition writes nothing");
    // The space is used up; nobody fills what is not theirs, or more than they have.
    assert_eq!(error_of(world.ask(ask(&other))).kind(), InvalidInput);
    let short = world.room(container, 4096).unwrap();
    let long = filled(key, Run { len: 8192, ..short }, &[9; 8192]);
    assert_eq!(error_of(world.ask(ask(&long))).kind(), InvalidInput);
    let more = vec![Update::Fill { container, run: short, bytes: vec![9; 4097] }];
    assert_eq!(error_of(world.ask(ask(&more))).kind(), InvalidInput);
    let nowhere = vec![Update::Fill { container, run: Run { device: DeviceId(99), ..short }, bytes: vec![9] }];
    assert_eq!(error_of(world.ask(ask(&nowhere))).kind(), InvalidInput);
    assert_eq!(world.read(key).unwrap(), [7; 4096]);
    // Codes stay beside their updates.
    let mut mixed = filled(object(container, 77), short, &[9; 4096]);
    mixed.push(Update::ObjectCreate { key: object(container, 2), block_shift: 12 });
    let answer = world.ask(ask(&mixed));
    let codes = [KeyCode::Ok, KeyCode::NotFound, KeyCode::Ok];
    assert!(matches!(&answer, Response::Applied { codes: found, .. } if *found == codes), "{answer:?}");
    // What was filled survives a death, and its journal is read without the bytes.
    world.kill();
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap(), [7; 4096]);
}

#[test]
fn files_are_not_filled() {
    let mut world = World::new(&three_tiers(4 * MIB, 8 * MIB, 8 * MIB));
    let container = world.container("sync", Durability::Sync);
    let run = world.room(container, 4096).unwrap();
    let fill = Update::Fill { container, run, bytes: vec![1; 4096] };
    let error = error_of(world.apply(vec![fill], false));
    assert!(error.kind() == InvalidInput && error.cause().contains("memory"), "{error}");
}
