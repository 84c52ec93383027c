//! Doubted copies: before an eviction to a device where bytes were found bad of late, the copy is read. If it is bad,
//! the bytes stay, and the copy is written again. Where no device has shown damage, nothing is read and nothing waits.

use cenote_model::{Error, ErrorKind, Finding, ObjectKey};

use super::Repairing;
use super::rescue::Rescue;
use crate::copying::is_mismatch;
use crate::engine::activity::Ask;
use crate::engine::core::Core;
use crate::placing::{Action, Identity, Placing, Target, identity};

/// A copy to be read before an eviction.
pub struct Doubt {
    was: Identity,
    /// The range, as text.
    pub place: String,
    /// The waiter number of the move, if a request waits for it.
    waiter: Option<u64>,
}

impl Repairing {
    /// Queues the check of a doubted copy.
    pub fn check_copy(&mut self, key: ObjectKey, placing: Placing, place: String, waiter: Option<u64>) {
        let doubt = Doubt { was: placing.was, place, waiter };
        self.rescues.push_back(Rescue::doubting(key, placing, doubt));
    }

    /// Records that a copy cannot be read or is bad; `mends`: the first place is good, so the copy can be written
    /// again.
    pub fn note_bad_copy(&mut self, core: &mut Core, placing: &Placing, why: &str, mends: bool) {
        let Some(ext) = core.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was)
        else {
            return;
        };
        let copy = if let Action::Evict { copy } = placing.action { usize::from(copy) } else { 0 };
        let Some(dev) = ext.device_of_copy(copy) else { return };
        let is_damage = is_mismatch(why);
        core.note_unread(dev, is_damage, &Error::new(ErrorKind::Io, "").because(why.to_owned()));
        if !is_damage {
            return;
        }
        core.state.space.mark_bad_copy(&ext, copy);
        if let (true, Target::Live { key, offset }) = (mends, placing.target) {
            let device = core.state.space.get(dev).spec.name.clone();
            let finding = Finding { key, offset, len: u64::from(ext.len), device, what: why.to_owned() };
            self.mend_copy(core, placing.target, (&ext, copy), finding);
        }
    }
}

/// Ends the check of a doubted copy, whether it was read or needed no read.
pub fn doubt_over(core: &mut Core, doubt: &Doubt, error: Option<&Error>) {
    core.asks.doubted.remove(&doubt.was);
    if let Some(waiter) = doubt.waiter {
        core.asks.push(Ask::MoveOver { waiter, error: error.cloned() });
    }
}
