//! Whether devices are too full, or empty.

use cenote_model::DeviceState;
use cenote_policy::excess_bytes;

use super::Core;

impl Core {
    /// True if a volatile device holds so much, or is to be emptied, that copies should be made at once; or if all that is
    /// left on a device to be emptied are bytes that somebody could go back to until the next cut. While bytes move off a
    /// persistent one cuts come as they always do: one at each tick would cost writers more than the movement.
    pub fn is_under_pressure(&self) -> bool {
        (0..self.state.space.slots.len() as u8).any(|dev| {
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

    /// True if all objects were looked at and none has anything on the device that could be moved.
    pub fn holds_nothing_live(&self, dev: u8) -> bool {
        self.state.space.get(dev).space.looked_in_vain >= self.state.objects.slots()
    }

    pub fn is_visible(&self, container: u32) -> bool {
        self.state.containers.is_taken(container)
            && self.state.containers.get(self.state.containers.at(container).id).is_some()
    }

    /// True if no extent is on the device any more.
    pub fn is_drained(&self, dev: u8) -> bool {
        let slot = self.state.space.get(dev);
        slot.removed || slot.used_bytes() == 0
    }
}
