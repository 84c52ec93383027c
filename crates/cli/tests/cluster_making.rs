//! Clusters that cannot be made, and what lies where their nodes should: nothing of the former stays, nothing of the latter goes.

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use common::TestDir;
use common::cluster::Cluster;

const MEMORY: &str = "name=memory,kind=memory,size=48MiB";
const DISK: &str = "name=disk,kind=directory,path=disk,size=64MiB";

fn text(place: &TestDir, name: &str) -> String {
    place.path(name).to_str().unwrap().to_owned()
}

#[track_caller]
fn refused(place: &TestDir, args: &[&str], words: &[&str]) {
    let said = place.run(args);
    assert_ne!(said.code, 0, "{args:?}: {said:?}");
    for word in words {
        assert!(said.err.contains(word), "{args:?}: no `{word}` in {}", said.err);
    }
    // What a node's command says is said once, and not as a failure of the node.
    assert!(!said.err.contains("I/O error") && said.err.matches("cenote: ").count() == 1, "{}", said.err);
}

#[test]
fn what_could_not_be_made_leaves_nothing_behind() {
    let place = TestDir::new();
    let dir = text(&place, "c");
    let start = |tier: &str, words: &[&str]| {
        let args = ["cluster", "start", &dir, "--local", "3", "--tier", MEMORY, "--tier", tier];
        refused(&place, &args, words);
        assert!(!place.path("c").exists(), "after {tier}");
    };
    // Known before anything is made.
    start("name=wide,kind=raid,path=nodes,layout=4+2,size=64MiB", &["`wide`", "4+2 needs 6 nodes", "there are 3"]);
    start("name=wide,kind=raid,path=@n1:@n2,layout=2+1,size=64MiB", &["`wide`", "2+1 needs 3 nodes", "there are 2"]);
    start("name=off,kind=raid,path=@n1:@n9,layout=mirror=2,size=64MiB", &["`n9`", "`off`", "n1, n2, n3"]);
    // Known by the nodes alone.
    start("name=far,kind=file,path=/nowhere/at/all,size=64MiB", &["node `n1`", "/nowhere/at/all", "not found"]);
    place.ok(["cluster", "start", &dir, "--local", "3", "--tier", MEMORY, "--tier", DISK]);
    place.ok(["cluster", "destroy", &dir, "--yes"]);
    assert!(!place.path("c").exists());
}

#[test]
fn stores_in_the_place_of_nodes_are_not_touched() {
    let place = TestDir::new();
    let (dir, own) = (text(&place, "c"), text(&place, "c/n2"));
    fs::create_dir(place.path("c")).unwrap();
    place.ok(["init", &own, "--tier", MEMORY, "--tier", DISK]);
    place.ok(["-s", &own, "mk", "mine"]);
    let before = names(&place, "c/n2");
    refused(&place, &["cluster", "start", &dir, "--local", "3"], &["node `n2`", &own, "a store by itself"]);
    assert_eq!(names(&place, "c"), ["n2"]);
    assert_eq!(names(&place, "c/n2"), before);
    assert!(place.ok(["-s", &own, "ls"]).contains("mine"));
    place.ok(["-s", &own, "stop"]);
    // The cluster is made elsewhere, and the store comes there later.
    let (moved, other) = (place.path("mine"), text(&place, "c"));
    fs::rename(place.path("c/n2"), &moved).unwrap();
    place.ok(["cluster", "start", &other, "--local", "3", "--tier", MEMORY, "--tier", DISK]);
    place.ok(["cluster", "stop", &other]);
    place.ok(["destroy", &own, "--yes"]);
    fs::rename(&moved, place.path("c/n2")).unwrap();
    let said = place.ok(["cluster", "destroy", &other, "--yes"]);
    assert!(said.contains("left: ") && said.contains("a store by itself"), "{said}");
    assert_eq!(names(&place, "c"), ["n2"]);
    assert!(place.ok(["-s", &own, "ls"]).contains("mine"));
    place.ok(["-s", &own, "stop"]);
    place.ok(["destroy", &own, "--yes"]);
}

#[test]
fn a_node_of_another_cluster_stays_that() {
    let cluster = Cluster::start(2, &["--tier", MEMORY, "--tier", DISK]);
    cluster.ok(2, &["mk", "theirs"]);
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    let dir = text(&cluster.place, "other");
    fs::create_dir(&dir).unwrap();
    fs::rename(cluster.node(2), cluster.place.path("other/n2")).unwrap();
    let start = ["cluster", "start", &dir, "--local", "2"];
    refused(&cluster.place, &start, &["node `n2`", "a node of another cluster"]);
    assert_eq!(names(&cluster.place, "other"), ["n2"]);
    fs::rename(cluster.place.path("other/n2"), cluster.node(2)).unwrap();
    cluster.again();
    assert!(cluster.ok(1, &["ls"]).contains("theirs"));
}

#[test]
fn a_cluster_without_one_of_its_nodes_can_be_destroyed() {
    let place = TestDir::new();
    let dir = text(&place, "c");
    place.ok(["cluster", "start", &dir, "--local", "2", "--tier", MEMORY, "--tier", DISK]);
    place.ok(["cluster", "stop", &dir]);
    place.ok(["destroy", &text(&place, "c/n2"), "--yes"]);
    place.ok(["cluster", "destroy", &dir, "--yes"]);
    assert!(!place.path("c").exists());
}

#[test]
fn hosts_that_cannot_be_reached_hold_up_neither_the_next_start_nor_the_end() {
    let place = TestDir::new();
    let dir = text(&place, "c");
    // Two addresses of this host; `reach` is what would be `ssh`.
    let reach = place.path("reach");
    let script = |first: &str| fs::write(&reach, format!("#!/bin/sh\n{first}\nshift\nexec \"$@\"\n")).unwrap();
    script("exit 7");
    fs::set_permissions(&reach, fs::Permissions::from_mode(0o755)).unwrap();
    let launcher = format!("{} {{host}}", reach.display());
    let port = free_port().to_string();
    let start = ["cluster", "start", &dir, "--hosts", "127.0.0.8,127.0.0.9", "--launcher", &launcher, "--port", &port];
    let start = [&start[..], &["--tier", MEMORY, "--tier", DISK]].concat();
    let said = place.run(&start);
    let words = ["node `127.0.0.8`", "status: 7", "may be left"];
    assert!(said.code != 0 && words.iter().all(|word| said.err.contains(word)), "{said:?}");
    assert!(!place.path("c").exists());
    script("");
    place.ok(&start);
    // The second host is lost.
    place.ok(["cluster", "stop", &dir]);
    script("[ \"$1\" != 127.0.0.9 ] || exit 7");
    let destroy = ["cluster", "destroy", &dir, "--yes"];
    let said = place.run(destroy);
    assert!(said.code != 0 && said.err.contains("127.0.0.9") && said.err.contains("--force"), "{said:?}");
    let said = place.ok([&destroy[..], &["--force"]].concat());
    assert!(said.contains("left: node `127.0.0.9`") && said.contains("destroy-node"), "{said}");
    assert_eq!(names(&place, "c"), ["127.0.0.9"]);
    place.ok(["destroy", &text(&place, "c/127.0.0.9"), "--yes"]);
}

/// A port on which nobody listens at any address of this host, and which the system gives to nobody.
fn free_port() -> u16 {
    let begin = 10_000 + (std::process::id() % 10_000) as u16;
    (begin..begin + 1000).find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok()).unwrap()
}

/// The names in a directory, but for those that come and go with whoever opens a store.
fn names(place: &TestDir, dir: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(place.path(dir))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| !name.starts_with("journal-") && !name.starts_with("checkpoint-"))
        .collect();
    names.sort();
    names
}
