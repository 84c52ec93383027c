//! Pressure: whether devices are too full, or empty.

use crate::map::DeviceIndex;
use cenote_model::DeviceState;
use cenote_policy::excess_bytes;

use super::Core;

impl Core {
    /// Returns true if copies should be made at once. This holds if a volatile device is over its watermark or being
    /// emptied, or if a device being emptied holds only bytes that rollback needs until the next cut. While bytes move
    /// off a persistent device, cuts keep their usual interval: one at each tick would cost writers more than the move.
    pub fn is_under_pressure(&self) -> bool {
        (0..self.state.space.slots.len() as DeviceIndex).any(|dev| {
            let slot = self.state.space.get(dev);
            let is_emptied = slot.state == DeviceState::Draining;
            !slot.removed
                && if slot.is_volatile() {
                    is_emptied || excess_bytes(&slot.view_to_come()) > 0
                } else {
                    is_emptied && (slot.device.is_none() || self.holds_nothing_live(dev))
                }
        })
    }

    /// Returns true if all objects were inspected and none has bytes on the device that could move.
    pub fn holds_nothing_live(&self, dev: DeviceIndex) -> bool {
        self.state.space.get(dev).space.looked_in_vain >= self.state.objects.slots()
    }

    /// Returns true if the slot holds a container that is not deleted.
    pub fn is_visible(&self, container: u32) -> bool {
        self.state.containers.is_taken(container)
            && self.state.containers.get(self.state.containers.at(container).id).is_some()
    }

    /// Returns true if no extent is on the device any more.
    pub fn is_drained(&self, dev: DeviceIndex) -> bool {
        let slot = self.state.space.get(dev);
        slot.removed || slot.used_bytes() == 0
    }
}
