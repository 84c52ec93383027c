//! Users, containers and clients that want a fast tier: each gets its share.

mod world;

use std::collections::BTreeMap;

use cenote_model::*;
use cenote_store::SessionInfo;
use world::*;

/// Bytes leased on `memory` by clients that ask for pieces of these sizes in turn until nobody gets
/// any there.
fn leased_on_memory(world: &mut World, container: ContainerId, pieces: &[u64]) -> BTreeMap<usize, u64> {
    leased_by(world, &pieces.iter().map(|piece| (container, *piece)).collect::<Vec<_>>())
}

/// The same for clients of several containers.
fn leased_by(world: &mut World, pieces: &[(ContainerId, u64)]) -> BTreeMap<usize, u64> {
    leased_for(world, &pieces.iter().map(|(container, piece)| (local(0), *container, *piece)).collect::<Vec<_>>())
}

/// A program of a user on this node.
fn local(uid: u32) -> SessionInfo {
    SessionInfo { pid: 2, started: 1, uid, write: true, ..SessionInfo::default() }
}

/// The same for clients of several users.
fn leased_for(world: &mut World, wanted: &[(SessionInfo, ContainerId, u64)]) -> BTreeMap<usize, u64> {
    let open = |(i, (who, ..)): (usize, &(SessionInfo, ContainerId, u64))| {
        world.engine().session_open(SessionInfo { nonce: 100 + i as u128, ..who.clone() }).unwrap()
    };
    let sessions: Vec<_> = wanted.iter().enumerate().map(open).collect();
    let Response::Devices(devices) = world.ask(Request::Devices) else { panic!() };
    let memory = devices.iter().find(|d| d.spec.name == "memory").unwrap().id;
    let mut got: BTreeMap<usize, u64> = BTreeMap::new();
    for seq in 1..200 {
        for (i, (_, container, piece)) in wanted.iter().enumerate() {
            let container = *container;
            let (bytes, run_min, avoid) = (*piece, *piece as u32, vec![]);
            world.session = sessions[i];
            let lease = Request::Lease { container, bytes, run_min, avoid, durability: None };
            let Response::Lease(lease) = world.ask_as(seq, lease) else { return got };
            let there = lease.runs.iter().filter(|run| run.device == memory).map(|run| run.len);
            *got.entry(i).or_default() += there.sum::<u64>();
        }
        world.clock.advance_ns(1_000_000);
    }
    got
}

#[test]
fn a_greedy_client_leaves_the_others_room_on_the_fast_tier() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let container = world.container("c", Durability::Async);
    let got = leased_on_memory(&mut world, container, &[4 << 20, 256 << 10]);
    let (greedy, modest) = (got[&0], got[&1]);
    // Requests are 16 to 1; three quarters of the room are given out before it is scarce.
    assert!(modest >= 10 << 20, "{greedy} and {modest}");
    assert!(greedy + modest > 50 << 20, "the tier is used: {greedy} and {modest}");
}

#[test]
fn who_is_alone_gets_all_of_it() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let container = world.container("c", Durability::Async);
    let got = leased_on_memory(&mut world, container, &[4 << 20]);
    assert!(got[&0] >= 52 << 20, "{got:?}");
}

fn weighted(world: &mut World, label: &str, weight: u16) -> ContainerId {
    let spec = ContainerSpec { weight, ..ContainerSpec::default() };
    match world.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }], true) {
        Response::Applied { created: Some(id), .. } => id,
        other => panic!("{other:?}"),
    }
}

fn weight(world: &mut World, id: ContainerId) -> u16 {
    let Response::Container(info) = world.ask(Request::ContainerById { id }) else { panic!("no container") };
    info.spec.weight
}

/// Bytes on `memory` of two containers with these weights, whose clients want as much as they can get.
fn divided(weights: [u16; 2]) -> [u64; 2] {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let all = [weighted(&mut world, "a", weights[0]), weighted(&mut world, "b", weights[1])];
    let got = leased_by(&mut world, &all.map(|container| (container, 512 << 10)));
    [got[&0], got[&1]]
}

#[test]
fn containers_share_by_weight() {
    let [a, b] = divided([1, 1]);
    assert!(a.abs_diff(b) <= 1 << 20 && a + b > 50 << 20, "{a} and {b}");
    // Until room is scarce all get what they want; then the one with more weight goes on alone.
    let [light, heavy] = divided([1, 4]);
    assert!(heavy >= light + (8 << 20) && light + heavy > 50 << 20, "{light} and {heavy}");
    let [heavy, light] = divided([4, 1]);
    assert!(heavy >= light + (8 << 20), "{light} and {heavy}");
    let [a, b] = divided([300, 300]);
    assert!(a.abs_diff(b) <= 1 << 20, "only the ratio counts: {a} and {b}");
}

#[test]
fn weights_are_kept_and_bounded() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let (plain, heavy) = (weighted(&mut world, "plain", 1), weighted(&mut world, "heavy", 4));
    let set = |weight| Update::ContainerSet { id: heavy, spec: ContainerSpec { weight, ..ContainerSpec::default() } };
    world.must(vec![set(7)]);
    for weight in [0, CONTAINER_WEIGHT_MAX + 1] {
        let Response::Failed(error) = world.apply(vec![set(weight)], true) else { panic!("{weight} was taken") };
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.cause().contains("1 to 1000"), "{error}");
    }
    // From the journal, and from a checkpoint.
    for _ in 0..2 {
        world.kill();
        world.open().unwrap();
        assert_eq!([plain, heavy].map(|id| weight(&mut world, id)), [1, 7]);
        assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    }
}

fn weigh(world: &mut World, ask: WeightsAsk) -> UserWeights {
    match world.ask(Request::Weights { ask }) {
        Response::Weights(weights) => weights,
        other => panic!("{other:?}"),
    }
}

fn set(world: &mut World, uid: u32, weight: u16) -> UserWeights {
    weigh(world, WeightsAsk::Set(UserWeight { uid, weight }))
}

/// Bytes on `memory` of two users with these weights: the first has so many programs and containers, the second one. All want
/// as much as they can get.
fn divided_among_users(weights: [u16; 2], programs: usize, node: Option<NodeId>) -> [u64; 2] {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    for (uid, weight) in [1001, 1002].into_iter().zip(weights) {
        set(&mut world, uid, weight);
    }
    let mut wanted = Vec::new();
    for program in 0..programs {
        // Weights of a user's containers are nothing to other users.
        let container = weighted(&mut world, &format!("first-{program}"), 100);
        wanted.push((SessionInfo { node, ..local(1001) }, container, 512 << 10));
    }
    wanted.push((SessionInfo { node, ..local(1002) }, weighted(&mut world, "second", 1), 512 << 10));
    let got = leased_for(&mut world, &wanted);
    [(0..programs).map(|at| got[&at]).sum(), got[&programs]]
}

#[test]
fn users_share_by_weight_wherever_their_programs_run() {
    for node in [None, Some(NodeId(3))] {
        let [a, b] = divided_among_users([1, 1], 1, node);
        assert!(a.abs_diff(b) <= 1 << 20 && a + b > 50 << 20, "{a} and {b}");
        let [light, heavy] = divided_among_users([1, 4], 1, node);
        assert!(heavy >= light + (8 << 20) && light + heavy > 50 << 20, "{light} and {heavy}");
        let [heavy, light] = divided_among_users([4, 1], 1, node);
        assert!(heavy >= light + (8 << 20), "{heavy} and {light}");
    }
}

#[test]
fn a_user_with_more_programs_and_containers_has_no_more_than_the_weight_allows() {
    // Until room is scarce all get what they want, three quarters of it the first user; the rest is the other one's.
    let [many, one] = divided_among_users([1, 1], 3, None);
    let [_, unweighed] = {
        let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
        let all: Vec<_> = (0..4).map(|at| weighted(&mut world, &format!("c{at}"), 1)).collect();
        let got = leased_by(&mut world, &all.iter().map(|container| (*container, 512 << 10)).collect::<Vec<_>>());
        [got[&0], got[&3]]
    };
    assert!(one >= unweighed + (6 << 20) && many + one > 50 << 20, "{many} and {one}, {unweighed} as one of four");
}

#[test]
fn a_users_containers_share_what_the_user_has() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    let all = [("light", 1), ("heavy", 4), ("other", 1)].map(|(label, weight)| weighted(&mut world, label, weight));
    let wanted: Vec<_> = [1001, 1001, 1002].into_iter().zip(all).map(|(uid, id)| (local(uid), id, 512 << 10)).collect();
    let got = leased_for(&mut world, &wanted);
    assert!(got[&1] >= got[&0] + (4 << 20), "{got:?}");
    assert!((got[&0] + got[&1]).abs_diff(got[&2]) <= 12 << 20, "each user has about half: {got:?}");
}

#[test]
fn weights_of_users_are_kept_and_bounded_and_the_latest_count() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    assert_eq!(weigh(&mut world, WeightsAsk::Show), UserWeights::default());
    let first = set(&mut world, 1001, 4);
    let second = set(&mut world, 7, 2);
    assert!(second.version > first.version && [7, 1001, 9].map(|uid| second.of(uid)) == [2, 4, 1], "{second:?}");
    for weight in [0, USER_WEIGHT_MAX + 1] {
        let asked = Request::Weights { ask: WeightsAsk::Set(UserWeight { uid: 7, weight }) };
        let Response::Failed(error) = world.ask(asked) else { panic!("{weight} was taken") };
        assert!(error.kind() == ErrorKind::InvalidInput && error.cause().contains("1 to 1000"), "{error}");
    }
    assert_eq!(weigh(&mut world, WeightsAsk::Follow(first)), second, "earlier ones are not followed");
    let later = UserWeights { version: second.version + 9, users: vec![UserWeight { uid: 1002, weight: 1000 }] };
    assert_eq!(weigh(&mut world, WeightsAsk::Follow(later.clone())), later, "as a whole");
    let twice = UserWeights { version: later.version + 1, users: [later.users.clone(), later.users.clone()].concat() };
    let refused = world.ask(Request::Weights { ask: WeightsAsk::Follow(twice) });
    assert!(matches!(refused, Response::Failed(_)), "{refused:?}");
    world.kill();
    world.open().unwrap();
    assert_eq!(weigh(&mut world, WeightsAsk::Show), later);
    world.power_loss(cenote_device::mem::Keep::Nothing);
    world.open().unwrap();
    assert_eq!(weigh(&mut world, WeightsAsk::Show), later, "it was on media once it was answered");
}

#[test]
fn who_shares_what_is_told_and_explained() {
    let mut world = World::new(&three_tiers(64 << 20, 256 << 20, 512 << 20));
    set(&mut world, 1002, 3);
    let container = weighted(&mut world, "c", 1);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let told = |world: &mut World| match world.ask(Request::Telemetry { hot: 0 }) {
        Response::Telemetry(told) => told.users.clone(),
        other => panic!("{other:?}"),
    };
    let shares = |world: &mut World| match world.ask(Request::Explain { key }) {
        Response::Explanation(told) => {
            told.notes.into_iter().filter(|note| note.contains("scarce")).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(told(&mut world), [UserTelemetry { uid: 1002, weight: 3, taken: vec![] }]);
    assert!(shares(&mut world).is_empty());
    let wanted: Vec<_> = [1001, 1002].map(|uid| (local(uid), container, 512 << 10)).into();
    leased_for(&mut world, &wanted);
    let users = told(&mut world);
    assert_eq!(users.iter().map(|user| (user.uid, user.weight)).collect::<Vec<_>>(), [(1001, 1), (1002, 3)]);
    assert!(users.iter().all(|user| user.taken.iter().any(|(_, bytes)| *bytes > 1 << 20)), "{users:?}");
    let shares = shares(&mut world);
    assert!(shares.len() == 2 && shares[1].contains("`memory`"), "{shares:?}");
    assert!(shares[1].contains("user 1002 with weight 3") && shares[1].contains("a share of 75 %"), "{shares:?}");
}
