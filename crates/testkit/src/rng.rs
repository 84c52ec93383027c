//! The only source of randomness of these tests.

pub use cenote_workload::rng::{Rng, mix};
