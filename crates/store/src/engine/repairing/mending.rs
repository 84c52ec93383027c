//! Rewrites bad copies, of bytes that are good at their first place: a copy is written again in place and read back.
//! Until then nothing is evicted to it.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_model::Finding;

use super::Repairing;
use crate::copying::{Copied, Copy, Piece};
use crate::engine::activity::Ask;
use crate::engine::core::{Core, Effect};
use crate::map::Ext;
use crate::placing::{Identity, Target, identity};
use crate::work::Job;

/// Most queued copies; the next round of the scrub finds the others.
const QUEUED_MAX: usize = 1024;

/// A copy to be written again.
pub struct Mend {
    target: Target,
    was: Identity,
    finding: Finding,
}

/// The queued copies.
#[derive(Default)]
pub struct Mending {
    queue: VecDeque<Mend>,
}

impl Repairing {
    /// Queues a copy that the scrub found bad.
    pub fn mend_copy(&mut self, core: &mut Core, target: Target, (ext, copy): (&Ext, usize), finding: Finding) {
        core.state.space.mark_bad_copy(ext, copy);
        if self.mending.queue.len() < QUEUED_MAX {
            self.mending.queue.push_back(Mend { target, was: identity(ext), finding });
        }
    }

    /// Returns a job that writes the next bad copy again.
    pub fn next_mend(&mut self, core: &mut Core) -> Option<Job> {
        while let Some(mend) = self.mending.queue.pop_front() {
            let ext = core.state.target_mut(mend.target).cloned().filter(|ext| identity(ext) == mend.was);
            let Some((ext, copy)) = with_bad_copy(core, ext) else { continue };
            let Some(place) = ext.copy_place(copy) else { continue };
            let slot = core.state.space.get(place.dev);
            let (device, syncs) = (slot.device.clone(), Arc::clone(&slot.trust.syncs));
            let at = place.unit_at(ext.hull().begin);
            let (Some(target), Some(part)) = (device, core.part_of(&ext)) else { continue };
            let like = ext.trimmed().copy(copy).and_then(|copy| copy.packed);
            let pieces = vec![Piece { part, at, like }];
            let copy = Copy { pieces, target, syncs: Some(syncs), packing: None, read_back: true };
            return Some(core.start(Effect::Other, copy, |_: &mut Self, core, (results, sync_failed)| {
                finish_mend(core, mend, &results, sync_failed);
            }));
        }
        None
    }
}

fn with_bad_copy(core: &Core, ext: Option<Ext>) -> Option<(Ext, usize)> {
    let ext = ext?;
    let copy = core.state.space.bad_copy(&ext)?;
    Some((ext, copy))
}

/// Takes the result of a rewrite; reports the damage if it failed.
pub fn finish_mend(core: &mut Core, mend: Mend, results: &[Copied], sync_failed: bool) {
    let Mend { target, was, mut finding } = mend;
    let ext = core.state.target_mut(target).cloned().filter(|ext| identity(ext) == was);
    let Some((ext, copy)) = with_bad_copy(core, ext) else { return };
    if let Some(dev) = ext.device_of_copy(copy).filter(|_| sync_failed) {
        core.look_at_syncs(dev);
    }
    if results.iter().all(Result::is_ok) {
        core.state.space.unmark_bad_copy(&ext, copy);
        return;
    }
    finding.what +=
        "; it is the copy, which could not be written again: write the range again, so that it gets another one";
    core.asks.push(Ask::NotRepaired(finding));
}
