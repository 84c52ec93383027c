//! Observations of requests, moves and devices, by which policies and activities decide. None of it is kept on media.

pub mod heat;
pub mod load;
pub mod pace;
pub mod prefetched;
pub mod rhythms;
pub mod shares;

pub use super::space::Progress;
use crate::engine::telemetry::{Counting, Sweep};

/// See the module.
#[derive(Default)]
pub struct Observed {
    pub counting: Counting,
    pub sweep: Sweep,
    pub progress: Progress,
    pub pace: pace::Pace,
    pub heats: heat::Heats,
    pub rhythms: rhythms::Rhythms,
    pub loads: load::Loads,
    pub shares: shares::Shares,
    pub prefetched: prefetched::Prefetched,
    /// Why the last plan moved anything, as text.
    pub move_reason: String,
}
