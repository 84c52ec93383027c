//! The board: what nodes tell a node that keeps the register, and what it passes on to all of them.
//!
//! Each node sends a [`Beat`] and gets a [`Notice`]: whose last beat is how old, who reports what, and the view if it
//! holds an older one. The board itself is pure: times come with the calls.

mod messages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use cenote_ha::{Hello, Report};
use cenote_model::NodeId;

use crate::register::Held;

/// A sign of life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Who lives.
    pub node: NodeId,
    /// Drawn when its process began.
    pub incarnation: u64,
    /// Counts the beats of the process: one that was overtaken tells nothing new.
    pub number: u64,
    /// The view that it holds; 0 if none.
    pub holds_view: u64,
    /// All that it reports now.
    pub reports: Vec<Report>,
    /// The version of the weights of users that all homes have of which it is host; 0 if it is host of none.
    pub weights: u64,
    /// What it says of itself while it starts, or does not take part.
    pub hello: Option<Hello>,
}

/// What the board answers to a beat.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Notice {
    /// The number of the view that the register holds; 0 before the first one.
    pub view: u64,
    /// What the register holds, if its view is newer than that of whoever asks.
    pub held: Option<Held>,
    /// Microseconds since each node was heard here.
    pub heard: Vec<(NodeId, u64)>,
    /// Microseconds since nodes were heard by other boards, as far as this one was told.
    pub heard_elsewhere: Vec<(NodeId, u64)>,
    /// What each node reports now, and the view that it holds.
    pub reports: Vec<(NodeId, u64, Vec<Report>)>,
    /// The version of the weights of users that each node has.
    pub weights: Vec<(NodeId, u64)>,
    /// What nodes say of themselves.
    pub hellos: Vec<(NodeId, Hello)>,
}

/// What is known of one node.
#[derive(Debug)]
struct Known {
    heard_us: u64,
    last: Beat,
}

/// The last beat of each node.
#[derive(Debug)]
pub struct Board {
    began_us: u64,
    known: BTreeMap<NodeId, Known>,
    /// When other boards heard each node.
    elsewhere: BTreeMap<NodeId, u64>,
}

impl Board {
    /// An empty board, which begins at this time: a node that it has not heard yet is silent since then, and no longer.
    pub fn new(began_us: u64) -> Self {
        Self { began_us, known: BTreeMap::new(), elsewhere: BTreeMap::new() }
    }
    /// Takes a beat that arrived at this time, by the clock of the register's node.
    pub fn beat(&mut self, now_us: u64, beat: Beat) {
        match self.known.get_mut(&beat.node) {
            Some(known) => {
                known.heard_us = known.heard_us.max(now_us);
                let is_overtaken = known.last.incarnation == beat.incarnation && known.last.number > beat.number;
                if !is_overtaken {
                    known.last = beat;
                }
            }
            None => _ = self.known.insert(beat.node, Known { heard_us: now_us, last: beat }),
        }
    }
    /// Takes in what another board heard, so many microseconds ago: a node whose way here is cut is not dead.
    pub fn heard_elsewhere(&mut self, now_us: u64, heard: &[(NodeId, u64)]) {
        for (node, ago_us) in heard {
            let at = self.elsewhere.entry(*node).or_default();
            *at = (*at).max(now_us.saturating_sub(*ago_us));
        }
    }
    /// What a node that holds the view `holds_view` is told now. `held`: what the register holds.
    pub fn answer(&self, now_us: u64, holds_view: u64, held: Option<&Held>) -> Notice {
        let view = held.map_or(0, |(view, _)| view.number);
        let others = held.into_iter().flat_map(|(view, _)| view.members.iter().map(|member| member.id));
        let unheard = others.filter(|node| !self.known.contains_key(node)).map(|node| (node, self.began_us));
        let heard = self.known.iter().map(|(node, known)| (*node, known.heard_us)).chain(unheard);
        let reports = self.known.iter().map(|(node, it)| (*node, it.last.holds_view, it.last.reports.clone()));
        Notice {
            view,
            held: held.filter(|_| view > holds_view).cloned(),
            heard: heard.map(|(node, heard_us)| (node, now_us.saturating_sub(heard_us))).collect(),
            heard_elsewhere: self.elsewhere.iter().map(|(node, at)| (*node, now_us.saturating_sub(*at))).collect(),
            reports: reports.collect(),
            weights: self.known.iter().map(|(node, it)| (*node, it.last.weights)).collect(),
            hellos: self.known.iter().filter_map(|(node, it)| Some((*node, it.last.hello.clone()?))).collect(),
        }
    }
    /// What a node says of itself with its last beat.
    pub fn hello(&self, node: NodeId) -> Option<&Hello> {
        self.known.get(&node)?.last.hello.as_ref()
    }
}
