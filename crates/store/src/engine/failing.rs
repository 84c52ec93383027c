//! Cuts that fail: who waits for one is told, it is tried again later, and gives way to a later one if that may need less.

use std::collections::HashSet;

use cenote_model::{ContainerId, DeviceState, Error, ErrorKind};

use super::Engine;
use super::flush::Wait;
use crate::persist::{Cut, Stage};

/// So often a cut without room is renewed at double the interval of the time before.
const RENEWALS_QUICK: u32 = 5;
/// So often a cut of a store without persistent tiers waits twice as long as before.
const DOUBLINGS_MAX: u32 = 6;

impl Engine {
    /// Cuts that cannot be completed give way to later ones: something as it was at the cut cannot be read any more, or
    /// there was no room for a copy, and of what was deleted since a later cut needs none.
    pub(super) fn renew_cuts(&mut self) {
        let due: Vec<u64> =
            self.state.cuts.pending.values().filter(|cut| self.is_to_renew(cut)).map(|cut| cut.id).collect();
        for id in due {
            // One that was begun here may have taken its place already.
            let Some(cut) = self.state.cuts.pending.get(&id) else { continue };
            let Some(group) = self.renewed_group(id, cut.members.clone()) else { continue };
            if !group.is_empty() {
                let _ = self.begin_cut(&group); // if the journal does not take it: at the next tick
            } else if let Some(cut) = self.state.cuts.get_mut(id) {
                // All of its containers are gone: it promises nothing, and waits for no device.
                cut.renew = false;
                self.mark(id);
            }
        }
    }

    fn is_to_renew(&self, cut: &Cut) -> bool {
        if cut.in_flight > 0 || cut.renew {
            return cut.in_flight == 0;
        }
        // Not at each tick: who deletes much does it in many requests. And ever more seldom while it does not help.
        let rest_ns = self.settings.group_commit_ns << cut.renewals.min(RENEWALS_QUICK);
        self.is_held_up(cut) && self.state.now_ns.saturating_sub(cut.failed_ns) >= rest_ns
    }

    /// True if there was no room for all copies of a cut, and a later one may need fewer.
    pub(super) fn is_held_up(&self, cut: &Cut) -> bool {
        let full = cut.error.as_ref().is_some_and(|error| error.kind() == ErrorKind::Full);
        let changed = |id: &ContainerId| self.state.containers.get(*id).is_none_or(|c| c.epoch > cut.epoch);
        full && cut.stage == Stage::Drain && cut.members.iter().any(changed)
    }

    /// All that must be cut together with the members of cut `id`: whom they share transactions with, and who is in a cut
    /// with these. None if one of those cuts is making progress.
    fn renewed_group(&self, id: u64, mut group: Vec<ContainerId>) -> Option<Vec<ContainerId>> {
        let mut next = 0;
        while let Some(member) = group.get(next).copied() {
            next += 1;
            let mut more = self.state.linked(member);
            let pending = self.state.containers.get(member).and_then(|container| container.pending_cut);
            if let Some(cut) = pending.and_then(|cut| self.state.cuts.pending.get(&cut)) {
                if cut.id != id && (cut.in_flight > 0 || cut.stage != Stage::Drain) {
                    return None;
                }
                more.extend(cut.members.iter().copied());
            }
            more.retain(|member| !group.contains(member));
            more.dedup();
            group.extend(more);
        }
        group.sort_unstable();
        group.dedup();
        group.retain(|id| self.state.containers.get(*id).is_some_and(crate::container::Container::is_tracked));
        Some(group)
    }

    /// Something went wrong with a cut: who waits for it is told, and it is tried again later.
    pub(super) fn cut_failed(&mut self, id: u64, error: &Error) {
        let now = self.state.now_ns;
        // Without a persistent tier there is nothing to hope for but one that is added or comes back.
        let is_hopeless = error.kind() == ErrorKind::Full && !self.has_persistent_tier();
        let Some(cut) = self.state.cuts.get_mut(id) else { return };
        let doublings = if is_hopeless { (cut.failures + cut.renewals).min(DOUBLINGS_MAX) } else { 0 };
        cut.error = Some(error.clone());
        cut.failed_ns = now;
        cut.failures = cut.failures.saturating_add(1);
        cut.retry_ns = now.saturating_add(self.settings.retry_ns << doublings);
        if self.waiting.is_empty() {
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
    fn held_up_by(&self, members: &HashSet<ContainerId>) -> HashSet<ContainerId> {
        let mut held_up = HashSet::new();
        for waiter in &self.waiting {
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

    fn has_persistent_tier(&self) -> bool {
        self.state.space.present().any(|slot| !slot.is_volatile() && slot.state == DeviceState::Online)
    }

    /// True if a cut is not waiting for its next try. Whoever asks for it is answered as soon as if it had failed for the first time.
    pub(super) fn may_try(&self, cut: &Cut) -> bool {
        let now = self.state.now_ns;
        cut.retry_ns <= now
            || (cut.urgent && cut.failures > 0 && now.saturating_sub(cut.failed_ns) >= self.settings.retry_ns)
    }

    /// A tier has come: what waited for one is tried at once.
    pub(super) fn retry_cuts(&mut self) {
        for cut in self.state.cuts.pending.values_mut() {
            cut.retry_ns = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::mem::MemClock;

    use crate::engine::filled::filled;

    #[test]
    fn cuts_of_a_store_in_memory_alone_are_tried_ever_more_seldom() {
        let clock = Arc::<MemClock>::default();
        let mut engine = filled(&clock, 10);
        for _ in 0..10 * 60 * 20 {
            clock.advance_ns(50_000_000);
            engine.tick();
            while let Some(job) = engine.next_job() {
                engine.finish_job(job.run());
            }
        }
        let failures: Vec<u32> = engine.state.cuts.pending.values().map(|cut| cut.failures).collect();
        assert_eq!(failures.len(), 10);
        assert!(failures.iter().all(|failures| (6..20).contains(failures)), "{failures:?}");
    }
}
