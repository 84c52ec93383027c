//! Bytes leave for a copy only if that is trusted. On a device where bytes were found bad of late a copy is read first; if it is bad, the
//! bytes stay, and it is written again. Where no device has shown damage, nothing is read and nothing waits.

use std::collections::HashSet;

use cenote_model::{Error, ErrorKind, Finding, ObjectId, ObjectKey};

use super::super::Engine;
use super::Rescue;
use crate::copying::is_mismatch;
use crate::map::NO_DEVICE;
use crate::placing::{Action, Identity, Placing, Target, identity};

/// Copies that wait to be read; more are found by the next plan.
const WAITING_MAX: usize = 4096;

/// What waits for its copy to be read.
#[derive(Default)]
pub(in super::super) struct Doubted(HashSet<Identity>);

impl Doubted {
    /// True if there is anything: room may become free by it.
    pub fn any(&self) -> bool {
        !self.0.is_empty()
    }
}

/// One copy that is read before bytes leave for it.
pub(super) struct Doubt {
    was: Identity,
    /// For a person.
    pub place: String,
    /// Who waits.
    waiter: Option<u64>,
}

impl Engine {
    /// Of these placings those that may be done at once. The others wait for their copy to be read; for how many of them `waiter` waits.
    pub(in super::super) fn doubt(&mut self, placings: Vec<Placing>, waiter: Option<u64>) -> (Vec<Placing>, usize) {
        if !self.state.space.any_damaged {
            return (placings, 0);
        }
        let (mut trusted, mut waited) = (Vec::new(), 0);
        for placing in placings {
            let ext = self.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was);
            let is_doubted = placing.action == Action::Evict
                && ext.is_some_and(|ext| {
                    ext.copy != NO_DEVICE && self.state.space.get(ext.copy).damaged_until_ns.is_some()
                });
            if !is_doubted {
                trusted.push(placing);
            } else if waiter.is_some()
                || (self.tiering.doubted.0.len() < WAITING_MAX && !self.tiering.doubted.0.contains(&placing.was))
            {
                self.tiering.doubted.0.insert(placing.was);
                waited += usize::from(waiter.is_some());
                let (key, place) = match placing.target {
                    Target::Live { key, offset } => (key, format!("{} bytes at {offset}", placing.was.3)),
                    Target::Undo { container, .. } | Target::Detached { container, .. } => {
                        (ObjectKey { container, object: ObjectId(0) }, format!("{} bytes as they were", placing.was.3))
                    }
                };
                let doubt = Doubt { was: placing.was, place, waiter };
                self.tiering.rescues.push_back(Rescue::doubting(key, placing, doubt));
            }
        }
        (trusted, waited)
    }

    /// A copy was read, or needed not be.
    pub(super) fn doubt_over(&mut self, doubt: &Doubt, error: Option<&Error>) {
        self.tiering.doubted.0.remove(&doubt.was);
        if let Some(waiter) = doubt.waiter {
            self.one_over(waiter, error);
        }
    }

    /// A copy was read, and cannot be or is bad; `mends`: what is good stays where it is, so that the copy can be written again.
    pub(super) fn note_bad_copy(&mut self, placing: &Placing, why: &str, mends: bool) {
        let Some(ext) = self.state.target_mut(placing.target).cloned().filter(|ext| identity(ext) == placing.was)
        else {
            return;
        };
        if ext.copy == NO_DEVICE {
            return;
        }
        let is_damage = is_mismatch(why);
        self.note_unread(ext.copy, is_damage, &Error::new(ErrorKind::Io, "").because(why.to_owned()));
        if !is_damage {
            return;
        }
        self.state.space.mark_bad_copy(&ext);
        if let (true, Target::Live { key, offset }) = (mends, placing.target) {
            let device = self.state.space.get(ext.copy).spec.name.clone();
            let finding = Finding { key, offset, len: u64::from(ext.len), device, what: why.to_owned() };
            self.mend_copy(placing.target, &ext, finding);
        }
    }
}
