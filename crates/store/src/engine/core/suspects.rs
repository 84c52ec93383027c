//! What may not be on media, since a sync failed or an earlier engine died before one.

use super::Core;
use crate::container::Container;

impl Core {
    /// If a sync of a device failed, nothing that was written to it since the last good one can be trusted.
    pub fn look_at_syncs(&mut self, dev: u8) {
        let slot = self.state.space.get_mut(dev);
        let failed = slot.trust.syncs.failed();
        if failed != slot.trust.failed_syncs {
            (slot.trust.unsynced, slot.trust.failed_syncs) = (true, failed);
            if !slot.forgets_unsynced() {
                self.suspect(&[dev]);
            }
        }
    }

    /// After an opening. If an earlier process died, a sync may have failed under it; and a device that is away now cannot be
    /// synced with what that process wrote.
    pub fn suspect_unsynced(&mut self, died: bool) {
        let persistent = |dev: &u8| {
            let slot = self.state.space.get(*dev);
            !slot.removed && !slot.is_volatile() && !slot.forgets_unsynced() && (died || slot.device.is_none())
        };
        let devs: Vec<u8> = (0..self.state.space.slots.len() as u8).filter(persistent).collect();
        self.suspect(&devs);
    }

    /// What was written to devices that are not open cannot be synced: no cut may pass over it.
    pub fn suspect_closed(&mut self) {
        let slots = self.state.space.slots.iter_mut().enumerate();
        let closed = slots.filter(|(_, slot)| {
            slot.trust.unsynced
                && slot.device.is_none()
                && !slot.removed
                && !slot.is_volatile()
                && !slot.forgets_unsynced()
        });
        let closed: Vec<u8> = closed.map(|(dev, slot)| (dev as u8, slot.trust.unsynced = false).0).collect();
        if !closed.is_empty() {
            self.suspect(&closed);
        }
    }

    pub fn suspect(&mut self, devs: &[u8]) {
        for id in self.state.cuts.dirty.clone() {
            let Some(container) = self.state.containers.get_mut(id).filter(|c| c.is_dirty()) else { continue };
            for dev in devs {
                if !container.durable.suspect.contains(dev) {
                    container.durable.suspect.push(*dev);
                }
            }
            container.durable.suspects_listed = false; // from the beginning
        }
    }

    /// True if something is still to be written again. The journal must not look like that of a store at rest then.
    pub fn is_suspect(&self) -> bool {
        self.state.cuts.dirty.iter().any(|id| self.state.containers.get(*id).is_some_and(Container::is_suspect))
    }
}
