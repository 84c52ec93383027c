//! Machines of a cluster that are started anew so fast that nobody has missed them: what was in their memory is gone, and their
//! mirrors have it.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Mode, ObjectId, OpenOptions, Store};
use common::cluster::{Cluster, is_mirrored};
use serde_json::Value;

const NODES: usize = 3;

#[track_caller]
fn start() -> Cluster {
    let tiers =
        ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
    let cluster = Cluster::start(NODES, &[&tiers[..], &["--protect", "1"]].concat());
    cluster.until(1, "mirrors of all homes", is_mirrored::<NODES>);
    cluster
}

fn home(report: &Value, number: usize) -> (u64, u64) {
    let home = &report["homes"][number - 1];
    (home["host"].as_u64().unwrap_or_default(), home["term"].as_u64().unwrap_or_default())
}

fn open(cluster: &Cluster, number: usize) -> Store {
    Store::open_with(cluster.node(number), &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap()
}

fn content(number: u64) -> Vec<u8> {
    (0..20_000).map(|at| (at * 13 + number * 7) as u8).collect()
}

fn has_all(store: &Store, count: u64) {
    let object = store.container("runs").unwrap().object(ObjectId(1));
    for number in 0..count {
        let mut bytes = vec![0; 20_000];
        object.read_at(number * 20_000, &mut bytes).unwrap();
        assert!(bytes == content(number), "part {number}");
    }
}

/// The shared memory of a node's home.
fn memory(cluster: &Cluster, number: usize) -> PathBuf {
    let status: Value = serde_json::from_str(&cluster.ok(number, &["status", "--json"])).unwrap();
    PathBuf::from("/dev/shm").join(format!("cenote-{}", status["store"].as_str().unwrap()))
}

#[test]
fn what_a_mirror_has_survives_a_machine_that_is_back_at_once() {
    let cluster = start();
    let memory = memory(&cluster, 2);
    let store = open(&cluster, 2);
    let made = store.create_container("runs", &ContainerSpec::default()).unwrap();
    let object = made.create_object(Some(ObjectId(1)), None).unwrap();
    for number in 0..30 {
        object.write_at(number * 20_000, &content(number)).unwrap();
    }
    cluster.ok(2, &["protect"]);
    // Nothing of it was flushed. The machine ends, and its daemon is there again before anybody could miss it.
    cluster.kill(2);
    std::fs::remove_dir_all(&memory).unwrap();
    drop((object, made, store));
    let begin = Instant::now();
    let back = std::thread::spawn({
        let dir = cluster.node(2);
        move || Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).map(drop)
    });
    let report = cluster.until(3, "that a mirror has the home", |report| home(report, 2).1 > 1);
    println!("a mirror has the home after {:?}: {}", begin.elapsed(), home(&report, 2).0);
    has_all(&open(&cluster, 3), 30);
    // It gets its home back, with everything.
    cluster.until(3, "that it is back", |report| home(report, 2).0 == 2 && is_mirrored::<NODES>(report));
    back.join().unwrap().unwrap();
    has_all(&open(&cluster, 2), 30);
    cluster.ok(2, &["verify"]);
}

/// All machines at once: nobody has more than what was flushed, and nobody waits for anybody.
#[test]
fn a_cluster_whose_machines_all_lost_power_goes_on_with_what_was_flushed() {
    let cluster = start();
    let memories: Vec<PathBuf> = (1..=NODES).map(|number| memory(&cluster, number)).collect();
    let store = open(&cluster, 2);
    let made = store.create_container("runs", &ContainerSpec::default()).unwrap();
    let object = made.create_object(Some(ObjectId(1)), None).unwrap();
    for number in 0..20 {
        object.write_at(number * 20_000, &content(number)).unwrap();
    }
    object.flush().unwrap();
    drop((object, made, store));
    for number in 1..=NODES {
        cluster.kill(number);
    }
    for memory in &memories {
        std::fs::remove_dir_all(memory).unwrap();
    }
    let begin = Instant::now();
    cluster.again();
    cluster.until(1, "mirrors of all homes", is_mirrored::<NODES>);
    println!("all mirrored again after {:?}", begin.elapsed());
    assert!(begin.elapsed() < Duration::from_mins(1));
    let report = cluster.report(1);
    for number in 1..=NODES {
        assert_eq!(home(&report, number).0, number as u64, "{report:#}");
    }
    for number in 1..=NODES {
        has_all(&open(&cluster, number), 20);
    }
    cluster.ok(2, &["verify"]);
}

/// After a mirror has taken a home over, what it says is flushed is, with all that came to it as a mirror.
#[test]
fn what_an_heir_says_is_flushed_survives_its_machine() {
    let cluster = start();
    let store = open(&cluster, 2);
    let made = store.create_container("runs", &ContainerSpec::default()).unwrap();
    let object = made.create_object(Some(ObjectId(1)), None).unwrap();
    for number in 0..10 {
        object.write_at(number * 20_000, &content(number)).unwrap();
    }
    object.flush().unwrap();
    drop((object, made, store));
    cluster.kill(2);
    let report =
        cluster.until(1, "that a mirror has the home", |report| home(report, 2).0 != 2 && is_mirrored::<NODES>(report));
    let heir = home(&report, 2).0 as usize;
    let other = (1..=NODES).find(|number| *number != 2 && *number != heir).unwrap();
    let object = open(&cluster, other).container("runs").unwrap().object(ObjectId(1));
    object.write_at(10 * 20_000, &content(10)).unwrap();
    object.flush().unwrap();
    drop(object);
    let memory = memory(&cluster, heir);
    cluster.kill(heir);
    std::fs::remove_dir_all(&memory).unwrap();
    cluster.ok(heir, &["status"]);
    cluster.until(other, "mirrors of all homes", is_mirrored::<NODES>);
    has_all(&open(&cluster, other), 11);
    cluster.ok(other, &["verify"]);
}
