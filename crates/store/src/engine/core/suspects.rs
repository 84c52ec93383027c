//! Suspects (data in doubt): bytes that may not be on media, because a sync failed or an earlier engine died before
//! one.

use super::Core;
use crate::container::Container;
use crate::map::DeviceIndex;

impl Core {
    /// After a failed sync of a device, suspects all that was written to it since its last good sync.
    pub fn look_at_syncs(&mut self, dev: DeviceIndex) {
        let slot = self.state.space.get_mut(dev);
        let failed = slot.trust.syncs.failed();
        if failed != slot.trust.failed_syncs {
            (slot.trust.unsynced, slot.trust.failed_syncs) = (true, failed);
            if !slot.forgets_unsynced() {
                self.suspect(&[dev]);
            }
        }
    }

    /// Suspects unsynced data after an opening. If an earlier process died, one of its syncs may have failed; and a
    /// device that is away now cannot be synced with what that process wrote.
    pub fn suspect_unsynced(&mut self, died: bool) {
        let persistent = |dev: &DeviceIndex| {
            let slot = self.state.space.get(*dev);
            !slot.removed && !slot.is_volatile() && !slot.forgets_unsynced() && (died || slot.device.is_none())
        };
        let devs: Vec<DeviceIndex> = (0..self.state.space.slots.len() as DeviceIndex).filter(persistent).collect();
        self.suspect(&devs);
    }

    /// Suspects unsynced writes to devices that are not open: no sync can cover them, so no cut may pass over them.
    pub fn suspect_closed(&mut self) {
        let slots = self.state.space.slots.iter_mut().enumerate();
        let closed = slots.filter(|(_, slot)| {
            slot.trust.unsynced
                && slot.device.is_none()
                && !slot.removed
                && !slot.is_volatile()
                && !slot.forgets_unsynced()
        });
        let closed: Vec<DeviceIndex> =
            closed.map(|(dev, slot)| (dev as DeviceIndex, slot.trust.unsynced = false).0).collect();
        if !closed.is_empty() {
            self.suspect(&closed);
        }
    }

    /// Marks these devices as suspect in all dirty containers.
    pub fn suspect(&mut self, devs: &[DeviceIndex]) {
        for id in self.state.cuts.dirty.clone() {
            let Some(container) = self.state.containers.get_mut(id).filter(|c| c.is_dirty()) else { continue };
            for dev in devs {
                if !container.durable.suspect.contains(dev) {
                    container.durable.suspect.push(*dev);
                }
            }
            container.durable.suspects_listed = false; // list them from the beginning
        }
    }

    /// Returns true if suspects are still to be written again. The journal must then not look like that of a store at
    /// rest.
    pub fn is_suspect(&self) -> bool {
        self.state.cuts.dirty.iter().any(|id| self.state.containers.get(*id).is_some_and(Container::is_suspect))
    }
}
