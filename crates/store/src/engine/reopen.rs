//! Tiers behind a network that could not be reached when the store was opened come back without it being opened again.

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceState, Result};

use super::Engine;
use super::jobs::What;
use crate::space::DeviceSlot;
use crate::superblock::Stamp;
use crate::work::{Job, Work};

/// Between two tries.
const AGAIN_NS: u64 = 5_000_000_000;

/// When to try next, and whose turn it is.
#[derive(Default)]
pub(super) struct Reopening {
    next_ns: u64,
    turn: usize,
}

fn is_away(slot: &DeviceSlot) -> bool {
    !slot.removed && slot.device.is_none() && slot.state == DeviceState::Failed && slot.spec.kind.is_object()
}

impl Engine {
    /// The next try to open a device that is away.
    pub(super) fn next_reopen(&mut self) -> Option<Job> {
        let now = self.state.now_ns;
        if self.reopening.next_ns > now || self.jobs.count(|what| matches!(what, What::Reopen { .. })) > 0 {
            return None;
        }
        let slots = &self.state.space.slots;
        let dev = (0..slots.len()).map(|i| (i + self.reopening.turn) % slots.len()).find(|i| is_away(&slots[*i]))?;
        self.reopening = Reopening { next_ns: now + AGAIN_NS, turn: dev + 1 };
        let slot = &slots[dev];
        let work = Work::Reopen {
            devices: Arc::clone(&self.seams.devices),
            store: self.id,
            id: slot.id,
            spec: Box::new(slot.spec.clone()),
        };
        Some(self.start(What::Reopen { dev: dev as u8 }, work))
    }

    pub(super) fn finish_reopen(&mut self, dev: u8, result: Result<(Arc<dyn Device>, Stamp)>) {
        let slot = self.state.space.get_mut(dev);
        if !is_away(slot) {
            return;
        }
        let bytes = slot.map.units() * u64::from(slot.unit_bytes);
        match result {
            Err(error) => slot.failure = error.to_string(),
            Ok((_, stamp)) if stamp.incarnation != slot.incarnation => {
                "it holds another life of this device".clone_into(&mut slot.failure);
            }
            Ok((device, _)) if device.capacity_bytes() != bytes || device.unit_bytes() != slot.unit_bytes => {
                "its capacity is another one than that of the store's device".clone_into(&mut slot.failure);
            }
            Ok((device, _)) => {
                (slot.device, slot.state) = (Some(device), DeviceState::Online);
                slot.failure.clear();
                slot.retain_used();
                self.retry_cuts();
            }
        }
    }
}
