//! Owners, groups and modes of containers: for every kind of request, who may make it and who may not.

mod world;

use std::sync::Arc;

use cenote_model::*;
use cenote_store::{SessionId, SessionInfo};
use world::{World, three_tiers};

const MIB: u64 = 1 << 20;
const OWNER: u32 = 1000;
const GROUP: u32 = 2000;
const OTHER: u32 = 1001;

/// The right that a request needs.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Takes {
    Nothing,
    Find,
    Read,
    Write,
    Own,
    /// Only the store's owner may make it.
    Store,
}

fn key(container: ContainerId) -> ObjectKey {
    ObjectKey { container, object: ObjectId(1) }
}
fn index(container: ContainerId) -> IndexKey {
    IndexKey { container, index: IndexId(1) }
}
fn apply(checks: Vec<Check>, update: Update) -> Request {
    Request::Apply { checks, updates: vec![update], atomic: true }
}

/// Every kind of request about a container `c`, and the right that it needs.
fn requests(c: ContainerId) -> Vec<(&'static str, Request, Takes)> {
    use Takes::{Find, Nothing, Own, Read, Store, Write};
    let (key, index) = (key(c), index(c));
    let put = || Update::Put { index, key: b"k".to_vec(), value: b"v".to_vec(), only_new: false };
    let target = || Box::new(ArrangeTarget::Container(c));
    let device: DeviceSpec = "name=more,kind=memory,size=1MiB".parse().unwrap();
    let check = |check: Check| apply(vec![check], Update::ContainerRename { id: ContainerId(999), label: "x".into() });
    let spec = ContainerSpec { owner_uid: Some(OWNER), owner_gid: Some(GROUP), ..ContainerSpec::default() };
    let name = || "snap".to_owned();
    vec![
        ("lookup", Request::Lookup { key, offset: 0, len: 1, limit: 1 }, Read),
        ("stat", Request::ObjectStat { key }, Read),
        ("objects", Request::ObjectList { container: c, after: None, limit: 9 }, Read),
        ("get", Request::Get { index, keys: vec![b"k".to_vec()] }, Read),
        ("next", Request::Next { index, from: NextFrom::Start, prefix: vec![], limit: 9, bytes_max: 99 }, Read),
        ("index exists", Request::IndexExists { key: index }, Read),
        ("indices", Request::IndexList { container: c, after: None, limit: 9 }, Read),
        ("by label", Request::ContainerByLabel { label: "runs".into() }, Find),
        ("by id", Request::ContainerById { id: c }, Find),
        ("containers", Request::ContainerList { after: None, limit: 9 }, Nothing),
        ("snapshots", Request::SnapshotList { container: c, after: None, limit: 9 }, Read),
        ("snapshot", Request::SnapshotByName { container: c, name: name(), pin: true }, Read),
        ("unpin", Request::SnapshotUnpin { id: c }, Nothing),
        ("lease", Request::Lease { container: c, bytes: 1, run_min: 1, avoid: vec![], durability: None }, Store),
        ("unlease", Request::Unlease { runs: vec![] }, Nothing),
        ("flush", Request::Flush { target: FlushTarget::Container(c) }, Find),
        ("flush object", Request::Flush { target: FlushTarget::Object(key) }, Find),
        ("flush all", Request::Flush { target: FlushTarget::Store }, Nothing),
        ("devices", Request::Devices, Nothing),
        ("device add", Request::DeviceAdd { spec: device }, Store),
        ("device drain", Request::DeviceDrain { name: "none".into() }, Store),
        ("device remove", Request::DeviceRemove { name: "none".into() }, Store),
        ("profile", Request::Profile { name: "memory".into(), measure_ms: 0 }, Nothing),
        ("measure", Request::Profile { name: "none".into(), measure_ms: 1 }, Store),
        ("explain", Request::Explain { key }, Read),
        ("fetch", Request::Fetch { key, ranges: vec![(0, 1)], ahead: true, must: false }, Read),
        ("touched", Request::Touched { reads: vec![Touch { key, offset: 0, bytes: 1 }] }, Read),
        ("habit", Request::Habit { container: c, program: "p".into() }, Read),
        ("habit learned", Request::HabitLearned { container: c, program: "p".into(), learned: vec![] }, Read),
        ("promote", Request::Arrange { target: target(), what: Arrange::Promote { to: None }, dry_run: false }, Read),
        ("evict", Request::Arrange { target: target(), what: Arrange::Evict, dry_run: false }, Write),
        ("pin", Request::Arrange { target: target(), what: Arrange::Pin { to: None }, dry_run: false }, Write),
        ("evict?", Request::Arrange { target: target(), what: Arrange::Evict, dry_run: true }, Read),
        (
            "evict by query",
            Request::Arrange {
                target: Box::new(ArrangeTarget::Query { container: None, text: "size > 1".into() }),
                what: Arrange::Evict,
                dry_run: true,
            },
            Store,
        ),
        ("verify", Request::Verify { target: FlushTarget::Container(c) }, Read),
        ("verify object", Request::Verify { target: FlushTarget::Object(key) }, Read),
        ("verify all", Request::Verify { target: FlushTarget::Store }, Store),
        ("stats", Request::Stats, Nothing),
        ("moved", Request::Moved, Nothing),
        ("telemetry", Request::Telemetry { hot: 9 }, Nothing),
        ("checkpoint", Request::Checkpoint, Store),
        ("shutdown", Request::Shutdown { cluster: false }, Store),
        ("unreadable", Request::Unreadable { key, ranges: vec![(0, 1)] }, Read),
        ("policy set", Request::PolicySet { text: None, dry_run: false }, Store),
        ("policy show", Request::PolicyShow, Store),
        ("rules try", Request::RulesTry, Store),
        ("progress", Request::Progress, Store),
        ("weights", Request::Weights { ask: WeightsAsk::Show }, Nothing),
        ("weigh a user", Request::Weights { ask: WeightsAsk::Set(UserWeight { uid: 1, weight: 2 }) }, Store),
        ("follow weights", Request::Weights { ask: WeightsAsk::Follow(UserWeights::default()) }, Store),
        ("settle", Request::Settle { transaction: TransactionId::default(), commits: false }, Store),
        ("ask", Request::Ask { transaction: TransactionId::default(), tell: vec![] }, Store),
        ("forget", Request::Forget { transaction: TransactionId::default(), participant: HomeId(3) }, Store),
        ("read", Request::Read { key, offset: 0, len: 9 }, Read),
        ("deposit", Request::Deposit { container: c, bytes: vec![1], avoid: vec![], durability: None }, Write),
        ("check object", check(Check::Object { key, epoch: 0 }), Read),
        ("check record", check(Check::Record { index, key: b"k".to_vec(), epoch: 0 }), Read),
        ("check value", check(Check::Value { index, key: b"k".to_vec(), value: None }), Read),
        ("check no keys", check(Check::NoKeys { index, prefix: vec![] }), Read),
        ("check size", check(Check::Size { key, size: 0 }), Read),
        (
            "create object",
            apply(vec![], Update::ObjectCreate { key: ObjectKey { object: ObjectId(2), ..key }, block_shift: 12 }),
            Write,
        ),
        ("delete object", apply(vec![], Update::ObjectDelete { key }), Write),
        (
            "write",
            apply(vec![], Update::Write { key, offset: 0, extent: Extent::whole(DeviceId(1), 0, 1, Sums::One(0)) }),
            Write,
        ),
        ("punch", apply(vec![], Update::Punch { key, offset: 0, len: 1 }), Write),
        ("truncate", apply(vec![], Update::Truncate { key, size: 1 }), Write),
        ("create index", apply(vec![], Update::IndexCreate { key: IndexKey { index: IndexId(2), ..index } }), Write),
        ("delete index", apply(vec![], Update::IndexDelete { key: index }), Write),
        ("put", apply(vec![], put()), Write),
        ("del", apply(vec![], Update::Del { index, key: b"k".to_vec() }), Write),
        (
            "make a snapshot",
            apply(
                vec![],
                Update::SnapshotCreate { of: c, id: ContainerId(0), name: "more".into(), replace: false, unix_ms: 0 },
            ),
            Write,
        ),
        ("delete a snapshot", apply(vec![], Update::SnapshotDelete { of: c, name: name() }), Write),
        ("roll back", apply(vec![], Update::SnapshotRollback { of: c, name: name() }), Write),
        ("rename", apply(vec![], Update::ContainerRename { id: c, label: "other".into() }), Own),
        ("set", apply(vec![], Update::ContainerSet { id: c, spec }), Own),
        ("delete", apply(vec![], Update::ContainerDelete { id: c }), Own),
    ]
}

fn bound(uid: u32, groups: &[u32], write: bool) -> SessionInfo {
    let nonce = u128::from(uid) << 8 | u128::from(write);
    SessionInfo { nonce, pid: 9, started: 1, uid, gid: uid, write, bound: Some(Arc::from(groups)), node: None }
}

struct RightsWorld {
    world: World,
    root: SessionId,
}

impl RightsWorld {
    fn new() -> Self {
        let world = World::new(&three_tiers(4 * MIB, 8 * MIB, 16 * MIB));
        Self { root: world.session, world }
    }
    fn ask_as(&mut self, who: &SessionInfo, request: Request) -> Response {
        self.world.session = self.world.engine().session_open(who.clone()).unwrap();
        let response = self.world.ask(request);
        self.world.session = self.root;
        response
    }
    /// A container of the owner's and the group's, with an object, a record and a snapshot.
    fn container(&mut self, mode: u16) -> ContainerId {
        let spec = ContainerSpec { owner_uid: Some(OWNER), owner_gid: Some(GROUP), mode, ..ContainerSpec::default() };
        let create = Update::ContainerCreate { id: ContainerId(0), label: "runs".into(), spec };
        let Response::Applied { created: Some(c), .. } = self.world.apply(vec![create], true) else { panic!() };
        self.world.must(vec![Update::ObjectCreate { key: key(c), block_shift: 12 }]);
        self.world.write(key(c), 0, b"secret").unwrap();
        self.world.must(vec![Update::IndexCreate { key: index(c) }]);
        let record = Update::Put { index: index(c), key: b"k".to_vec(), value: b"v".to_vec(), only_new: false };
        self.world.must(vec![record]);
        let (name, id) = ("snap".to_owned(), ContainerId(0));
        self.world.must(vec![Update::SnapshotCreate { of: c, id, name, replace: false, unix_ms: 0 }]);
        c
    }
}

fn is_denied(response: &Response) -> bool {
    matches!(response, Response::Failed(error) if error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn every_request_asks_for_the_right_that_it_takes() {
    let mut asked = RightsWorld::new();
    let mut cases = 0;
    let whos = [(0, bound(OWNER, &[], true)), (3, bound(OTHER, &[7, GROUP], true)), (6, bound(OTHER + 1, &[7], true))];
    for mode in [0, 0o400, 0o200, 0o040, 0o020, 0o004, 0o002, 0o100, 0o700, 0o755, 0o640, 0o777, 0o077] {
        for (class, who) in &whos {
            let count = requests(ContainerId(1)).len();
            for number in 0..count {
                let c = asked.container(mode);
                let (what, request, takes) = requests(c).swap_remove(number);
                let bits = mode << class >> 6;
                let is_owner = *class == 0;
                let may = match takes {
                    Takes::Nothing => true,
                    Takes::Find => is_owner || bits & 6 != 0,
                    Takes::Read => bits & 4 != 0,
                    Takes::Write => bits & 2 != 0,
                    Takes::Own => is_owner,
                    Takes::Store => false,
                };
                let response = asked.ask_as(who, request);
                assert_eq!(!is_denied(&response), may, "{what} by user {} at {mode:03o}: {response:?}", who.uid);
                // Requests about the snapshot are judged by its container.
                let _ = asked.world.apply(vec![Update::ContainerDelete { id: c }], true);
                cases += 1;
            }
        }
        asked.world.settle();
    }
    println!("{cases} cases");
    assert!(cases > 2000);
}

/// The store's owner may do everything whatever the mode says, and a named reader changes nothing even where the
/// mode allows it.
#[test]
fn the_stores_owner_is_not_bound_and_readers_do_not_write() {
    let mut asked = RightsWorld::new();
    let reader = bound(OTHER, &[], false);
    for number in 0..requests(ContainerId(1)).len() {
        let c = asked.container(0);
        let (what, request, _) = requests(c).swap_remove(number);
        let response = asked.world.ask(request);
        assert!(!is_denied(&response), "{what}: {response:?}");
        let _ = asked.world.apply(vec![Update::ContainerDelete { id: c }], true);
        let left = asked.world.ask(Request::ContainerByLabel { label: "other".into() });
        if let Response::Container(info) = left {
            asked.world.must(vec![Update::ContainerDelete { id: info.id }]);
        }
        let c = asked.container(0o777);
        let (what, request, takes) = requests(c).swap_remove(number);
        let changes = request.changes();
        let response = asked.ask_as(&reader, request);
        let may = !changes && matches!(takes, Takes::Nothing | Takes::Find | Takes::Read);
        assert_eq!(!is_denied(&response), may || what == "evict?", "{what} by a reader: {response:?}");
        let _ = asked.world.apply(vec![Update::ContainerDelete { id: c }], true);
    }
}

#[test]
fn what_may_not_be_found_is_in_no_list() {
    let mut asked = RightsWorld::new();
    let c = asked.container(0o700);
    let (owner, other) = (bound(OWNER, &[], true), bound(OTHER, &[], false));
    let list = || Request::ContainerList { after: None, limit: 99 };
    let count = |response| match response {
        Response::Containers(infos) => infos.len(),
        other => panic!("{other:?}"),
    };
    assert_eq!(count(asked.ask_as(&owner, list())), 1);
    assert_eq!(count(asked.ask_as(&other, list())), 0);
    asked.world.engine().set_counting(true);
    asked.world.write(key(c), 0, b"hot").unwrap();
    let Response::Telemetry(told) = asked.ask_as(&other, Request::Telemetry { hot: 99 }) else { panic!() };
    assert!(told.hot.is_empty() && told.containers.is_empty(), "{told:?}");
    assert!(told.clients.iter().all(|client| client.uid == OTHER), "{told:?}");
    let Response::Telemetry(told) = asked.world.ask(Request::Telemetry { hot: 99 }) else { panic!() };
    assert!(!told.hot.is_empty() && told.containers.len() == 1 && told.clients.len() > 1, "{told:?}");
    // Snapshots are judged by the present rights of their container, not by those at their creation.
    let Response::Snapshots(snapshots) = asked.world.ask(Request::SnapshotList { container: c, after: None, limit: 9 })
    else {
        panic!()
    };
    let snapshot = ObjectKey { container: snapshots[0].id, object: ObjectId(1) };
    let read = || Request::Read { key: snapshot, offset: 0, len: 9 };
    assert!(is_denied(&asked.ask_as(&other, read())));
    let spec = ContainerSpec { owner_uid: Some(OWNER), mode: 0o704, ..ContainerSpec::default() };
    asked.world.must(vec![Update::ContainerSet { id: c, spec }]);
    let Response::Bytes { size: 6, bytes, .. } = asked.ask_as(&other, read()) else { panic!() };
    assert_eq!(bytes, b"secret");
}

#[test]
fn only_the_owner_of_the_store_gives_a_container_more_weight() {
    let mut asked = RightsWorld::new();
    let who = bound(OTHER, &[7], true);
    let create = |weight| {
        let spec = ContainerSpec { weight, ..ContainerSpec::default() };
        apply(vec![], Update::ContainerCreate { id: ContainerId(0), label: format!("w{weight}"), spec })
    };
    let refused = asked.ask_as(&who, create(2));
    assert!(is_denied(&refused), "{refused:?}");
    let Response::Applied { created: Some(id), .. } = asked.ask_as(&who, create(1)) else { panic!("it is not made") };
    let Response::Container(info) = asked.world.ask(Request::ContainerById { id }) else { panic!() };
    let set = |weight| Update::ContainerSet { id, spec: ContainerSpec { weight, ..info.spec.clone() } };
    asked.world.must(vec![set(8)]);
    // Its owner may keep it, and give it up, for good.
    for (weight, may) in [(8, true), (9, false), (3, true), (8, false), (1, true)] {
        let done = asked.ask_as(&who, apply(vec![], set(weight)));
        assert_eq!(!is_denied(&done), may, "{weight}: {done:?}");
    }
}

#[test]
fn nobody_gives_a_container_away_or_makes_one_for_others() {
    let mut asked = RightsWorld::new();
    let who = bound(OTHER, &[7], true);
    let cases = [
        (None, None, true),
        (Some(OTHER), Some(OTHER), true),
        (None, Some(7), true),
        (Some(OWNER), None, false),
        (Some(0), None, false),
        (None, Some(GROUP), false),
        (None, Some(0), false),
    ];
    for (number, (owner_uid, owner_gid, may)) in cases.into_iter().enumerate() {
        let spec = ContainerSpec { owner_uid, owner_gid, ..ContainerSpec::default() };
        let create =
            |spec| apply(vec![], Update::ContainerCreate { id: ContainerId(0), label: format!("c{number}"), spec });
        let made = asked.ask_as(&who, create(spec.clone()));
        assert_eq!(!is_denied(&made), may, "making {spec:?}: {made:?}");
        let Response::Applied { created, .. } =
            (if may { made } else { asked.ask_as(&who, create(ContainerSpec::default())) })
        else {
            panic!()
        };
        let id = created.unwrap();
        let Response::Container(info) = asked.world.ask(Request::ContainerById { id }) else { panic!() };
        assert_eq!((info.spec.owner_uid, info.spec.mode), (Some(OTHER), CONTAINER_MODE));
        let wanted = ContainerSpec {
            owner_uid: owner_uid.or(info.spec.owner_uid),
            owner_gid: owner_gid.or(info.spec.owner_gid),
            mode: 0o600,
            ..info.spec
        };
        let set = asked.ask_as(&who, apply(vec![], Update::ContainerSet { id, spec: wanted.clone() }));
        assert_eq!(!is_denied(&set), may, "setting {wanted:?}: {set:?}");
    }
    let spec = ContainerSpec { mode: 0o1777, ..ContainerSpec::default() };
    let made =
        asked.world.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: "bits".into(), spec }], true);
    assert!(matches!(&made, Response::Failed(error) if error.kind() == ErrorKind::InvalidInput), "{made:?}");
}

/// Bytes that the engine carries come out exactly as they went in, in all shapes.
#[test]
fn carried_bytes_come_out_as_they_went_in() {
    let mut asked = RightsWorld::new();
    let c = asked.container(0o777);
    let who = bound(OTHER, &[], true);
    // Space that others had left full of bytes.
    let junk = ObjectKey { object: ObjectId(5), ..key(c) };
    asked.world.must(vec![Update::ObjectCreate { key: junk, block_shift: 12 }]);
    for _ in 0..3 {
        asked.world.write(junk, 0, &vec![0xEE; MIB as usize]).unwrap();
    }
    asked.world.must(vec![Update::ObjectDelete { key: junk }]);
    asked.world.settle();
    let mine = ObjectKey { object: ObjectId(6), ..key(c) };
    asked.world.must(vec![Update::ObjectCreate { key: mine, block_shift: 12 }]);
    let mut expected = vec![0; 400_000];
    for (number, (offset, len)) in
        [(0, 1), (100, 65_536), (70_000, 200_001), (65_000, 3), (399_999, 1)].into_iter().enumerate()
    {
        let bytes: Vec<u8> = (0..len).map(|at| (at * 7 + number) as u8).collect();
        expected[offset..offset + len].copy_from_slice(&bytes);
        let deposit = Request::Deposit { container: c, bytes: bytes.clone(), avoid: vec![], durability: None };
        let Response::Lease(lease) = asked.ask_as(&who, deposit) else { panic!() };
        let run = lease.runs[0];
        assert!(run.len >= len as u64, "one run here");
        let device = asked.world.engine().device(run.device).unwrap();
        let mut there = vec![1; run.len as usize];
        device.read_at(run.offset, &mut there).unwrap();
        assert!(there[..len] == bytes[..] && there[len..].iter().all(|byte| *byte == 0), "nothing that others left");
        let sums: Vec<u32> = bytes.chunks(65_536).map(world::crc).collect();
        let extent = Extent::whole(run.device, run.offset, len as u32, Sums::from_slice(&sums));
        let write = apply(vec![], Update::Write { key: mine, offset: offset as u64, extent });
        let applied = asked.ask_as(&who, write);
        assert!(matches!(applied, Response::Applied { .. }), "{applied:?}");
    }
    for drained in [false, true] {
        for (offset, len) in
            [(0, 400_000), (0, 1), (99, 2), (65_000, 6000), (69_999, 130_000), (399_999, 9), (500_000, 9)]
        {
            let read = Request::Read { key: mine, offset: offset as u64, len };
            let Response::Bytes { size: 400_000, bytes, .. } = asked.ask_as(&who, read) else { panic!() };
            let end = expected.len().min(offset + len as usize);
            assert!(bytes == expected[offset.min(end)..end], "{len} bytes at {offset}, drained: {drained}");
        }
        asked.world.flush(FlushTarget::Store).unwrap();
        let _ = asked.world.ask(Request::Arrange {
            target: Box::new(ArrangeTarget::Object(mine)),
            what: Arrange::Evict,
            dry_run: false,
        });
    }
    let stray = Extent::whole(DeviceId(1), 64 << 10, 1, Sums::One(0));
    let stolen = asked.ask_as(&who, apply(vec![], Update::Write { key: mine, offset: 0, extent: stray }));
    assert!(matches!(stolen, Response::Failed(_)), "space that it does not lease: {stolen:?}");
    assert_eq!(asked.world.engine().audit(), Vec::<String>::new());
}

#[test]
fn groups_and_modes_outlive_the_engine() {
    let mut asked = RightsWorld::new();
    let c = asked.container(0o640);
    let who = bound(OTHER, &[7, GROUP], true);
    asked.ask_as(&who, Request::Stats);
    for clean in [false, true] {
        if clean {
            asked.world.engine().close().unwrap();
        }
        asked.world.kill();
        asked.world.open().unwrap();
        let Response::Container(info) = asked.world.ask(Request::ContainerById { id: c }) else { panic!() };
        let spec = info.spec;
        assert_eq!((spec.owner_uid, spec.owner_gid, spec.mode), (Some(OWNER), Some(GROUP), 0o640));
        let sessions = asked.world.engine().sessions();
        assert!(sessions.iter().any(|(_, known)| *known == who), "clean: {clean}: {sessions:?}");
    }
}
