//! Weights of users are set once, on any node of a cluster, and count at all homes: at one that was away when it is back, and at
//! one that joins.

mod common;

use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Mode, OpenOptions, Store};
use common::cluster::Cluster;
use serde_json::Value;

/// Longer than a home that does not answer is waited for, on a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
const UID: u32 = 4_000_000_001;

fn json(cluster: &Cluster, node: usize, args: &[&str]) -> Value {
    serde_json::from_str(&cluster.ok(node, &[&["--json"], args].concat())).unwrap()
}

/// The weight of a user at the home of a node, by itself: what its engine tells.
fn weight_at(cluster: &Cluster, node: usize, uid: u32) -> u64 {
    let told = json(cluster, node, &["top", "--once", "--interval", "0.1"]);
    let user = told["users"].as_array().unwrap().iter().find(|user| user["uid"] == uid);
    user.map_or(1, |user| user["weight"].as_u64().unwrap())
}

#[track_caller]
fn until_weight_at(cluster: &Cluster, node: usize, weight: u64) {
    let begin = Instant::now();
    while weight_at(cluster, node, UID) != weight {
        assert!(begin.elapsed() < PATIENCE, "n{node} has weight {}", weight_at(cluster, node, UID));
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn weights_of_users_reach_all_homes_of_a_cluster() {
    let tiers = ["--tier", "name=memory,kind=memory,size=64MiB"];
    let cluster = Cluster::start(3, &[&tiers[..], &["--register", "kind=nodes"]].concat());
    let uid = UID.to_string();
    cluster.ok(2, &["weight", &uid, "4"]);
    for node in 1..=3 {
        assert_eq!(weight_at(&cluster, node, UID), 4, "n{node}, at once");
    }

    // A home that is away is named, and follows by itself.
    cluster.kill(3);
    let told = cluster.ok(2, &["weight", &uid, "7"]);
    assert!(told.contains("not at home n3 while that is away"), "{told}");
    let told = json(&cluster, 1, &["weight"]);
    assert_eq!((&told["users"][0]["weight"], &told["away"][0]["home"]), (&7.into(), &"n3".into()), "{told}");
    assert_eq!([1, 2].map(|node| weight_at(&cluster, node, UID)), [7, 7]);
    cluster.again();
    until_weight_at(&cluster, 3, 7);
    assert!(!cluster.ok(1, &["weight"]).contains("not at"));

    // One that joins has them, too.
    cluster.place.ok(["cluster", "join", &cluster.dir()]);
    until_weight_at(&cluster, 4, 7);

    // The first home keeps them in order: without it nothing is changed.
    cluster.kill(1);
    cluster.refused(2, &["weight", &uid, "9"], &["home n1"]);
    assert_eq!(weight_at(&cluster, 2, UID), 7);
}

#[test]
fn what_a_program_takes_on_another_node_counts_for_its_user() {
    let tiers = ["--tier", "name=memory,kind=memory,size=64MiB"];
    let cluster = Cluster::start(2, &tiers);
    let uid = rustix::process::geteuid().as_raw();
    cluster.ok(1, &["weight", &uid.to_string(), "3"]);
    cluster.ok(1, &["mk", "runs"]);
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let store = Store::open_with(cluster.node(2), &options).unwrap();
    let far = store.container("runs").unwrap();
    let near = store.create_container("near", &ContainerSpec::default()).unwrap();
    assert!(far.home() != near.home());
    far.create_object(None, None).unwrap().write_at(0, &vec![7; 20 << 20]).unwrap();
    let told = json(&cluster, 1, &["top", "--once", "--interval", "0.1"]);
    let user = told["users"].as_array().unwrap().iter().find(|user| user["uid"] == uid).expect("the user");
    let taken = user["taken_bytes"]["memory"].as_u64().unwrap_or(0);
    assert!(user["weight"] == 3 && taken > 0, "{told}");
    let users = json(&cluster, 2, &["top", "--once", "--interval", "0.1"])["users"].clone();
    assert_eq!(users[0]["taken_bytes"], serde_json::json!({}), "nothing was taken of its own node's tiers: {users}");
}
