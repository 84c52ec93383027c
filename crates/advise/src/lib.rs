//! Recommends which files and memory objects of a program belong on which tier. Input: the sums of its accesses
//! ([`cenote_tally::Run`]) and the measured tiers. Output: a recommendation for each subject, with the expected time
//! there, the time now and the reason; and the same as a policy file.
//!
//! This room must not know how a program is watched, where tiers come from, or what a report looks like. It does no
//! I/O.

mod advice;
mod choose;
mod cost;
mod memory;
mod reason;
mod rules;

pub use advice::{Advice, Kept, Recommendation, Subject, advise, is_programs_own};
pub use cost::{file_seconds, footprint_bytes};
pub use rules::{Rules, policy_text};

#[cfg(test)]
mod testing;
