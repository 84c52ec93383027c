//! What a daemon tells of its cluster: the view, what happened, what it concludes, and why.

use crate::{HomeId, NodeId};

/// A change of the cluster that a person asks for ([`crate::Request::ChangeCluster`]). Each may be asked for again: what is done
/// already is not done twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterChange {
    /// The daemon reads the file with the members again, which may have more of them.
    Reread,
    /// A member takes part, with a home of its own; or one that was to leave stays. `Busy` until it has said who it is.
    Join {
        /// The node.
        node: NodeId,
    },
    /// A node is to leave: homes and mirrors that it has move to others.
    Leave {
        /// The node.
        node: NodeId,
    },
    /// A node that is to leave, and has nothing any more, is no member from now on. `Busy`, with what it has, before.
    Forget {
        /// The node.
        node: NodeId,
    },
    /// A node that is gone for good is given up: homes of which it has the last copy are lost, and it never takes part again.
    GiveUp {
        /// The node.
        node: NodeId,
        /// Only whether it could be: nothing is changed.
        dry_run: bool,
    },
    /// A mirror of a home is to be on another node: it stays until that has everything.
    MoveMirror {
        /// The home.
        home: HomeId,
        /// The node that mirrors it.
        from: NodeId,
        /// The node that is to.
        to: NodeId,
    },
    /// Another node becomes the host of a home.
    MoveHome {
        /// The home.
        home: HomeId,
        /// Its host to be.
        to: NodeId,
    },
}

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
    /// What keeps this node from asking the register, the cluster from having a view, or homes of which this node is the host
    /// from being opened; empty if nothing does.
    pub trouble: String,
    /// The nodes of the view.
    pub nodes: Vec<HaNode>,
    /// The homes of the view.
    pub homes: Vec<HaHome>,
    /// What happened, oldest first.
    pub events: Vec<HaEvent>,
    /// What is concluded now.
    pub decided: Vec<HaDecided>,
    /// The copies that this node sends of homes of which it is the host.
    pub copies: Vec<HaCopy>,
    /// What would make the load of nodes even, in the order in which it is to be done; nothing is done by itself.
    pub moves: Vec<HaMove>,
}

/// A copy of a home that should be on another node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaMove {
    /// The home.
    pub home: HomeId,
    /// The node that has the copy.
    pub from: NodeId,
    /// The node that should.
    pub to: NodeId,
    /// The copy is the host's, else a mirror's.
    pub is_host: bool,
    /// Why, as a sentence.
    pub why: String,
}

/// How loaded a node is by copies of homes, as host or as mirror, or what one home costs each node that has a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HaLoad {
    /// Bytes in memory.
    pub memory_bytes: u64,
    /// Bytes on disks.
    pub disk_bytes: u64,
    /// Bytes written each second of late.
    pub written_bytes_per_s: u64,
}

/// How far a copy of a home on another node is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaCopy {
    /// The home.
    pub home: HomeId,
    /// The node that gets the copy.
    pub node: NodeId,
    /// Whether it has everything, and all changes since.
    pub complete: bool,
    /// Bytes of the copy of everything that were sent.
    pub copied_bytes: u64,
    /// How many there are.
    pub total_bytes: u64,
}

/// A node, as the view and the daemon see it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "a report: each is a fact of its own, shown beside the others")]
pub struct HaNode {
    /// Its number.
    pub node: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Whether it takes part.
    pub live: bool,
    /// Whether it is to leave for good.
    pub leaving: bool,
    /// Whether a person gave it up.
    pub given_up: bool,
    /// Whether extents have too few copies because it does not.
    pub owed: bool,
    /// The view that admitted or excluded it.
    pub since_view: u64,
    /// Microseconds since the register heard it, when it last answered.
    pub silence_us: Option<u64>,
    /// Why it is in doubt; empty if it is not.
    pub doubt: String,
    /// What copies of homes cost it.
    pub load: HaLoad,
    /// Bytes that it has free for more copies, in memory and on disks; `None` if it has not said.
    pub room: Option<(u64, u64)>,
}

/// A home, as the view has it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HaHome {
    /// Its number.
    pub home: HomeId,
    /// The node that acts for it.
    pub host: NodeId,
    /// The node that is to act for it.
    pub wanted_host: NodeId,
    /// The nodes that have its journal.
    pub mirrors: Vec<NodeId>,
    /// How many it should have.
    pub mirrors_wanted: u64,
    /// Raised with each change of host.
    pub term: u64,
    /// Whether no copy is left, since its host was given up.
    pub lost: bool,
    /// The node whose mirror is to be on another one, and that one.
    pub moving: Option<(NodeId, NodeId)>,
    /// What each copy of it costs.
    pub load: HaLoad,
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
