//! Values of records move to tiers, and are the same wherever they are: through changes, transactions, snapshots, power
//! loss, damage, and failures.

mod world;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use cenote_device::mem::Keep;
use cenote_model::*;
use cenote_store::Tuning;
use world::{Rng, World, index, object, three_tiers, tuning};

const BUDGET: u64 = 64 << 10;

fn small() -> Tuning {
    Tuning { value_bytes: BUDGET, ..tuning() }
}

fn world() -> World {
    World::tuned(&three_tiers(8 << 20, 32 << 20, 64 << 20), small())
}

type Plain = BTreeMap<Vec<u8>, Vec<u8>>;

fn value(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8).collect()
}

fn put(index: IndexKey, key: &[u8], value: &[u8]) -> Update {
    Update::Put { index, key: key.to_vec(), value: value.to_vec(), only_new: false }
}

fn indexed(world: &mut World, label: &str, durability: Durability) -> IndexKey {
    let container = world.container(label, durability);
    let key = index(container, 1);
    world.must(vec![Update::IndexCreate { key }]);
    key
}

/// Puts records of 100 bytes, 1 KiB and 64 KiB, many times what the budget allows.
fn fill(world: &mut World, key: IndexKey, plain: &mut Plain, seed: u64) {
    for n in 0..600u64 {
        let len = [100, 1024, 100, 700, if n % 40 == 4 { 65_536 } else { 80 }][n as usize % 5];
        let (name, value) = (format!("key-{:05}", (n * 7919) % 10_000).into_bytes(), value(seed * 1000 + n, len));
        world.must(vec![put(key, &name, &value)]);
        plain.insert(name, value);
        if n % 20 == 0 {
            world.settle();
        }
    }
    world.settle();
}

fn stats(world: &mut World) -> StoreStats {
    match world.ask(Request::Stats) {
        Response::Stats(stats) => stats,
        other => panic!("{other:?}"),
    }
}

fn records(world: &mut World, key: IndexKey) -> Plain {
    let mut all = Plain::new();
    let mut from = NextFrom::Start;
    loop {
        let request = Request::Next { index: key, from, prefix: vec![], limit: 50, bytes_max: 100_000 };
        let Response::Records { records, more } = world.ask(request) else { panic!("no records") };
        all.extend(records.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        match records.last().filter(|_| more) {
            Some((last, _)) => from = NextFrom::After(last.to_vec()),
            None => return all,
        }
    }
}

#[track_caller]
fn check(world: &mut World, key: IndexKey, plain: &Plain) {
    assert!(records(world, key) == *plain, "a walk finds other records");
    let keys: Vec<Vec<u8>> = plain.keys().cloned().chain([b"none".to_vec()]).collect();
    let Response::Values(values) = world.ask(Request::Get { index: key, keys: keys.clone() }) else { panic!() };
    for (key, found) in keys.iter().zip(values) {
        assert!(found.map(|(value, _)| value).as_ref() == plain.get(key), "{}", key.escape_ascii());
    }
    let wrong = world.engine().audit();
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn values_beyond_the_budget_are_on_tiers() {
    let mut world = world();
    let key = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    fill(&mut world, key, &mut plain, 1);
    let stats = stats(&mut world);
    assert!(stats.values_here_bytes <= BUDGET, "{stats:?}");
    assert!(stats.values_away_bytes > 8 * BUDGET, "{stats:?}");
    check(&mut world, key, &plain);
    assert_eq!(stats.objects, 0, "programs see no object of it");
    let list = Request::ObjectList { container: key.container, after: None, limit: 9 };
    assert_eq!(world.ask(list), Response::Objects(vec![]));
    let log = object(key.container, u128::MAX);
    assert!(world.lookup(log).is_ok(), "but who wants to know can look where values are");
    assert!(matches!(world.apply(vec![Update::ObjectDelete { key: log }], true), Response::Failed(_)));
    let report = world.verify();
    assert!(report.findings.is_empty() && report.contradictions.is_empty() && report.bytes > 8 * BUDGET, "{report:?}");
}

#[test]
fn changes_after_values_left_are_seen_and_space_comes_back() {
    let mut world = world();
    let key = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    fill(&mut world, key, &mut plain, 1);
    let file = |world: &mut World| world.used()[1].1;
    let once = file(&mut world);
    for round in 2..8 {
        fill(&mut world, key, &mut plain, round);
        let _ = world.flush(FlushTarget::Store);
        world.settle();
    }
    check(&mut world, key, &plain);
    world.clock.advance_ns(6_000_000_000);
    world.settle();
    world.clock.advance_ns(6_000_000_000);
    world.settle();
    assert!(file(&mut world) < 2 * once, "{} bytes, {once} after the first time", file(&mut world));
    for name in plain.keys().cloned().collect::<Vec<_>>() {
        world.must(vec![Update::Del { index: key, key: name }]);
    }
    world.flush(FlushTarget::Store).unwrap();
    for _ in 0..4 {
        world.clock.advance_ns(1_000_000_000);
        world.settle();
    }
    check(&mut world, key, &Plain::new());
    assert_eq!(file(&mut world), 0);
}

#[test]
fn a_killed_engine_and_power_loss_lose_nothing_that_was_flushed() {
    for keep in [Keep::Nothing, Keep::Everything] {
        let mut world = world();
        let key = indexed(&mut world, "c", Durability::Async);
        let mut plain = Plain::new();
        fill(&mut world, key, &mut plain, 1);
        world.kill();
        world.open().unwrap();
        check(&mut world, key, &plain);
        fill(&mut world, key, &mut plain, 2);
        world.flush(FlushTarget::Store).unwrap();
        let flushed = plain.clone();
        fill(&mut world, key, &mut plain, 3);
        world.power_loss(keep);
        world.open().unwrap();
        let found = records(&mut world, key);
        let is_newer = found.iter().any(|(key, value)| flushed.get(key) != Some(value));
        assert!(found.len() == flushed.len());
        for (key, value) in &found {
            assert!(flushed.get(key) == Some(value) || plain.get(key) == Some(value), "{}", key.escape_ascii());
        }
        assert!(!is_newer || found == plain || world.report.rolled_back.len() == 1);
        check(&mut world, key, &found);
        // After an orderly close, too.
        world.engine().close().unwrap();
        world.open().unwrap();
        check(&mut world, key, &found);
    }
}

#[test]
fn snapshots_keep_their_values_and_rolling_back_brings_them_back() {
    let mut world = world();
    let key = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    fill(&mut world, key, &mut plain, 1);
    let make = |name: &str| Update::SnapshotCreate {
        of: key.container,
        id: ContainerId(0),
        name: name.into(),
        replace: false,
        unix_ms: 1,
    };
    let Response::Applied { created: Some(id), .. } = world.apply(vec![make("s")], true) else { panic!() };
    let (kept, frozen) = (IndexKey { container: id, index: key.index }, plain.clone());
    fill(&mut world, key, &mut plain, 2);
    check(&mut world, key, &plain);
    check(&mut world, kept, &frozen);
    world.kill();
    world.open().unwrap();
    check(&mut world, kept, &frozen);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    check(&mut world, key, &plain);
    check(&mut world, kept, &frozen);
    world.must(vec![Update::SnapshotRollback { of: key.container, name: "s".into() }]);
    world.settle();
    check(&mut world, key, &frozen);
    world.must(vec![Update::SnapshotDelete { of: key.container, name: "s".into() }]);
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    check(&mut world, key, &frozen);
    world.engine().close().unwrap();
    world.open().unwrap();
    check(&mut world, key, &frozen);
}

#[test]
fn a_transaction_compares_values_that_are_away() {
    let mut world = world();
    let key = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    fill(&mut world, key, &mut plain, 1);
    let mut tried = 0;
    for (name, value) in plain.clone() {
        let mut other = value.clone();
        other[0] ^= 1;
        for (expected, holds) in [(Some(value), true), (Some(other), false), (None, false)] {
            let check = Check::Value { index: key, key: name.clone(), value: expected };
            let answer = world.ask(Request::Apply { checks: vec![check], updates: vec![], atomic: true });
            assert_eq!(matches!(answer, Response::Applied { .. }), holds, "{answer:?}");
            tried += 1;
        }
    }
    assert!(tried > 1000);
}

#[test]
fn damage_and_a_tier_that_is_away_are_named() {
    let mut world = world();
    let key = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    fill(&mut world, key, &mut plain, 1);
    world.flush(FlushTarget::Store).unwrap();
    for offset in (4096..24 << 20).step_by(4096) {
        world.devices.corrupt(world::STORE, DeviceId(2), offset + 99, 4);
    }
    let answer = world.ask(Request::Get { index: key, keys: plain.keys().cloned().collect() });
    let Response::Failed(error) = answer else { panic!("{answer:?}") };
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("index") && error.to_string().contains("verify"), "{error}");
    let report = world.verify();
    assert!(!report.findings.is_empty());
}

/// A walk returns all records before one whose value is damaged, then names its key, and can go on after it.
#[test]
fn a_walk_comes_up_to_a_damaged_value_and_names_its_key() {
    let mut world = world();
    let index = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    fill(&mut world, index, &mut plain, 1);
    world.flush(FlushTarget::Store).unwrap();
    world.settle();
    let mut media = vec![0; 24 << 20];
    world.engine().device(DeviceId(2)).unwrap().read_at(0, &mut media).unwrap();
    // Among the large values, since a checksum covers 64 KiB: this value is damaged, with whatever shares its unit.
    let place = |value: &[u8]| media.windows(64).position(|window| *window == value[..64]);
    let (bad, at) = plain.iter().skip(100).find_map(|(key, value)| Some((key.clone(), place(value)?))).unwrap();
    assert!(world.devices.corrupt(world::STORE, DeviceId(2), at as u64 + 1, 4));
    let unread: Vec<Vec<u8>> = {
        let get = |key: &Vec<u8>| Request::Get { index, keys: vec![key.clone()] };
        let all: Vec<_> = plain.keys().cloned().collect();
        all.into_iter().filter(|key| matches!(world.ask(get(key)), Response::Failed(_))).collect()
    };
    assert!(unread.contains(&bad) && unread.len() < 100, "{}", unread.len());

    let (mut seen, mut told) = (Plain::new(), Vec::new());
    let mut from = NextFrom::Start;
    loop {
        match world.ask(Request::Next { index, from: from.clone(), prefix: vec![], limit: 1000, bytes_max: 1 << 20 }) {
            Response::Records { records, more } => {
                seen.extend(records.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
                let Some((last, _)) = records.last().filter(|_| more) else { break };
                from = NextFrom::After(last.to_vec());
            }
            Response::Failed(error) => {
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                let key = &unread[told.len()];
                let name = String::from_utf8(key.clone()).unwrap();
                assert!(error.to_string().contains(&format!("the value of key `{name}` of index")), "{error}");
                told.push(key.clone());
                from = NextFrom::After(key.clone());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(told, unread);
    plain.retain(|key, _| !unread.contains(key));
    assert!(seen == plain, "a walk finds other records");
    let keys = vec![plain.keys().next().unwrap().clone(), bad.clone()];
    let Response::Failed(error) = world.ask(Request::Get { index, keys }) else { panic!("it was read") };
    let name = String::from_utf8(bad).unwrap();
    assert!(error.to_string().contains(&format!("the value of key `{name}` of index")), "{error}");
}

#[test]
fn without_room_below_values_stay_in_memory() {
    let mut config = three_tiers(8 << 20, 1 << 20, 1 << 20);
    config.devices.truncate(1);
    let mut world = World::tuned(&config, small());
    let key = indexed(&mut world, "c", Durability::Scratch);
    let mut plain = Plain::new();
    fill(&mut world, key, &mut plain, 1);
    assert_eq!(stats(&mut world).values_away_bytes, 0);
    check(&mut world, key, &plain);
}

#[test]
fn a_sync_that_fails_leaves_values_in_memory() {
    let mut world = world();
    let key = indexed(&mut world, "c", Durability::Async);
    let mut plain = Plain::new();
    world.sync_fails.store(true, Ordering::Relaxed);
    for n in 0..200u64 {
        let (name, value) = (n.to_be_bytes().to_vec(), value(n, 1000));
        world.must(vec![put(key, &name, &value)]);
        plain.insert(name, value);
    }
    world.step();
    for _ in 0..50 {
        world.step();
        world.clock.advance_ns(10_000_000);
    }
    assert_eq!(stats(&mut world).values_away_bytes, 0);
    world.sync_fails.store(false, Ordering::Relaxed);
    for _ in 0..200 {
        world.step();
        world.clock.advance_ns(20_000_000);
    }
    assert!(stats(&mut world).values_here_bytes <= BUDGET);
    check(&mut world, key, &plain);
}
