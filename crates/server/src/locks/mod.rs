//! Locks of files among the nodes of a cluster. The kernel of each node keeps the locks of that node's processes, as on one
//! node; what the nodes agree on is which of them may lock what.
//!
//! The *arbiter* of a home decides which node has which locks of the home's files. The *agent* of a node asks the arbiters
//! for what processes of the node want, keeps it, and gives way when another node wants it and no process of this node needs
//! it. Both are state machines without clocks, threads, files and connections: the daemon has those.

mod agent;
mod arbiter;
#[cfg(test)]
mod tests;

pub(crate) use agent::{Agent, Files, Probe};
pub(crate) use arbiter::Arbiter;
