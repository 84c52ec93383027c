//! The crash test: a real daemon and real client processes, killed at random, checked against the oracle.
//!
//! Each client works on its own containers, one operation after the other, each drawn from (slot, number). So the
//! lines that it writes into its pipe before and after each operation tell the parent what the store must hold. All
//! clients also move units between the records of one shared index, by transactions that detect conflicts: the sum
//! never changes, whichever process dies at whatever time.
//!
//! With several nodes, a client works on another node than the home of its containers, and a third one compares. Daemons of
//! all nodes are killed, or stopped for a while, as on a node that hangs. If the cluster is to survive the loss of nodes,
//! whole nodes are lost for good, too, and hang until others have their homes.
//!
//! A file imports only files before it in this order: `ops`, `client`, `plain`, `nodes`, `slot`, `probe`, `parent`, `hangs`,
//! `losses`, apart from what `parent` has for all: options, and the state of a run.

mod client;
mod hangs;
mod losses;
pub mod nodes;
mod ops;
mod parent;
mod plain;
mod probe;
mod slot;

pub use client::{client_main, serve_main};
pub use parent::{Options, Tally, run};
pub use probe::probe_main;

/// Records of the shared index.
const ACCOUNTS: u64 = 16;
/// Units in each record at the beginning.
const UNITS: u64 = 1000;
/// Label of the shared container.
const SHARED: &str = "shared";
