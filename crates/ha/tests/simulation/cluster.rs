//! The world: time, links, the register, nodes, and what must hold at every moment.

use std::collections::{BTreeMap, BTreeSet};

use cenote_ha::{Action, Debt, Home, HomeId, Member, MemberState, Proposal, Report, Settings, View, decide};
use cenote_model::NodeId;
use cenote_workload::Rng;

use crate::boards::Asked;
use crate::faults::{Fault, plan};
use crate::node::{CLUSTER, Node, address, identity};
use crate::register::{Beat, Register, Roster};

pub const REGISTER: NodeId = NodeId(u16::MAX);
const FAULTS_END_US: u64 = 11_000_000;
/// Liveness is owed so long after all faults have ended.
pub const END_US: u64 = FAULTS_END_US + 14_000_000;

/// What happened in a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub appended: u64,
    /// To homes that are shared.
    pub appended_to_pool: u64,
    /// Take-overs of such homes.
    pub shared_taken_over: u64,
    pub excluded: u64,
    pub taken_over: u64,
    pub readmitted: u64,
    pub settled: u64,
    pub frozen: u64,
    pub lost_swaps: u64,
    pub mirrors_dropped: u64,
    pub mirrors_added: u64,
    pub refused: u64,
    pub waited_for_daemon: u64,
    pub destroyed: u64,
    /// Take-overs that wait for less than a whole lease.
    pub shortened: u64,
    pub given_up: u64,
    pub lost_homes: u64,
    /// Mirrors that a person wanted on other nodes, and those that got there.
    pub moves_asked: u64,
    pub moves_done: u64,
    pub last_view: u64,
}

impl Tally {
    pub fn add(&mut self, other: &Self) {
        let pairs: [(&mut u64, u64); 20] = [
            (&mut self.appended, other.appended),
            (&mut self.appended_to_pool, other.appended_to_pool),
            (&mut self.shared_taken_over, other.shared_taken_over),
            (&mut self.excluded, other.excluded),
            (&mut self.taken_over, other.taken_over),
            (&mut self.readmitted, other.readmitted),
            (&mut self.settled, other.settled),
            (&mut self.frozen, other.frozen),
            (&mut self.lost_swaps, other.lost_swaps),
            (&mut self.mirrors_dropped, other.mirrors_dropped),
            (&mut self.mirrors_added, other.mirrors_added),
            (&mut self.refused, other.refused),
            (&mut self.waited_for_daemon, other.waited_for_daemon),
            (&mut self.destroyed, other.destroyed),
            (&mut self.shortened, other.shortened),
            (&mut self.given_up, other.given_up),
            (&mut self.lost_homes, other.lost_homes),
            (&mut self.moves_asked, other.moves_asked),
            (&mut self.moves_done, other.moves_done),
            (&mut self.last_view, other.last_view),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

pub enum What {
    Beat(NodeId, u64),
    Arrive(Box<Beat>),
    AtBoard(Box<Asked>),
    Look(Box<Asked>),
    Looked(Box<Asked>, std::sync::Arc<View>),
    Answer(NodeId, u64, Box<Roster>),
    Fault(Fault),
    /// A node may begin to act now: is it the only one?
    Check,
}

pub struct Cluster {
    pub rng: Rng,
    is_traced: bool,
    pub settings: Settings,
    pub now_us: u64,
    sequence: u64,
    queue: BTreeMap<(u64, u64), What>,
    cut: BTreeSet<(NodeId, NodeId)>,
    pub register: Register,
    /// Those of nodes, of which none, some or all have one.
    pub boards: BTreeMap<NodeId, Register>,
    pub nodes: Vec<Node>,
    /// For each home the last acknowledged position, and when something was last acknowledged.
    pub acked: BTreeMap<HomeId, (u64, u64)>,
    /// For each shared home the term that sealed its journal, and its end.
    pub pool: BTreeMap<HomeId, (u64, u64)>,
    /// Destroyed and not settled yet.
    pub destroyed: BTreeSet<NodeId>,
    has_frozen: bool,
    pub shortened: BTreeSet<(NodeId, HomeId, u64)>,
    pub tally: Tally,
}

impl Cluster {
    pub fn new(seed: u64, is_traced: bool) -> Self {
        let mut rng = Rng::new(seed);
        let settings = Settings {
            beat_us: 250_000,
            // Longer than the silence that excludes a node, too.
            lease_us: [700_000, 700_000, 1_500_000][rng.index(3)],
            // Far more than clocks do, so that a lease that is short by it shows.
            drift_ppm_max: [1_000, 20_000, 200_000][rng.index(3)],
            silence_us_min: 800_000,
            silence_us_max: 2_500_000,
            restart_us_max: 2_500_000,
            damp_us_min: 500_000,
            damp_us_max: 2_000_000,
            ..Settings::default()
        };
        let count = rng.between(3, 5) as u16;
        let survives = if count > 3 { rng.between(1, 2) as usize } else { 1 };
        let with_boards = if rng.chance(600) { rng.between(1, u64::from(count)) as u16 } else { 0 };
        let boards: Vec<NodeId> = (0..with_boards).map(NodeId).collect();
        // Homes that every node reaches, with what was made durable: no node has a journal of its own.
        let is_shared = seed % 5 == 4;
        let view = first_view(count, survives, is_shared);
        let drift = settings.drift_ppm_max;
        let clock = |rng: &mut Rng| (rng.below(1 << 40), rng.below(2 * drift + 1) as i64 - drift as i64);
        let nodes: Vec<Node> = (0..count)
            .map(|id| {
                let (offset, ppm) = clock(&mut rng);
                Node::new(NodeId(id), offset, ppm, boards.clone())
            })
            .collect();
        let mut cluster = Self {
            boards: boards.into_iter().map(|id| (id, Register::new(view.clone()))).collect(),
            register: Register::new(view),
            rng,
            is_traced,
            settings,
            now_us: 0,
            sequence: 0,
            queue: BTreeMap::new(),
            cut: BTreeSet::new(),
            nodes,
            acked: BTreeMap::new(),
            pool: BTreeMap::new(),
            destroyed: BTreeSet::new(),
            has_frozen: false,
            shortened: BTreeSet::new(),
            tally: Tally::default(),
        };
        cluster.begin(count);
        cluster
    }

    fn begin(&mut self, count: u16) {
        for home in &self.register.view.homes {
            if home.is_shared {
                self.pool.insert(home.id, (1, 0));
            }
            for node in home.copies().filter(|_| !home.is_shared) {
                self.nodes[usize::from(node.0)].journals.insert(home.id, 0);
            }
            self.acked.insert(home.id, (0, 0));
        }
        for (at, fault) in plan(&mut self.rng, count, FAULTS_END_US) {
            self.schedule(at.min(FAULTS_END_US), What::Fault(fault));
        }
        for id in 0..count {
            let at = self.rng.below(self.settings.beat_us);
            self.schedule(at, What::Beat(NodeId(id), 0));
        }
    }

    pub fn schedule(&mut self, at_us: u64, what: What) {
        self.sequence += 1;
        self.queue.insert((at_us.max(self.now_us), self.sequence), what);
    }

    pub fn trace(&self, text: impl FnOnce() -> String) {
        if self.is_traced {
            println!("{:>9.3} {}", self.now_us as f64 / 1e6, text());
        }
    }

    pub fn run(mut self) -> Tally {
        while let Some(((at, _), what)) = self.queue.pop_first() {
            if at > END_US {
                break;
            }
            self.now_us = at;
            match what {
                What::Beat(node, incarnation) => self.beat(node, incarnation),
                What::Arrive(beat) => self.arrive(&beat),
                What::AtBoard(asked) => self.at_board(asked),
                What::Look(asked) => self.look(asked),
                What::Looked(asked, view) => self.looked(asked, view),
                What::Answer(node, incarnation, roster) => self.answer(node, incarnation, &roster),
                What::Fault(fault) => self.fault(fault),
                What::Check => self.only_one_acts(),
            }
        }
        self.is_live_again();
        self.tally.frozen = u64::from(self.has_frozen);
        self.tally.last_view = self.register.view.number;
        self.tally
    }

    pub fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[usize::from(id.0)]
    }

    pub fn delay_us(&mut self, from: NodeId, to: NodeId) -> u64 {
        let slow = |node: NodeId| self.nodes.get(usize::from(node.0)).map_or(0, |node| node.slow_us);
        let slow = slow(from) + slow(to);
        let jitter = if self.rng.chance(30) { self.rng.below(150_000) } else { self.rng.between(300, 5_000) };
        jitter + if slow > 0 { self.rng.below(slow) } else { 0 }
    }

    /// One message in a hundred, until all faults end.
    pub fn is_lost(&mut self) -> bool {
        self.rng.chance(if self.now_us < FAULTS_END_US { 10 } else { 0 })
    }

    pub fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        !self.cut.contains(&(from, to))
    }

    /// Whether a request and its answer would get through now.
    pub fn reaches(&self, from: NodeId, to: NodeId) -> bool {
        self.nodes[usize::from(to.0)].answers() && self.is_open(from, to) && self.is_open(to, from)
    }

    fn beat(&mut self, id: NodeId, incarnation: u64) {
        let node = &self.nodes[usize::from(id.0)];
        if !node.is_running || node.incarnation != incarnation {
            return;
        }
        if node.is_stopped {
            // It goes on where it was.
            return self.schedule(self.now_us + 50_000, What::Beat(id, incarnation));
        }
        self.node(id).beats += 1;
        self.signs_of_life(id);
        let reports = self.reports(id);
        let (now, settings) = (self.now_us, self.settings);
        let in_view = self.node(id).view().map_or(0, |view| view.number);
        self.watch_mirrors(id);
        let node = &self.nodes[usize::from(id.0)];
        let proposal = decide(id, &node.history, &settings, node.clock_us(now));
        self.carry_out(id, &proposal);
        self.append(id);
        let node = &self.nodes[usize::from(id.0)];
        let asked_us = node.clock_us(now);
        let beat =
            Beat { from: id, incarnation, asked_us, hello: node.hello(), reports, in_view, proposal: proposal.view };
        if self.boards.is_empty() {
            self.send(beat);
        } else {
            self.tell_boards(&beat);
        }
        self.schedule(now + settings.beat_us, What::Beat(id, incarnation));
    }

    fn send(&mut self, beat: Beat) {
        let delay = self.delay_us(beat.from, REGISTER);
        if self.is_open(beat.from, REGISTER) && !self.is_lost() {
            self.schedule(self.now_us + delay, What::Arrive(Box::new(beat)));
        }
    }

    fn signs_of_life(&mut self, id: NodeId) {
        for other in (0..self.nodes.len() as u16).map(NodeId).filter(|other| *other != id) {
            if self.is_open(id, other) && self.nodes[usize::from(other.0)].is_running && !self.is_lost() {
                let at = self.now_us + self.delay_us(id, other);
                let heard = self.node(other).heard_us.entry(id).or_default();
                *heard = (*heard).max(at);
            }
        }
    }

    /// Microseconds since one heard another; a node that has just started counts from then.
    pub fn unheard_us(&mut self, id: NodeId, other: NodeId) -> u64 {
        let now = self.now_us;
        let heard = self.node(id).heard_us.entry(other).or_insert(now);
        now.saturating_sub(*heard)
    }

    fn reports(&mut self, id: NodeId) -> Vec<Report> {
        let mut reports: Vec<Report> = self.nodes[usize::from(id.0)].paid_reports().collect();
        self.load(id, &mut reports);
        if self.nodes[usize::from(id.0)].is_leaving {
            reports.push(Report::Goodbye { is_empty: false });
        }
        for other in (0..self.nodes.len() as u16).map(NodeId).filter(|other| *other != id) {
            if self.unheard_us(id, other) < self.settings.silence_us_min {
                continue;
            }
            let target = &self.nodes[usize::from(other.0)];
            let connects = target.is_machine_up && self.is_open(id, other) && self.is_open(other, id);
            reports.push(if connects && !target.is_running { Report::Refused(other) } else { Report::Unheard(other) });
        }
        reports
    }

    fn carry_out(&mut self, id: NodeId, proposal: &Proposal) {
        for decided in &proposal.decided {
            match &decided.action {
                Action::Wait { .. } => {
                    self.tally.waited_for_daemon += u64::from(matches!(decided.why, cenote_ha::Reason::Refused { .. }));
                }
                Action::TakeOver { wait_leases_until_us: Some(until), .. } => {
                    let at = self.nodes[usize::from(id.0)].true_us(*until);
                    self.schedule(at, What::Check);
                }
                Action::Rebuild { what: Debt::Extents { home, node, since_view } } => {
                    let until = self.now_us + self.rng.between(200_000, 1_500_000);
                    self.node(id).paying.entry((*home, *node, *since_view)).or_insert(until);
                }
                Action::Rebuild { what: Debt::Journal { home, node } } => self.copy_journal(id, *home, *node),
                Action::AddMirror { home, node } => {
                    let base = self.nodes[usize::from(id.0)].view().map_or(0, |view| view.number);
                    self.node(id).pending.push((*home, *node, base));
                }
                Action::Freeze { .. } => self.has_frozen = true,
                Action::Refuse { .. } => self.tally.refused += 1,
                _ => {}
            }
        }
        if !proposal.decided.is_empty() {
            let node = &self.nodes[usize::from(id.0)];
            let explained = || cenote_ha::explain(&node.history, proposal, node.clock_us(self.now_us));
            let done = || {
                explained()
                    .split_once("What is done")
                    .map(|(_, done)| done.replace('\n', "\n          "))
                    .unwrap_or_default()
            };
            self.trace(|| format!("node {} decides{}", id.0, done()));
        }
        let now = self.now_us;
        let node = self.node(id);
        let due: Vec<_> = node.paying.iter().filter(|(_, at)| **at <= now).map(|(debt, _)| *debt).collect();
        node.paid.extend(due);
    }

    fn arrive(&mut self, beat: &Beat) {
        self.register.hear(beat, self.now_us);
        if let Some(view) = &beat.proposal {
            self.swap(beat, view);
        }
        let now = self.now_us;
        let roster = self.register.roster(None, beat.asked_us, |heard_us| now - heard_us);
        let delay = self.delay_us(REGISTER, beat.from);
        if self.is_open(REGISTER, beat.from) && !self.is_lost() {
            self.schedule(self.now_us + delay, What::Answer(beat.from, beat.incarnation, Box::new(roster)));
        }
    }

    fn answer(&mut self, id: NodeId, incarnation: u64, roster: &Roster) {
        let (now, settings) = (self.now_us, self.settings);
        let node = self.node(id);
        if node.is_stopped && node.incarnation == incarnation && node.is_running {
            // The kernel keeps it until the process goes on.
            return self.schedule(now + 50_000, What::Answer(id, incarnation, Box::new(roster.clone())));
        }
        if node.incarnation == incarnation && node.is_running {
            node.learn(roster, now, &settings);
            self.check_beginnings(id);
        }
    }

    fn fault(&mut self, fault: Fault) {
        self.trace(|| format!("{fault:?}"));
        match fault {
            Fault::KillProcess(node) => self.node(node).is_running = false,
            Fault::KillMachine(node) => (self.node(node).is_running, self.node(node).is_machine_up) = (false, false),
            Fault::Leave(node) => self.node(node).is_leaving = true,
            Fault::Start(node) => self.start(node),
            Fault::Destroy(node) => self.destroy(node),
            Fault::Stop(node) => self.node(node).is_stopped = true,
            Fault::Continue(node) => self.node(node).is_stopped = false,
            Fault::Cut(from, to) => _ = self.cut.insert((from, to)),
            Fault::Join(from, to) => _ = self.cut.remove(&(from, to)),
            Fault::Slow(node, us) => self.node(node).slow_us = us,
            Fault::Impostor(node) => self.impostor(node),
            Fault::GiveUp(node) => self.give_up(node),
            Fault::MoveMirror(from, to) => self.move_mirror(from, to),
            Fault::Heal => self.heal(),
        }
    }

    fn start(&mut self, id: NodeId) {
        if !self.nodes[usize::from(id.0)].is_running {
            let now = self.now_us;
            let node = self.node(id);
            node.start();
            let incarnation = node.incarnation;
            self.begin_board(id);
            self.schedule(now, What::Beat(id, incarnation));
        }
    }

    /// Disks are lost only where what was promised to survive it does: that is what layouts and mirrors are for.
    fn destroy(&mut self, id: NodeId) {
        let view = std::sync::Arc::clone(&self.register.view);
        let owed: BTreeSet<NodeId> =
            view.owed().map(|(node, _)| node).chain(self.destroyed.iter().copied()).chain([id]).collect();
        let has_another = |home: &Home| {
            let others = home.copies().filter(|node| *node != id);
            others.into_iter().any(|node| self.nodes[usize::from(node.0)].has_devices)
        };
        let needs_another = |home: &&Home| home.copies().any(|node| node == id);
        let is_survived = view.homes.iter().filter(needs_another).all(has_another) && owed.len() <= view.survives;
        if self.nodes[usize::from(id.0)].is_machine_up || !(is_survived || view.is_shared()) {
            return;
        }
        self.destroyed.insert(id);
        self.tally.destroyed += 1;
        let node = self.node(id);
        (node.has_devices, node.disk_view) = (false, 0);
        node.journals.clear();
    }

    fn impostor(&mut self, id: NodeId) {
        if !self.register.view.is_live(id) {
            return;
        }
        let mut hello = cenote_ha::Hello {
            cluster: CLUSTER,
            identity: identity(NodeId(999)),
            address: "stranger:7".into(),
            left_in_view: 0,
            holds_view: 0,
            devices: Vec::new(),
            lost_devices: Vec::new(),
        };
        match self.rng.below(3) {
            0 => hello.cluster = cenote_ha::ClusterId(7),
            1 => hello.left_in_view = self.register.view.number + 100,
            _ => {}
        }
        for register in std::iter::once(&mut self.register).chain(self.boards.values_mut()) {
            if let Some(known) = register.nodes.get_mut(&id) {
                known.hello = Some(hello.clone());
            }
        }
    }

    fn heal(&mut self) {
        self.cut.clear();
        for id in (0..self.nodes.len() as u16).map(NodeId) {
            let node = self.node(id);
            (node.is_stopped, node.is_leaving, node.slow_us) = (false, false, 0);
            self.start(id);
        }
    }
}

fn first_view(count: u16, survives: usize, is_shared: bool) -> View {
    let mirrors = if is_shared { 0 } else { survives };
    let member = |id| Member {
        id: NodeId(id),
        address: address(NodeId(id)),
        identity: identity(NodeId(id)),
        state: MemberState::Live { since_view: 1 },
        is_leaving: false,
    };
    let home = |id: u16| Home {
        id: HomeId(id),
        host: NodeId(id),
        wanted_host: NodeId(id),
        mirrors: (1..=mirrors as u16).map(|step| NodeId((id + step) % count)).collect(),
        term: 1,
        mirrors_wanted: mirrors,
        moving: None,
        is_shared,
    };
    View {
        cluster: CLUSTER,
        number: 1,
        survives,
        members: (0..count).map(member).collect(),
        homes: (0..count).map(home).collect(),
    }
}
