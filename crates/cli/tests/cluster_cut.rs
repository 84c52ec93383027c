//! A node of a cluster is cut off from the network, in both directions or in one: a mirror takes its home over, it
//! acknowledges nothing meanwhile, and nothing that was acknowledged is lost when it is connected again.

mod common;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, HaReport, Mode, ObjectId, OpenOptions, Store};
use common::hosts::{Cut, Hosts};
use common::{TestDir, factor};

/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// A writer rests for this long behind each part, so that the daemons of all nodes have this machine's time.
const REST: Duration = Duration::from_millis(1);
/// One cluster at a time, for the same reason.
static ALONE: Mutex<()> = Mutex::new(());
const LEN: usize = 3000;
const ID: ObjectId = ObjectId(1);

struct Cluster {
    place: TestDir,
    hosts: Hosts,
    /// The store at each node.
    stores: Vec<Store>,
}

impl Cluster {
    fn start() -> Option<Self> {
        let hosts = Hosts::new(3)?;
        let place = TestDir::new();
        let dir = place.path("cluster");
        let list = hosts.names.join(",");
        let tiers =
            ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
        let words = ["--hosts", &list, "--launcher", "ip netns exec {host}", "--protect", "1"];
        let mut start = place.command(["cluster", "start", dir.to_str().unwrap()].iter().chain(&words).chain(&tiers));
        let started = common::said(start.stdin(Stdio::null()));
        assert_eq!(started.code, 0, "{started:?}");
        let stores = hosts.names.iter().map(|name| open(&dir.join(name))).collect();
        Some(Self { place, hosts, stores })
    }
    fn node(&self, host: usize) -> PathBuf {
        self.place.path("cluster").join(&self.hosts.names[host])
    }
    /// Waits until the first node, which is never cut off, says what is wanted.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&HaReport) -> bool) {
        let begin = Instant::now();
        loop {
            let report = self.stores[0].ha_report().unwrap();
            if is_so(&report) {
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "{what}: {report:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    fn until_home(&self, host: usize, is_there: bool) {
        let home = host as u16 + 1;
        let is_so =
            |report: &HaReport| report.homes.iter().any(|it| it.home.0 == home && (it.host.0 == home) == is_there);
        self.until(if is_there { "the home is back" } else { "another node has the home" }, is_so);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stores.clear();
        let dir = self.place.path("cluster");
        if std::thread::panicking() {
            common::cluster::print_logs(&dir);
        }
        let gone = self.place.run(["cluster", "destroy", dir.to_str().unwrap(), "--yes"]);
        if !std::thread::panicking() {
            assert_eq!(gone.code, 0, "{gone:?}");
        }
    }
}

fn open(dir: &Path) -> Store {
    Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap()
}

fn content(number: u64) -> Vec<u8> {
    (0..LEN as u64).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// Longest stall of a program on another node: 5 s until the silence is noticed at the latest, 0.8 s for the lease, and 5 s
/// for all else.
fn stall_max() -> Duration {
    Duration::from_millis(5800).mul_f64(factor()) + Duration::from_secs(5)
}

/// A thread that writes one part after the other.
struct Writer {
    told: Arc<Told>,
    thread: JoinHandle<()>,
}

#[derive(Default)]
struct Told {
    /// Parts that were acknowledged.
    parts: AtomicU64,
    longest: Mutex<Duration>,
    is_over: AtomicBool,
}

impl Writer {
    fn start(store: &Store, label: &str) -> Self {
        Self::start_on(store, label, ID)
    }
    fn start_on(store: &Store, label: &str, id: ObjectId) -> Self {
        let container = store.container(label).unwrap();
        if id != ID {
            container.create_object(Some(id), None).unwrap();
        }
        let told = Arc::<Told>::default();
        let (object, this) = (container.object(id), told.clone());
        let thread = std::thread::spawn(move || {
            while !this.is_over.load(Ordering::SeqCst) {
                let number = this.parts.load(Ordering::SeqCst);
                let begin = Instant::now();
                if let Err(error) = object.write_at(number * LEN as u64, &content(number)) {
                    return println!("{number} parts, then {error}");
                }
                this.parts.store(number + 1, Ordering::SeqCst);
                let mut longest = this.longest.lock().unwrap();
                *longest = longest.max(begin.elapsed());
                drop(longest);
                std::thread::sleep(REST);
            }
        });
        Self { told, thread }
    }
    fn parts(&self) -> u64 {
        self.told.parts.load(Ordering::SeqCst)
    }
    /// Ends it. Returns how many parts were acknowledged, and how long it waited at most.
    fn end(self) -> (u64, Duration) {
        self.told.is_over.store(true, Ordering::SeqCst);
        self.thread.join().unwrap();
        let longest = *self.told.longest.lock().unwrap();
        (self.told.parts.load(Ordering::SeqCst), longest)
    }
}

#[track_caller]
fn check(store: &Store, label: &str, parts: u64) {
    check_on(store, label, ID, parts);
}

#[track_caller]
fn check_on(store: &Store, label: &str, id: ObjectId, parts: u64) {
    let object = store.container(label).unwrap().object(id);
    for number in 0..parts {
        let mut bytes = vec![0; LEN];
        object.read_at(number * LEN as u64, &mut bytes).unwrap();
        assert!(bytes == content(number), "part {number} of {parts} of {label}");
    }
}

fn cut_and_mend(cluster: &mut Cluster, victim: usize, how: Cut) {
    let [own, other] = ["own", "other"].map(|label| format!("{label}-{victim}-{how:?}"));
    for label in [&own, &other] {
        let container = cluster.stores[victim].create_container(label, &ContainerSpec::default()).unwrap();
        container.create_object(Some(ID), None).unwrap();
    }
    cluster.stores[0].protect(1, PATIENCE).unwrap();
    let inside = Writer::start(&cluster.stores[victim], &own);
    let outside = Writer::start(&cluster.stores[3 - victim], &other);
    std::thread::sleep(Duration::from_millis(700));
    cluster.hosts.cut(victim, how);
    let begin = Instant::now();
    cluster.until_home(victim, false);
    println!("{how:?}: another node has the home after {:?}", begin.elapsed());
    // The former host has fallen silent before another one begins.
    let (told, before) = (inside.parts(), outside.parts());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(inside.parts(), told, "the node that is cut off acknowledges");
    assert!(outside.parts() > before, "nobody goes on");
    check(&cluster.stores[0], &own, told);
    cluster.hosts.mend(victim, how);
    cluster.until_home(victim, true);
    // What handles there hold is void.
    cluster.stores[victim] = open(&cluster.node(victim));
    cluster.stores[0].protect(1, PATIENCE).unwrap();
    let ((inside, _), (outside, longest)) = (inside.end(), outside.end());
    println!("{how:?}: {inside} and {outside} parts; the longest stall took {longest:?}");
    assert!(longest < stall_max(), "{longest:?}");
    for store in &cluster.stores {
        check(store, &own, inside);
        check(store, &other, outside);
    }
}

#[test]
fn a_node_that_is_cut_off_acknowledges_nothing_and_nothing_is_lost() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(mut cluster) = Cluster::start() else {
        return println!("skipped: no network namespaces can be made here");
    };
    cut_and_mend(&mut cluster, 1, Cut::Down);
    cut_and_mend(&mut cluster, 2, Cut::Mute);
    cut_and_mend(&mut cluster, 1, Cut::Deaf);
}

#[test]
fn two_nodes_that_do_not_reach_each_other_go_on_by_themselves() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(cluster) = Cluster::start() else {
        return println!("skipped: no network namespaces can be made here");
    };
    for (host, label) in [(1, "second"), (2, "third")] {
        let container = cluster.stores[host].create_container(label, &ContainerSpec::default()).unwrap();
        container.create_object(Some(ID), None).unwrap();
    }
    cluster.stores[0].protect(1, PATIENCE).unwrap();
    let writers = [(0, "second"), (1, "second"), (0, "third"), (2, "third")];
    // Each at a place of its own.
    let objects = [ObjectId(10), ObjectId(11), ObjectId(12), ObjectId(13)];
    let writers: Vec<_> = writers
        .iter()
        .zip(objects)
        .map(|((host, label), id)| (*label, id, Writer::start_on(&cluster.stores[*host], label, id)))
        .collect();
    std::thread::sleep(Duration::from_millis(700));
    cluster.hosts.part(1, 2, true);
    // Long enough for one to be given up.
    std::thread::sleep(Duration::from_secs(6).mul_f64(factor()));
    let before: Vec<u64> = writers.iter().map(|(_, _, writer)| writer.parts()).collect();
    std::thread::sleep(Duration::from_secs(1));
    for ((label, id, writer), before) in writers.iter().zip(before) {
        assert!(writer.parts() > before, "{label} {id} does not go on");
    }
    cluster.hosts.part(1, 2, false);
    cluster.stores[0].protect(1, PATIENCE).unwrap();
    for (label, id, writer) in writers {
        let (parts, longest) = writer.end();
        println!("{label} {id}: {parts} parts, the longest stall took {longest:?}");
        assert!(longest < stall_max(), "{longest:?}");
        cluster.stores.iter().for_each(|store| check_on(store, label, id, parts));
    }
}
