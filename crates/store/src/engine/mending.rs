//! A copy that went bad, of bytes that are good where they are read, is written again in its place and read back. Until
//! then nothing leaves the good place for it.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_model::Finding;

use super::Engine;
use super::jobs::What;
use crate::copying::{Copied, Copy, Piece};
use crate::map::Ext;
use crate::placing::{Identity, Target, identity};
use crate::work::{Job, Work};

/// Copies that are to be written again; more are found by the next round of the scrub.
const QUEUED_MAX: usize = 1024;

/// A copy to be written again.
pub(super) struct Mend {
    target: Target,
    was: Identity,
    finding: Finding,
}

/// Those that wait.
#[derive(Default)]
pub(super) struct Mending {
    queue: VecDeque<Mend>,
}

impl Engine {
    /// The scrub found a copy bad.
    pub(super) fn mend_copy(&mut self, target: Target, ext: &Ext, finding: Finding) {
        self.state.space.mark_bad_copy(ext);
        if self.mending.queue.len() < QUEUED_MAX {
            self.mending.queue.push_back(Mend { target, was: identity(ext), finding });
        }
    }

    pub(super) fn next_mend(&mut self) -> Option<Job> {
        while let Some(mend) = self.mending.queue.pop_front() {
            let ext = self.state.target_mut(mend.target).cloned().filter(|ext| identity(ext) == mend.was);
            let Some(ext) = ext.filter(|ext| self.state.space.is_bad_copy(ext)) else { continue };
            let slot = self.state.space.get(ext.copy);
            let (device, syncs) = (slot.device.clone(), Arc::clone(&slot.syncs));
            let place = ext.copy_place().map(|place| place.unit_at(ext.hull().begin));
            let (Some(target), Some(part), Some(at)) = (device, self.part_of(&ext), place) else { continue };
            let pieces = vec![Piece { part, at, like: ext.trimmed().copy_packed().cloned() }];
            let copy = Copy { pieces, target, syncs: Some(syncs), packing: None, read_back: true };
            return Some(self.start(What::Mend(Box::new(mend)), Work::Copy(copy)));
        }
        None
    }

    pub(super) fn finish_mend(&mut self, mend: Mend, results: &[Copied], sync_failed: bool) {
        let Mend { target, was, mut finding } = mend;
        let ext = self.state.target_mut(target).cloned().filter(|ext| identity(ext) == was);
        let Some(ext) = ext.filter(|ext| self.state.space.is_bad_copy(ext)) else { return };
        if sync_failed {
            self.look_at_syncs(ext.copy);
        }
        if results.iter().all(Result::is_ok) {
            self.state.space.unmark_bad_copy(&ext);
            return;
        }
        finding.what +=
            "; it is the copy, which could not be written again: write the range again, so that it gets another one";
        self.not_repaired(finding);
    }
}
