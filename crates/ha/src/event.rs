//! What a node sees of the cluster: the only input of decisions besides the view.

use std::sync::Arc;

use cenote_model::{DeviceId, NodeId};

use crate::{ClusterId, Cost, HomeId, Identity, Room, View};

/// Something seen.
#[derive(Clone, PartialEq, Debug)]
pub struct Event {
    /// When, by the observer's own clock, in microseconds.
    pub at_us: u64,
    /// What.
    pub seen: Seen,
}

/// What a node that starts says of itself to the register.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The cluster that its disks belong to.
    pub cluster: ClusterId,
    /// Who its disks say that it is.
    pub identity: Identity,
    /// Where it listens.
    pub address: String,
    /// The last view on its disks: what it knew when it went away.
    pub left_in_view: u64,
    /// The view that it holds now, read from the register.
    pub holds_view: u64,
    /// Its devices that came back with their bytes.
    pub devices: Vec<DeviceId>,
    /// Its devices that are missing or empty. It says so until it is admitted by a later view than the first that it read:
    /// only then has everybody counted them as lost.
    pub lost_devices: Vec<DeviceId>,
}

/// What one node tells all others, by way of the register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// It has not heard this node for long enough to suspect it.
    Unheard(NodeId),
    /// This node's machine answers and refuses connections: the daemon is down, the memory is there.
    Refused(NodeId),
    /// It stops on purpose. True if nothing lies on it any more.
    Goodbye {
        /// True if its data were moved away before.
        is_empty: bool,
    },
    /// It stops with all other nodes: nobody is to take anything over.
    Closing,
    /// What it had of this home went with the memory of its machine: it is no copy of what was acknowledged. The home's host
    /// says so, too, and serves nothing before it is excluded, or no mirror can have more than it has.
    Lost(HomeId),
    /// As host of this home: all extents that this excluded node had are made good.
    Paid {
        /// The home.
        home: HomeId,
        /// The excluded node.
        node: NodeId,
        /// The view that excluded it.
        since_view: u64,
    },
    /// What it has free for copies of homes.
    Room(Room),
    /// As host of this home: what it costs each node that has a copy.
    Cost {
        /// The home.
        home: HomeId,
        /// What it costs.
        cost: Cost,
    },
}

/// How far a mirror of a home is, as its host sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MirrorState {
    /// It has the journal up to this position.
    Has(u64),
    /// It has all that was acknowledged, and is not in the view yet.
    CaughtUp {
        /// The number of the view that the host followed when it saw that. It says nothing under another view: a mirror that
        /// was taken out of the view since is one without which the host acknowledges.
        in_view: u64,
    },
    /// It does not answer, for longer than a host waits.
    Unanswered,
    /// Its journal differs from this position on.
    Diverged(u64),
}

/// Kinds of events.
#[derive(Clone, PartialEq, Debug)]
pub enum Seen {
    /// The register answered with its view. It was asked at `asked_us`; the event's time is when the answer came.
    Register {
        /// The view that it holds.
        view: Arc<View>,
        /// When it was asked.
        asked_us: u64,
    },
    /// A board answered this node. Comes after the [`Seen::Register`] of the same answer.
    Board {
        /// The node that has the board.
        board: NodeId,
        /// The number of the view that the board found in the register after the question had come.
        view: u64,
        /// When it was asked.
        asked_us: u64,
        /// When the board itself had heard each node last, as it was *after* it had found the view; by this node's clock, and
        /// later rather than earlier.
        heard: Vec<(NodeId, u64)>,
    },
    /// The register heard this node at the event's time or before, but no earlier than an answer said.
    Heard(NodeId),
    /// The register passed on what a node reports now, this node's own reports among them, so that all of one answer are of
    /// one moment; a node's reports replace its former ones.
    Reports {
        /// Who reports.
        by: NodeId,
        /// The view that it holds: of a node that was admitted later it says nothing.
        in_view: u64,
        /// All that it reports now.
        reports: Vec<Report>,
    },
    /// This node's machine refuses connections to its daemon.
    Refused(NodeId),
    /// A device of a node failed.
    DeviceFailed {
        /// The node.
        node: NodeId,
        /// The device.
        device: DeviceId,
    },
    /// A node that starts, or was excluded, asks to take part.
    Returned {
        /// Its number.
        node: NodeId,
        /// What it says of itself.
        hello: Hello,
    },
    /// A mirror of a home of which this node is host.
    Mirror {
        /// The home.
        home: HomeId,
        /// The mirror, or who is to become one.
        node: NodeId,
        /// How far it is.
        state: MirrorState,
    },
    /// Another node's clock on the wall differs. Nothing depends on such clocks; people who read logs do.
    ClockOff {
        /// The node.
        node: NodeId,
        /// Its clock less ours.
        by_us: i64,
    },
}
