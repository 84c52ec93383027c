//! What is to be done.

use cenote_model::{DeviceId, NodeId};

use crate::{HomeId, Reason, View};

/// What a node brings when it is readmitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Its devices have what they had. Runs are written once, so what maps still name there is good.
    Kept,
    /// Nothing on it counts any more.
    Empty,
}

/// What has too few copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Debt {
    /// Extents of a home that lay on a node. They are debts one by one: a node that comes back in the middle shortens
    /// the work, and cancels none of it.
    Extents {
        /// The home.
        home: HomeId,
        /// The node.
        node: NodeId,
        /// The view that excluded it.
        since_view: u64,
    },
    /// A home's journal, which this node should get.
    Journal {
        /// The home.
        home: HomeId,
        /// The new mirror.
        node: NodeId,
    },
    /// What lay on one device.
    Device {
        /// The node.
        node: NodeId,
        /// The device.
        device: DeviceId,
    },
}

/// Something to do, or to leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Nothing yet.
    Wait {
        /// When this is decided anew at the latest; `None` if only an event changes it.
        until_us: Option<u64>,
    },
    /// Take the node out of the view. Proposed.
    Exclude {
        /// The node.
        node: NodeId,
    },
    /// Another node becomes host of a home. Without a time it is proposed; with one the view says so, and the new host
    /// (this node) opens the journal now and acts when the leases of its predecessors are over.
    TakeOver {
        /// The home.
        home: HomeId,
        /// Its host to be.
        by: NodeId,
        /// By this node's clock.
        wait_leases_until_us: Option<u64>,
    },
    /// The host goes on without a mirror. Proposed.
    DropMirror {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
    },
    /// A node that has all of a journal becomes a mirror. Proposed; from then on, until the register holds a later view,
    /// the host acknowledges only what this node has too.
    AddMirror {
        /// The home.
        home: HomeId,
        /// The mirror to be.
        node: NodeId,
    },
    /// An excluded node takes part again. Proposed.
    Readmit {
        /// The node.
        node: NodeId,
        /// What of it counts.
        contents: Contents,
    },
    /// All that lay on an excluded node is made good. Proposed.
    Settle {
        /// The node.
        node: NodeId,
    },
    /// A node may not take part.
    Refuse {
        /// The node, by the number that it claims.
        node: NodeId,
    },
    /// Make copies, in the background.
    Rebuild {
        /// Of what.
        what: Debt,
    },
    /// Do nothing: going on could lose what these nodes alone have.
    Freeze {
        /// The nodes that would have to be excluded.
        suspects: Vec<NodeId>,
        /// Homes of which no copy would be left.
        homes: Vec<HomeId>,
    },
    /// Nothing to do, but somebody should know.
    Tell,
}

/// An action with its reason.
#[derive(Clone, PartialEq, Debug)]
pub struct Decided {
    /// What to do.
    pub action: Action,
    /// Why.
    pub why: Reason,
}

/// What follows from a history.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Proposal {
    /// What to do. Those that are proposed count once the register holds `view`.
    pub decided: Vec<Decided>,
    /// The view to put into the register if it still holds the one with the number before. If it does not, read it and
    /// decide anew.
    pub view: Option<View>,
}
