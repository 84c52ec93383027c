//! The engine of one node: extent maps, indices, space, journal, checkpoints, recovery and movement between tiers.
//!
//! It is a state machine: it takes requests and gives answers and jobs, and has no thread of its own.
//! It owns every encoding on media. This room must not know sockets, processes or threads.

mod api;
mod engine;

pub use api::{Outcome, RecoveryReport, RolledBack, Seams, SessionId, SessionInfo, StoreSummary, Ticket};
pub use engine::{Engine, Job, JobDone};
