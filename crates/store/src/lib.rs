//! The engine of one node: extent maps, indices, space, journal, checkpoints, recovery and movement between tiers.
//!
//! It is a state machine: it takes requests, returns responses and jobs, and has no thread of its own. It owns
//! every encoding on media. This room must not know sockets, processes or threads.

mod api;
mod apply;
mod audit;
mod checkpoint;
mod codec;
mod container;
mod copying;
mod engine;
mod habits;
mod holds;
mod home;
mod index;
mod journal;
mod kin;
mod labels;
mod map;
mod objects;
mod packing;
mod persist;
mod pins;
mod placing;
mod profile;
mod rebuild;
mod reclaim;
mod replay;
mod rollback;
mod session;
mod sidecar;
mod small_map;
mod space;
mod state;
mod sums;
mod superblock;
mod syncs;
mod times;
mod two_phase;
mod undo;
mod value_io;
mod value_log;
mod weights;
mod work;

/// The next step for metadata that cannot be read.
pub(crate) const RESTORE: &str =
    "restore the store directory from a copy, then `cenote adopt DIR`; nothing was changed";

pub use api::{
    Errand, Outcome, RecoveryReport, RolledBack, Seams, SessionId, SessionInfo, StoreCosts, StoreSummary, Ticket,
    Tuning,
};
pub use engine::{
    CONTAINERS_MAX, Engine, FOLLOWERS_MAX, InPlace, Job, JobDone, LIMIT_MAX, LISTED_MAX, Measurement, REQUESTS_TIMED_IN,
};
pub use home::file_kind;
pub use superblock::Loan;
