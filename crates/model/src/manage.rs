//! What people say of where things are: moves, pins, archives, rules.
#![allow(missing_docs, reason = "the line above a variant says what its fields are")]

use crate::{ContainerId, ObjectKey};

/// What [`crate::Request::Arrange`] is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArrangeTarget {
    /// All of an object.
    Object(ObjectKey),
    /// A part of it.
    Range { key: ObjectKey, offset: u64, len: u64 },
    /// All objects of a container.
    Container(ContainerId),
    /// What a query means, in a container or (none) in all of them; `docs/managing.md` has the language.
    Query { container: Option<ContainerId>, text: String },
}

/// What [`crate::Request::Arrange`] does with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Arrange {
    /// To be read from a faster device: that of this name, or the fastest with room. Where it was stays as its copy if
    /// that is persistent.
    Promote { to: Option<String> },
    /// To the device of this name, or the next slower one, and no longer on faster ones.
    Demote { to: Option<String> },
    /// What has a copy on a slower device leaves the faster one, without any I/O.
    Evict,
    /// Comes to the device of this name, or stays where each range is, and is not moved away until it is unpinned.
    Pin { to: Option<String> },
    /// Is moved like everything else again.
    Unpin,
    /// Gets a copy on the device of this name, or the slowest one, that was read back and compared; nothing leaves.
    Archive { to: Option<String> },
    /// What has its copy there leaves the faster devices, without any I/O.
    Release { to: Option<String> },
}

/// One move of an arrangement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrangeMove {
    /// The object.
    pub key: ObjectKey,
    /// Where in it the moved range begins.
    pub offset: u64,
    /// Its length.
    pub bytes: u64,
    /// Names of the devices that it leaves and comes to.
    pub from: String,
    pub to: String,
    /// Nanoseconds that the devices need for it, about.
    pub cost_ns: u64,
    /// Why, or why it stays.
    pub why: String,
}

/// What an arrangement came to, or would.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Arrangement {
    /// The first ten thousand moves; only in a dry run.
    pub moves: Vec<ArrangeMove>,
    /// Ranges that moved, or would.
    pub ranges: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that are to be read and written for it.
    pub moved_bytes: u64,
    /// Nanoseconds that the devices need, about.
    pub cost_ns: u64,
    /// Bytes that stay although they were asked to move, and the first reason.
    pub staying_bytes: u64,
    pub staying_why: String,
    /// Bytes that are already as they should be.
    pub already_bytes: u64,
    /// Bytes that were pinned or unpinned, or would be.
    pub pinned_bytes: u64,
    /// Objects of which something was meant.
    pub objects: u64,
}

/// How far an arrangement is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrangeProgress {
    /// Tells arrangements apart.
    pub number: u64,
    /// What it does.
    pub what: String,
    /// Bytes of the ranges that are done, and of those that it has found so far.
    pub done_bytes: u64,
    pub found_bytes: u64,
    /// Nanoseconds since it began.
    pub elapsed_ns: u64,
}

/// The rules that users wrote, and policies from outside.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PolicyState {
    /// The schema that is followed; empty if there is none.
    pub text: String,
    /// What is wrong with it for the tiers as they are now, or with the file that was found: then the preset decides.
    pub faults: Vec<String>,
    /// Why the last one that somebody wanted to set was refused; empty if it was not.
    pub refused: String,
    /// Labels of containers with the policy `user` (the first thousand).
    pub followers: Vec<String>,
    /// Policies from shared libraries.
    pub plugins: Vec<PluginState>,
    /// The life-cycle rules in it.
    pub rules: Vec<RuleState>,
    /// Why no rule deletes anything now; empty if they may.
    pub deletes_held: String,
}

/// A policy from a shared library.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PluginState {
    /// The name by which containers choose it.
    pub name: String,
    /// What it says of itself.
    pub about: String,
    /// What it did last that it should not have; empty if all is well.
    pub failure: String,
}

/// A life-cycle rule, and what it did since the store was opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RuleState {
    /// Its name.
    pub name: String,
    /// The line of the schema.
    pub line: u32,
    /// Its action, in words.
    pub what: String,
    /// Ranges that it had moved, and their bytes.
    pub ranges: u64,
    pub bytes: u64,
    /// Objects that it deleted.
    pub deleted: u64,
    /// The last thing that it could not do, and why; empty if there was none.
    pub last_error: String,
}
