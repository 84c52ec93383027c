//! A node of a cluster is lost: a mirror takes its home over, programs on other nodes go on, and it gets its home back.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Mode, ObjectId, OpenOptions, Store};
use common::TestDir;
use common::cluster::{Cluster, host, is_mirrored};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const NODES: usize = 3;

/// A cluster of n1, n2 and n3, whose homes have mirrors.
#[track_caller]
fn start(register: &str, more: &[&str]) -> Cluster {
    let tiers =
        ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
    let cluster = Cluster::start(NODES, &[&tiers[..], &["--protect", "1", "--register", register], more].concat());
    cluster.until(1, "mirrors of all homes", is_mirrored::<NODES>);
    cluster
}

fn content(number: u64) -> Vec<u8> {
    (0..5000).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// A node is lost twice, and comes back, while a program on another one writes to its home.
fn is_lost_and_comes_back(lost: usize, register: &str) {
    let cluster = start(register, &[]);
    let (next, third) = (lost % NODES + 1, (lost + 1) % NODES + 1);
    let options = |number| (cluster.node(number), OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() });
    let (dir, how) = options(lost);
    let made = Store::open_with(dir, &how).unwrap().create_container("runs", &ContainerSpec::default());
    let object = made.unwrap().create_object(Some(ObjectId(1)), None).unwrap();
    object.write_at(0, &content(0)).unwrap();
    drop(object);
    cluster.ok(lost, &["protect"]);
    let (dir, how) = options(third);
    let store = Store::open_with(dir, &how).unwrap();
    let object = store.container("runs").unwrap().object(ObjectId(1));
    let mut longest = Duration::ZERO;
    for number in 1..400 {
        if number == 100 {
            cluster.signal(lost, Signal::KILL);
        }
        let begin = Instant::now();
        object.write_at(number * 5000, &content(number)).unwrap();
        longest = longest.max(begin.elapsed());
    }
    println!("longest stall when n{lost} is lost: {longest:?}");
    assert!(longest < Duration::from_secs(25), "{longest:?}");
    let check = |object: &cenote::Object| {
        for number in 0..400 {
            let mut bytes = vec![0; 5000];
            object.read_at(number * 5000, &mut bytes).unwrap();
            assert!(bytes == content(number), "part {number}");
        }
    };
    check(&object);
    let report = cluster.until(third, "mirrors of all homes", is_mirrored::<NODES>);
    assert_ne!(host(&report, lost), lost as u64, "{report:#}");
    cluster.ok(third, &["protect"]);
    assert_eq!(cluster.run(third, &["protect", "--losses", "2", "--timeout", "0"]).code, 1);
    // Names are there without the first node, too.
    cluster.ok(next, &["mk", "made meanwhile"]);
    // It comes back when a program on it wants something.
    let (dir, how) = options(lost);
    let back = Store::open_with(dir, &how).unwrap();
    check(&back.container("runs").unwrap().object(ObjectId(1)));
    let has_it = |report: &Value| host(report, lost) == lost as u64 && is_mirrored::<NODES>(report);
    let report = cluster.until(lost, "that it has its home", has_it);
    assert!(report["homes"][lost - 1]["term"].as_u64().unwrap() >= 3, "{report:#}");
    object.write_at(0, &content(0)).unwrap();
    check(&object);
    cluster.ok(next, &["verify"]);
    drop((back, object, store));
    // And once more, after which it lies where it lay at first.
    cluster.signal(lost, Signal::KILL);
    let is_elsewhere = |report: &Value| host(report, lost) != lost as u64 && is_mirrored::<NODES>(report);
    cluster.until(next, "that another node has it", is_elsewhere);
    cluster.ok(lost, &["verify"]);
    cluster.until(lost, "that it has its home", has_it);
    cluster.ok(third, &["verify"]);
}

#[test]
fn programs_on_other_nodes_go_on_when_a_node_is_lost_and_it_gets_its_home_back() {
    is_lost_and_comes_back(2, "kind=first");
}

/// It keeps a part of the register, and the labels.
#[test]
fn the_first_node_may_be_lost_like_any_other() {
    is_lost_and_comes_back(1, "kind=nodes");
}

/// A real etcd; dropped, it ends.
struct Etcd {
    child: std::process::Child,
    dir: TestDir,
    endpoint: String,
}

impl Etcd {
    /// `None` if none is installed.
    fn start() -> Option<Self> {
        let dir = TestDir::new();
        let listener = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (clients, peers) = (listener(), listener());
        let url = |listener: &std::net::TcpListener| format!("http://{}", listener.local_addr().unwrap());
        let (endpoint, peer) = (url(&clients), url(&peers));
        drop((clients, peers));
        let (data, cluster) = (dir.path("etcd"), format!("default={peer}"));
        let mut command = std::process::Command::new("etcd");
        command.arg("--data-dir").arg(data).args(["--log-level", "error", "--initial-cluster", &cluster]);
        command.args(["--listen-client-urls", &endpoint, "--advertise-client-urls", &endpoint]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        Some(Self { child, dir, endpoint })
    }
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
    fn has(&self, text: &str) -> bool {
        let mut get = std::process::Command::new("etcdctl");
        get.env("ETCDCTL_API", "3").args(["--endpoints", &self.endpoint, "get", "--prefix", "--keys-only", ""]);
        String::from_utf8_lossy(&get.output().unwrap().stdout).contains(text)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(self.dir.path("etcd"));
    }
}

/// The daemon of a node begins anew with its home: it is asked to stop at that moment.
#[test]
fn a_node_that_begins_anew_with_its_home_is_stopped_like_any_other() {
    let cluster = start("kind=nodes", &[]);
    for pause_ms in [0, 20, 60, 200] {
        cluster.kill(2);
        cluster.until(1, "that n2 is lost", |report| host(report, 2) != 2);
        cluster.until(1, "another mirror of its home", |report| {
            !report["homes"][1]["mirrors"].as_array().unwrap().is_empty()
        });
        cluster.again();
        {
            let how = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
            let heir = Store::open_with(cluster.node(1), &how).unwrap();
            let begin = Instant::now();
            while heir.ha_report().unwrap().homes[1].host.0 != 2 {
                assert!(begin.elapsed() < Duration::from_mins(1), "n2 does not get its home back");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        std::thread::sleep(Duration::from_millis(pause_ms));
        cluster.place.ok(["cluster", "stop", &cluster.dir()]);
        for number in 1..=NODES {
            let holder = cenote_server::holder(&cluster.node(number));
            assert!(holder.is_none(), "after {pause_ms} ms n{number} is not stopped: {holder:?}");
        }
        cluster.again();
        cluster.until(2, "mirrors of all homes", is_mirrored::<NODES>);
    }
}

#[test]
fn the_register_may_be_in_an_etcd_which_may_be_away_for_a_while() {
    let Some(etcd) = Etcd::start() else { return println!("skipped: there is no etcd (Debian: `etcd-server`)") };
    let register = format!("kind=etcd,endpoint={}", etcd.endpoint);
    is_lost_and_comes_back(1, &register);
    assert!(!etcd.has("cenote/"), "a cluster that is no more leaves its view");
    let cluster = start(&register, &[]);
    assert!(etcd.has("cenote/"));
    etcd.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(2));
    // It is not answered before there is a lease again.
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let made = scope.spawn(|| cluster.ok(2, &["mk", "runs"]));
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!made.is_finished(), "acknowledged without a lease");
        etcd.signal(Signal::CONT);
        made.join().unwrap();
    });
    println!("after an etcd that hung, a command took {:?}", begin.elapsed());
    cluster.ok(3, &["protect"]);
    let report = cluster.until(1, "mirrors of all homes", is_mirrored::<NODES>);
    assert!((1..=NODES).all(|home| host(&report, home) == home as u64), "somebody was excluded: {report:#}");
}

#[test]
fn registers_that_cannot_be_are_refused_and_nothing_is_made() {
    let dir = TestDir::new();
    for (wrong, why) in [
        ("kind=zoo", "no kind"),
        ("kind=nodes", "it takes 3"),
        ("kind=etcd", "endpoint"),
        ("kind=rados,pool=p,colour=red", "colour"),
    ] {
        let said = dir.run(["cluster", "start", "c", "--local", "2", "--register", wrong]);
        assert!(said.code == 1 && said.err.contains(why), "{wrong}: {said:?}");
        assert!(!dir.path("c").exists(), "{wrong}");
    }
}

#[test]
fn without_mirrors_nothing_is_protected() {
    let dir = TestDir::new();
    dir.ok(["init", "store"]);
    let said = dir.run(["-s", "store", "protect"]);
    assert!(said.code != 0 && said.err.contains("no mirrors") && said.err.contains("--protect 1"), "{said:?}");
    dir.ok(["-s", "store", "protect", "--losses", "0"]);
}

#[test]
fn an_encrypted_cluster_works_and_refuses_nodes_that_do_not_encrypt() {
    let cluster = start("kind=nodes", &["--encrypt"]);
    let status = cluster.place.ok(["cluster", "status", &cluster.dir()]);
    assert!(status.contains("is encrypted") && status.contains("nodes n1, n2, n3"), "{status}");
    cluster.ok(2, &["mk", "runs"]);
    let bytes = cluster.place.path("bytes");
    std::fs::write(&bytes, content(1)).unwrap();
    cluster.ok(3, &["put", bytes.to_str().unwrap(), "runs/1"]);
    cluster.ok(1, &["protect"]);
    let back = cluster.place.path("back");
    cluster.ok(1, &["get", "runs/1", back.to_str().unwrap()]);
    assert_eq!(std::fs::read(back).unwrap(), content(1));
    // A node whose file says otherwise.
    cluster.signal(3, Signal::KILL);
    let file = cluster.node(3).join("cluster");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("encrypt = true\n", "")).unwrap();
    cluster.until(1, "that n3 is lost", |report| host(report, 3) != 3);
    cluster.until(3, "what is wrong", |report| !report["trouble"].as_str().unwrap().is_empty());
    // Its daemon may be beginning anew just now.
    cluster.try_signal(3, Signal::KILL);
    std::fs::write(&file, text).unwrap();
    cluster.ok(3, &["get", "runs/1", cluster.place.path("again").to_str().unwrap()]);
    cluster.until(3, "that it has its home", |report| host(report, 3) == 3 && is_mirrored::<NODES>(report));
}
