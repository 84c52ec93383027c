//! Creates and removes devices by jobs: an object service may be slow, and other requests must not wait for it.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceSpec, Response, Result, StoreId, Timed};

use super::Devices;
use crate::Ticket;
use crate::engine::core::{Core, Effect, make_stamped, slot_with};
use crate::work::{Io, Job, Work};

/// Pending changes, oldest first, and the names of devices being made.
#[derive(Default)]
pub struct Changes {
    queue: VecDeque<Change>,
    making: Vec<String>,
    /// A job is carrying out a change.
    is_running: bool,
}

/// A device to be made or removed.
#[derive(Clone, Debug)]
pub struct Change {
    /// The request that waits for it.
    pub ticket: Option<Ticket>,
    pub id: DeviceId,
    pub spec: DeviceSpec,
    /// Incarnation of a device to be made; `None`: remove it.
    pub incarnation: Option<u64>,
}

impl Changes {
    /// Returns the names of devices that are being made.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.making.iter().map(String::as_str)
    }
    /// Queues a change.
    pub fn push(&mut self, change: Change) {
        if change.incarnation.is_some() {
            self.making.push(change.spec.name.clone());
        }
        self.queue.push_back(change);
    }
}

/// Makes or removes a device.
struct MakeOrForget {
    devices: Arc<dyn cenote_device::Devices>,
    store: StoreId,
    change: Change,
}

impl Work for MakeOrForget {
    /// The device, if one was to be made.
    type Output = Result<Option<Arc<dyn Device>>>;
    const TIMED: Timed = Timed::Reopen;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        let Change { id, spec, incarnation, .. } = self.change;
        match incarnation {
            Some(incarnation) => make_stamped(self.devices.as_ref(), self.store, id, &spec, incarnation).map(Some),
            None => self.devices.remove(self.store, id, &spec).map(|()| None),
        }
    }
}

impl Devices {
    /// Returns a job for the next change, in the order of the requests.
    pub fn next_change(&mut self, core: &mut Core) -> Option<Job> {
        if self.changes.is_running {
            return None;
        }
        let change = self.changes.queue.pop_front()?;
        let work =
            MakeOrForget { devices: Arc::clone(&core.seams.devices), store: core.store.id, change: change.clone() };
        self.changes.is_running = true;
        Some(core.start(Effect::Other, work, |devices: &mut Self, core, result| {
            devices.changes.is_running = false;
            devices.finish_change(core, change, result);
        }))
    }

    /// Takes the result of a change; `result` holds the device, if one was to be made.
    pub fn finish_change(&mut self, core: &mut Core, change: Change, result: Result<Option<Arc<dyn Device>>>) {
        self.changes.making.retain(|name| change.incarnation.is_none() || *name != change.spec.name);
        let Change { ticket, id, spec, incarnation } = change;
        let answer = match (result, incarnation) {
            (Ok(Some(device)), Some(incarnation)) => self.admit(core, id, &spec, device, incarnation),
            (Ok(_), _) => Ok(Response::Done),
            (Err(error), made) => {
                if made.is_some() && self.id_burnt == id.0 {
                    self.id_burnt -= 1; // the next device gets this id
                }
                Err(error)
            }
        };
        if let Some(ticket) = ticket {
            core.answers.finished.push((ticket, answer.unwrap_or_else(Response::Failed)));
        }
    }

    /// Adds a device that was made to the store.
    fn admit(
        &mut self,
        core: &mut Core,
        id: DeviceId,
        spec: &DeviceSpec,
        device: Arc<dyn Device>,
        incarnation: u64,
    ) -> Result<Response> {
        let units = (device.unit_bytes().max(1), device.segment_bytes().max(1));
        let capacity = device.capacity_bytes();
        core.state.space.slots.push(slot_with(id, spec, Some(device), capacity, units, incarnation));
        let changed = core.change_superblock(|engine| drop(engine.state.space.slots.pop()));
        let Err((error, taken_back)) = changed else {
            core.retry_cuts();
            return Ok(Response::Device(id));
        };
        // If the superblock was not restored, the next opening may find the device in it, and then the device must
        // exist.
        if taken_back {
            self.changes.push(Change { ticket: None, id, spec: spec.clone(), incarnation: None });
        }
        Err(error)
    }
}
