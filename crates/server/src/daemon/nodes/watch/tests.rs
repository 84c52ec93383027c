//! Three nodes in one process: the first view, mirrors, exclusion, take-over, return.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

use cenote_cluster::{Member, Members, RegisterPlace};
use cenote_ha::{Action, Debt, Decided, MirrorState, Seen, leases_over_us};
use cenote_model::StoreId;

use super::cached::Cached;
use super::way::Way;
use super::*;

const NODES: u16 = 3;
const PATIENCE: Duration = Duration::from_mins(1);

/// Copies journals at once, and notes what it was told.
#[derive(Default)]
struct Host {
    views: Mutex<Vec<Arc<View>>>,
    copied: Mutex<Vec<Seen>>,
    lease: Mutex<Option<u64>>,
}

impl Acting for Host {
    fn view(&self, view: &Arc<View>) {
        lock(&self.views).push(view.clone());
    }
    fn act(&self, decided: &[Decided]) {
        let in_view = lock(&self.views).last().map_or(0, |view| view.number);
        let copied = decided.iter().filter_map(|decided| match decided.action {
            Action::Rebuild { what: Debt::Journal { home, node } } => {
                Some(Seen::Mirror { home, node, state: MirrorState::CaughtUp { in_view } })
            }
            _ => None,
        });
        *lock(&self.copied) = copied.collect();
    }
    fn seen(&self) -> Vec<Seen> {
        lock(&self.copied).clone()
    }
    fn lease(&self, until_us: u64) {
        *lock(&self.lease) = Some(until_us);
    }
}

/// A node that runs.
struct Node {
    watch: Arc<Watch>,
    host: Arc<Host>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.watch.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The cluster: directories, addresses at which somebody listens, the register.
struct Cluster {
    dir: PathBuf,
    members: Members,
    register: Arc<dyn Register>,
    keeper: Option<Arc<Keeper>>,
    _listeners: Vec<TcpListener>,
}

impl Cluster {
    fn new(protect: u8) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("cenote-watch-{}-{number}", std::process::id()));
        let listeners: Vec<TcpListener> = (0..NODES).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let member = |(home, listener): (u16, &TcpListener)| Member {
            home: HomeId(home),
            address: listener.local_addr().unwrap(),
            name: format!("n{home}"),
            has_left: false,
        };
        let all: Vec<Member> = (1..).zip(&listeners).map(member).collect();
        for member in &all {
            std::fs::create_dir_all(dir.join(&member.name)).unwrap();
        }
        let register = RegisterPlace::First;
        let (cluster, home) = (StoreId(7), HomeId(1));
        let members = Members { cluster, home, protect, homes_on: None, register, keeping: None, encrypt: false, all };
        let register: Arc<dyn Register> = Arc::new(Cached::open(&dir.join("n1")).unwrap());
        let keeper = Some(Arc::new(Keeper::new(&Roster::new(&dir, members.clone()), register.clone(), None).unwrap()));
        Self { dir, members, register, keeper, _listeners: listeners }
    }
    fn start(&self, number: u16) -> Node {
        self.start_beside(number, &[])
    }
    /// Starts a node that knows of boards on these nodes, too; nobody answers there.
    fn start_beside(&self, number: u16, others: &[u16]) -> Node {
        let members = Members { home: HomeId(number), ..self.members.clone() };
        let settings = Settings { damp_us_min: 200_000, ..Settings::default() };
        let incarnation = u64::from(number) << 32 | u64::from(std::process::id());
        let keeper = self.keeper.clone().unwrap();
        let way = |other: &u16| {
            let (to, who) = (self.members.all[usize::from(*other) - 1].clone(), members.introduction(incarnation));
            Board::There(Arc::new(Way::new(to, who, ClusterKey::from_bytes([7; 32]), Duration::from_millis(100))))
        };
        let boards = std::iter::once(Board::Here(keeper)).chain(others.iter().map(way)).collect();
        let register = Opened { register: self.register.clone(), boards };
        let dir = self.dir.join(format!("n{number}"));
        let watch = Arc::new(Watch::with(&dir, &Roster::new(&dir, members), settings, incarnation, register).unwrap());
        let host = Arc::new(Host::default());
        let (running, acting) = (watch.clone(), host.clone());
        let thread = Some(std::thread::spawn(move || running.run(acting.as_ref())));
        Node { watch, host, thread }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.keeper = None;
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

impl Node {
    /// Waits until this node tells what is wanted.
    #[track_caller]
    fn until(&self, what: &str, is_so: impl Fn(&HaReport) -> bool) -> HaReport {
        let begin = Instant::now();
        loop {
            let report = self.watch.report();
            if is_so(&report) {
                return report;
            }
            assert!(begin.elapsed() < PATIENCE, "not {what}: {report:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn is_mirrored(report: &HaReport) -> bool {
    report.view > 0 && report.homes.iter().all(|home| home.mirrors.len() as u64 == home.mirrors_wanted)
}

#[test]
fn a_node_that_falls_silent_is_excluded_and_comes_back() {
    let cluster = Cluster::new(1);
    let nodes: Vec<Node> = (1..NODES).map(|number| cluster.start(number)).collect();
    // Who the third node is, only it can say.
    nodes[0].until("without a view", |report| report.trouble.contains("`n3`"));
    let third = cluster.start(3);
    let report = nodes[0].until("mirrored", is_mirrored);
    assert!(report.nodes.iter().all(|node| node.live) && report.trouble.is_empty(), "{report:#?}");
    assert!(lock(&nodes[1].host.lease).is_some());
    drop(third);
    let report = nodes[1].until("excluded", |report| report.nodes.iter().any(|node| !node.live));
    assert!(!report.nodes[2].live && report.nodes[2].owed, "{report:#?}");
    let heir = report.homes[2].host;
    assert!(heir != NodeId(3) && report.homes[2].term == 2, "{report:#?}");
    assert!(report.events.iter().any(|event| event.what.contains("node 3 is excluded")), "{report:#?}");
    // The board has said when it heard node 3 last, so that the heir does not wait for a whole lease.
    let watch = &nodes[usize::from(heir.0) - 1].watch;
    nodes[usize::from(heir.0) - 1].until("the heir", |report| report.homes[2].term == 2);
    watch.await_leases(HomeId(3), 2);
    {
        let (known, home) = (lock(&watch.known), cenote_ha::HomeId(3));
        let told_us = known.history.told_us(home, 2).unwrap();
        let from_us = acts_from_us(home, 2, &known.history, &watch.settings).unwrap();
        assert!(from_us < leases_over_us(told_us, &watch.settings) && from_us <= now_us());
    }
    // It comes back with what it had, and stays no host.
    let third = cluster.start(3);
    let report = third.until("back", |report| report.view > 0 && report.nodes.iter().all(|node| node.live));
    assert_eq!(report.homes[2].host, heir);
    let is_whole = |report: &HaReport| is_mirrored(report) && report.nodes.iter().all(|node| node.live);
    let report = nodes[0].until("mirrored again", is_whole);
    let events: Vec<&str> = report.events.iter().map(|event| event.what.as_str()).collect();
    assert!(events.iter().any(|what| what.contains("node 3 takes part")), "{events:#?}");
    for node in &nodes {
        let views = lock(&node.host.views);
        assert!(views.windows(2).all(|two| two[0].number < two[1].number), "a view was told twice");
    }
}

#[test]
fn a_node_s_own_board_gives_no_lease_while_the_node_of_another_one_takes_part() {
    let cluster = Cluster::new(1);
    let mut nodes = vec![cluster.start_beside(1, &[2]), cluster.start(2), cluster.start(3)];
    nodes[0].until("mirrored", is_mirrored);
    assert!(lock(&nodes[2].host.lease).is_some() && lock(&nodes[0].host.lease).is_none());
    drop(nodes.remove(1));
    nodes[0].until("without node 2", |report| report.view > 0 && !report.nodes[1].live);
    let begin = Instant::now();
    while lock(&nodes[0].host.lease).is_none() {
        assert!(begin.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn without_mirrors_nobody_is_excluded() {
    let cluster = Cluster::new(0);
    let nodes: Vec<Node> = (1..=NODES).map(|number| cluster.start(number)).collect();
    nodes[0].until("with a view", |report| report.view == 1);
    nodes[2].watch.end();
    let report = nodes[1].until("in doubt", |report| report.decided.iter().any(|it| it.kind == "freeze"));
    assert!(report.nodes.iter().all(|node| node.live) && report.view == 1, "{report:#?}");
    assert!(report.nodes[2].doubt.contains("has not heard node 3"), "{report:#?}");
}

#[test]
fn a_view_that_was_lost_is_named_and_not_followed() {
    let cluster = Cluster::new(0);
    let nodes: Vec<Node> = (1..=NODES).map(|number| cluster.start(number)).collect();
    nodes[0].until("with a view", |report| report.view == 1);
    let watch = &nodes[1].watch;
    let old = Notice { view: 0, ..Notice::default() };
    let error = watch.learn((NodeId(1), old), 1, now_us(), &Host::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
}
