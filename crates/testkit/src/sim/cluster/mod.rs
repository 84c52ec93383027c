//! A cluster under deterministic simulation: several worlds with engines, a net between them that is slow, cut and late, a register
//! with compare-and-swap, and clients that write to homes on any node and read what others wrote.
//!
//! What is real: engines, the streams of changes and the replicas that take them (`device::mirror`), boards, the register's rules, what a
//! node knows of the cluster, and the decisions of `ha`. What is modelled: processes, sockets, and the few lines of the
//! daemon between them (`server/src/daemon/nodes`: watch, homes, mirrors, copies, handover).
//!
//! What must hold: each record and each object is a register of one writer that many read, linearisably, whatever dies,
//! stops, is cut off or comes back; and once all faults have ended, everybody is back, mirrored, and answers.

mod clients;
mod faults;
mod homes;
mod mirrors;
mod net;
mod node;
mod process;
mod watching;

use std::collections::BTreeMap;

use cenote_cluster::register::{MemoryRegister, Register};
use cenote_ha::{ClusterId, Home, Identity, Member, MemberState, Settings, View};
use cenote_model::{HomeId, NodeId};

use super::trace::Trace;
use super::{Check, Failure, Summary, caught, trace, twice};
use crate::rng::Rng;
use clients::{Client, Writes};
use faults::{Fault, plan};
use net::{ConnId, Net};
use node::Node;
use process::{Letter, Proc};

/// Faults end then.
const FAULTS_END_US: u64 = 12_000_000;
/// Everything must be well so long after that, at the latest.
const END_US: u64 = FAULTS_END_US + 20_000_000;
/// Once it was well for so long, with one view, nothing more is to be expected.
const WELL_US: u64 = 1_000_000;
/// The cluster has formed, mirrors and all, before the first fault.
const FAULTS_BEGIN_US: u64 = 3_000_000;
const CLUSTER: ClusterId = ClusterId(0xC1);

/// Counts of a run with nodes.
#[derive(Clone, Copy, Default, Debug)]
pub struct ClusterSummary {
    /// Answers that clients were told.
    pub answers: u64,
    /// Reads whose result was checked.
    pub reads: u64,
    /// Faults: processes and machines that died, were stopped or slow, links that were cut.
    pub faults: u64,
    /// Processes of daemons that ended.
    pub ended: u64,
    /// Nodes that the view excluded.
    pub excluded: u64,
    /// Homes that another node took over after a failure.
    pub taken_over: u64,
    /// Homes that were handed over on purpose.
    pub handed_over: u64,
    /// Copies of a home that became complete.
    pub copies: u64,
    /// Connections that went on where they had been cut.
    pub resumed: u64,
    /// Homes that went on from the disks of a node that had lost its memory, since another node failed, too.
    pub rolled_back: u64,
    /// Homes of which the host had nothing, since another node failed, too: the run ended there.
    pub unavailable: u64,
    /// Views.
    pub views: u64,
}

impl ClusterSummary {
    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.reads += other.reads;
        self.faults += other.faults;
        self.ended += other.ended;
        self.excluded += other.excluded;
        self.taken_over += other.taken_over;
        self.handed_over += other.handed_over;
        self.copies += other.copies;
        self.resumed += other.resumed;
        self.rolled_back += other.rolled_back;
        self.unavailable += other.unavailable;
        self.views += other.views;
    }
}

/// Runs one seed with several nodes. `print`: write the trace to standard error as it grows.
pub fn run_cluster(seed: u64, print: bool) -> Result<Summary, Failure> {
    twice(print, |keep, print| {
        caught(seed, keep, print, "--nodes ".to_owned(), |trace| Cluster::new(seed, trace)?.run())
    })
}

/// Something that happens at a moment.
enum What {
    /// A process has its regular look at everything.
    Beat(Proc),
    /// Something comes to a process without a connection of its own.
    Letter(Proc, Letter),
    /// Something comes to the register.
    Ask(Proc, Letter),
    /// Something comes to one end of a connection.
    Parcel(ConnId, usize),
    /// An engine has its turn.
    Work(Proc, HomeId),
    /// A client acts, unless it acted since.
    Client(usize, u64),
    Fault(Fault),
}

struct Cluster {
    rng: Rng,
    settings: Settings,
    now_us: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), What>,
    net: Net,
    register: MemoryRegister,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    writes: Writes,
    /// Raised with each opening of a home.
    openings: u64,
    /// A home is not available any more, as people are told.
    is_over: bool,
    seed: u64,
    count: ClusterSummary,
    summary: Summary,
    trace: Trace,
}

impl Cluster {
    fn new(seed: u64, trace: &Trace) -> Check<Self> {
        let mut rng = Rng::new(seed ^ 0x0C10_57E4);
        let settings = Settings {
            beat_us: 200_000,
            // Longer than the silence that excludes a node, too.
            lease_us: *rng.pick(&[700_000, 700_000, 1_500_000]),
            drift_ppm_max: *rng.pick(&[1_000, 20_000, 200_000]),
            silence_us_min: 800_000,
            silence_us_max: 2_500_000,
            restart_us_max: 1_500_000,
            damp_us_min: 500_000,
            damp_us_max: 2_000_000,
            ..Settings::default()
        };
        let count = rng.between(3, 4) as u16;
        let boards: Vec<NodeId> = (0..rng.between(1, u64::from(count)) as u16).map(NodeId).collect();
        let survives = if count > 3 { rng.between(1, 2) as usize } else { 1 };
        let mut cluster = Self {
            settings,
            now_us: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            net: Net::default(),
            register: MemoryRegister::default(),
            nodes: Vec::new(),
            clients: Vec::new(),
            writes: Writes::default(),
            openings: 0,
            is_over: false,
            seed,
            count: ClusterSummary::default(),
            summary: Summary::default(),
            trace: trace.clone_handle(),
            rng,
        };
        cluster.begin(count, &boards, survives)?;
        Ok(cluster)
    }

    fn begin(&mut self, count: u16, boards: &[NodeId], survives: usize) -> Check {
        let view = first_view(count, survives);
        self.register.swap(None, &view).map_err(|error| format!("the first view: {error}"))?;
        trace!(self.trace, "seed {}: {count} nodes, boards {boards:?}, {survives} losses survived", self.seed);
        for id in 0..count {
            let node = self.make_node(NodeId(id), boards)?;
            self.nodes.push(node);
        }
        self.make_clients()?;
        for id in 0..count {
            self.start(NodeId(id))?;
        }
        for (at, fault) in plan(&mut self.rng, count, FAULTS_BEGIN_US, FAULTS_END_US) {
            self.schedule(at.min(FAULTS_END_US), What::Fault(fault));
        }
        Ok(())
    }

    fn schedule(&mut self, at_us: u64, what: What) {
        self.sequence += 1;
        self.queue.insert((at_us.max(self.now_us), self.sequence), what);
    }

    fn run(mut self) -> Check<Summary> {
        let mut well = (FAULTS_END_US, 0);
        while let Some(((at, _), what)) = self.queue.pop_first() {
            if at > END_US || self.is_over || self.is_still_well(at, &mut well) {
                break;
            }
            self.now_us = at;
            self.summary.steps += 1;
            match what {
                What::Beat(process) => self.beat(process)?,
                What::Letter(process, letter) => self.letter(process, letter)?,
                What::Ask(process, letter) => self.at_register(process, letter)?,
                What::Parcel(conn, end) => self.parcel(conn, end)?,
                What::Work(process, home) => self.work(process, home)?,
                What::Client(client, turn) => self.client_turn(client, turn)?,
                What::Fault(fault) => self.fault(fault)?,
            }
        }
        if !self.is_over {
            self.is_well()?;
        }
        self.count.views = self.view().number;
        self.summary.cluster = self.count;
        self.summary.trace_hash = self.trace.hash();
        Ok(self.summary)
    }

    /// Looks from time to time, after the last fault, whether everything is well. Returns true if it was, with one view, the last
    /// time, too. `well`: when that was, and the number of the view; 0 if it was not.
    fn is_still_well(&self, now_us: u64, well: &mut (u64, u64)) -> bool {
        if now_us < well.0 + WELL_US {
            return false;
        }
        let number = self.is_well().map_or(0, |()| self.view().number);
        let is_still = number > 0 && number == well.1;
        *well = (now_us, number);
        is_still
    }

    /// What the register holds.
    fn view(&self) -> View {
        self.register.read().ok().flatten().map_or_else(|| first_view(0, 0), |(view, _)| view)
    }

    /// Once all faults have ended: everybody is back, mirrored and at home, and clients are answered.
    fn is_well(&self) -> Check {
        let view = self.view();
        for member in &view.members {
            if !member.is_live() {
                return Err(format!("node {} is not back: {view:?}", member.id.0));
            }
        }
        for home in &view.homes {
            if home.mirrors.len() != home.mirrors_wanted.min(view.members.len() - 1) {
                return Err(format!("{} has too few mirrors: {view:?}", home.id));
            }
            if home.host != home.wanted_host {
                return Err(format!("{} is not back at node {}: {view:?}", home.id, home.wanted_host.0));
            }
        }
        self.clients_are_answered()
    }
}

/// A home in the words of `ha`.
fn to_ha(home: HomeId) -> cenote_ha::HomeId {
    cenote_ha::HomeId(home.0)
}

fn of_ha(home: cenote_ha::HomeId) -> HomeId {
    HomeId(home.0)
}

fn identity(node: NodeId) -> Identity {
    Identity(0x1000 + u128::from(node.0))
}

fn first_view(count: u16, survives: usize) -> View {
    let member = |id| Member {
        id: NodeId(id),
        address: format!("n{id}:7"),
        identity: identity(NodeId(id)),
        state: MemberState::Live { since_view: 1 },
        is_leaving: false,
    };
    let home = |id: u16| Home {
        id: cenote_ha::HomeId(id),
        host: NodeId(id),
        wanted_host: NodeId(id),
        mirrors: Vec::new(),
        term: 1,
        mirrors_wanted: survives,
        moving: None,
        is_shared: false,
    };
    View {
        cluster: CLUSTER,
        number: 1,
        survives,
        members: (0..count).map(member).collect(),
        homes: (0..count).map(home).collect(),
    }
}
