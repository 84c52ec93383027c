//! The crash test: a real daemon and real client processes, killed at random, checked against the oracle.
//!
//! Each client works on containers of its own, one operation after another, each drawn from (slot, number), so that
//! what it writes into its pipe before and after each operation is enough for the parent to know what the store must
//! hold. All clients also move units between the records of one shared index, by transactions that detect conflicts:
//! the sum never changes, whoever dies when.

mod client;
mod ops;
mod parent;
mod plain;

pub use client::{client_main, serve_main};
pub use parent::{Options, Tally, run};

/// Records of the shared index.
const ACCOUNTS: u64 = 16;
/// Units in each of them at the beginning.
const UNITS: u64 = 1000;
/// Label of the container that all share.
const SHARED: &str = "shared";
