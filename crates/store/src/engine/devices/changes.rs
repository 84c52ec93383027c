//! What making and forgetting devices takes is done by jobs: an object service may let one wait long, and nobody else shall.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceSpec, Response, Result, StoreId, Timed};

use super::Devices;
use crate::Ticket;
use crate::engine::core::{Core, Effect, make_stamped, slot_with};
use crate::work::{Io, Job, Work};

/// What is still to be done, oldest first, and what is being made.
#[derive(Default)]
pub struct Changes {
    queue: VecDeque<Change>,
    making: Vec<String>,
    /// A job makes or forgets one.
    is_running: bool,
}

/// A device that is to be made or forgotten.
#[derive(Clone, Debug)]
pub struct Change {
    /// Who waits for it.
    pub ticket: Option<Ticket>,
    pub id: DeviceId,
    pub spec: DeviceSpec,
    /// Of a device that is to be made; `None`: forget it.
    pub incarnation: Option<u64>,
}

impl Changes {
    /// Names of devices that are being made.
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

/// A device is made, of that incarnation, or forgotten.
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
    /// The next device to be made or forgotten, in the order in which they were asked for.
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

    /// `result`: the device that was made, if one was to be.
    pub fn finish_change(&mut self, core: &mut Core, change: Change, result: Result<Option<Arc<dyn Device>>>) {
        self.changes.making.retain(|name| change.incarnation.is_none() || *name != change.spec.name);
        let Change { ticket, id, spec, incarnation } = change;
        let answer = match (result, incarnation) {
            (Ok(Some(device)), Some(incarnation)) => self.admit(core, id, &spec, device, incarnation),
            (Ok(_), _) => Ok(Response::Done),
            (Err(error), made) => {
                if made.is_some() && self.id_burnt == id.0 {
                    self.id_burnt -= 1; // the next one is made in its place
                }
                Err(error)
            }
        };
        if let Some(ticket) = ticket {
            core.answers.finished.push((ticket, answer.unwrap_or_else(Response::Failed)));
        }
    }

    /// Takes in a device that was made.
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
        // If it was not taken back, the next opening may find the device in the superblock, and then it must be there.
        if taken_back {
            self.changes.push(Change { ticket: None, id, spec: spec.clone(), incarnation: None });
        }
        Err(error)
    }
}
