//! What a daemon tells of its cluster: the view, what happened, what it concludes, and why.

use crate::{HomeId, NodeId};

/// Answer to [`crate::Request::HaReport`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaReport {
    /// The node whose daemon tells.
    pub node: NodeId,
    /// Number of the view; 0 if it knows none yet.
    pub view: u64,
    /// How many nodes can be lost while all bytes remain.
    pub survives: u64,
    /// Microseconds since the register was asked for the last answer that came; `None` if it has not answered yet.
    pub asked_ago_us: Option<u64>,
    /// What keeps this node from asking the register, or the cluster from having a view; empty if nothing does.
    pub trouble: String,
    /// The nodes of the view.
    pub nodes: Vec<HaNode>,
    /// The homes of the view.
    pub homes: Vec<HaHome>,
    /// What happened, oldest first.
    pub events: Vec<HaEvent>,
    /// What is concluded now.
    pub decided: Vec<HaDecided>,
}

/// A node, as the view and the daemon see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaNode {
    /// Its number.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Whether it takes part.
    pub live: bool,
    /// Whether extents have too few copies because it does not.
    pub owed: bool,
    /// The view that admitted or excluded it.
    pub since_view: u64,
    /// Microseconds since the register heard it, when it last answered.
    pub silence_us: Option<u64>,
    /// Why it is in doubt; empty if it is not.
    pub doubt: String,
}

/// A home, as the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaHome {
    /// Its number.
    pub home: HomeId,
    /// The node that acts for it.
    pub host: NodeId,
    /// The nodes that have its journal.
    pub mirrors: Vec<NodeId>,
    /// How many it should have.
    pub mirrors_wanted: u64,
    /// Raised with each change of host.
    pub term: u64,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaEvent {
    /// Microseconds ago.
    pub ago_us: u64,
    /// What, as a sentence.
    pub what: String,
}

/// A conclusion.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaDecided {
    /// Its kind, for programs: `wait`, `exclude`, `take-over`, `drop-mirror`, `add-mirror`, `readmit`, `settle`, `refuse`,
    /// `rebuild`, `freeze`, `tell`.
    pub kind: String,
    /// Whether it brings copies back, or gives a home another host.
    pub repairs: bool,
    /// What is to be done, as a sentence.
    pub what: String,
    /// Why.
    pub why: String,
}
