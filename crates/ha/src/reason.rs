//! Reasons of actions: values that become sentences only when somebody reads them.

use std::fmt;

use cenote_model::NodeId;

use crate::{HomeId, Identity};

/// Why an action was chosen. `Display` formats the sentence.
#[derive(Clone, PartialEq, Debug)]
pub enum Reason {
    /// This process has not read the register yet.
    NoView,
    /// All nodes are being stopped.
    Closing {
        /// Who said so.
        node: NodeId,
    },
    /// The register does not answer.
    RegisterSilent {
        /// Microseconds since the question that it last answered.
        since_us: u64,
    },
    /// This node is not in the view.
    NotLive,
    /// The register has not heard the node for unusually long.
    Silent {
        /// The node.
        node: NodeId,
        /// Microseconds.
        silence_us: u64,
        /// Of the accrual detector.
        phi: f64,
    },
    /// Others see the silence too, and one of them proposes first.
    OtherFirst {
        /// The node that is silent.
        node: NodeId,
    },
    /// The machine answers, the daemon does not.
    Refused {
        /// The node.
        node: NodeId,
        /// Microseconds since the first refusal.
        since_us: u64,
    },
    /// The daemon did not come back in time.
    RefusedTooLong {
        /// The node.
        node: NodeId,
        /// Microseconds since the first refusal.
        since_us: u64,
    },
    /// It said that it stops.
    Goodbye {
        /// The node.
        node: NodeId,
        /// Whether anything lies there.
        is_empty: bool,
    },
    /// More than half of the others do not hear it, though the register does.
    Reported {
        /// The node.
        node: NodeId,
        /// How many do not hear it.
        by: usize,
        /// How many others there are.
        of: usize,
    },
    /// It came back without devices that it had.
    LostDevices {
        /// The node.
        node: NodeId,
        /// How many.
        devices: usize,
    },
    /// What it had of a home of which it is the host went with its memory, and a mirror has it.
    LostHome {
        /// The node.
        node: NodeId,
        /// The home.
        home: HomeId,
    },
    /// What a mirror had went with its memory.
    MirrorLost {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
    },
    /// More would be lost than the weakest layout survives.
    TooMany {
        /// How many nodes are in doubt.
        suspects: usize,
        /// How many are gone of which extents are owed copies.
        owed: usize,
        /// How many the weakest layout survives.
        survives: usize,
    },
    /// No copy of a journal would be left.
    LastCopy {
        /// The home.
        home: HomeId,
    },
    /// The host of a home is excluded.
    HostGone {
        /// The home.
        home: HomeId,
        /// Its former host.
        host: NodeId,
        /// The new term.
        term: u64,
    },
    /// Former hosts may act for so long.
    LeasesRun {
        /// The home.
        home: HomeId,
        /// Its term.
        term: u64,
    },
    /// A mirror is excluded.
    MirrorGone {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
    },
    /// A mirror is about to leave, and there are enough others.
    Leaving {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
    },
    /// A mirror does not answer its host.
    MirrorSilent {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
    },
    /// A mirror's journal is another.
    MirrorDiverged {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
        /// The first byte that differs.
        position: u64,
    },
    /// This host hears hardly anybody: the fault is its own.
    CutOff {
        /// Nodes not heard.
        unheard: usize,
        /// Of so many.
        of: usize,
    },
    /// A home has fewer mirrors than it should.
    FewMirrors {
        /// The home.
        home: HomeId,
        /// How many it has.
        has: usize,
        /// How many it should have.
        wanted: usize,
    },
    /// A person wants a mirror on another node.
    MirrorMoves {
        /// The home.
        home: HomeId,
        /// The node that mirrors it.
        from: NodeId,
        /// The node that is to.
        to: NodeId,
    },
    /// The new mirror has all of the journal.
    CaughtUp {
        /// The home.
        home: HomeId,
        /// The mirror.
        node: NodeId,
    },
    /// Extents lay on an excluded node.
    Owed {
        /// The node.
        node: NodeId,
    },
    /// All homes say that they have made good what lay there.
    Paid {
        /// The node.
        node: NodeId,
    },
    /// A device failed.
    DeviceFailed {
        /// The node.
        node: NodeId,
    },
    /// It is back with what it had.
    BackWithAll {
        /// The node.
        node: NodeId,
        /// The view in which it left.
        left_in_view: u64,
    },
    /// It is back, and nothing on it counts: all was made good meanwhile, or its disks are others.
    BackAsEmpty {
        /// The node.
        node: NodeId,
        /// The view in which it left.
        left_in_view: u64,
    },
    /// It was excluded often lately.
    Flaps {
        /// The node.
        node: NodeId,
        /// How often.
        times: usize,
    },
    /// It has not read the present view.
    OldView {
        /// The node.
        node: NodeId,
        /// The view that it holds.
        holds: u64,
        /// The present one.
        present: u64,
    },
    /// It is back empty, and what it had is not made good yet.
    EmptyAndOwed {
        /// The node.
        node: NodeId,
    },
    /// Its disks are of another cluster.
    OtherCluster {
        /// The node.
        node: NodeId,
    },
    /// It knows a later view than the register.
    LaterView {
        /// The node.
        node: NodeId,
        /// The view on its disks.
        left_in_view: u64,
        /// That of the register.
        present: u64,
    },
    /// A person gave it up.
    GivenUp {
        /// The node.
        node: NodeId,
        /// The view that says so.
        since_view: u64,
    },
    /// The view has no such node.
    NoMember {
        /// The node.
        node: NodeId,
    },
    /// Another process with this number is live.
    TwoOfOne {
        /// The node.
        node: NodeId,
        /// Where the live one listens.
        at: String,
        /// Where the other does.
        other: String,
        /// Whether they are the same disks, copied or mounted twice.
        identity: Option<Identity>,
    },
    /// Its clock differs.
    ClockOff {
        /// The node.
        node: NodeId,
        /// By microseconds.
        by_us: i64,
    },
}

fn s(us: u64) -> String {
    format!("{:.1} s", us as f64 / 1e6)
}

fn n(node: NodeId) -> String {
    format!("node {}", node.0)
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.doubt(f).or_else(|| self.of_home(f)).or_else(|| self.of_return(f)).unwrap_or(Ok(()))
    }
}

impl Reason {
    /// Sentences about whether a node is there.
    fn doubt(&self, f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
        Some(match self {
            Self::NoView => write!(f, "this process has not read the register yet"),
            Self::RegisterSilent { since_us } => write!(
                f,
                "the register has answered nothing that was asked in the last {}; homes of this node do not act until it does",
                s(*since_us)
            ),
            Self::Closing { node } => write!(f, "{} said that all nodes are being stopped", n(*node)),
            Self::NotLive => write!(f, "the view does not have this node among those that take part"),
            Self::Silent { node, silence_us, phi } => write!(
                f,
                "the register has not heard {} for {}; a sign of life so late has a probability of 10^-{phi:.0}",
                n(*node),
                s(*silence_us)
            ),
            Self::OtherFirst { node } => {
                write!(f, "{} is silent, and a node with a lower number proposes first", n(*node))
            }
            Self::Refused { node, since_us } => write!(
                f,
                "the machine of {} answers and has refused connections for {}: its daemon is down, its shared memory is intact",
                n(*node),
                s(*since_us)
            ),
            Self::RefusedTooLong { node, since_us } => {
                write!(
                    f,
                    "the daemon of {} has not come back for {}, though its machine answers",
                    n(*node),
                    s(*since_us)
                )
            }
            Self::Goodbye { node, is_empty: true } => {
                write!(f, "{} stops on purpose, and its data were moved away", n(*node))
            }
            Self::Goodbye { node, .. } => write!(f, "{} stops on purpose, with data on it", n(*node)),
            Self::Reported { node, by, of } => {
                write!(f, "{by} of {of} other nodes do not hear {}, though the register does", n(*node))
            }
            Self::LostDevices { node, devices } => write!(f, "{} came back without {devices} of its devices", n(*node)),
            Self::LostHome { node, home } => {
                write!(
                    f,
                    "{} was started without the memory that it had, and a mirror has what {home} acknowledged",
                    n(*node)
                )
            }
            Self::MirrorLost { home, node } => {
                write!(f, "what {} had of {home} went with the memory of its machine", n(*node))
            }
            Self::TooMany { suspects, owed, survives } => write!(
                f,
                "nodes in doubt: {suspects}; gone, with data that were not made good: {owed}; the weakest layout survives the \
                 loss of {survives}"
            ),
            Self::CutOff { unheard, of } => {
                write!(f, "this node does not hear {unheard} of {of} others: the fault is its own connection")
            }
            Self::ClockOff { node, by_us } => write!(
                f,
                "the clock of {} differs by {:.1} s; nothing depends on it but times in logs and files",
                n(*node),
                *by_us as f64 / 1e6
            ),
            _ => return None,
        })
    }

    /// Sentences about homes and debts.
    fn of_home(&self, f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
        Some(match self {
            Self::LastCopy { home } => write!(f, "no copy of the journal of {home} would be left"),
            Self::HostGone { home, host, term } => {
                write!(f, "{} was host of {home} and is excluded; the new term is {term}", n(*host))
            }
            Self::LeasesRun { home, term } => {
                write!(f, "a former host of {home} may act until its lease is over; the term is now {term}")
            }
            Self::MirrorGone { home, node } => write!(f, "{} mirrored {home} and is excluded", n(*node)),
            Self::Leaving { home, node } => {
                write!(f, "{} is about to leave, and {home} has enough mirrors on other nodes", n(*node))
            }
            Self::MirrorSilent { home, node } => {
                write!(f, "{} mirrors {home} and does not answer its host, though the register hears both", n(*node))
            }
            Self::MirrorDiverged { home, node, position } => {
                write!(f, "the journal of {home} on {} is another from byte {position} on", n(*node))
            }
            Self::FewMirrors { home, has, wanted } => write!(f, "{home} has {has} of {wanted} mirrors"),
            Self::MirrorMoves { home, from, to } => {
                write!(f, "{} is to mirror {home} in place of {}, as a person asked", n(*to), n(*from))
            }
            Self::CaughtUp { home, node } => write!(f, "{} has all of the journal of {home}", n(*node)),
            Self::Owed { node } => {
                write!(f, "{} is excluded, and extents that lay there have too few copies", n(*node))
            }
            Self::Paid { node } => write!(f, "all homes have made good what lay on {}", n(*node)),
            Self::DeviceFailed { node } => write!(f, "a device of {} failed", n(*node)),
            _ => return None,
        })
    }

    /// Sentences about nodes that come back.
    fn of_return(&self, f: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
        Some(match self {
            Self::BackWithAll { node, left_in_view } => {
                write!(f, "{} left in view {left_in_view} and is back with all its devices", n(*node))
            }
            Self::BackAsEmpty { node, left_in_view } => write!(
                f,
                "{} left in view {left_in_view}; all that it had was made good meanwhile, or its disks are others, so nothing on it counts",
                n(*node)
            ),
            Self::Flaps { node, times } => {
                write!(f, "exclusions of {} lately: {times}; each one makes it wait longer", n(*node))
            }
            Self::OldView { node, holds, present } => {
                write!(f, "{} holds view {holds} and has to read view {present} first", n(*node))
            }
            Self::EmptyAndOwed { node } => {
                write!(f, "{} is back without what it had, which has to be made good from other copies first", n(*node))
            }
            Self::OtherCluster { node } => {
                write!(f, "the disks of what calls itself {} are of another cluster", n(*node))
            }
            Self::LaterView { node, left_in_view, present } => write!(
                f,
                "{} knows view {left_in_view} and the register has only {present}: the register is an old copy, or the disks are of a \
                 cluster that had this name",
                n(*node)
            ),
            Self::GivenUp { node, since_view } => write!(
                f,
                "a person gave {} up in view {since_view}: the cluster goes on without what it has (`cenote destroy` of its directory, \
                 then `cenote cluster join`)",
                n(*node)
            ),
            Self::NoMember { node } => write!(f, "the view has no {}: it is no member of this cluster", n(*node)),
            Self::TwoOfOne { node, at, other, identity } => write!(
                f,
                "{} is live at {at}, and another process says at {other} that it is {}{}",
                n(*node),
                n(*node),
                if identity.is_some() { " with the same disks: are they mounted twice, or copied?" } else { "" }
            ),
            _ => return None,
        })
    }
}
