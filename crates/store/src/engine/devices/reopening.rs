//! Reopens tiers behind a network that could not be reached when the store was opened, while the store stays open.

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, DeviceState, Result, StoreId, Timed};

use super::Devices;
use crate::engine::core::{Core, Effect};
use crate::map::DeviceIndex;
use crate::space::DeviceSlot;
use crate::superblock::Stamp;
use crate::work::{Io, Job, Work};

/// Time between two attempts.
const AGAIN_NS: u64 = 5_000_000_000;
/// The same for tiers on several places: the nodes of a cluster start one after the other.
const AGAIN_PLACES_NS: u64 = 1_000_000_000;

/// When to try next, and which device.
#[derive(Default)]
pub struct Reopening {
    next_ns: u64,
    turn: usize,
    /// A job is trying one.
    is_running: bool,
}

/// Opens a device that the store knows.
struct Reopen {
    devices: Arc<dyn cenote_device::Devices>,
    store: StoreId,
    id: DeviceId,
    spec: Box<DeviceSpec>,
}

impl Work for Reopen {
    /// The device and its stamp.
    type Output = Result<(Arc<dyn Device>, Stamp)>;
    const TIMED: Timed = Timed::Reopen;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        let device = self.devices.open(self.store, self.id, &self.spec, false)?.device;
        let stamp = Stamp::read(device.as_ref(), self.store, self.id)?;
        Ok((device, stamp))
    }
}

fn is_away(slot: &DeviceSlot) -> bool {
    !slot.removed && slot.device.is_none() && slot.state == DeviceState::Failed && slot.spec.kind.is_object()
}

impl Devices {
    /// Returns a job that tries to open a device that is away.
    pub fn next_reopen(&mut self, core: &mut Core) -> Option<Job> {
        let now = core.state.now.ns;
        if self.reopening.next_ns > now || self.reopening.is_running {
            return None;
        }
        let slots = &core.state.space.slots;
        let dev = (0..slots.len()).map(|i| (i + self.reopening.turn) % slots.len()).find(|i| is_away(&slots[*i]))?;
        let slot = &slots[dev];
        let again = if slot.spec.kind == DeviceKind::Raid { AGAIN_PLACES_NS } else { AGAIN_NS };
        self.reopening = Reopening { next_ns: now + again, turn: dev + 1, is_running: true };
        let work = Reopen {
            devices: Arc::clone(&core.seams.devices),
            store: core.store.id,
            id: slot.id,
            spec: Box::new(slot.spec.clone()),
        };
        Some(core.start(Effect::Other, work, move |devices: &mut Self, core, result| {
            devices.reopening.is_running = false;
            finish_reopen(core, dev as DeviceIndex, result);
        }))
    }
}

/// Takes a device back, if it is the one that the store knows.
fn finish_reopen(core: &mut Core, dev: DeviceIndex, result: Result<(Arc<dyn Device>, Stamp)>) {
    let slot = core.state.space.get_mut(dev);
    if !is_away(slot) {
        return;
    }
    let bytes = slot.space.map.units() * u64::from(slot.space.unit_bytes);
    match result {
        Err(error) => slot.failure = error.to_string(),
        Ok((_, stamp)) if stamp.incarnation != slot.incarnation => {
            "it holds another life of this device".clone_into(&mut slot.failure);
        }
        Ok((device, _)) if device.capacity_bytes() != bytes || device.unit_bytes() != slot.space.unit_bytes => {
            "its capacity is another one than that of the store's device".clone_into(&mut slot.failure);
        }
        Ok((device, _)) => {
            (slot.device, slot.state) = (Some(device), DeviceState::Online);
            slot.failure.clear();
            slot.retain_used();
            core.retry_cuts();
        }
    }
}
