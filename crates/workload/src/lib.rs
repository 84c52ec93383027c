//! Workloads from a seed: the order in which keys come and go, the shape of keys, the length of values.
//!
//! A structure that is tested with random keys alone is tested in one order. Programs have others: a window that slides
//! over steps, a stack, a queue, a hot range, a directory that is emptied. [`Steps`] mixes such orders over plain
//! ordinals (`u64`); [`KeyShape`] converts them to keys. The rooms' property tests, the simulation, the crash test and,
//! through the program `workload`, the tests in Python draw from here. This room must not know what is tested.

mod keys;
mod order;
pub mod property;
pub mod rng;

pub use keys::{KeyShape, size_at_limits};
pub use order::{Order, Phase, Step, Steps};
pub use rng::Rng;
