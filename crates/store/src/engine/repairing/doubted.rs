//! Bytes leave for a copy only if that is trusted. On a device where bytes were found bad of late a copy is read first; if it is bad, the
//! bytes stay, and it is written again. Where no device has shown damage, nothing is read and nothing waits.

use cenote_model::{Error, ErrorKind, Finding, ObjectKey};

use super::Repairing;
use super::rescue::Rescue;
use crate::copying::is_mismatch;
use crate::engine::activity::Ask;
use crate::engine::core::Core;
use crate::map::NO_DEVICE;
use crate::placing::{Identity, Placing, Target, identity};

/// One copy that is read before bytes leave for it.
pub struct Doubt {
    was: Identity,
    /// For a person.
    pub place: String,
    /// Who waits.
    waiter: Option<u64>,
}

impl Repairing {
    /// Bytes are to leave for a copy that is doubted.
    pub fn check_copy(&mut self, key: ObjectKey, placing: Placing, place: String, waiter: Option<u64>) {
        let doubt = Doubt { was: placing.was, place, waiter };
        self.rescues.push_back(Rescue::doubting(key, placing, doubt));
    }

    /// A copy was read, and cannot be or is bad; `mends`: what is good stays where it is, so that the copy can be written again.
    pub fn note_bad_copy(&mut self, core: &mut Core, placing: &Placing, why: &str, mends: bool) {
        let Some(ext) = core.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was)
        else {
            return;
        };
        if ext.copy == NO_DEVICE {
            return;
        }
        let is_damage = is_mismatch(why);
        core.note_unread(ext.copy, is_damage, &Error::new(ErrorKind::Io, "").because(why.to_owned()));
        if !is_damage {
            return;
        }
        core.state.space.mark_bad_copy(&ext);
        if let (true, Target::Live { key, offset }) = (mends, placing.target) {
            let device = core.state.space.get(ext.copy).spec.name.clone();
            let finding = Finding { key, offset, len: u64::from(ext.len), device, what: why.to_owned() };
            self.mend_copy(core, placing.target, &ext, finding);
        }
    }
}

/// A copy was read, or needed not be.
pub fn doubt_over(core: &mut Core, doubt: &Doubt, error: Option<&Error>) {
    core.asks.doubted.remove(&doubt.was);
    if let Some(waiter) = doubt.waiter {
        core.asks.push(Ask::MoveOver { waiter, error: error.cloned() });
    }
}
