//! Bytes that cannot be trusted where they are: they fall back to their copy, or the copy is written again; and copies that
//! nobody needs go, once what is left was read.

mod doubted;
mod mending;
mod rescue;
mod spare;

use std::collections::VecDeque;

use super::activity::{Activity, Urgency};
use super::core::Core;
use crate::placing::Placing;
use crate::work::Job;

/// See the module.
#[derive(Default)]
pub struct Repairing {
    rescues: VecDeque<rescue::Rescue>,
    /// Copies that are to go.
    spares: Vec<Placing>,
    /// A job reads what is left without them.
    looks_at_spares: bool,
    mending: mending::Mending,
}

impl Activity for Repairing {
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency != Urgency::Repair {
            return None;
        }
        self.next_rescue(core).or_else(|| self.next_spare(core)).or_else(|| self.next_mend(core))
    }
}
