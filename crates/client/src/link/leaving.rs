//! What a link leases of tiers that are being emptied: free space goes back, and what is kept for files is kept elsewhere, or no more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cenote_model::{DEVICES_WORD, DeviceId, DeviceState, Request, Response};

use super::space::Space;
use crate::sync::lock;

/// Leased space that is kept for writes to come.
pub(crate) trait KeepsSpace: Send + Sync {
    /// What is kept on these devices is kept elsewhere, or no more.
    fn leave(&self, devices: &[DeviceId]);
}

/// What is kept, and what was seen of the devices.
#[derive(Default)]
pub(crate) struct Leaving {
    /// The devices' word when this was looked at last.
    seen: AtomicU64,
    kept: Mutex<Vec<Weak<dyn KeepsSpace>>>,
    /// One thread at a time.
    looking: Mutex<()>,
}

impl Leaving {
    /// Space is kept for an object from now on.
    pub fn note(&self, kept: Weak<dyn KeepsSpace>) {
        let mut all = lock(&self.kept);
        all.retain(|one| one.strong_count() > 0);
        all.push(kept);
    }
}

/// True if a device began to be emptied since this was looked at last, or may have.
#[inline]
pub(crate) fn is_due(space: &Space) -> bool {
    space.channel.attachment().readers.word(DEVICES_WORD) != space.leaving.seen.load(Ordering::Relaxed)
}

/// Leaves devices that are being emptied.
pub(crate) fn look(space: &Space) {
    let _one = lock(&space.leaving.looking);
    let word = space.channel.attachment().readers.word(DEVICES_WORD);
    if space.leaving.seen.load(Ordering::Relaxed) == word {
        return;
    }
    let Ok(Response::Devices(devices)) = space.channel.ask(Request::Devices) else { return }; // at the next look
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
