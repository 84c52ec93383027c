//! Workloads that nobody chose, from a seed: in which order keys come and go, what keys look like, how long values are.
//!
//! A structure that is tested with random keys alone is tested in one order. Programs have others: a window that slides
//! over steps, a stack, a queue, a hot range, a directory that is emptied. [`Steps`] mixes such orders over plain ordinals
//! (`u64`); [`KeyShape`] makes keys of them. Property tests of the rooms, the simulation, the crash test and, by way of the
//! program `workload`, the tests in Python draw from here. It must not know what is tested.

mod keys;
mod order;
pub mod property;
pub mod rng;

pub use keys::{KeyShape, size_at_limits};
pub use order::{Order, Phase, Step, Steps};
pub use rng::Rng;
