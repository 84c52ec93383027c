//! Leaves tiers that are being emptied: gives back the free leased space on them, and moves reserved space to other
//! tiers, or gives it up.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cenote_model::{DEVICES_WORD, DeviceId, DeviceState, Request, Response};

use super::space::Space;
use crate::sync::lock;

/// A holder of leased space that is reserved for future writes.
pub(crate) trait KeepsSpace: Send + Sync {
    /// Moves the space reserved on these devices to others, or gives it up.
    fn leave(&self, devices: &[DeviceId]);
}

/// The holders of reserved space, and the last state of the devices.
#[derive(Default)]
pub(crate) struct Leaving {
    /// The devices' word at the last look.
    seen: AtomicU64,
    kept: Mutex<Vec<Weak<dyn KeepsSpace>>>,
    /// Serialises the threads that look.
    looking: Mutex<()>,
}

impl Leaving {
    /// Registers a holder of reserved space.
    pub fn note(&self, kept: Weak<dyn KeepsSpace>) {
        let mut all = lock(&self.kept);
        all.retain(|one| one.strong_count() > 0);
        all.push(kept);
    }
}

/// Returns true if a device may have begun to be emptied since the last look.
#[inline]
pub(crate) fn is_due(space: &Space) -> bool {
    let known = space.channel.attachment().readers.known_word(DEVICES_WORD);
    known.is_some_and(|word| word != space.leaving.seen.load(Ordering::Relaxed))
}

/// Leaves devices that are being emptied.
pub(crate) fn look(space: &Space) {
    let _one = lock(&space.leaving.looking);
    let known = space.channel.attachment().readers.known_word(DEVICES_WORD);
    let Some(word) = known.filter(|word| *word != space.leaving.seen.load(Ordering::Relaxed)) else { return };
    let Ok(Response::Devices(devices)) = space.channel.ask(Request::Devices) else { return }; // retried later
    let left: Vec<DeviceId> =
        devices.iter().filter(|device| device.state == DeviceState::Draining).map(|device| device.id).collect();
    space.leaving.seen.store(word, Ordering::Relaxed);
    if left.is_empty() {
        return;
    }
    space.channel.unlease(space.arenas.take(|device| left.contains(&device)));
    let kept: Vec<Arc<dyn KeepsSpace>> = lock(&space.leaving.kept).iter().filter_map(Weak::upgrade).collect();
    for kept in kept {
        kept.leave(&left);
    }
}
