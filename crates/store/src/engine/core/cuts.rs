//! What is done with cuts that everybody may do: they come a stage further, are marked, and fail.

use std::collections::HashSet;

use cenote_model::{ContainerId, DeviceState, Error, ErrorKind};

use super::{Core, Wait};
use crate::journal::Kind;
use crate::journal::record::encode_cut;
use crate::persist::{Cut, Stage};

/// So often a cut of a store without persistent tiers waits twice as long as before.
const DOUBLINGS_MAX: u32 = 6;

impl Core {
    /// True if there was no room for all copies of a cut, and a later one may need fewer.
    pub fn is_held_up(&self, cut: &Cut) -> bool {
        let full = cut.tries.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Full);
        let changed = |id: &ContainerId| self.state.containers.get(*id).is_none_or(|c| c.epoch > cut.epoch);
        full && cut.stage == Stage::Drain && cut.members.iter().any(changed)
    }

    /// Something went wrong with a cut: who waits for it is told, and it is tried again later.
    pub fn cut_failed(&mut self, id: u64, error: &Error) {
        let now = self.state.now.ns;
        // Without a persistent tier there is nothing to hope for but one that is added or comes back.
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
        // What is to leave a volatile device waits for cuts, and so does what is kept only to go back to.
        let waits_for_cuts: Vec<bool> = (0..self.state.space.slots.len() as u8)
            .map(|dev| self.state.space.is_volatile(dev) || self.holds_nothing_live(dev))
            .collect();
        self.fail_waiters(
            error,
            |what| matches!(what, Wait::Drained { dev } if waits_for_cuts.get(*dev as usize) == Some(&true)),
        );
    }

    /// Of the containers that somebody waits for those that wait for a cut of these members: who shares a transaction with
    /// a member is cut together with it.
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

    pub fn has_persistent_tier(&self) -> bool {
        self.state.space.present().any(|slot| !slot.is_volatile() && slot.state == DeviceState::Online)
    }

    /// A tier has come: what waited for one is tried at once.
    pub fn retry_cuts(&mut self) {
        for cut in self.state.cuts.pending.values_mut() {
            cut.tries.retry_ns = 0;
        }
    }

    /// Takes cuts whose copies are made a stage further.
    pub fn advance_cuts(&mut self) {
        let mut done = Vec::new();
        for cut in self.state.cuts.pending.values_mut() {
            cut.urgent = cut.members.iter().any(|member| self.state.cuts.wanted.contains(member));
            if cut.stage == Stage::Drain && cut.queue.is_empty() && cut.in_flight == 0 {
                if cut.sync.is_needed {
                    cut.stage = Stage::Copied;
                } else {
                    done.push(cut.id);
                }
            }
        }
        for id in done {
            self.mark(id);
        }
    }

    /// All that a cut promises is on media: says so in the journal.
    pub fn mark(&mut self, id: u64) {
        // What is to be renewed is not whole: a later cut takes its place at the next tick.
        let Some(cut) = self.state.cuts.pending.get(&id).filter(|cut| !cut.renew) else { return };
        let (epoch, members) = (cut.epoch, cut.members.clone());
        let mut draft = self.journal.draft(Kind::Mark);
        encode_cut(&mut draft.bytes, id, epoch, &members);
        if self.journal.append(draft, self.state.epoch).is_err() {
            return; // tried again at the next tick
        }
        self.note_journal_dirty();
        let position = self.journal.position();
        self.state.mark(id, epoch, &members, position);
    }
}
