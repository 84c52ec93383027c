//! The one source of randomness of every test here.

pub use cenote_workload::rng::{Rng, mix};
