//! Nodes that are to take a home over, and cannot open what they have of it.

mod common;

use std::fs;
use std::path::PathBuf;

use cenote::{ContainerSpec, Mode, ObjectId, OpenOptions, Store};
use common::cluster::{Cluster, host};
use serde_json::Value;

const HOME: usize = 2;

/// A cluster of so many nodes in which the loss of so many is survived, with an object in the home of the second one.
fn start<const NODES: usize>(protect: &str) -> Cluster {
    let tiers =
        ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
    let cluster = Cluster::start(NODES, &[&tiers[..], &["--protect", protect]].concat());
    let mirrored = |report: &Value| {
        let homes = report["homes"].as_array().unwrap();
        let count = |home: &Value| home["mirrors"].as_array().unwrap().len().to_string();
        homes.len() == NODES && homes.iter().all(|home| count(home) == protect)
    };
    cluster.until(1, "mirrors of all homes", mirrored);
    let store = open(&cluster, HOME);
    let made = store.create_container("runs", &ContainerSpec::default()).unwrap();
    made.create_object(Some(ObjectId(1)), None).unwrap().write_at(0, b"what was told").unwrap();
    cluster.ok(HOME, &["protect"]);
    cluster
}

fn open(cluster: &Cluster, number: usize) -> Store {
    Store::open_with(cluster.node(number), &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap()
}

/// The mirrors of the home.
fn mirrors(cluster: &Cluster) -> Vec<usize> {
    let report = cluster.report(1);
    let mirrors = report["homes"][HOME - 1]["mirrors"].as_array().unwrap();
    mirrors.iter().map(|node| node.as_u64().unwrap() as usize).collect()
}

/// The copy of the home on a node.
fn copy(cluster: &Cluster, number: usize) -> PathBuf {
    let named = |name: &str| cluster.node(number).join(format!("copy-n{HOME}{name}"));
    [named(""), named("-again")].into_iter().find(|dir| dir.join("copy-is-complete").exists()).expect("a complete copy")
}

/// A node other than the home's that can be asked.
fn witness(all: usize, but: usize) -> usize {
    (1..=all).find(|number| *number != HOME && *number != but).unwrap()
}

#[track_caller]
fn has_it(cluster: &Cluster, from: usize) {
    let mut bytes = [0; 13];
    open(cluster, from).container("runs").unwrap().object(ObjectId(1)).read_at(0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"what was told");
}

#[test]
fn who_cannot_open_a_home_says_why_and_tries_again() {
    let cluster = start::<3>("1");
    let [heir] = mirrors(&cluster)[..] else { panic!("one mirror") };
    let other = witness(3, heir);
    // Where the term is to be noted there is something else.
    let in_the_way = copy(&cluster, heir).join("term");
    fs::create_dir(&in_the_way).unwrap();
    cluster.kill(HOME);
    let said = |report: &Value| report["trouble"].as_str().unwrap_or_default().contains("cannot be opened here");
    let report = cluster.until(heir, "what is in the way", said);
    let trouble = report["trouble"].as_str().unwrap();
    assert!(trouble.contains(&format!("home n{HOME}")) && trouble.contains("term"), "{trouble}");
    assert!(cluster.ok(heir, &["ha"]).contains("cannot be opened here"));
    fs::remove_dir(&in_the_way).unwrap();
    cluster.until(heir, "a home that is open", |report| report["trouble"] == "");
    has_it(&cluster, other);
}

#[test]
fn another_mirror_takes_over_from_one_whose_copy_is_none() {
    let cluster = start::<5>("2");
    let both = mirrors(&cluster);
    // The one that becomes host: both are kept by the same rule, so it is known once it has tried.
    let copies: Vec<PathBuf> = both.iter().map(|number| copy(&cluster, *number)).collect();
    let heir = both[0].min(both[1]);
    let second = both[0].max(both[1]);
    let at = both.iter().position(|number| *number == heir).unwrap();
    fs::remove_file(copies[at].join("copy-is-complete")).unwrap();
    cluster.kill(HOME);
    cluster.until(second, "the other mirror as host", |report| host(report, HOME) == second as u64);
    has_it(&cluster, second);
}
