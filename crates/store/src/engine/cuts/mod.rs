//! Cuts (consistent cuts): make the content of volatile devices survive power loss up to an epoch.
//!
//! When a cut is due, the engine begins it, copies the extents that it needs to persistent devices, syncs these, and
//! appends a mark (commit record) to the journal. What a failed sync may have dropped is written again first.

mod copying;
mod densify;
mod failing;
mod rewriting;
mod syncing;

use super::activity::{Activity, Urgency};
use super::core::Core;
use crate::persist::DeviceSet;
use crate::work::Job;

/// See the module.
#[derive(Default)]
pub struct Cutting {
    rewrites: rewriting::Rewrites,
    /// The devices that jobs are syncing.
    syncing: DeviceSet,
}

impl Activity for Cutting {
    fn tick(&mut self, core: &mut Core) {
        let pressure = core.is_under_pressure();
        failing::renew_cuts(core);
        copying::begin_cuts(core, pressure);
    }
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        match urgency {
            Urgency::Awaited => self.next_sync_devices(core),
            Urgency::Repair => self.next_rewrite(core),
            Urgency::Copy => copying::next_copy(core),
            _ => None,
        }
    }
}
