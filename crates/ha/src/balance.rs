//! Which copies of homes should be on other nodes, so that load is even. A person has it done; nothing here moves by itself.
//!
//! One move after the other is planned: from the node with the most to one with the least, if that makes the greater of the
//! two at least a fifth less. Written bytes come first, then bytes; a move for bytes may not make a node write more than the
//! one that writes most. Small homes stay where they are. Each move is a copy of a home, so what is nearly even stays.

use std::fmt;

use cenote_model::NodeId;

use crate::load::{Cost, Loads};
use crate::{Home, HomeId, View};

/// A home that is moved for it has at least so many bytes, or bytes written each second.
const BYTES_MIN: u64 = 16 << 20;
const WRITTEN_MIN: u64 = 1 << 20;
/// What is left of the greater load after a move, in fifths at most.
const LEFT_FIFTHS: u64 = 4;

/// What is to become more even.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Measure {
    /// Bytes that are written each second.
    Written,
    /// Bytes that copies take.
    Bytes,
}

/// A copy of a home that should be on another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Move {
    /// The home.
    pub home: HomeId,
    /// The node that has the copy.
    pub from: NodeId,
    /// The node that should.
    pub to: NodeId,
    /// The copy is the host's, else a mirror's.
    pub is_host: bool,
    /// What becomes more even by it.
    pub measure: Measure,
    /// That of both nodes before, and after.
    pub before: (u64, u64),
    /// See `before`.
    pub after: (u64, u64),
}

impl Measure {
    fn of(self, cost: Cost) -> u64 {
        match self {
            Self::Written => cost.written,
            Self::Bytes => cost.bytes(),
        }
    }
    fn least(self) -> u64 {
        match self {
            Self::Written => WRITTEN_MIN,
            Self::Bytes => BYTES_MIN,
        }
    }
}

impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = |amount: u64| match self.measure {
            Measure::Written => format!("{}/s", mib(amount)),
            Measure::Bytes => mib(amount),
        };
        let verb = match self.measure {
            Measure::Written => "write",
            Measure::Bytes => "have",
        };
        write!(
            f,
            "node {} and node {} {verb} {} and {} for their copies of homes, and {} and {} after it",
            self.from.0,
            self.to.0,
            what(self.before.0),
            what(self.before.1),
            what(self.after.0),
            what(self.after.1)
        )
    }
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / 1_048_576.0)
}

/// The moves that make the load of nodes even, in the order in which they are to be made; none if it is even enough.
pub fn balance(view: &View, loads: &Loads) -> Vec<Move> {
    let (mut view, mut moves) = (view.clone(), Vec::new());
    // Each move lowers the greatest load of two nodes by a fifth, so there are few; this bounds them whatever they are.
    for _ in 0..2 * view.homes.len() {
        let next = [Measure::Written, Measure::Bytes].into_iter().find_map(|measure| best(&view, loads, measure));
        let Some(next) = next else { break };
        if let Some(home) = view.home_mut(next.home) {
            if next.is_host {
                (home.host, home.wanted_host) = (next.to, next.to);
            } else {
                home.mirrors.retain(|mirror| *mirror != next.from);
                home.mirrors.push(next.to);
            }
        }
        moves.push(next);
    }
    moves
}

fn best(view: &View, loads: &Loads, measure: Measure) -> Option<Move> {
    let by_node = loads.by_node(view);
    let cost = |node: NodeId| by_node.get(&node).copied().unwrap_or_default();
    let mut nodes: Vec<NodeId> = view.live().filter(|node| view.stays(*node)).collect();
    nodes.sort_by_key(|node| (measure.of(cost(*node)), *node));
    let written_max = nodes.iter().map(|node| cost(*node).written).max()?;
    // From the node with the most to that with the least, as far as something may move.
    for from in nodes.iter().rev() {
        let candidates = view.homes.iter().filter_map(|home| Some((home, role(view, home, *from)?)));
        let candidates: Vec<(&Home, bool)> = candidates.collect();
        for to in nodes.iter().filter(|to| *to != from) {
            let made = |(home, is_host): &(&Home, bool)| {
                let its = loads.cost(home.id);
                let (from_has, to_has) = (measure.of(cost(*from)), measure.of(cost(*to)));
                let moved = measure.of(its);
                let after = (from_has - moved.min(from_has), to_has + moved);
                let is_worth = moved >= measure.least() && after.0.max(after.1) <= from_has / 5 * LEFT_FIFTHS;
                let keeps_written = measure == Measure::Written || cost(*to).written + its.written <= written_max;
                let may = is_worth && keeps_written && !home.is_on(*to) && loads.has_room(*to, home.id);
                let (home, is_host, before) = (home.id, *is_host, (from_has, to_has));
                may.then_some(Move { home, from: *from, to: *to, is_host, measure, before, after })
            };
            // What makes them most even; of equals a mirror, for which nobody waits.
            let found = candidates.iter().filter_map(made);
            let found = found.min_by_key(|it| (it.after.0.max(it.after.1), it.is_host, it.home));
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// Whether a copy of a home on a node may move: as host (true), as mirror (false), or not at all.
fn role(view: &View, home: &Home, node: NodeId) -> Option<bool> {
    let is_settled = home.moving.is_none() && home.host == home.wanted_host && !view.is_lost(home);
    let has_mirrors = home.mirrors.len() >= home.mirrors_wanted;
    if !is_settled || home.is_shared || !has_mirrors {
        return None;
    }
    if home.mirrors.contains(&node) {
        return Some(false);
    }
    // Programs of its own node work with it as their own.
    (home.host == node && !view.stays(NodeId(home.id.0)) && view.survives > 0).then_some(true)
}
