//! A cluster whose homes lie in a pool of a real Ceph cluster: any node takes over those of a lost one, and gives them back.
//! Skipped, with the reason, where Ceph is not installed.

mod common;

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, Mode, Object, ObjectId, OpenOptions, Store};
use cenote_rados::cluster::{Cluster as Ceph, cluster as ceph};
use common::TestDir;
use common::cluster::Cluster;
use rustix::process::Signal;
use serde_json::Value;

const NODES: usize = 3;
const PART: usize = 5000;
/// A home is served again so long after its node was excluded.
const SERVED_AGAIN: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_mins(1);

/// `rados:POOL/NAME` and how to get there, as for `--on`.
fn place(ceph: &Ceph, pool: &str, name: &str, user: &str) -> String {
    format!("rados:{pool}/{name},user={user},conf={}", ceph.conf)
}

/// Starts nodes whose homes are in the pool `data` under this name.
#[track_caller]
fn start(ceph: &Ceph, name: &str, nodes: usize, more: &[&str]) -> Cluster {
    let (on, tier) = (place(ceph, "data", name, "cenote"), ceph.tier("pool", &format!("data/{name}-tier"), "cenote"));
    let options = ["--on", &on, "--tier", "name=memory,kind=memory,size=32MiB", "--tier", &tier];
    let cluster = Cluster::start(nodes, &[&options[..], more].concat());
    cluster.until(1, "that all nodes take part", |report| report["nodes"].as_array().unwrap().len() == nodes);
    cluster
}

/// Objects of the pool with this in their namespace.
fn left(ceph: &Ceph, name: &str) -> Vec<String> {
    let listed = Command::new("rados").args(["--conf", &ceph.conf, "-p", "data", "ls", "--all"]).output().unwrap();
    assert!(listed.status.success(), "{listed:?}");
    let text = String::from_utf8_lossy(&listed.stdout).into_owned();
    text.lines().filter(|line| line.contains(name)).map(str::to_owned).collect()
}

/// Destroys the cluster, of which nothing must be left in the pool.
#[track_caller]
fn end(ceph: &Ceph, name: &str, cluster: Cluster) {
    drop(cluster);
    assert_eq!(left(ceph, name), Vec::<String>::new());
}

#[track_caller]
fn store(cluster: &Cluster, number: usize) -> Store {
    Store::open_with(cluster.node(number), &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap()
}

fn content(number: u64) -> Vec<u8> {
    (0..PART as u64).map(|at| (at * 31 + number * 7) as u8).collect()
}

#[track_caller]
fn write(object: &Object, numbers: std::ops::Range<u64>) {
    numbers.for_each(|number| object.write_at(number * PART as u64, &content(number)).unwrap());
}

#[track_caller]
fn check(object: &Object, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let mut bytes = vec![0; PART];
        object.read_at(number * PART as u64, &mut bytes).unwrap();
        assert!(bytes == content(number), "part {number}");
    }
}

/// A container that lies on this node, with an object.
#[track_caller]
fn made_on(cluster: &Cluster, number: usize) -> (Store, Container, Object) {
    let store = store(cluster, number);
    let container = store.create_container(&format!("of n{number}"), &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), None).unwrap();
    (store, container, object)
}

/// The same, as a program on another node sees it.
#[track_caller]
fn seen(store: &Store, of: usize) -> Object {
    store.container(&format!("of n{of}")).unwrap().object(ObjectId(1))
}

fn host(report: &Value, home: usize) -> usize {
    report["homes"][home - 1]["host"].as_u64().unwrap_or_default() as usize
}

#[track_caller]
fn until_moved(cluster: &Cluster, number: usize, home: usize) -> usize {
    let report = cluster.until(number, "that another node has the home", |report| host(report, home) != home);
    host(&report, home)
}

#[track_caller]
fn until_back(cluster: &Cluster, number: usize, home: usize) -> Value {
    cluster.until(number, "that the home is back", |report| host(report, home) == home)
}

/// How long the last take-over on this node took, from the view that excluded the former host on, by the log of its daemon.
fn took(cluster: &Cluster, number: usize, home: usize) -> Option<Duration> {
    let log = fs::read_to_string(cluster.node(number).join("daemon.log")).unwrap();
    let is_it =
        |line: &&str| line.contains("this node is the host of a home") && line.contains(&format!("home=n{home} "));
    let line = log.lines().rev().find(is_it)?;
    let (_, ms) = line.split_once("took_ms=")?;
    Some(Duration::from_millis(ms.trim().parse().ok()?))
}

/// A node is killed while programs on others use its home, and gets it back.
fn is_lost_and_comes_back(ceph: &Ceph, name: &str, lost: usize) {
    let cluster = start(ceph, name, NODES, &[]);
    let (next, third) = (lost % NODES + 1, (lost + 1) % NODES + 1);
    for number in 1..=NODES {
        let (store, _, object) = made_on(&cluster, number);
        write(&object, 0..50);
        store.flush().unwrap();
    }
    let program = store(&cluster, third);
    let object = seen(&program, lost);
    check(&object, 0..50);
    // A program that only reads, and one that has changed something: it may have been told of what is lost now.
    let how = OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() };
    let reader = Store::open_with(cluster.node(third), &how).unwrap();
    let read = seen(&reader, lost);
    check(&read, 0..50);
    cluster.kill(lost);
    let begin = Instant::now();
    check(&seen(&store(&cluster, next), lost), 0..50);
    let stalled = begin.elapsed();
    check(&read, 0..50);
    for _ in 0..2 {
        let told = program.flush().unwrap_err();
        assert!(told.to_string().contains("may be lost") && told.to_string().contains("anew"), "{told}");
    }
    let program = store(&cluster, third);
    let object = seen(&program, lost);
    check(&object, 0..50);
    write(&object, 50..80);
    let heir = until_moved(&cluster, third, lost);
    let took = took(&cluster, heir, lost).expect("the take-over in the log");
    println!(
        "n{lost} is killed: n{heir} serves its home {took:?} after the exclusion, a new program waited {stalled:?} in all"
    );
    assert!(took <= SERVED_AGAIN, "{took:?}");
    for number in 1..=NODES {
        check(&seen(&program, number), 0..50);
    }
    cluster.ok(next, &["mk", "made meanwhile"]);
    let text = cluster.ok(next, &["ha"]);
    assert!(text.contains(&format!("for n{lost}")) && text.contains(&format!("rados:data/{name}-nN")), "{text}");
    // It is back: nothing of what was acknowledged since is missing, though nobody flushed it.
    let begin = Instant::now();
    cluster.again();
    let report = until_back(&cluster, third, lost);
    println!("n{lost} has its home again after {:?}", begin.elapsed());
    assert!(report["homes"][lost - 1]["term"].as_u64().unwrap() >= 3, "{report:#}");
    let copy = cluster.node(heir).join(format!("copy-n{lost}"));
    let until = Instant::now() + PATIENCE;
    while copy.exists() {
        assert!(Instant::now() < until, "n{heir} keeps what it had of the home");
        std::thread::sleep(Duration::from_millis(20));
    }
    check(&object, 0..80);
    write(&object, 80..90);
    let own = store(&cluster, lost);
    check(&seen(&own, lost), 0..90);
    assert!(own.containers("").unwrap().len() >= NODES);
    cluster.ok(lost, &["verify"]);
    check(&read, 0..90);
    drop((own, object, program, read, reader));
    // And once more, by which it is known that a home that came back is one like any other.
    cluster.ok(lost, &["flush"]);
    cluster.kill(lost);
    until_moved(&cluster, next, lost);
    check(&seen(&store(&cluster, next), lost), 0..90);
    end(ceph, name, cluster);
}

#[test]
fn a_killed_node_is_followed_by_another_one_and_gets_its_home_back() {
    let Some(ceph) = ceph() else { return };
    is_lost_and_comes_back(&ceph, "second", 2);
}

/// It keeps a part of the register, and the labels of all containers.
#[test]
fn the_first_node_may_be_lost_like_any_other() {
    let Some(ceph) = ceph() else { return };
    is_lost_and_comes_back(&ceph, "first", 1);
}

#[test]
fn a_daemon_that_was_stopped_changes_nothing_and_acknowledges_nothing_until_it_is_host_again() {
    let (name, lost) = ("stopped", 2);
    let Some(ceph) = ceph() else { return };
    let cluster = start(&ceph, name, NODES, &[]);
    let (_, _, object) = made_on(&cluster, lost);
    write(&object, 0..10);
    drop(object);
    let index = cluster.ok(lost, &["index", "mk", "of n2/2"]);
    cluster.ok(lost, &["index", "put", &index, "before", "n2"]);
    cluster.ok(lost, &["flush"]);
    cluster.signal(lost, Signal::STOP);
    // A program on the node of the stopped daemon asks it for a change.
    let mut zombie = cluster.place.command(["index", "put", &index, "key", "of the zombie"]);
    zombie.env("CENOTE_STORE", cluster.node(lost)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let zombie = zombie.spawn().unwrap();
    until_moved(&cluster, 1, lost);
    cluster.ok(3, &["index", "put", &index, "key", "of the heir"]);
    let program = store(&cluster, 3);
    check(&seen(&program, lost), 0..10);
    write(&seen(&program, lost), 10..20);
    cluster.signal(lost, Signal::CONT);
    let begin = Instant::now();
    loop {
        // In this order: a home that is back stays so.
        let value = cluster.ok(3, &["index", "get", "--raw", &index, "key"]);
        let report = cluster.report(3);
        if host(&report, lost) == lost {
            break;
        }
        assert_eq!(value, "of the heir", "{report:#}");
        assert!(begin.elapsed() < PATIENCE, "{report:#}");
    }
    // The change was not acknowledged before; it is carried out once the home is back.
    let zombie = zombie.wait_with_output().unwrap();
    assert!(zombie.status.success(), "{}", String::from_utf8_lossy(&zombie.stderr));
    assert_eq!(cluster.ok(3, &["index", "get", "--raw", &index, "key"]), "of the zombie");
    assert_eq!(cluster.ok(1, &["index", "get", "--raw", &index, "before"]), "n2");
    check(&seen(&program, lost), 0..20);
    check(&seen(&store(&cluster, lost), lost), 0..20);
    drop(program);
    end(&ceph, name, cluster);
}

#[test]
fn all_nodes_stop_and_start_while_a_home_is_away() {
    let (name, lost) = ("paused", 3);
    let Some(ceph) = ceph() else { return };
    let cluster = start(&ceph, name, NODES, &[]);
    let (_, _, object) = made_on(&cluster, lost);
    write(&object, 0..10);
    drop(object);
    cluster.ok(lost, &["flush"]);
    cluster.kill(lost);
    until_moved(&cluster, 1, lost);
    // In memory of the heir alone: its daemon ends in order, and its memory stays.
    write(&seen(&store(&cluster, 1), lost), 10..20);
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    cluster.again();
    // At once again: the daemon of n3 has no home yet, and ends none the less.
    let begin = Instant::now();
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    for number in 1..=NODES {
        assert!(cenote_server::holder(&cluster.node(number)).is_none(), "n{number} still runs");
    }
    cluster.again();
    until_back(&cluster, 1, lost);
    check(&seen(&store(&cluster, 2), lost), 0..20);
    check(&seen(&store(&cluster, lost), lost), 0..20);
    // A cluster is destroyed completely while a home is away, too.
    cluster.kill(lost);
    until_moved(&cluster, 1, lost);
    end(&ceph, name, cluster);
}

#[test]
fn two_nodes_with_the_register_in_the_pool_do_without_either() {
    let name = "pair";
    let Some(ceph) = ceph() else { return };
    let register = format!("kind=rados,pool=data,namespace={name}-view,user=cenote,conf={}", ceph.conf);
    let cluster = start(&ceph, name, 2, &["--register", &register]);
    let status = cluster.status();
    assert_eq!((&status["homes_on"], &status["ha"]["survives"]), (&"rados:data/pair".into(), &1.into()), "{status:#}");
    for lost in [1, 2] {
        let other = 3 - lost;
        let (store_here, _, object) = made_on(&cluster, lost);
        write(&object, 0..10);
        store_here.flush().unwrap();
        drop((store_here, object));
        cluster.kill(lost);
        until_moved(&cluster, other, lost);
        let program = store(&cluster, other);
        check(&seen(&program, lost), 0..10);
        write(&seen(&program, lost), 10..20);
        cluster.again();
        until_back(&cluster, other, lost);
        check(&seen(&program, lost), 0..20);
    }
    end(&ceph, name, cluster);
}

#[test]
fn a_node_joins_and_its_home_is_taken_over_like_the_others() {
    let name = "joined";
    let Some(ceph) = ceph() else { return };
    let cluster = start(&ceph, name, NODES, &[]);
    cluster.place.ok(["cluster", "join", &cluster.dir()]);
    let (_, _, object) = made_on(&cluster, 4);
    write(&object, 0..10);
    drop(object);
    cluster.ok(4, &["flush"]);
    cluster.refused_here(&["cluster", "leave", &cluster.dir(), "n4", "--yes"], &["lie in a pool"]);
    cluster.kill(4);
    until_moved(&cluster, 2, 4);
    check(&seen(&store(&cluster, 2), 4), 0..10);
    end(&ceph, name, cluster);
}

#[test]
fn what_cannot_be_is_refused_by_name_before_anything_is_made() {
    let name = "refused";
    let Some(ceph) = ceph() else { return };
    let (dir, on) = (TestDir::new(), place(&ceph, "data", name, "cenote"));
    let refused = |options: &[&str], words: &[&str]| {
        let begin = Instant::now();
        let cluster = dir.path("c");
        let said = dir.run([&["cluster", "start", cluster.to_str().unwrap(), "--local", "3"], options].concat());
        assert_ne!(said.code, 0, "{options:?}: {said:?}");
        for word in words {
            assert!(said.err.contains(word), "{options:?}: no `{word}` in {}", said.err);
        }
        assert!(!cluster.exists(), "{options:?}: something was made");
        assert!(begin.elapsed() < PATIENCE, "{options:?}: {:?}", begin.elapsed());
    };
    refused(&["--on", "meta"], &["rados:POOL/NAME"]);
    refused(&["--on", &on, "--protect", "1"], &["no mirrors", "leave --protect out"]);
    for tier in ["name=d,kind=directory,path=d,size=64MiB", "name=f,kind=file,path=f,size=64MiB"] {
        refused(&["--on", &on, "--tier", tier], &["do not reach a tier of kind", "rados, s3 or swift"]);
    }
    refused(&["--on", &on, "--tier", "name=r,kind=raid,path=nodes,layout=mirror=2,size=64MiB"], &["kind raid"]);
    refused(&["--on", &place(&ceph, "ec", name, "cenote")], &["replicated pool"]);
    refused(&["--on", &place(&ceph, "none", name, "cenote")], &["no pool `none`", "ceph osd pool ls"]);
    refused(&["--on", &place(&ceph, "data", name, "reader")], &["permission denied", "ceph auth caps"]);
    refused(&["--on", &place(&ceph, "data", name, "nobody")], &["client.nobody"]);
    assert_eq!(left(&ceph, name), Vec::<String>::new());
    // A full pool.
    ceph.ceph("osd pool set-quota data max_objects 1");
    let (begin, mut probe) = (Instant::now(), 0);
    while !ceph.ceph("osd dump").contains("full_quota") {
        assert!(begin.elapsed() < PATIENCE, "the quota is not heeded");
        probe += 1;
        let name = format!("probe-{probe}");
        // Writers of other programs wait as long as a pool is full.
        let mut put = Command::new("timeout");
        put.args(["2", "rados", "--conf", &ceph.conf, "-p", "data", "put", &name, "/dev/null"]);
        assert!(put.output().is_ok());
        std::thread::sleep(Duration::from_millis(200));
    }
    refused(&["--on", &on], &["full", "ceph df"]);
    ceph.ceph("osd pool set-quota data max_objects 0");
    while ceph.ceph("osd dump").contains("full_quota") {
        assert!(begin.elapsed() < 2 * PATIENCE, "the pool stays full");
        std::thread::sleep(Duration::from_millis(100));
    }
    for number in 1..=probe {
        let name = format!("probe-{number}");
        let _ = Command::new("rados").args(["--conf", &ceph.conf, "-p", "data", "rm", &name]).output();
    }
    // A name that another cluster has, and the store of one.
    let cluster = start(&ceph, name, 2, &[]);
    cluster.ok(1, &["mk", "kept"]);
    refused(&["--on", &on], &["rados:data/refused-n1", "holds a store already", "choose another name"]);
    cluster.refused(1, &["tier", "add", "name=d,kind=directory,path=d,size=64MiB"], &["do not reach a tier"]);
    let text = cluster.place.ok(["cluster", "status", &cluster.dir()]);
    assert!(text.contains("homes lie in rados:data/refused-nN"), "{text}");
    assert!(cluster.ok(2, &["ls"]).contains("kept"), "the cluster that has the name goes on");
    end(&ceph, name, cluster);
    dir.ok(["cluster", "start", dir.path("c").to_str().unwrap(), "--local", "2", "--on", &on]);
    dir.ok(["cluster", "destroy", dir.path("c").to_str().unwrap(), "--yes"]);
    assert_eq!(left(&ceph, name), Vec::<String>::new());
}
