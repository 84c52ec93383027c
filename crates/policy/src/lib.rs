//! Placement and movement as pure functions: from a snapshot of the devices to a decision or a plan, each with its
//! reason, so that both can be printed, dry-run and simulated.
//!
//! This room must not know the engine, do I/O or read a clock: ages come with the snapshot, and the caller keeps what
//! is learned in records of this room ([`Heat`], [`Rhythm`]).

mod drain;
mod guard;
mod heat;
mod lease;
mod packing;
mod place;
mod policies;
mod policy;
pub mod prefetch;
mod query;
mod reason;
mod rhythm;
pub mod schema;
mod share;
#[cfg(test)]
mod testing;
mod view;

pub use drain::{Candidate, DrainPlan, Leaving, excess_bytes, plan_drain};
pub use guard::{Guard, check_decision, check_plan};
pub use heat::Heat;
pub use lease::{LeaseAttempt, LeaseChoice, LeaseFacts, LeaseSize, choose_lease, passed_over};
pub use packing::{Compress, Trial, choose_packing};
pub use place::{PlaceRequest, Placed, Refusal, place, place_copy};
pub use policies::{
    DataLocality, FastFirst, Foresight, HotData, MaxBandwidth, Next, User, by_name, from_schema, is_tracking, names,
};
pub use policy::{Action, Coming, Decision, Incoming, Limits, Plan, Planned, Policy, RangeView};
pub use query::{Candidacy, QUERY_BYTES_MAX, Query, QueryFault};
pub use reason::Reason;
pub use rhythm::{Burst, Rhythm};
pub use share::{Claim, Level, Sharer, Taker, is_over_share, over_share, part_of_user};
pub use view::{DeviceView, order, speed_preset, tier_order};
