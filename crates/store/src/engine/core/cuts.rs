//! Operations on cuts (consistent cuts) that any activity may call: advance to the next stage, mark, fail.

use std::collections::HashSet;

use cenote_model::{ContainerId, DeviceState, Error, ErrorKind};

use super::{Core, Wait};
use crate::journal::Kind;
use crate::journal::record::encode_cut;
use crate::map::DeviceIndex;
use crate::persist::{Cut, CutPhase};

/// Number of times the retry interval of a cut doubles while the store has no persistent tier.
const DOUBLINGS_MAX: u32 = 6;

impl Core {
    /// Returns true if a cut found no room for all its copies and a later cut may need fewer.
    pub fn is_held_up(&self, cut: &Cut) -> bool {
        let full = cut.tries.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Full);
        let changed = |id: &ContainerId| self.state.containers.get(*id).is_none_or(|c| c.epoch > cut.epoch);
        full && cut.phase == CutPhase::Drain && cut.members.iter().any(changed)
    }

    /// Records a failure of a cut, fails the responses that wait for it, and schedules a retry.
    pub fn cut_failed(&mut self, id: u64, error: &Error) {
        let now = self.state.now.ns;
        // Without a persistent tier a retry can succeed only after one is added or comes back.
        let is_hopeless = error.kind() == ErrorKind::Full && !self.has_persistent_tier();
        let Some(cut) = self.state.cuts.get_mut(id) else { return };
        let doublings = if is_hopeless { (cut.tries.failures + cut.tries.renewals).min(DOUBLINGS_MAX) } else { 0 };
        cut.tries.error = Some(error.clone());
        cut.tries.failed_ns = now;
        cut.tries.failures = cut.tries.failures.saturating_add(1);
        cut.tries.retry_ns = now.saturating_add(self.settings.retry_ns << doublings);
        if self.answers.waiting.is_empty() {
            return;
        }
        let members: HashSet<ContainerId> = cut.members.iter().copied().collect();
        let held_up = self.held_up_by(&members);
        self.fail_waiters_of(&held_up, error);
        // A volatile device being emptied waits for cuts. So does a device whose bytes are kept only for rollback.
        let waits_for_cuts: Vec<bool> = (0..self.state.space.slots.len() as DeviceIndex)
            .map(|dev| self.state.space.is_volatile(dev) || self.holds_nothing_live(dev))
            .collect();
        self.fail_waiters(
            error,
            |what| matches!(what, Wait::Drained { dev } if waits_for_cuts.get(*dev as usize) == Some(&true)),
        );
    }

    /// Returns those containers with pending responses that wait for a cut of these members. A container that shares a
    /// transaction with a member is cut together with it.
    pub fn held_up_by(&self, members: &HashSet<ContainerId>) -> HashSet<ContainerId> {
        let mut held_up = HashSet::new();
        for waiter in &self.answers.waiting {
            let Wait::Durable { containers, .. } = &waiter.what else { continue };
            for (id, _) in containers {
                if !held_up.contains(id)
                    && (members.contains(id) || self.state.linked(*id).iter().any(|other| members.contains(other)))
                {
                    held_up.insert(*id);
                }
            }
        }
        held_up
    }

    /// Returns true if a persistent tier is online.
    pub fn has_persistent_tier(&self) -> bool {
        self.state.space.present().any(|slot| !slot.is_volatile() && slot.state == DeviceState::Online)
    }

    /// Retries all pending cuts at once: a tier has been added or has come back.
    pub fn retry_cuts(&mut self) {
        for cut in self.state.cuts.pending.values_mut() {
            cut.tries.retry_ns = 0;
        }
    }

    /// Advances cuts whose copies are complete: to the sync stage, or to their mark if no sync is needed.
    pub fn advance_cuts(&mut self) {
        let mut done = Vec::new();
        for cut in self.state.cuts.pending.values_mut() {
            cut.urgent = cut.members.iter().any(|member| self.state.cuts.wanted.contains(member));
            if cut.phase == CutPhase::Drain && cut.queue.is_empty() && cut.in_flight == 0 {
                if cut.sync.is_needed {
                    cut.phase = CutPhase::Copied;
                } else {
                    done.push(cut.id);
                }
            }
        }
        for id in done {
            self.mark(id);
        }
    }

    /// Appends the mark (commit record) of a cut whose data are on media.
    pub fn mark(&mut self, id: u64) {
        // A cut that is to be renewed is incomplete: a later cut replaces it at the next tick.
        let Some(cut) = self.state.cuts.pending.get(&id).filter(|cut| !cut.renew) else { return };
        let (epoch, members) = (cut.epoch, cut.members.clone());
        let mut draft = self.journal.draft(Kind::Mark);
        encode_cut(&mut draft.bytes, id, epoch, &members);
        if self.journal.append(draft, self.state.epoch).is_err() {
            return; // the next tick tries again
        }
        self.note_journal_dirty();
        let position = self.journal.position();
        self.state.mark(id, epoch, &members, position);
    }
}
