//! Devices: creates, removes and measures them, and reopens them when they come back.

mod changes;
mod profiles;
mod reopening;
mod requests;

use super::activity::{Activity, Urgency};
use super::core::Core;
use crate::habits::Habits;
use crate::work::Job;

pub use profiles::Measurement;

/// See the module.
#[derive(Default)]
pub struct Devices {
    pub changes: changes::Changes,
    /// Highest id given to a device that may not have been added.
    id_burnt: u16,
    pub profiles: profiles::Profiles,
    /// Access patterns that programs have learned.
    habits: Habits,
    reopening: reopening::Reopening,
}

impl Activity for Devices {
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        match urgency {
            Urgency::Housekeeping => self.next_change(core),
            Urgency::Idle => self.next_reopen(core),
            _ => None,
        }
    }
}
