//! Loads of nodes are shown, and copies of homes move from nodes with much to nodes with little while programs go on.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{ContainerSpec, Mode, Object, ObjectId, OpenOptions, Store};
use common::cluster::Cluster;
use serde_json::Value;

const TIERS: [&str; 4] =
    ["--tier", "name=memory,kind=memory,size=128MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
const PART: usize = 8000;
/// Bytes of a home that is worth a move.
const LARGE: usize = 40 << 20;

fn open(cluster: &Cluster, node: usize) -> Store {
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    Store::open_with(cluster.node(node), &options).unwrap()
}

fn home(report: &Value, home: u64) -> &Value {
    report["homes"].as_array().unwrap().iter().find(|it| it["home"] == home).unwrap()
}

fn is_mirrored(report: &Value) -> bool {
    let homes = report["homes"].as_array().unwrap();
    !homes.is_empty() && homes.iter().all(|home| !home["mirrors"].as_array().unwrap().is_empty())
}

fn mirror(report: &Value, of: u64) -> u64 {
    home(report, of)["mirrors"][0].as_u64().unwrap_or(0)
}

/// Bytes that copies of homes take on a node.
fn bytes(report: &Value, node: u64) -> u64 {
    let node = report["nodes"].as_array().unwrap().iter().find(|it| it["node"] == node).unwrap();
    node["load"]["memory_bytes"].as_u64().unwrap() + node["load"]["disk_bytes"].as_u64().unwrap()
}

fn content(number: u64) -> Vec<u8> {
    (0..PART as u64).map(|at| (at * 31 + number * 7) as u8).collect()
}

fn write(object: &Object, is_over: &AtomicBool) -> u64 {
    let mut number = 0;
    while !is_over.load(Ordering::SeqCst) {
        object.write_at(number * PART as u64, &content(number)).unwrap();
        number += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    number
}

/// Two homes that are mirrored on one node.
fn uneven(cluster: &Cluster, report: &Value) -> (u64, u64) {
    let pair = (1..=4).flat_map(|one| (1..=4).map(move |other| (one, other))).find(|(one, other)| {
        let (first, second) = (mirror(report, *one), mirror(report, *other));
        one != other && first == second
    });
    pair.unwrap_or_else(|| {
        // Each is mirrored by another one: a person makes it uneven.
        let (one, to) = (1, (1..=4).find(|node| *node != 1 && *node != mirror(report, 1)).unwrap());
        let from = mirror(report, one);
        let change = format!("move-mirror:{one}:{from}:{to}");
        cluster.place.ok(["cluster", "change-node", cluster.node(1).to_str().unwrap(), &change]);
        let report = cluster.until(1, "the mirror elsewhere", |report| mirror(report, one) == to);
        let other = (2..=4).find(|home| *home != to && mirror(&report, *home) == to);
        (one, other.unwrap_or_else(|| panic!("{report:#}")))
    })
}

/// Makes a home large.
fn large(cluster: &Cluster, node: u64) -> Object {
    let made = open(cluster, node as usize).create_container(&format!("runs-{node}"), &ContainerSpec::default());
    let object = made.unwrap().create_object(Some(ObjectId(1)), None).unwrap();
    object.write_at(0, &vec![7; LARGE]).unwrap();
    object
}

/// Has mirrors moved while a program writes to an object.
fn balanced_while_written(cluster: &Cluster, object: &Object, (one, other): (u64, u64)) -> Value {
    let is_over = AtomicBool::new(false);
    let parts = std::thread::scope(|scope| {
        let writing = scope.spawn(|| write(object, &is_over));
        let said = cluster.run(1, &["home", "balance"]);
        is_over.store(true, Ordering::SeqCst);
        assert!(said.code == 0 && said.out.contains("in place of"), "{said:?}");
        writing.join().unwrap()
    });
    let report = cluster.until(1, "mirrors of all homes", |report| {
        is_mirrored(report) && home(report, one)["moving"].is_null() && home(report, other)["moving"].is_null()
    });
    assert_ne!(mirror(&report, one), mirror(&report, other), "{report:#}");
    assert!(parts > 0);
    for number in 0..parts {
        let mut bytes = vec![0; PART];
        object.read_at(number * PART as u64, &mut bytes).unwrap();
        assert!(bytes == content(number), "part {number}");
    }
    report
}

#[test]
fn mirrors_move_to_nodes_with_less_while_programs_write() {
    let cluster = Cluster::start(4, &[&TIERS[..], &["--protect", "1"]].concat());
    let report = cluster.until(1, "mirrors of all homes", is_mirrored);
    assert!(cluster.ok(1, &["home", "balance"]).contains("nothing to move"), "nothing is large");
    let (one, other) = uneven(&cluster, &report);
    let objects = [one, other].map(|node| large(&cluster, node));
    let crowded = mirror(&cluster.report(1), one);
    let is_told =
        |report: &Value| bytes(report, crowded) >= 2 * LARGE as u64 && !report["moves"].as_u64().unwrap_or(0).eq(&0);
    let before = cluster.until(1, "loads of all nodes", is_told);
    let listed = cluster.ok(1, &["home", "list"]);
    assert!(listed.contains("memory") && listed.contains("written") && listed.contains("MiB"), "{listed}");
    let planned: Value = serde_json::from_str(&cluster.ok(1, &["--json", "home", "balance", "--dry-run"])).unwrap();
    let planned = &planned["moves"][0];
    assert_eq!((&planned["role"], &planned["from"]), (&"mirror".into(), &crowded.into()), "{planned}");
    assert!(planned["why"].as_str().unwrap().contains("for their copies of homes"), "{planned}");
    assert_eq!(mirror(&cluster.report(1), one), mirror(&before, one), "nothing was done");

    let report = balanced_while_written(&cluster, &objects[0], (one, other));
    // Nothing is left to do, and the former mirror has no copy any more.
    let again: Value = serde_json::from_str(&cluster.ok(2, &["--json", "home", "balance", "--dry-run"])).unwrap();
    assert_eq!(again["moves"], Value::Array(Vec::new()), "{again}");
    let moved = if mirror(&report, one) == crowded { other } else { one };
    let copies = || {
        let entries = std::fs::read_dir(cluster.node(crowded as usize)).unwrap().flatten();
        let names = entries.map(|entry| entry.file_name().into_string().unwrap());
        names.filter(|name| name.starts_with(&format!("copy-n{moved}"))).count()
    };
    cluster.until(1, "the former copy deleted", |_| copies() == 0);
    // The new mirror is one: it takes over.
    let (host, heir) = (moved as usize, mirror(&report, moved));
    cluster.ok(host, &["protect"]);
    cluster.kill(host);
    let asked = if host == 1 { 2 } else { 1 };
    cluster.until(asked, "the new mirror as host", |report| home(report, moved)["host"] == heir);
    let mut bytes = vec![0; LARGE - 1];
    let reader = open(&cluster, asked).container(&format!("runs-{moved}")).unwrap();
    assert_eq!(reader.object(ObjectId(1)).read_at(1, &mut bytes).unwrap(), LARGE - 1);
    cluster.again();
}
