//! Plans over what an object's map says: what to read from where, whom to ask besides, what to rebuild from what.

mod hedge;
mod read;
mod rebuild;
mod source;

pub use hedge::{HEDGE_AFTER_TIMES, HEDGE_SLACK_US, hedge, hedge_after_us};
pub use read::{Decode, Read, ReadPlan, plan_read};
pub use rebuild::{RebuildPlan, RebuildTask, Stuck, plan_rebuild};
pub use source::{Form, Segment, Speed, Speeds};
