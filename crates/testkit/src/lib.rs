//! Test tools of Cenote: an oracle that knows which states are allowed after every kind of crash, a simulated world
//! (devices, store directory, control table, clock) that fails on command, a simulator that drives the engine from
//! a seed, and drivers that sweep faults and kill real processes.
//!
//! Development only: no other room may depend on it, and it must not know how the engine works, only what
//! `docs/semantics.md` promises. A check that needs engine internals belongs in the engine's own tests.

pub mod access;
pub mod bucket;
#[cfg(feature = "crash")]
pub mod chaos;
pub mod content;
#[cfg(feature = "crash")]
pub mod crash;
pub mod faults;
pub mod fixture;
#[cfg(feature = "fuzz")]
pub mod fuzz;
pub mod growth;
pub mod oracle;
pub mod rng;
pub mod sim;
pub mod survey;
pub mod weather;
pub mod world;
