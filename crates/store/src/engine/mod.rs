//! The engine: requests in, answers and jobs out.
//!
//! [`Core`] has the state and the verbs that change it, each *activity* ([`activity`]) does one thing with it, and
//! [`Engine`] joins them: it routes requests and schedules jobs.

mod activity;
mod carrying;
mod copied;
mod core;
mod create;
mod cuts;
mod destroy;
mod devices;
mod draining;
mod explain;
#[cfg(test)]
pub(crate) mod filled;
mod homes;
mod journaling;
mod open;
mod repacking;
mod repairing;
mod requests;
mod telemetry;
mod tiering;
mod turns;
mod two_phase;
mod values;
mod verifying;

use std::sync::Arc;
use std::time::Duration;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceInfo, Error, Finding, Request, Response, Result, StoreId};
use cenote_policy::Policy;

use crate::{Outcome, SessionId, SessionInfo, StoreSummary, Ticket};

#[cfg(test)]
pub(crate) use self::core::slot_with;
pub(crate) use self::core::{Core, Trouble};
pub(crate) use activity::Activities;
pub(crate) use telemetry::SessionCounts;
pub(crate) use tiering::POLICY_FILE;

pub use self::core::LIMIT_MAX;
pub use crate::work::{Job, JobDone};
pub use carrying::InPlace;
pub use devices::Measurement;
pub use telemetry::{CONTAINERS_MAX, REQUESTS_TIMED_IN};
pub use tiering::{FOLLOWERS_MAX, LISTED_MAX};

/// The engine of one node. See ARCHITECTURE.md.
pub struct Engine {
    core: Core,
    activities: Activities,
}

impl Engine {
    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.core.store.id
    }

    /// The epoch of the last update, the engine's own included.
    pub fn epoch(&self) -> u64 {
        self.core.state.epoch
    }

    /// A device, for clients to map. `None` if there is none, or it could not be opened.
    pub fn device(&self, id: DeviceId) -> Option<Arc<dyn Device>> {
        self.core.device(id)
    }

    /// The devices and their use.
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        self.core.device_infos()
    }

    /// Id, devices and rights.
    pub fn summary(&self) -> StoreSummary {
        StoreSummary {
            id: self.core.store.id,
            devices: self.core.state.space.present().map(|slot| slot.spec.clone()).collect(),
            ids: self.core.state.space.present().map(|slot| slot.id).collect(),
            writers: self.core.store.writers.clone(),
            readers: self.core.store.readers.clone(),
            engines: self.core.store.home.count,
            home: self.core.store.home.of_cluster,
        }
    }

    /// Takes the responses that are ready, with their tickets.
    pub fn take_finished(&mut self) -> Vec<(Ticket, Response)> {
        self.core.answer_waiters();
        std::mem::take(&mut self.core.answers.finished)
    }

    /// Takes the response to one ticket, if it is ready.
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Response> {
        let at = self.core.answers.finished.iter().position(|(finished, _)| *finished == ticket)?;
        Some(self.core.answers.finished.swap_remove(at).1)
    }

    /// Flushes the journal and writes a checkpoint. No jobs may be running. Fails if the checkpoint cannot be written.
    pub fn close(&mut self) -> Result<()> {
        self.core.update_clock();
        self.activities.devices.write_profiles(&mut self.core);
        // If the journal cannot be synced, the checkpoint brings its content to media; if that fails, a synced journal
        // keeps it.
        let synced = self.core.journal.sync();
        let written = self.activities.journaling.last_checkpoint(&mut self.core);
        written.and(if self.core.journal.is_tainted() { synced } else { Ok(()) })?;
        if !self.core.is_suspect() {
            // Without this record the next engine suspects all that no mark (commit record) covers.
            // On media, too: the next engine may be one of another node, which learns by it that nothing is missing.
            let _ = self.core.journal.append_closed(self.core.state.epoch).and_then(|()| self.core.journal.sync());
        }
        Ok(())
    }

    /// Opens a session. The same nonce finds the same session, with its recorded responses and leases.
    pub fn session_open(&mut self, who: SessionInfo) -> Result<SessionId> {
        self.core.session_open(who)
    }

    /// Fails if the user of a session may not ask for this. A session that is not open may.
    pub fn may(&self, session: SessionId, request: &Request) -> Result<()> {
        self.core.check_rights_of(session, request)
    }

    /// Closes a session whose process is dead or done, and returns its leases.
    pub fn session_close(&mut self, session: SessionId) {
        self.core.session_close(session);
    }

    /// The open sessions.
    pub fn sessions(&self) -> Vec<(SessionId, SessionInfo)> {
        self.core.sessions()
    }

    /// Time until the next tick is due, if sooner than usual.
    pub fn tick_due_in(&self) -> Option<Duration> {
        self.core.tick_due_in()
    }

    /// Returns a device to be measured now, if there is one: one that a request names, or with `idle` one that was
    /// never measured. It comes back through [`Engine::measured`]; until then there is no other.
    pub fn measure_next(&mut self, idle: bool) -> Option<Measurement> {
        self.activities.devices.measure_next(&mut self.core, idle)
    }

    /// Returns true if [`Engine::measure_next`] would return something.
    pub fn is_measuring_due(&self, idle: bool) -> bool {
        self.activities.devices.is_measuring_due(&self.core, idle)
    }

    /// Takes a measurement back: frees its space, keeps the result and answers those who asked.
    pub fn measured(&mut self, measurement: &Measurement, result: Result<Option<cenote_model::Profile>>) {
        self.activities.devices.measured(&mut self.core, measurement, result);
    }

    /// Keeps a device's measured profile, for this engine and the next ones.
    pub fn set_profile(&mut self, id: DeviceId, profile: cenote_model::Profile) {
        self.activities.devices.set_profile(&mut self.core, id, profile);
    }

    /// Adds a policy of a plugin.
    pub fn add_policy(&mut self, policy: Arc<dyn Policy>) -> Result<()> {
        self.activities.tiering.add_policy(&mut self.core, policy)
    }

    /// Notes a policy that could not be loaded, and why.
    pub fn note_missing_policy(&mut self, what: &str, why: &str) {
        self.activities.tiering.note_missing_policy(what, why);
    }

    /// Takes what the scrub has found since the last call.
    pub fn take_findings(&mut self) -> Vec<Finding> {
        self.activities.verifying.take_findings()
    }

    /// Returns contradictions in memory. Tests call it after every step.
    pub fn audit(&self) -> Vec<String> {
        self.core.audit()
    }
}

fn failed(error: Error) -> Outcome {
    Outcome::Ready(Response::Failed(error))
}

fn ready(result: Result<Response>) -> Outcome {
    Outcome::Ready(result.unwrap_or_else(Response::Failed))
}
