//! Users' instructions about the place of data: moves, pins, archives, rules.
#![allow(missing_docs, reason = "the line above a variant says what its fields are")]

use crate::{ContainerId, ObjectKey};

/// The target of [`crate::Request::Arrange`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrangeTarget {
    /// A whole object.
    Object(ObjectKey),
    /// A range of an object.
    Range { key: ObjectKey, offset: u64, len: u64 },
    /// All objects of a container.
    Container(ContainerId),
    /// The results of a query, in a container or (none) in all of them; `docs/managing.md` has the language.
    Query { container: Option<ContainerId>, text: String },
}

impl ArrangeTarget {
    /// The container that it is about; `None` for a query in all of them.
    pub fn container(&self) -> Option<ContainerId> {
        match self {
            Self::Object(key) | Self::Range { key, .. } => Some(key.container),
            Self::Container(id) => Some(*id),
            Self::Query { container, .. } => *container,
        }
    }
}

/// The action of [`crate::Request::Arrange`] on its target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrange {
    /// Promotes to the device of this name, or the fastest with room, to be read from there. The previous place stays
    /// as the copy if it is persistent.
    Promote { to: Option<String> },
    /// Demotes to the device of this name, or the next slower one, and away from faster ones.
    Demote { to: Option<String> },
    /// Removes from the faster device what has a copy on a slower one, without any I/O.
    Evict,
    /// Moves to the device of this name, or leaves each range in place, and keeps it there until it is unpinned.
    Pin { to: Option<String> },
    /// Ends a pin.
    Unpin,
    /// Makes a copy on the device of this name, or the slowest one, and reads it back to compare it; nothing leaves a
    /// device.
    Archive { to: Option<String> },
    /// Removes from the faster devices what has a copy on this device, without any I/O.
    Release { to: Option<String> },
}

impl Arrange {
    /// The name of the device that it is about, if there is one.
    pub fn device_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Promote { to }
            | Self::Demote { to }
            | Self::Pin { to }
            | Self::Archive { to }
            | Self::Release { to } => to.as_mut(),
            Self::Evict | Self::Unpin => None,
        }
    }
}

/// One move of an arrangement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrangeMove {
    /// The object.
    pub key: ObjectKey,
    /// Offset of the moved range in the object.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Names of the source and target devices.
    pub from: String,
    pub to: String,
    /// Estimated time of the devices for it, in nanoseconds.
    pub cost_ns: u64,
    /// Why it moves, or why it stays.
    pub why: String,
}

/// The result of an arrangement, or the expected result of a dry run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrangement {
    /// The first ten thousand moves; only in a dry run.
    pub moves: Vec<ArrangeMove>,
    /// Ranges that moved, or would.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes to read and write for it.
    pub moved_bytes: u64,
    /// Estimated time of the devices, in nanoseconds.
    pub cost_ns: u64,
    /// Bytes that should move but stay, and the first reason.
    pub staying_bytes: u64,
    pub staying_why: String,
    /// Bytes that are in the right place already.
    pub already_bytes: u64,
    /// Bytes that were pinned or unpinned, or would be.
    pub pinned_bytes: u64,
    /// Number of objects in the target.
    pub objects: u64,
}

/// Progress of an arrangement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrangeProgress {
    /// Number of the arrangement.
    pub number: u64,
    /// What it does.
    pub what: String,
    /// Bytes of the finished ranges, and of the ranges found so far.
    pub done_bytes: u64,
    pub found_bytes: u64,
    /// Nanoseconds since it began.
    pub elapsed_ns: u64,
}

/// The rules that users wrote, and plugin policies.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyState {
    /// The schema in force; empty if there is none.
    pub text: String,
    /// What is wrong with it for the current tiers, or with the schema file: then the default policy decides.
    pub faults: Vec<String>,
    /// Why the last schema that a user tried to set was refused; empty if it was not.
    pub refused: String,
    /// Labels of containers with the policy `user` (the first thousand).
    pub followers: Vec<String>,
    /// Policies from shared libraries.
    pub plugins: Vec<PluginState>,
    /// The life-cycle rules in the schema.
    pub rules: Vec<RuleState>,
    /// Why no rule deletes anything now; empty if rules may delete.
    pub deletes_held: String,
}

/// A policy from a shared library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginState {
    /// The name by which containers select it.
    pub name: String,
    /// Its own description.
    pub about: String,
    /// Its last failure; empty if there was none.
    pub failure: String,
}

/// A life-cycle rule, and its effects since the store was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleState {
    /// Its name.
    pub name: String,
    /// Its line in the schema.
    pub line: u32,
    /// Its action, in words.
    pub what: String,
    /// Ranges that it moved, and their bytes.
    pub ranges: u64,
    pub bytes: u64,
    /// Number of objects that it deleted.
    pub deleted: u64,
    /// Its last failure and the cause; empty if there was none.
    pub last_error: String,
}
