//! A store with its home in a pool of Ceph: another node takes it over, and whoever had it changes nothing any more. Needs a
//! cluster: `python3 scripts/ceph_cluster.py run -- cargo test -p cenote-cli --test rados_home`.

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use common::{CommandOutput, TestDir, said};
use rustix::process::{Pid, Signal, kill_process};

/// A directory and shared memory of its own stand for a node.
struct Node {
    place: TestDir,
    memory: PathBuf,
}

impl Node {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let memory = PathBuf::from(format!("/dev/shm/cenote-test-node-{}-{number}", std::process::id()));
        fs::create_dir_all(&memory).unwrap();
        Self { place: TestDir::new(), memory }
    }
    fn run(&self, args: &[&str]) -> CommandOutput {
        said(self.place.command(args).stdin(Stdio::null()).env("CENOTE_SHM_DIR", &self.memory))
    }
    #[track_caller]
    fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "{args:?}: {said:?}");
        said.out.trim_end().to_owned()
    }
    #[track_caller]
    fn refused(&self, args: &[&str], words: &[&str]) {
        let begin = Instant::now();
        let said = self.run(args);
        assert_ne!(said.code, 0, "{args:?}: {said:?}");
        for word in words {
            assert!(said.err.contains(word), "{args:?}: no `{word}` in {}", said.err);
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{args:?} took {:?}", begin.elapsed());
    }
    /// Starts a daemon as a child of the test.
    fn serve(&self) -> Daemon {
        let mut command = self.place.command(["serve"]);
        command.env("CENOTE_SHM_DIR", &self.memory).stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while !self.ok(&["status"]).contains("served by a daemon") {
            assert!(Instant::now() < until, "no daemon serves");
            std::thread::sleep(Duration::from_millis(20));
        }
        Daemon(child)
    }
    fn adopt(&self, address: &str) -> (String, Duration) {
        let begin = Instant::now();
        let said = self.ok(&["adopt", self.place.store().to_str().unwrap(), "--from", address]);
        (said, begin.elapsed())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.run(&["stop"]);
        self.run(&["destroy", "--yes", "--force"]);
        let _ = fs::remove_dir_all(&self.memory);
    }
}

/// A daemon that is a child of the test.
struct Daemon(Child);

impl Daemon {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
    /// Waits for its end; returns what it wrote to standard error.
    fn ends(&mut self) -> String {
        let until = Instant::now() + Duration::from_mins(1);
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(self.0.stderr.as_mut().unwrap(), &mut text);
        text
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Options of an address in the test cluster, and a name that no other test has.
fn cluster(name: &str) -> Option<(String, String)> {
    let Ok(text) = std::env::var("CENOTE_TEST_CEPH") else {
        eprintln!("skipped: CENOTE_TEST_CEPH names no pool of a Ceph cluster");
        return None;
    };
    let (pool, conf) = text.split_once('@').expect("CENOTE_TEST_CEPH=POOL@CONF");
    Some((format!("rados:{pool}/{name}-{}", std::process::id()), format!(",user=cenote,conf={conf}")))
}

/// A store on `node` whose persistent tier lies where other nodes have it too.
fn store_on(node: &Node, address: &str, shared: &TestDir) {
    let tier = format!("name=shared,kind=directory,path={},size=64MiB", shared.path("tier").display());
    let said = node.ok(&[
        "init",
        "--no-measure",
        "--on",
        address,
        "--tier",
        "name=memory,kind=memory,size=16MiB",
        "--tier",
        &tier,
    ]);
    assert!(said.contains("home rados:") && said.contains("of tier shared another node"), "{said}");
    node.ok(&["mk", "runs"]);
}

fn index_on(node: &Node) -> String {
    node.ok(&["index", "mk", "runs/1"])
}

#[test]
fn another_node_has_the_store_after_this_one_died_and_gives_it_back() {
    let Some((place, options)) = cluster("died") else { return };
    let (address, shared) = (format!("{place}{options}"), TestDir::new());
    let (a, b) = (Node::new(), Node::new());
    store_on(&a, &address, &shared);
    let daemon = a.serve();
    let (file, bytes) = shared.file("input", 3_000_000);
    a.ok(&["put", "--flush", file.to_str().unwrap(), "runs/2a"]);
    let index = index_on(&a);
    for number in 0..50 {
        a.ok(&["index", "put", &index, &format!("key{number}"), "value"]);
    }
    a.ok(&["flush"]);
    assert!(a.ok(&["status"]).contains(&format!("home {place}, term ")));
    daemon.kill();
    let (said, took) = b.adopt(&address);
    eprintln!("taken over in {took:?}:\n{said}");
    assert!(said.contains("all is well"), "{said}");
    assert!(took < Duration::from_secs(6), "opened twice, once with a wait, and verified: {took:?}");
    let read = b.run(&["cat", "runs/2a"]);
    assert!(read.code == 0 && read.bytes == bytes, "{:?}", read.err);
    assert_eq!(b.ok(&["index", "get", "--raw", &index, "key49"]), "value");
    b.ok(&["index", "put", &index, "from", "b"]);
    // The first directory does not come back by itself.
    a.refused(&["status"], &["another directory has it now", b.place.store().to_str().unwrap(), "cenote adopt"]);
    a.refused(&["serve"], &["another directory has it now"]);
    b.ok(&["flush"]);
    a.adopt(&address);
    assert_eq!(a.ok(&["index", "get", "--raw", &index, "from"]), "b");
    assert_eq!(a.run(&["cat", "runs/2a"]).bytes, bytes);
    b.refused(&["status"], &["another directory has it now"]);
}

#[test]
fn the_death_of_the_daemon_loses_nothing_on_its_own_node() {
    let Some((place, options)) = cluster("own") else { return };
    let (address, shared, a) = (format!("{place}{options}"), TestDir::new(), Node::new());
    store_on(&a, &address, &shared);
    let index = index_on(&a);
    for round in 0..3 {
        let daemon = a.serve();
        for number in 0..20 {
            a.ok(&["index", "put", &index, &format!("key{round}-{number}"), "value"]);
        }
        daemon.kill();
        assert_eq!(
            a.ok(&["index", "get", "--raw", &index, &format!("key{round}-19")]),
            "value",
            "not flushed, not lost"
        );
    }
}

#[test]
fn a_daemon_that_was_stopped_finds_that_it_has_lost_the_store() {
    let Some((place, options)) = cluster("stopped") else { return };
    let (address, shared) = (format!("{place}{options}"), TestDir::new());
    let (a, b) = (Node::new(), Node::new());
    store_on(&a, &address, &shared);
    let index = index_on(&a);
    let mut daemon = a.serve();
    a.ok(&["index", "put", &index, "before", "a"]);
    a.ok(&["flush"]);
    daemon.signal(Signal::STOP);
    let (said, took) = b.adopt(&address);
    eprintln!("taken over from a stopped daemon in {took:?}:\n{said}");
    assert!(said.contains("tier `shared` is away"), "the stopped daemon has it locked: {said}");
    b.ok(&["index", "put", &index, "after", "b"]);
    // A client waits for the daemon when it comes back.
    let mut client = a.place.command(["index", "put", &index, "zombie", "a"]);
    client.env("CENOTE_SHM_DIR", &a.memory).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let client = client.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::CONT);
    let refused = client.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && (text.contains("taken over") || text.contains("another directory")), "{text}");
    let log = daemon.ends();
    assert!(log.contains("taken over") && log.contains(b.place.store().to_str().unwrap()), "{log}");
    a.refused(&["index", "put", &index, "zombie", "a"], &["another directory has it now"]);
    assert_eq!(b.ok(&["index", "get", "--raw", &index, "before"]), "a");
    assert_eq!(b.ok(&["index", "get", "--raw", &index, "after"]), "b");
    assert_ne!(b.run(&["index", "get", "--raw", &index, "zombie"]).code, 0);
}

#[test]
fn what_cannot_be_a_home_is_refused_by_name_and_in_bounded_time() {
    let Some((place, options)) = cluster("refused") else { return };
    let (address, shared) = (format!("{place}{options}"), TestDir::new());
    let (a, b) = (Node::new(), Node::new());
    let name = place.rsplit('/').next().unwrap();
    b.refused(&["adopt", b.place.store().to_str().unwrap(), "--from", &address], &["no store has its home there"]);
    store_on(&a, &address, &shared);
    b.refused(&["init", "--on", &address], &["holds a store already", "choose another name"]);
    if let Ok(ec) = std::env::var("CENOTE_TEST_CEPH_EC") {
        b.refused(&["init", "--on", &format!("rados:{ec}/{name}{options}")], &["replicated pool"]);
    }
    b.refused(&["init", "--on", &format!("rados:none/{name}{options}")], &["none", "ceph osd pool ls"]);
    let reader = address.replace("user=cenote", "user=reader");
    b.refused(&["init", "--on", &reader.replace(name, "other")], &["permission denied", "ceph auth caps"]);
    b.refused(&["init", "--on", "rados:a/b/c"], &["one word each"]);
    b.refused(&["init", "--on", &address, "--engines", "2"], &["with one engine"]);
    assert!(!b.place.store().exists() || b.run(&["status"]).code != 0, "nothing of a store is left");
    a.ok(&["destroy", "--yes"]);
    b.refused(&["adopt", b.place.store().to_str().unwrap(), "--from", &address], &["no store has its home there"]);
    b.ok(&["init", "--no-measure", "--on", &address]);
}
