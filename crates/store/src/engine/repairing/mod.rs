//! Repair of bytes that cannot be trusted: an extent falls back to its copy, the copy is written again, or bytes without one
//! are written again from another copy of their device. Copies that
//! nobody needs are dropped, after the other place was read.

mod doubted;
mod healing;
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
    /// Copies to be dropped.
    spares: Vec<Placing>,
    /// A job is reading the places that remain.
    looks_at_spares: bool,
    mending: mending::Mending,
    heals: VecDeque<healing::Heal>,
}

impl Activity for Repairing {
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency != Urgency::Repair {
            return None;
        }
        let heal = |repairing: &mut Self, core: &mut Core| repairing.next_heal(core);
        self.next_rescue(core)
            .or_else(|| heal(self, core))
            .or_else(|| self.next_spare(core))
            .or_else(|| self.next_mend(core))
    }
}
