//! From a history to actions.

mod homes;
mod returns;
mod suspects;

use std::collections::BTreeMap;

use cenote_model::NodeId;

use crate::{Action, Decided, History, Loads, Proposal, Reason, Report, Settings, View, lease_until_us};
use suspects::{Suspect, suspects};

/// How long after its last sign of life a node is believed that all nodes are being stopped.
const CLOSING_US: u64 = 60_000_000;

/// What every rule looks at.
pub(crate) struct Facts<'a> {
    pub me: NodeId,
    pub view: &'a View,
    pub history: &'a History,
    pub settings: &'a Settings,
    pub now_us: u64,
    pub suspects: Vec<Suspect>,
    /// How many members are live.
    pub live: usize,
    /// Who says of a node that it is not heard. Gathered once: each decision asks this of each node.
    pub unheard_by: BTreeMap<NodeId, Vec<NodeId>>,
}

/// What this node should do now, given what it has seen. A function of its arguments.
///
/// Decide anew after each event that is not a heartbeat, each beat, and at the times that [`Action::Wait`] names.
pub fn decide(me: NodeId, history: &History, settings: &Settings, now_us: u64) -> Proposal {
    let Some(view) = history.view() else { return only_wait(None, Reason::NoView) };
    let asked = history.asked_us().unwrap_or(0);
    if now_us >= lease_until_us(asked, settings) {
        return only_wait(None, Reason::RegisterSilent { since_us: now_us.saturating_sub(asked) });
    }
    if !view.is_live(me) {
        return only_wait(None, Reason::NotLive);
    }
    if let Some(node) = closing(history, now_us) {
        return only_wait(None, Reason::Closing { node });
    }
    let (live, unheard_by) = (view.live().count(), unheard_by(history));
    let mut facts = Facts { me, view, history, settings, now_us, suspects: Vec::new(), live, unheard_by };
    let mut plan = Plan::new(view);
    facts.suspects = suspects(&facts, &mut plan);
    suspects::exclude(&facts, &mut plan);
    homes::care(&facts, &mut plan);
    returns::answer(&facts, &mut plan);
    plan.finish()
}

/// A node that said with its last sign of life that all nodes are being stopped, if that was lately.
fn closing(history: &History, now_us: u64) -> Option<NodeId> {
    let is_fresh = |peer: &crate::history::Peer| {
        peer.detector.heard_us().is_some_and(|heard| now_us.saturating_sub(heard) < CLOSING_US)
    };
    let mut closing =
        history.peers.iter().filter(|(_, peer)| peer.reports.contains(&Report::Closing) && is_fresh(peer));
    closing.next().map(|(node, _)| *node)
}

fn unheard_by(history: &History) -> BTreeMap<NodeId, Vec<NodeId>> {
    let mut found: BTreeMap<NodeId, Vec<NodeId>> = BTreeMap::new();
    for (by, peer) in &history.peers {
        for report in &peer.reports {
            let Report::Unheard(node) = report else { continue };
            let witnesses = found.entry(*node).or_default();
            if witnesses.last() != Some(by) {
                witnesses.push(*by); // once, however often it says so
            }
        }
    }
    found
}

fn only_wait(until_us: Option<u64>, why: Reason) -> Proposal {
    Proposal { decided: vec![Decided { action: Action::Wait { until_us }, why }], view: None }
}

impl Facts<'_> {
    /// Live and not in doubt.
    pub fn is_sound(&self, node: NodeId) -> bool {
        self.view.is_live(node) && !self.suspects.iter().any(|suspect| suspect.node == node)
    }
    /// What others know as well somebody has to propose first: sound nodes do in the order of their numbers, each two
    /// beats after the one before, so that the register does not get as many proposals as there are nodes.
    pub fn turn_us(&self, is_sound: impl Fn(NodeId) -> bool) -> u64 {
        let before = self.view.live().filter(|node| *node < self.me && is_sound(*node)).count();
        before.min(10) as u64 * 2 * self.settings.beat_us
    }
    pub fn reports(&self, node: NodeId) -> &[Report] {
        self.history.peers.get(&node).map_or(&[], |peer| &peer.reports)
    }
    /// How loaded all nodes are. Not for each home: it looks at all of them.
    pub fn loads(&self) -> Loads {
        self.history.loads()
    }
    /// What a node says of itself, and since when; none if it no longer does.
    pub fn hello<'a>(&self, peer: &'a crate::history::Peer) -> Option<(u64, &'a crate::Hello)> {
        let (since, last, hello) = peer.hello.as_ref()?;
        (self.now_us.saturating_sub(*last) <= self.settings.silence_us_max).then_some((*since, hello))
    }
    /// Says whether an event of that time still describes the present.
    pub fn is_fresh(&self, at_us: u64) -> bool {
        self.now_us.saturating_sub(at_us) <= self.settings.silence_us_min
    }
}

/// The decisions so far, and the view that they would make.
pub(crate) struct Plan<'a> {
    decided: Vec<Decided>,
    before: &'a View,
    after: Option<View>,
}

impl<'a> Plan<'a> {
    fn new(before: &'a View) -> Self {
        Self { decided: Vec::new(), before, after: None }
    }
    pub fn add(&mut self, action: Action, why: Reason) {
        self.decided.push(Decided { action, why });
    }
    pub fn wait(&mut self, until_us: Option<u64>, why: Reason) {
        self.add(Action::Wait { until_us }, why);
    }
    /// Adds an action that changes the view.
    pub fn propose(&mut self, action: Action, why: Reason, change: impl FnOnce(&mut View)) {
        change(self.after.get_or_insert_with(|| self.before.clone()));
        self.add(action, why);
    }
    pub fn view(&self) -> &View {
        self.after.as_ref().unwrap_or(self.before)
    }
    fn finish(mut self) -> Proposal {
        if let Some(view) = &mut self.after {
            view.drop_old_moves();
            view.number += 1;
        }
        Proposal { decided: self.decided, view: self.after }
    }
}
