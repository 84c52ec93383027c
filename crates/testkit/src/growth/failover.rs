//! What follows the death of nodes: `ha` itself decides on the nodes that are watched, from what an exact register tells them, through
//! a queue before the register's thread.
//!
//! Up to [`WATCHED_ALL_MAX`] nodes all decide. In larger clusters those do whose decisions count: the two whose turn to propose
//! comes first, and the mirrors of the dead; of the others only beats, reports and answers are simulated. The rest of them
//! could propose nothing earlier, since turns are two beats apart.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;

use cenote_ha::{
    Action, ClusterId, Event, History, Home, HomeId, Identity, Member, MemberState, Report, Seen, Settings, View,
    decide, leases_over_us, may_act,
};
use cenote_model::NodeId;

use super::figures::Figures;
use super::nodes::BATCH_NS_MAX;
use super::register::{Answers, service_us, view_bytes};
use super::world::{Spec, Step, World};
use crate::rng::Rng;

/// Up to so many nodes all decide.
pub const WATCHED_ALL_MAX: usize = 100;
/// When nodes die: by then detectors know the rhythm.
const DEATH_US: u64 = 2_000_000;
/// Nothing is waited for longer.
const END_US: u64 = 20_000_000;

/// A run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Nodes; each has a home.
    pub nodes: usize,
    /// What the weakest layout survives; each home has as many mirrors.
    pub survives: usize,
    /// Those that die at once.
    pub dead: Vec<usize>,
    /// What the register answers.
    pub answers: Answers,
    /// Times.
    pub settings: Settings,
    /// Objects in each home, for the opening of a journal.
    pub objects: u64,
    /// Of phases of beats and of delays.
    pub seed: u64,
}

/// Times in microseconds after the deaths. None: not within 18 s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// The first proposal to exclude a dead node.
    pub proposed_us: Option<u64>,
    /// The register takes it.
    pub excluded_us: Option<u64>,
    /// The heir is told.
    pub told_us: Option<u64>,
    /// The heir may act, by `ha`'s own word, and has opened the journal.
    pub acts_us: Option<u64>,
    /// All live nodes have been told, each when.
    pub told_all_us: Vec<u64>,
    /// Somebody decided to freeze.
    pub has_frozen: bool,
    /// The oldest answer that a live node had to rely on at any time.
    pub oldest_answer_us: u64,
    /// Live nodes whose last answer was older than a lease at some time: their homes stood still.
    pub stood_still: usize,
    /// Share of its time for which the register's thread was busy.
    pub register_busy: f64,
    /// Proposals that came too late.
    pub lost_swaps: u64,
    /// Decisions made.
    pub decisions: u64,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Beat(usize),
    Arrive(usize, u64, Option<usize>),
    Served(usize, u64, Option<usize>),
    Answer(usize, u64, usize),
    Check,
}

/// What the register tells a watched node.
struct Roster {
    view: Arc<View>,
    heard_us: Vec<u64>,
    in_view: Vec<u64>,
}

struct Cluster<'a> {
    setup: &'a Setup,
    figures: &'a Figures,
    rng: Rng,
    now_us: u64,
    queue: BinaryHeap<Reverse<(u64, u64, What)>>,
    sequence: u64,
    view: Arc<View>,
    heard_us: Vec<u64>,
    /// By node, the view that it holds.
    holds: Vec<u64>,
    asked_us: Vec<u64>,
    has_stood: Vec<bool>,
    told_us: Vec<Option<u64>>,
    histories: BTreeMap<usize, History>,
    proposals: Vec<View>,
    rosters: Vec<Option<Roster>>,
    free_us: f64,
    busy_us: f64,
    view_bytes: u64,
    outcome: Outcome,
}

/// A first view as `cenote cluster start` makes it: a home for each node, mirrored by the next ones.
pub fn first_view(nodes: usize, survives: usize) -> View {
    let member = |id: usize| Member {
        id: NodeId(id as u16),
        address: format!("node{id:05}:7420"),
        identity: Identity(id as u128 + 1),
        state: MemberState::Live { since_view: 1 },
        is_leaving: false,
    };
    let home = |id: usize| Home {
        id: HomeId(id as u16),
        host: NodeId(id as u16),
        wanted_host: NodeId(id as u16),
        mirrors: (1..=survives.min(nodes - 1)).map(|step| NodeId(((id + step) % nodes) as u16)).collect(),
        term: 1,
        mirrors_wanted: survives.min(nodes - 1),
        moving: None,
        is_shared: false,
    };
    View {
        cluster: ClusterId(1),
        number: 1,
        survives,
        members: (0..nodes).map(member).collect(),
        homes: (0..nodes).map(home).collect(),
    }
}

/// Runs until the heir of the first dead node acts and all know, or time is over.
pub fn run(figures: &Figures, setup: &Setup) -> Outcome {
    let nodes = setup.nodes;
    let mut watched: Vec<usize> = (0..nodes).collect();
    if nodes > WATCHED_ALL_MAX {
        let heirs = setup.dead.iter().flat_map(|dead| (1..=setup.survives).map(move |step| (dead + step) % nodes));
        watched = heirs.take(6).chain([0, 1]).collect();
    }
    let view = Arc::new(first_view(nodes, setup.survives));
    let mut cluster = Cluster {
        setup,
        figures,
        rng: Rng::new(setup.seed),
        now_us: 0,
        queue: BinaryHeap::new(),
        sequence: 0,
        view_bytes: view_bytes(&view),
        view,
        heard_us: vec![0; nodes],
        holds: vec![0; nodes],
        asked_us: vec![0; nodes],
        has_stood: vec![false; nodes],
        told_us: vec![None; nodes],
        histories: watched.into_iter().map(|node| (node, History::default())).collect(),
        proposals: Vec::new(),
        rosters: Vec::new(),
        free_us: 0.0,
        busy_us: 0.0,
        outcome: Outcome { nodes, ..Outcome::default() },
    };
    cluster.run();
    cluster.outcome
}

impl Cluster<'_> {
    fn run(&mut self) {
        for node in 0..self.setup.nodes {
            let at = self.rng.below(self.setup.settings.beat_us);
            self.schedule(at, What::Beat(node));
        }
        while let Some(Reverse((at_us, _, what))) = self.queue.pop() {
            if at_us > END_US || self.is_over() {
                break;
            }
            self.now_us = at_us;
            match what {
                What::Beat(node) => self.beat(node),
                What::Arrive(node, asked_us, proposal) => self.arrive(node, asked_us, proposal),
                What::Served(node, asked_us, proposal) => self.served(node, asked_us, proposal),
                What::Answer(node, asked_us, roster) => self.answer(node, asked_us, roster),
                What::Check => self.check(),
            }
        }
        self.outcome.told_all_us = self.told_us.iter().filter_map(|told| Some(told.as_ref()? - DEATH_US)).collect();
        self.outcome.stood_still = self.has_stood.iter().filter(|stood| **stood).count();
        self.outcome.register_busy = self.busy_us / self.now_us.max(1) as f64;
    }

    fn is_over(&self) -> bool {
        let living = self.setup.nodes - self.setup.dead.len();
        self.outcome.acts_us.is_some() && self.told_us.iter().flatten().count() >= living
    }

    fn schedule(&mut self, at_us: u64, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse((at_us.max(self.now_us), self.sequence, what)));
    }

    fn is_dead(&self, node: usize) -> bool {
        self.now_us >= DEATH_US && self.setup.dead.contains(&node)
    }

    /// One way of a message to a thread that may sleep.
    fn way_us(&mut self) -> u64 {
        let figures = self.figures;
        let awake = figures.wire_us.value + figures.message_us.value + figures.syscall_us.value;
        awake as u64 + self.rng.below(figures.wake_us.value as u64 + 1)
    }

    fn beat(&mut self, node: usize) {
        if self.is_dead(node) {
            return;
        }
        self.note_age(node);
        let (now, settings) = (self.now_us, self.setup.settings);
        let mut after_us = 0;
        let mut proposal = None;
        if let Some(history) = self.histories.get(&node) {
            let decided = decide(NodeId(node as u16), history, &settings, now);
            self.outcome.decisions += 1;
            after_us = (self.figures.decide_ns.value * self.setup.nodes as f64 / 1e3) as u64;
            for one in &decided.decided {
                self.outcome.has_frozen |= matches!(one.action, Action::Freeze { .. });
                let excludes = matches!(one.action, Action::Exclude { .. });
                if excludes && self.outcome.proposed_us.is_none() {
                    self.outcome.proposed_us = Some(now - DEATH_US);
                }
            }
            proposal = decided.view.map(|view| {
                self.proposals.push(view);
                self.proposals.len() - 1
            });
        }
        let at = now + after_us + self.way_us();
        self.schedule(at, What::Arrive(node, now, proposal));
        self.schedule(now + settings.beat_us, What::Beat(node));
    }

    /// The oldest answer that a node relies on. Those of the start and of excluded nodes say nothing.
    fn note_age(&mut self, node: usize) {
        if self.now_us < DEATH_US / 2 {
            return;
        }
        let age = self.now_us - self.asked_us[node];
        self.outcome.oldest_answer_us = self.outcome.oldest_answer_us.max(age);
        self.has_stood[node] |= age >= self.setup.settings.lease_us;
    }

    /// The register's thread takes questions in turn.
    fn arrive(&mut self, node: usize, asked_us: u64, proposal: Option<usize>) {
        let news = if self.holds[node] < self.view.number { self.news_bytes() } else { 0 };
        let mut service = service_us(self.figures, self.setup.nodes, self.setup.answers, news);
        if self.free_us < self.now_us as f64 {
            service += self.setup.nodes as f64 * self.figures.poll_ns.value / 1e3; // it looks at all its connections
        }
        self.free_us = f64::max(self.free_us, self.now_us as f64) + service;
        self.busy_us += service;
        let end = self.free_us as u64;
        self.schedule(end, What::Served(node, asked_us, proposal));
    }

    fn news_bytes(&self) -> u64 {
        match self.setup.answers {
            Answers::Whole => self.view_bytes,
            // A member and two or three homes have changed.
            Answers::News => 4 * self.view_bytes / self.setup.nodes as u64,
        }
    }

    fn served(&mut self, node: usize, asked_us: u64, proposal: Option<usize>) {
        self.heard_us[node] = self.now_us;
        if let Some(next) = proposal.map(|number| self.proposals[number].clone()) {
            self.swap(next);
        }
        self.rosters.push(self.histories.contains_key(&node).then(|| Roster {
            view: Arc::clone(&self.view),
            heard_us: self.heard_us.clone(),
            in_view: self.holds.clone(),
        }));
        self.holds[node] = self.view.number;
        let at = self.now_us + self.way_us();
        self.schedule(at, What::Answer(node, asked_us, self.rosters.len() - 1));
    }

    fn swap(&mut self, next: View) {
        if next.number != self.view.number + 1 {
            self.outcome.lost_swaps += 1;
            return;
        }
        let is_excluded = |node: &usize| !next.is_live(NodeId(*node as u16));
        if self.outcome.excluded_us.is_none() && self.setup.dead.iter().any(is_excluded) {
            self.outcome.excluded_us = Some(self.now_us - DEATH_US);
        }
        self.view = Arc::new(next);
    }

    fn answer(&mut self, node: usize, asked_us: u64, roster: usize) {
        if self.is_dead(node) {
            return;
        }
        self.note_age(node);
        self.asked_us[node] = asked_us;
        if self.outcome.excluded_us.is_some() && self.told_us[node].is_none() && self.holds[node] > 1 {
            self.told_us[node] = Some(self.now_us);
        }
        let Some(roster) = self.rosters[roster].take() else { return };
        let first_dead = self.setup.dead[0];
        let (reports, now, settings) = (self.reports(), self.now_us, self.setup.settings);
        let Some(history) = self.histories.get_mut(&node) else { return };
        let mut record = |at_us: u64, seen: Seen| history.record(Event { at_us, seen }, &settings);
        for (other, heard_us) in roster.heard_us.iter().enumerate().filter(|(_, heard_us)| **heard_us > 0) {
            record(*heard_us, Seen::Heard(NodeId(other as u16)));
        }
        record(now, Seen::Register { view: Arc::clone(&roster.view), asked_us });
        for (by, in_view) in roster.in_view.iter().enumerate() {
            let reports = if self.setup.dead.contains(&by) { Vec::new() } else { reports.clone() };
            record(now, Seen::Reports { by: NodeId(by as u16), in_view: *in_view, reports });
        }
        let home = roster.view.home(HomeId(first_dead as u16));
        let term = home.filter(|home| usize::from(home.host.0) == node && home.term > 1).map(|home| home.term);
        let told = term.and_then(|term| history.told_us(HomeId(first_dead as u16), term));
        if let Some(told) = told.filter(|_| self.outcome.told_us.is_none()) {
            self.outcome.told_us = Some(told - DEATH_US);
            let opened = told + (self.setup.objects as f64 * self.figures.open_us.value) as u64;
            self.schedule(opened.max(leases_over_us(told, &settings)), What::Check);
        }
    }

    /// What all nodes that live say of the dead: connections between nodes have beats, too.
    fn reports(&self) -> Vec<Report> {
        let is_silent = self.now_us >= DEATH_US + self.setup.settings.silence_us_min;
        let unheard = |node: &usize| Report::Unheard(NodeId(*node as u16));
        if is_silent { self.setup.dead.iter().map(unheard).collect() } else { Vec::new() }
    }

    /// The heir acts if `ha` says so.
    fn check(&mut self) {
        let (home, now, settings) = (HomeId(self.setup.dead[0] as u16), self.now_us, self.setup.settings);
        let Some(host) = self.view.home(home).map(|home| home.host) else { return };
        let Some(history) = self.histories.get(&usize::from(host.0)) else { return };
        let view = history.view().cloned();
        if view.is_some_and(|view| may_act(host, &view, home, history, &settings, now)) {
            self.outcome.acts_us.get_or_insert(now - DEATH_US);
        } else {
            self.schedule(now + settings.beat_us / 10, What::Check);
        }
    }
}

/// Milliseconds after the deaths at which half and all clients of the home are attached to the heir: each node connects when
/// it is told and the heir acts, and each of its programs opens a session and asks again for a map.
pub fn attached_ms(figures: &Figures, outcome: &Outcome, clients: usize) -> Option<(f64, f64)> {
    let acts_us = outcome.acts_us?;
    let mut world = World::default();
    let call_ns = Figures::ns(figures.syscall_us);
    let heir = world.station(Spec {
        batch_ns_max: BATCH_NS_MAX,
        group_ns: call_ns as u64,
        turn_ns: (outcome.nodes as f64 * figures.poll_ns.value) as u64,
        ..Spec::DEVICE
    });
    let request = figures.request_bytes.value as u64;
    let there_and_back = Step::wait(2.0 * (Figures::ns(figures.wire_us) + call_ns + figures.message_ns(request)));
    for (node, told_us) in outcome.told_all_us.iter().enumerate() {
        let exchange = |ns: f64| Step::at(heir, call_ns + 2.0 * figures.message_ns(request) + ns, request, node as u32);
        let mut way = vec![Step::wait((*told_us).max(acts_us) as f64 * 1e3)];
        // Hello and challenge, proof and acceptance.
        way.extend([there_and_back, exchange(0.0), there_and_back, exchange(0.0), there_and_back]);
        let asks = vec![exchange(0.0), there_and_back, exchange(Figures::ns(figures.lookup_us)), there_and_back];
        way.extend(std::iter::repeat_n(asks, clients).flatten());
        world.launch(node as u64, way);
    }
    let mut ends = Vec::new();
    while world.run_on().is_some() {
        ends.push(world.now_ns() as f64 / 1e6);
    }
    Some((*ends.get(ends.len() / 2)?, *ends.last()?))
}

/// How often in a year more nodes than `survives` are gone and not made good at once, so that `ha` freezes, if each loss takes
/// `window_s` to be made good; and how often because a rack dies that has more than these.
pub fn freezes_a_year(figures: &Figures, nodes: usize, survives: usize, window_s: f64) -> (f64, f64) {
    const YEAR_S: f64 = 365.25 * 86400.0;
    let per_s = nodes as f64 / (figures.failure_years.value * YEAR_S);
    let others = per_s * window_s;
    // A failure freezes all if `survives` others or more are in their windows: a Poisson number of them.
    let mut fewer = 0.0;
    let mut term = (-others).exp();
    for count in 0..survives {
        fewer += term;
        term *= others / (count + 1) as f64;
    }
    // For rare events the sum above is 1 to all digits; its complement's first term is exact enough then.
    let more = f64::max(1.0 - fewer, term);
    let per_rack = figures.rack_nodes.value as usize;
    let racks = if per_rack > survives { nodes.div_ceil(per_rack) } else { 0 };
    (per_s * YEAR_S * more, racks as f64 / figures.rack_years.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(nodes: usize, dead: Vec<usize>) -> Setup {
        let settings = Settings::default();
        Setup { nodes, survives: 2, dead, answers: Answers::Whole, settings, objects: 100_000, seed: 5 }
    }

    #[test]
    fn a_dead_node_is_missed_excluded_and_replaced_in_this_order() {
        let outcome = run(&Figures::measured(), &setup(10, vec![5]));
        let steps = [outcome.proposed_us, outcome.excluded_us, outcome.told_us, outcome.acts_us].map(Option::unwrap);
        assert!(steps.is_sorted(), "{outcome:?}");
        let settings = Settings::default();
        assert!(steps[0] >= settings.silence_us_min - settings.beat_us, "{outcome:?}");
        assert!(steps[3] - steps[2] >= settings.lease_us, "no successor acts while a lease may run: {outcome:?}");
        assert!(steps[3] < 2_500_000, "{outcome:?}");
        assert_eq!((outcome.stood_still, outcome.told_all_us.len()), (0, 9));
        assert!(!outcome.has_frozen);
        assert_eq!(outcome, run(&Figures::measured(), &setup(10, vec![5])));
    }

    #[test]
    fn those_that_are_watched_decide_as_all_would() {
        let figures = Figures::measured();
        let [all, some] = [100, 101].map(|nodes| run(&figures, &setup(nodes, vec![50])));
        assert!(all.decisions > 10 * some.decisions, "{all:?} {some:?}");
        let (all, some) = (all.acts_us.unwrap() as i64, some.acts_us.unwrap() as i64);
        assert!((all - some).unsigned_abs() < 2 * Settings::default().beat_us, "{all} {some}");
    }

    #[test]
    fn a_rack_that_dies_freezes_all() {
        let outcome = run(&Figures::measured(), &setup(100, (40..80).collect()));
        assert!(outcome.has_frozen && outcome.excluded_us.is_none(), "{outcome:?}");
    }

    #[test]
    fn a_register_with_too_much_to_tell_stops_all() {
        let nodes = 4000;
        let figures = Figures::measured();
        let whole = run(&figures, &setup(nodes, vec![nodes / 2]));
        assert!(whole.register_busy > 0.9 && whole.stood_still > nodes / 2, "{whole:?}");
        let news = run(&figures, &Setup { answers: Answers::News, ..setup(nodes, vec![nodes / 2]) });
        assert!(news.stood_still == 0 && news.acts_us.is_some(), "{news:?}");
    }

    #[test]
    fn clients_attach_after_the_heir_acts_and_many_take_longer() {
        let figures = Figures::measured();
        let outcome = run(&figures, &setup(10, vec![5]));
        let attached = |clients| attached_ms(&figures, &outcome, clients).unwrap();
        let (few, many) = (attached(1), attached(1000));
        assert!(few.0 * 1e3 >= outcome.acts_us.unwrap() as f64 && few.0 <= few.1, "{few:?}");
        assert!(many.1 > few.1 + 10.0, "{few:?} {many:?}");
    }

    #[test]
    fn freezes_become_more_with_nodes_and_with_the_time_to_repair() {
        let figures = Figures::measured();
        let of = |nodes, survives, window_s| freezes_a_year(&figures, nodes, survives, window_s).0;
        let one = of(1000, 1, 100.0);
        // 200 failures a year, each with a chance of 200 * 100 s / year that another is in its window.
        assert!((one / (200.0 * 200.0 * 100.0 / (365.25 * 86400.0)) - 1.0).abs() < 0.01, "{one}");
        assert!((of(2000, 1, 100.0) / one - 4.0).abs() < 0.01 && (of(1000, 1, 200.0) / one - 2.0).abs() < 0.01);
        assert!(of(1000, 2, 100.0) < one / 1000.0 && of(1000, 2, 100.0) > 0.0);
        assert!((freezes_a_year(&figures, 1000, 2, 1.0).1 - 2.5).abs() < 1e-9);
    }
}
