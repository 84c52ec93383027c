//! A store over four nodes on this host: what one node writes, all others read; daemons that are killed; bad input.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::hosts::{Cut, Hosts};
use common::{TestDir, said};

const NODES: usize = 4;

/// A cluster of n1 to n4.
#[track_caller]
fn start() -> Cluster {
    let tiers = ["name=memory,kind=memory,size=48MiB", "name=disk,kind=directory,path=disk,size=256MiB"];
    Cluster::start(NODES, &["--tier", tiers[0], "--tier", tiers[1]])
}

#[test]
fn what_one_node_writes_all_others_read() {
    let cluster = start();
    let (file, bytes) = cluster.place.file("data", 3_500_000);
    let file = file.to_str().unwrap();
    for home in 1..=NODES {
        let container = format!("of-n{home}");
        cluster.ok(home, &["mk", &container]);
        // Written by the node after it, read by all.
        let name = cluster.ok(home % NODES + 1, &["put", file, &container]);
        for reader in 1..=NODES {
            let copy = cluster.place.path(&format!("copy-{home}-{reader}"));
            cluster.ok(reader, &["get", &name, copy.to_str().unwrap()]);
            assert!(fs::read(&copy).unwrap() == bytes, "the copy of {name} on n{reader} differs");
        }
    }
    for reader in 1..=NODES {
        let list = cluster.ok(reader, &["ls"]);
        for home in 1..=NODES {
            assert!(list.contains(&format!("of-n{home}")), "n{reader}: {list}");
        }
        assert!(!list.contains("cenote-labels"), "{list}");
    }
    let status = cluster.status();
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), NODES);
    assert!(nodes.iter().all(|node| node["alive"] == true), "{status}");
}

#[test]
fn labels_are_one_name_space() {
    let cluster = start();
    cluster.ok(1, &["mk", "runs"]);
    for other in 1..=NODES {
        cluster.refused(other, &["mk", "runs"], &["runs"]);
    }
    cluster.ok(3, &["rename", "runs", "walks"]);
    for other in 1..=NODES {
        let list = cluster.ok(other, &["ls"]);
        assert!(list.contains("walks") && !list.contains("runs"), "{list}");
    }
    cluster.ok(2, &["mk", "runs"]);
    cluster.refused(4, &["rename", "walks", "runs"], &["runs"]);
    cluster.ok(4, &["rm", "-r", "walks"]);
    for other in 1..=NODES {
        cluster.refused(other, &["ls", "walks"], &["walks"]);
    }
    cluster.ok(4, &["mk", "walks"]);
    assert!(cluster.ok(1, &["ls"]).contains("walks"));
}

#[test]
fn a_cluster_starts_again_with_everything() {
    let cluster = start();
    let (file, bytes) = cluster.place.file("data", 200_000);
    cluster.ok(2, &["mk", "kept"]);
    let name = cluster.ok(4, &["put", file.to_str().unwrap(), "kept"]);
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    assert!(cluster.status()["nodes"].as_array().unwrap().iter().all(|node| node["alive"] == false));
    cluster.again();
    let copy = cluster.place.path("copy");
    cluster.ok(1, &["get", &name, copy.to_str().unwrap()]);
    assert!(fs::read(&copy).unwrap() == bytes);
}

#[test]
fn a_killed_daemon_comes_again_and_nothing_acknowledged_is_lost() {
    let cluster = start();
    let (file, bytes) = cluster.place.file("data", 300_000);
    cluster.ok(2, &["mk", "kept"]);
    let mut names = Vec::new();
    for round in 0..6 {
        names.push(cluster.ok(1 + round % NODES, &["put", file.to_str().unwrap(), "kept"]));
        cluster.kill([2, 1, 3][round % 3]);
        cluster.again();
    }
    for (at, name) in names.iter().enumerate() {
        let copy = cluster.place.path(&format!("copy-{at}"));
        cluster.ok(3, &["get", name, copy.to_str().unwrap()]);
        assert!(fs::read(&copy).unwrap() == bytes, "{name}");
    }
}

#[test]
fn a_node_that_is_away_is_named_and_the_others_go_on() {
    let cluster = start();
    cluster.ok(3, &["mk", "there"]);
    cluster.ok(2, &["mk", "here"]);
    cluster.kill(3);
    let begin = Instant::now();
    cluster.refused(2, &["ls", "there"], &["n3"]);
    assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", begin.elapsed());
    let (file, _) = cluster.place.file("data", 1000);
    cluster.ok(2, &["put", file.to_str().unwrap(), "here"]);
    let status = cluster.status();
    let alive: Vec<bool> =
        status["nodes"].as_array().unwrap().iter().map(|node| node["alive"].as_bool().unwrap()).collect();
    assert_eq!(alive, [true, true, false, true], "{status}");
    cluster.again();
    cluster.ok(2, &["ls", "there"]);
}

#[test]
fn bad_input_is_named() {
    let cluster = start();
    let dir = cluster.dir();
    let dir = dir.as_str();
    let refused = |args: &[&str], words: &[&str]| {
        let said = cluster.place.run(args);
        assert_ne!(said.code, 0, "{args:?}: {said:?}");
        for word in words {
            assert!(said.err.contains(word), "{args:?}: no `{word}` in {}", said.err);
        }
    };
    refused(&["cluster", "start", dir, "--local", "2"], &["made already"]);
    let other = cluster.place.path("other");
    let other = other.to_str().unwrap();
    refused(&["cluster", "start", other, "--hosts", "a,b,a"], &["`a`", "twice"]);
    refused(&["cluster", "start", other], &["no nodes are named", "--hosts"]);
    refused(&["cluster", "start", other, "--hosts", "../a"], &["no host has such a name"]);
    refused(&["cluster", "status", other], &["nodes.json"]);
    // A node in this process would be two writers.
    cluster.refused(1, &["--mode", "in-process", "ls"], &["cluster"]);
    // Another key: the node is refused, by name.
    cluster.place.ok(["cluster", "stop", dir]);
    let key = cluster.node(2).join("cluster.key");
    let right = fs::read_to_string(&key).unwrap();
    fs::write(&key, "0".repeat(64)).unwrap();
    cluster.again();
    cluster.refused(1, &["ls", "n2"], &[]);
    cluster.refused(2, &["ls"], &["key"]);
    cluster.place.ok(["cluster", "stop", dir]);
    fs::write(&key, right).unwrap();
    // Members that contradict each other.
    let members = cluster.node(3).join("cluster");
    let right = fs::read_to_string(&members).unwrap();
    fs::write(&members, right.replace("home = 3", "home = 9")).unwrap();
    let served = said(cluster.place.command(["serve"]).env("CENOTE_STORE", cluster.node(3)).stdin(Stdio::null()));
    assert!(served.code != 0 && served.err.contains("home"), "{served:?}");
    fs::write(&members, right).unwrap();
    cluster.again();
    cluster.ok(2, &["ls"]);
}

#[test]
fn a_cut_link_is_named_and_nothing_is_lost_when_it_is_mended() {
    let Some(hosts) = Hosts::new(2) else { return println!("skipped: no network namespaces can be made here") };
    let place = TestDir::new();
    let dir = place.path("cluster");
    let dir = dir.to_str().unwrap();
    let list = hosts.names.join(",");
    let tier = "name=memory,kind=memory,size=48MiB";
    place.ok(["cluster", "start", dir, "--hosts", &list, "--launcher", "ip netns exec {host}", "--tier", tier]);
    let at = |host: usize, args: &[&str]| {
        let node = PathBuf::from(dir).join(&hosts.names[host]);
        said(place.command(args).env("CENOTE_STORE", node).stdin(Stdio::null()))
    };
    let (file, bytes) = place.file("data", 2_000_000);
    assert_eq!(at(0, &["mk", "far"]).code, 0);
    let name = at(1, &["put", file.to_str().unwrap(), "far"]);
    assert_eq!(name.code, 0, "{name:?}");
    hosts.cut(0, Cut::Down);
    let begin = Instant::now();
    let cut = at(1, &["ls", "far"]);
    assert!(cut.code != 0 && cut.err.contains(&hosts.names[0]), "{cut:?}");
    assert!(begin.elapsed() < Duration::from_secs(45), "{:?}", begin.elapsed());
    hosts.mend(0, Cut::Down);
    let copy = place.path("copy");
    let got = at(1, &["get", name.out.trim(), copy.to_str().unwrap()]);
    assert_eq!(got.code, 0, "{got:?}");
    assert!(fs::read(&copy).unwrap() == bytes);
    place.ok(["cluster", "destroy", dir, "--yes"]);
}
