//! What making and forgetting devices takes is done by jobs: an object service may let one wait long, and nobody else shall.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceSpec, Response, Result};

use super::Engine;
use super::devices::slot_with;
use super::jobs::What;
use crate::Ticket;
use crate::work::{Job, Work};

/// What is still to be done, oldest first, and what is being made.
#[derive(Default)]
pub(super) struct Changes {
    queue: VecDeque<Change>,
    making: Vec<String>,
}

/// A device that is to be made or forgotten.
#[derive(Clone, Debug)]
pub(super) struct Change {
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

impl Engine {
    /// The next device to be made or forgotten, in the order in which they were asked for.
    pub(super) fn next_change(&mut self) -> Option<Job> {
        if self.jobs.count(|what| matches!(what, What::Change(_))) > 0 {
            return None;
        }
        let change = self.changes.queue.pop_front()?;
        let work = Work::Change {
            devices: Arc::clone(&self.seams.devices),
            store: self.id,
            id: change.id,
            spec: Box::new(change.spec.clone()),
            incarnation: change.incarnation,
        };
        Some(self.start(What::Change(Box::new(change)), work))
    }

    /// `result`: the device that was made, if one was to be.
    pub(super) fn finish_change(&mut self, change: Change, result: Result<Option<Arc<dyn Device>>>) {
        self.changes.making.retain(|name| change.incarnation.is_none() || *name != change.spec.name);
        let Change { ticket, id, spec, incarnation } = change;
        let answer = match (result, incarnation) {
            (Ok(Some(device)), Some(incarnation)) => self.admit(id, &spec, device, incarnation),
            (Ok(_), _) => Ok(Response::Done),
            (Err(error), made) => {
                if made.is_some() && self.device_id_burnt == id.0 {
                    self.device_id_burnt -= 1; // the next one is made in its place
                }
                Err(error)
            }
        };
        if let Some(ticket) = ticket {
            self.finished.push((ticket, answer.unwrap_or_else(Response::Failed)));
        }
    }

    /// Takes in a device that was made.
    fn admit(
        &mut self,
        id: DeviceId,
        spec: &DeviceSpec,
        device: Arc<dyn Device>,
        incarnation: u64,
    ) -> Result<Response> {
        let units = (device.unit_bytes().max(1), device.segment_bytes().max(1));
        let capacity = device.capacity_bytes();
        self.state.space.slots.push(slot_with(id, spec, Some(device), capacity, units, incarnation));
        let changed = self.change_superblock(|engine| drop(engine.state.space.slots.pop()));
        let Err((error, taken_back)) = changed else {
            self.retry_cuts();
            return Ok(Response::Device(id));
        };
        // If it was not taken back, the next opening may find the device in the superblock, and then it must be there.
        if taken_back {
            self.changes.push(Change { ticket: None, id, spec: spec.clone(), incarnation: None });
        }
        Err(error)
    }
}
