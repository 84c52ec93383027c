//! Nodes join a cluster and leave it, and homes move, while programs go on.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Mode, Object, ObjectId, OpenOptions, Store};
use common::cluster::Cluster;
use rustix::process::Signal;
use serde_json::Value;

const TIERS: [&str; 4] =
    ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
const PART: u64 = 5000;

/// A cluster of so many nodes, whose homes have mirrors.
#[track_caller]
fn start(nodes: usize) -> Cluster {
    let cluster = Cluster::start(nodes, &[&TIERS[..], &["--protect", "1"]].concat());
    cluster.until(1, "mirrors of all homes", is_mirrored);
    cluster
}

fn is_mirrored(report: &Value) -> bool {
    let homes = report["homes"].as_array().unwrap();
    !homes.is_empty() && homes.iter().all(|home| !home["mirrors"].as_array().unwrap().is_empty())
}

fn host(report: &Value, home: u64) -> u64 {
    let mut homes = report["homes"].as_array().unwrap().iter();
    homes.find(|it| it["home"] == home).map_or(0, |it| it["host"].as_u64().unwrap())
}

fn content(number: u64) -> Vec<u8> {
    (0..PART).map(|at| (at * 31 + number * 7) as u8).collect()
}

fn open(cluster: &Cluster, node: usize) -> Store {
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    Store::open_with(cluster.node(node), &options).unwrap()
}

/// Writes part after part, from `first` on, until told to end. Returns the first part that was not written, and the longest
/// time of a write.
fn write(object: &Object, first: u64, is_over: &AtomicBool) -> (u64, Duration) {
    let (mut number, mut longest) = (first, Duration::ZERO);
    while !is_over.load(Ordering::SeqCst) {
        let begin = Instant::now();
        object.write_at(number * PART, &content(number)).unwrap();
        longest = longest.max(begin.elapsed());
        number += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    (number, longest)
}

#[track_caller]
fn check(object: &Object, parts: u64) {
    for number in 0..parts {
        let mut bytes = vec![0; PART as usize];
        object.read_at(number * PART, &mut bytes).unwrap();
        assert!(bytes == content(number), "part {number}");
    }
}

/// Runs a change of the cluster while a program on n1 writes to an object.
#[track_caller]
fn while_written(cluster: &Cluster, object: &Object, first: u64, change: impl FnOnce()) -> u64 {
    let is_over = AtomicBool::new(false);
    let (parts, longest) = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(object, first, &is_over));
        change();
        std::thread::sleep(Duration::from_millis(300));
        is_over.store(true, Ordering::SeqCst);
        writing.join().unwrap()
    });
    println!("{} writes meanwhile, the longest took {longest:?}", parts - first);
    assert!(parts > first && longest < Duration::from_secs(25), "{longest:?}");
    check(object, parts);
    cluster.ok(1, &["verify"]);
    parts
}

#[test]
fn nodes_join_and_leave_while_programs_on_others_go_on() {
    let cluster = start(4);
    let dir = cluster.dir();
    // A container of the node that is to leave, written by a program on another one.
    let made = open(&cluster, 4).create_container("runs", &ContainerSpec::default()).unwrap();
    drop(made.create_object(Some(ObjectId(1)), None).unwrap());
    drop(made);
    let store = open(&cluster, 1);
    let object = store.container("runs").unwrap().object(ObjectId(1));
    let parts = while_written(&cluster, &object, 0, || {
        let said = cluster.place.ok(["cluster", "join", &dir]);
        assert!(said.contains("node n5 takes part"), "{said}");
    });
    // What is made on the new node is there for all, and has a mirror.
    cluster.ok(5, &["mk", "from n5"]);
    assert!(cluster.ok(2, &["ls"]).contains("from n5"));
    cluster.until(1, "a mirror of the new home", |report| is_mirrored(report) && host(report, 5) == 5);
    cluster.ok(5, &["protect"]);
    assert!(store.container("from n5").is_ok(), "a program that was there before sees it");
    let parts = while_written(&cluster, &object, parts, || {
        let said = cluster.place.ok(["cluster", "leave", &dir, "n4", "--yes"]);
        assert!(said.contains("node n4 has left"), "{said}");
    });
    assert!(!cluster.node(4).exists(), "its directory is deleted");
    let report = cluster.until(1, "mirrors of all homes", is_mirrored);
    assert!(report["nodes"].as_array().unwrap().iter().all(|node| node["node"] != 4), "{report:#}");
    let heir = host(&report, 4);
    assert!(heir != 4 && heir != 0, "{report:#}");
    cluster.ok(5, &["protect"]);
    // The home goes from one node to another, and is where it was after a stop.
    let to = if heir == 5 { 2 } else { 5 };
    let parts = while_written(&cluster, &object, parts, || {
        let said = cluster.ok(1, &["home", "move", "n4", "--to", &format!("n{to}")]);
        assert!(said.contains(&format!("host n{to}")), "{said}");
    });
    drop((object, store));
    cluster.place.ok(["cluster", "stop", &dir]);
    cluster.again();
    let report = cluster.until(2, "mirrors of all homes", is_mirrored);
    assert_eq!(host(&report, 4), to, "{report:#}");
    check(&open(&cluster, 5).container("runs").unwrap().object(ObjectId(1)), parts);
    assert!(cluster.status()["nodes"].as_array().unwrap().iter().all(|node| node["alive"] == true));
    assert!(cluster.ok(1, &["home", "list"]).contains(&format!("n{to}")));
    // Another node takes its place, under another name.
    assert!(cluster.place.ok(["cluster", "join", &dir]).contains("node n6"));
    cluster.ok(6, &["verify"]);
}

/// Both the node that leaves and the one that gets its home are killed on the way.
#[test]
fn a_leave_goes_on_when_daemons_are_killed() {
    let cluster = start(4);
    let dir = cluster.dir();
    let made = open(&cluster, 4).create_container("runs", &ContainerSpec::default()).unwrap();
    let object = made.create_object(Some(ObjectId(1)), None).unwrap();
    (0..2000).for_each(|number| object.write_at(number * PART, &content(number)).unwrap());
    drop((object, made));
    cluster.ok(4, &["protect"]);
    std::thread::scope(|scope| {
        let leaving = scope.spawn(|| cluster.place.run(["cluster", "leave", &dir, "n4", "--yes"]));
        for number in [4, 3, 2, 4] {
            std::thread::sleep(Duration::from_millis(350));
            cluster.try_signal(number, Signal::KILL);
            std::thread::sleep(Duration::from_millis(100));
            if number != 4 {
                cluster.ok(number, &["ha"]); // starts it again
            }
        }
        let said = leaving.join().unwrap();
        assert_eq!(said.code, 0, "{said:?}");
    });
    let report = cluster.until(1, "mirrors of all homes", is_mirrored);
    assert!(host(&report, 4) != 4, "{report:#}");
    check(&open(&cluster, 2).container("runs").unwrap().object(ObjectId(1)), 2000);
    cluster.ok(3, &["verify"]);
}

#[test]
fn a_node_that_is_to_leave_may_stay() {
    let cluster = start(4);
    let dir = cluster.dir();
    cluster.ok(4, &["mk", "runs"]);
    // Nothing moves while the node that is to have it hangs, so there is time to think better of it.
    let change = cluster.node(1);
    let change = change.to_str().unwrap();
    cluster.place.ok(["cluster", "change-node", change, "leave:4"]);
    assert!(cluster.place.ok(["cluster", "join", &dir, "n4"]).contains("node n4 takes part"));
    let is_back = |report: &Value| host(report, 4) == 4 && is_mirrored(report);
    let report = cluster.until(1, "its home on n4", is_back);
    assert!(report["nodes"].as_array().unwrap().iter().all(|node| node["leaving"] == false), "{report:#}");
    cluster.ok(4, &["stat", "runs"]);
    cluster.ok(4, &["protect"]);
}

#[test]
fn changes_that_would_lose_something_are_refused() {
    let cluster = start(3);
    let dir = cluster.dir();
    let refused = |args: &[&str], words: &[&str]| {
        let said = cluster.place.run(args);
        assert_ne!(said.code, 0, "{args:?}: {said:?}");
        for word in words {
            assert!(said.err.contains(word), "{args:?}: no `{word}` in {}", said.err);
        }
    };
    refused(&["cluster", "leave", &dir, "n2", "--yes"], &["n2", "keeps the register"]);
    refused(&["cluster", "leave", &dir, "n9", "--yes"], &["no such node"]);
    refused(&["cluster", "leave", &dir, "n3"], &["nobody to ask"]);
    refused(&["cluster", "join", &dir, "../n4"], &["no host has such a name"]);
    refused(&["cluster", "join", "/nonexistent"], &["no file nodes.json"]);
    std::fs::create_dir(cluster.place.path("cluster").join("n4")).unwrap();
    refused(&["cluster", "join", &dir], &["has none yet"]);
    std::fs::remove_dir(cluster.place.path("cluster").join("n4")).unwrap();
    cluster.refused(1, &["home", "move", "n2", "--to", "n3"], &["programs on", "n2"]);
    cluster.refused(1, &["home", "move", "n7", "--to", "n3"], &["no such home"]);
    cluster.refused(1, &["home", "move", "n2", "--to", "n7"], &["no such node"]);
    cluster.ok(1, &["home", "move", "n2", "--to", "2"]); // it is there
    assert_eq!(cluster.status()["nodes"].as_array().unwrap().len(), 3, "nothing was changed");
}

#[test]
fn without_mirrors_nodes_may_join_and_only_nodes_that_are_gone_may_leave() {
    let cluster = Cluster::start(2, &TIERS);
    let dir = cluster.dir();
    let said = cluster.place.ok(["--json", "cluster", "join", &dir]);
    assert_eq!(serde_json::from_str::<Value>(&said).unwrap()["home"], 3);
    cluster.ok(3, &["mk", "runs"]);
    assert!(cluster.ok(1, &["ls"]).contains("runs"));
    let said = cluster.place.run(["cluster", "leave", &dir, "n3", "--yes"]);
    assert!(said.code != 0 && said.err.contains("has none") && said.err.contains("--protect 1"), "{said:?}");
    cluster.ok(3, &["stat", "runs"]);
}
