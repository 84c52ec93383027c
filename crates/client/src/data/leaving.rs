//! What a session leases of tiers that are being emptied: free space goes back, and what is kept for files is kept elsewhere, or no more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cenote_model::{DEVICES_WORD, DeviceId, DeviceState, Request, Response};

use crate::reserve::Kept;
use crate::session::Session;
use crate::sync::lock;

/// What is kept, and what was seen of the devices.
#[derive(Default)]
pub(crate) struct Leaving {
    /// The devices' word when this was looked at last.
    seen: AtomicU64,
    kept: Mutex<Vec<Weak<Kept>>>,
    /// One thread at a time.
    looking: Mutex<()>,
}

impl Leaving {
    /// Space is kept for an object from now on.
    pub fn note(&self, kept: &Arc<Kept>) {
        let mut all = lock(&self.kept);
        all.retain(|one| one.strong_count() > 0);
        all.push(Arc::downgrade(kept));
    }
}

/// True if a device began to be emptied since this was looked at last, or may have.
#[inline]
pub(crate) fn is_due(session: &Session) -> bool {
    session.attachment().readers.word(DEVICES_WORD) != session.leaving.seen.load(Ordering::Relaxed)
}

/// The same, looked at by a thread of its own, since what is kept may have to wait for room elsewhere.
pub(crate) fn look_aside(session: &Session) {
    let session = session.myself();
    let look = move || {
        if let Some(session) = session.upgrade() {
            look(&session);
        }
    };
    // Without a thread the next look does it.
    let _ = std::thread::Builder::new().name("cenote-leaving".into()).spawn(look);
}

/// Leaves devices that are being emptied.
pub(crate) fn look(session: &Session) {
    let _one = lock(&session.leaving.looking);
    let word = session.attachment().readers.word(DEVICES_WORD);
    if session.leaving.seen.load(Ordering::Relaxed) == word {
        return;
    }
    let Ok(Response::Devices(devices)) = session.ask(Request::Devices) else { return }; // at the next look
    let left: Vec<DeviceId> =
        devices.iter().filter(|device| device.state == DeviceState::Draining).map(|device| device.id).collect();
    session.leaving.seen.store(word, Ordering::Relaxed);
    if left.is_empty() {
        return;
    }
    session.unlease(session.arenas.take(|device| left.contains(&device)));
    let kept: Vec<Arc<Kept>> = lock(&session.leaving.kept).iter().filter_map(Weak::upgrade).collect();
    for kept in kept {
        kept.leave(&left);
    }
}
