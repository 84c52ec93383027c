//! A node of a cluster is gone for good, with what it alone had: a person gives it up, and the others go on.

mod common;

use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Mode, Object, ObjectId, OpenOptions, Store};
use cenote_server::daemon::read_report;
use common::cluster::Cluster;
use rustix::process::Signal;
use serde_json::Value;

const TIERS: [&str; 4] =
    ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// Calls that would wait for a node that is away take 15 s and more.
const AT_ONCE: Duration = Duration::from_secs(8);

fn open(cluster: &Cluster, node: usize) -> Store {
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    Store::open_with(cluster.node(node), &options).unwrap()
}

fn label(node: usize) -> String {
    format!("on n{node}")
}

/// A container of a node's home, with an object.
fn make(cluster: &Cluster, node: usize) {
    let container = open(cluster, node).create_container(&label(node), &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), None).unwrap();
    object.write_at(0, label(node).as_bytes()).unwrap();
}

fn read(object: &Object, node: usize) -> cenote::Result<()> {
    let mut bytes = vec![0; label(node).len()];
    object.read_at(0, &mut bytes)?;
    assert_eq!(bytes, label(node).as_bytes());
    Ok(())
}

/// What `cluster give-up` says, once nobody takes the node for alive any more.
#[track_caller]
fn give_up(cluster: &Cluster, node: usize, more: &[&str]) -> String {
    let (dir, name, begin) = (cluster.dir(), format!("n{node}"), Instant::now());
    loop {
        let said = cluster.place.run([&["cluster", "give-up", &dir, &name], more].concat());
        if said.code == 0 {
            return said.out;
        }
        assert!(said.err.contains("it lives") && begin.elapsed() < PATIENCE, "{said:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Why a node refuses a change of the cluster.
#[track_caller]
fn asked(cluster: &Cluster, node: usize, change: &str) -> String {
    let own = cluster.node(node);
    let said = cluster.place.ok(["cluster", "change-node", own.to_str().unwrap(), change]);
    read_report(said.trim()).expect("it is refused").to_string()
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in {text}");
    }
}

fn is_frozen(report: &Value) -> bool {
    report["decided"].as_array().unwrap().iter().any(|it| it["kind"] == "freeze")
}

fn state(report: &Value, node: usize) -> String {
    let mut nodes = report["nodes"].as_array().unwrap().iter();
    nodes.find(|it| it["node"] == node).map_or("none".into(), |it| it["state"].as_str().unwrap().to_owned())
}

/// The host of each home that is left, and its mirrors.
fn homes(report: &Value) -> Vec<(usize, usize, Vec<usize>)> {
    let number = |value: &Value| value.as_u64().unwrap() as usize;
    let there = report["homes"].as_array().unwrap().iter().filter(|home| home["lost"] == false);
    let mirrors = |home: &Value| home["mirrors"].as_array().unwrap().iter().map(number).collect();
    there.map(|home| (number(&home["home"]), number(&home["host"]), mirrors(home))).collect()
}

#[test]
fn a_cluster_without_mirrors_goes_on_without_a_node_that_is_given_up() {
    let cluster = Cluster::start(3, &TIERS);
    let dir = cluster.dir();
    cluster.until(1, "a view", |report| state(report, 3) == "live");
    (1..=3).for_each(|node| make(&cluster, node));
    let program = open(&cluster, 1);
    let object = program.container(&label(3)).unwrap().object(ObjectId(1));
    read(&object, 3).unwrap();
    let bystander = open(&cluster, 2);
    what_need_not_be_given_up_is_refused(&cluster);

    cluster.kill(3);
    let said = give_up(&cluster, 3, &[]);
    has(&said, &["Home n3 would be LOST", "Its containers (1): on n3", "Nothing was changed", "--yes"]);
    let said: Value = serde_json::from_str(&give_up(&cluster, 3, &["--json"])).unwrap();
    assert_eq!(said["homes"][0]["containers"], serde_json::json!([label(3)]), "{said:#}");
    assert_eq!((&said["given_up"], &said["homes"][0]["fate"]), (&Value::from(false), &Value::from("lost")));
    cluster.until(1, "that all wait for n3", is_frozen);
    // A command that ends between its steps: the register has the change, the files do not. Once more does the rest.
    let own = cluster.node(1);
    assert_eq!(cluster.place.ok(["cluster", "change-node", own.to_str().unwrap(), "give-up:3"]).trim(), "");
    cluster.until(2, "that n3 is given up", |report| state(report, 3) == "given up");
    cluster.refused_here(&["cluster", "start", &dir], &["n3", "was given up"]);
    let said = give_up(&cluster, 3, &["--yes"]);
    has(&said, &["node n3 is given up", "Home n3 is LOST", "Its containers (1): on n3", "cenote cluster join"]);
    for node in [1, 2] {
        cluster.until(node, "that n3 is given up", |report| state(report, 3) == "given up" && !is_frozen(report));
    }
    cluster.refused_here(&["cluster", "give-up", &dir, "n3", "--yes"], &["n3", "was given up"]);
    has(&cluster.ok(1, &["home", "list"]), &["lost with n3"]);

    what_was_lost_fails_at_once_and_the_rest_goes_on(&cluster, &program, &object, &bystander);
    it_is_refused_when_it_comes_back(&cluster);
    let said = cluster.place.ok(["cluster", "join", &dir]);
    has(&said, &["node n4 takes part"]);
    make(&cluster, 4);
    drop((object, program, bystander));
    cluster.place.ok(["cluster", "stop", &dir]);
    cluster.again();
    let status = cluster.status();
    let names: Vec<&str> = status["nodes"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["n1", "n2", "n4"]);
    assert!(status["nodes"].as_array().unwrap().iter().all(|node| node["alive"] == true), "{status:#}");
    read(&open(&cluster, 2).container(&label(4)).unwrap().object(ObjectId(1)), 4).unwrap();
    assert_eq!(state(&cluster.report(4), 3), "given up");
}

fn what_need_not_be_given_up_is_refused(cluster: &Cluster) {
    let dir = cluster.dir();
    for (node, words) in [("n3", &["n3", "it lives"][..]), ("n1", &["n1", "it lives"]), ("n9", &["no such node"])] {
        cluster.refused_here(&["cluster", "give-up", &dir, node, "--yes"], words);
    }
    // No command asks a node about itself.
    has(&asked(cluster, 1, "give-up:1"), &["it is not gone"]);
    assert!((1..=3).all(|node| state(&cluster.report(1), node) == "live"));
}

fn what_was_lost_fails_at_once_and_the_rest_goes_on(
    cluster: &Cluster,
    program: &Store,
    object: &Object,
    bystander: &Store,
) {
    let begin = Instant::now();
    let at_once = |what: &str| assert!(begin.elapsed() < AT_ONCE, "{what}: {:?}", begin.elapsed());
    // A program that has it open, and one that never used it.
    let error = read(object, 3).unwrap_err();
    has(&error.to_string(), &["home n3", "node `n3`", "given up"]);
    has(&object.write_at(0, b"x").unwrap_err().to_string(), &["home n3"]);
    assert!(program.flush().is_err(), "what it wrote there may be lost");
    let error = bystander.container(&label(3)).unwrap_err();
    has(&error.to_string(), &["container `on n3`", "home n3", "node `n3`", "given up", "cenote rm"]);
    for store in [program, bystander] {
        read(&store.container(&label(2)).unwrap().object(ObjectId(1)), 2).unwrap();
        let labels: Vec<String> = store.containers("").unwrap().into_iter().map(|info| info.label).collect();
        assert_eq!(labels, [label(1), label(2)]);
        assert_eq!(store.lost_containers("").unwrap().len(), 1);
        store.stats().unwrap();
    }
    bystander.flush().unwrap();
    at_once("programs that were there before");
    has(&cluster.ok(2, &["ls"]), &["lost with a node that was given up: on n3", "cenote rm -r"]);
    let listed: Vec<Value> = serde_json::from_str(&cluster.ok(1, &["--json", "ls"])).unwrap();
    let lost: Vec<&Value> = listed.iter().filter(|it| it["lost"] == true).map(|it| &it["label"]).collect();
    assert_eq!((listed.len(), lost), (3, vec![&Value::from(label(3))]));
    cluster.refused(1, &["stat", &label(3)], &["on n3", "given up"]);
    for command in [&["tiers"][..], &["flush"], &["df"], &["verify"]] {
        cluster.ok(1, command);
    }
    at_once("commands");
    // Its name is taken until it is deleted.
    cluster.refused(2, &["mk", &label(3)], &["taken"]);
    cluster.refused(2, &["rm", &label(3)], &["add -r"]);
    cluster.ok(2, &["rm", "-r", &label(3)]);
    assert!(!cluster.ok(1, &["ls"]).contains("lost"));
    cluster.ok(2, &["mk", &label(3)]);
    cluster.ok(1, &["stat", &label(3)]);
    assert!(bystander.container(&label(3)).unwrap().info().is_ok());
    bystander.delete_container(&label(3)).unwrap();
}

fn it_is_refused_when_it_comes_back(cluster: &Cluster) {
    let words = ["node `n3`", "it was given up", "cenote destroy", "cenote cluster join"];
    cluster.refused(3, &["ls"], &words);
    cluster.refused(3, &["put", "/etc/hostname", "on n3/1"], &words);
    // It has noted that itself by now.
    let note = std::fs::read_to_string(cluster.node(3).join("cluster.node")).unwrap();
    has(&note, &["given_up = "]);
    assert_eq!(state(&cluster.report(1), 3), "given up");
    let dir = cluster.node(3);
    cluster.place.ok(["destroy", dir.to_str().unwrap(), "--yes"]);
    assert!(!dir.exists());
}

/// It was not dead, but hung.
#[test]
fn a_daemon_whose_node_was_given_up_ends_when_it_learns_that() {
    let cluster = Cluster::start(3, &TIERS);
    cluster.until(1, "a view", |report| state(report, 2) == "live");
    make(&cluster, 2);
    let program = open(&cluster, 2);
    let object = program.container(&label(2)).unwrap().object(ObjectId(1));
    read(&object, 2).unwrap();
    cluster.signal(2, Signal::STOP);
    has(&give_up(&cluster, 2, &["--yes"]), &["node n2 is given up"]);
    cluster.signal(2, Signal::CONT);
    let begin = Instant::now();
    let error = loop {
        match object.write_at(0, b"x").and_then(|()| program.flush()) {
            Err(error) => break error,
            Ok(()) => assert!(begin.elapsed() < PATIENCE, "it goes on"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    has(&error.to_string(), &["given up"]);
    assert!(cenote_server::holder(&cluster.node(2)).is_none(), "its daemon runs");
    drop((object, program));
    cluster.refused(2, &["ls"], &["it was given up"]);
    cluster.place.ok(["destroy", cluster.node(2).to_str().unwrap(), "--yes"]);
    cluster.ok(3, &["mk", "made afterwards"]);
}

#[test]
fn host_and_mirror_are_given_up_one_after_the_other() {
    const NODES: usize = 5;
    let cluster = Cluster::start(NODES, &[&TIERS[..], &["--protect", "1"]].concat());
    let is_mirrored = |report: &Value| homes(report).iter().all(|(_, _, mirrors)| !mirrors.is_empty());
    let report = cluster.until(1, "mirrors of all homes", |report| homes(report).len() == NODES && is_mirrored(report));
    (1..=NODES).for_each(|node| make(&cluster, node));
    (1..=NODES).for_each(|node| drop(cluster.ok(node, &["protect"])));
    // The host keeps no part of the register, and the mirror may: two of three parts are left.
    let all = homes(&report);
    let mirror = |home: usize| all[home - 1].2[0];
    let pair = (4..=NODES).map(|host| (host, mirror(host))).find(|(host, by)| mirror(*by) != *host);
    let (host, by) = pair.unwrap_or_else(|| panic!("no pair of nodes fits: {all:?}"));
    let other = (1..=NODES).find(|node| *node != host && *node != by).unwrap();
    println!("n{host} and its mirror n{by} are lost: {all:?}");
    cluster.signal(host, Signal::KILL);
    cluster.signal(by, Signal::KILL);
    let report = cluster.until(other, "that all wait for them", is_frozen);
    // Whoever was missed first may be excluded already: then the other one has the last copy.
    let (_, at, mirrors) = homes(&report)[host - 1].clone();
    println!("home n{host} is on n{at}, with a mirror on {mirrors:?}");
    let (first, second) = if at == by { (host, by) } else { (at, by) };
    let said = give_up(&cluster, first, &[]);
    let lost = format!("Home n{host} would be LOST");
    if mirrors == [by] {
        has(&said, &[&format!("Home n{host} goes on"), &format!("n{by} (in doubt)")]);
        // The mirror may come back, and has everything.
        give_up(&cluster, first, &["--yes"]);
        let waits = |report: &Value| state(report, host) == "given up" && state(report, by) == "in doubt";
        let report = cluster.until(other, "that they wait for the mirror", |report| waits(report) && is_frozen(report));
        assert_eq!(homes(&report).len(), NODES, "{report:#}");
    } else {
        assert_eq!(said.contains(&lost), at == host, "{said}");
        give_up(&cluster, first, &["--yes"]);
    }
    let said = give_up(&cluster, second, &[]);
    assert_eq!(said.contains(&lost), at == by || mirrors == [by], "{said}");
    give_up(&cluster, second, &["--yes"]);
    let serve = |report: &Value| {
        let left = homes(report);
        left.len() == NODES - 1 && left.iter().all(|(_, at, _)| *at != host && *at != by)
    };
    let report = cluster.until(other, "that other homes have hosts", |report| serve(report) && is_mirrored(report));
    assert!(!is_frozen(&report), "{report:#}");
    let store = open(&cluster, other);
    for node in (1..=NODES).filter(|node| *node != host) {
        read(&store.container(&label(node)).unwrap().object(ObjectId(1)), node).unwrap();
    }
    has(&store.container(&label(host)).unwrap_err().to_string(), &["given up"]);
    drop(store);
    cluster.ok(other, &["protect"]);
    for node in [host, by] {
        cluster.refused(node, &["ls"], &["it was given up"]);
        cluster.place.ok(["destroy", cluster.node(node).to_str().unwrap(), "--yes"]);
    }
}

/// It has a part of the register and the names of all containers, of which there is a copy.
#[test]
fn the_first_node_may_be_given_up_if_its_home_has_a_mirror() {
    let cluster = Cluster::start(3, &[&TIERS[..], &["--protect", "1"]].concat());
    let dir = cluster.dir();
    let is_mirrored = |report: &Value| homes(report).iter().all(|(_, at, mirrors)| *at != 1 && !mirrors.is_empty());
    cluster.until(1, "mirrors", |report| homes(report).iter().all(|(_, _, mirrors)| !mirrors.is_empty()));
    make(&cluster, 1);
    cluster.ok(1, &["protect"]);
    cluster.kill(1);
    cluster.until(2, "that another node has its home", is_mirrored);
    let said = give_up(&cluster, 1, &["--yes"]);
    has(&said, &["node n1 is given up", "No home is lost", "one of 3 nodes", "2 are left, of which 0 may be lost"]);
    read(&open(&cluster, 3).container(&label(1)).unwrap().object(ObjectId(1)), 1).unwrap();
    cluster.refused(1, &["ls"], &["it was given up"]);
    cluster.place.ok(["destroy", cluster.node(1).to_str().unwrap(), "--yes"]);
    assert!(cluster.place.ok(["cluster", "join", &dir]).contains("node n4"));
    make(&cluster, 4);
    cluster.place.ok(["cluster", "stop", &dir]);
    cluster.again();
    let report = cluster.until(4, "mirrors", is_mirrored);
    assert_eq!((homes(&report).len(), state(&report, 1)), (4, "given up".into()), "{report:#}");
    read(&open(&cluster, 2).container(&label(1)).unwrap().object(ObjectId(1)), 1).unwrap();
    assert_eq!(cluster.status()["nodes"].as_array().unwrap().len(), 3);
}

#[test]
fn what_would_leave_no_cluster_is_refused() {
    // The register can do without n1, the names of all containers cannot.
    let cluster = Cluster::start(3, &[&TIERS[..], &["--register", "kind=nodes"]].concat());
    let dir = cluster.dir();
    cluster.until(2, "a view", |report| state(report, 1) == "live");
    make(&cluster, 2);
    cluster.kill(1);
    let refused = |node: &str, word: &str| {
        let begin = Instant::now();
        loop {
            let said = cluster.place.run(["cluster", "give-up", &dir, node, "--yes"]);
            assert!(said.code != 0 && begin.elapsed() < PATIENCE, "no `{word}`: {said:?}");
            if said.err.contains(word) {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    refused("n1", "the names of all containers");
    // Without n2 there is no register.
    cluster.again();
    cluster.signal(1, Signal::STOP);
    cluster.kill(3);
    std::thread::sleep(Duration::from_secs(4));
    has(&asked(&cluster, 2, "give-up:3"), &["the register of the cluster", "more than half"]);
    cluster.signal(1, Signal::CONT);
    cluster.again();
    let all = |report: &Value| (1..=3).all(|node| state(report, node) == "live");
    cluster.until(2, "that all are there", all);
    read(&open(&cluster, 3).container(&label(2)).unwrap().object(ObjectId(1)), 2).unwrap();
}
