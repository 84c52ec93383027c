//! The crash test: a real daemon and real client processes, killed at random, checked against the oracle.
//!
//! Each client works on its own containers, one operation after the other, each drawn from (slot, number). So the
//! lines that it writes into its pipe before and after each operation tell the parent what the store must hold. All
//! clients also move units between the records of one shared index, by transactions that detect conflicts: the sum
//! never changes, whichever process dies at whatever time.

mod client;
mod ops;
mod parent;
mod plain;

pub use client::{client_main, serve_main};
pub use parent::{Options, Tally, run};

/// Records of the shared index.
const ACCOUNTS: u64 = 16;
/// Units in each record at the beginning.
const UNITS: u64 = 1000;
/// Label of the shared container.
const SHARED: &str = "shared";
