//! Placement and movement as pure functions: a snapshot of the devices goes in, a decision or a plan comes out,
//! each with the reason in words, so that it can be printed, dry-run and simulated.
//!
//! This room must not know the engine, do I/O or read a clock: ages come with the snapshot.

mod drain;
mod place;
mod view;

pub use drain::{Candidate, Plan, Planned, excess_bytes, plan_drain};
pub use place::{Decision, PlaceRequest, Refusal, place, place_copy};
pub use view::DeviceView;
