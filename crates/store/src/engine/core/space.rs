//! Free space: releases retired space that no reader can hold, and tells whether more may become free.

use crate::map::DeviceIndex;
use cenote_device::Control;

use super::{Core, Effect};

/// More space may become free for this long after the last change that concerns space.
const SETTLED_NS: u64 = 50_000_000;

/// The counters that change whenever space may become free, and when they last did.
#[derive(Default)]
pub struct Progress {
    seen: [u64; 6],
    changed_ns: u64,
}

impl Core {
    /// Notes whether anything changed that may free space.
    pub fn note_progress(&mut self) {
        let slots = &self.state.space.slots;
        let seen = [
            self.state.epoch,
            self.state.cuts.next_id,
            self.state.gone.reclaim.len() as u64,
            self.observed.counting.moved_bytes,
            slots.iter().map(|slot| slot.space.map.free_units()).sum(),
            slots.iter().map(|slot| slot.space.retired.bytes()).sum(),
        ];
        if seen != self.observed.progress.seen {
            self.observed.progress = Progress { seen, changed_ns: self.state.now.ns };
        }
    }

    /// Returns true if space is being freed or may soon be. Otherwise space becomes free only by deletions.
    pub fn may_free_space(&self) -> bool {
        let retired = self.state.space.slots.iter().any(|slot| slot.space.retired.bytes() > 0);
        let frees = self.jobs.with_effect(Effect::FreesSpace) > 0;
        // A change since the last tick counts too.
        self.observed.progress.seen[0] != self.state.epoch
            || self.state.now.ns.saturating_sub(self.observed.progress.changed_ns) < SETTLED_NS
            || frees
            || retired && self.jobs.with_effect(Effect::FreesRetired) > 0
            || !self.asks.doubted.is_empty()
            || self.state.cuts.pending.values().any(|cut| self.is_held_up(cut))
    }

    /// Gives up the space of deleted objects, within a budget. Returns true if nothing is left.
    pub fn reclaim(&mut self, budget: usize) -> bool {
        if self.state.gone.reclaim.is_empty() {
            return true;
        }
        let tag = self.tag();
        let control = std::sync::Arc::clone(&self.seams.control);
        let raise: &dyn Control = control.as_ref();
        let empty = self.state.reclaim(budget, tag, &mut |hash| {
            raise.word_raise(hash);
        });
        raise.epoch_raise();
        empty
    }

    /// Frees retired space (limbo lists) that no reader can hold.
    pub fn release_space(&mut self) {
        if self.state.space.slots.iter().all(|slot| slot.space.retired.bytes() == 0) {
            return;
        }
        let readers_min = self.seams.control.slots_min();
        let synced = self.journal.synced();
        for (dev, slot) in self.state.space.slots.iter_mut().enumerate() {
            slot.release_retired(readers_min.min(self.jobs.min_epoch(dev as DeviceIndex)), synced);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::mem::MemClock;

    use super::*;
    use crate::engine::Engine;
    use crate::engine::filled::filled;
    use crate::engine::verifying::Verifying;
    use crate::work::CheckParts;

    /// A lease that finds no space waits while running jobs may free some, and for nothing else.
    #[test]
    fn space_may_become_free_while_a_job_is_at_it() {
        let clock = Arc::<MemClock>::default();
        let mut engine = filled(&clock, 1);
        let run_all = |engine: &mut Engine| {
            for _ in 0..100 {
                clock.advance_ns(SETTLED_NS);
                engine.tick();
                while let Some(job) = engine.next_job() {
                    engine.finish_job(job.run());
                }
            }
        };
        run_all(&mut engine);
        let core = &mut engine.core;
        assert!(!core.may_free_space(), "nothing is under way");
        let begin =
            |core: &mut Core, effect| core.start(effect, CheckParts(Vec::new()), |_: &mut Verifying, _, _| ()).id;
        let sync = begin(core, Effect::FreesRetired);
        assert!(!core.may_free_space(), "nothing waits for the journal");
        core.state.space.get_mut(0).space.retired.push(crate::space::Tag::default(), 0, 512);
        assert!(core.may_free_space(), "what was given up is free once the journal is on media");
        core.jobs.end(sync);
        assert!(!core.may_free_space());
        let copy = begin(core, Effect::FreesSpace);
        assert!(core.may_free_space(), "what has a copy can leave");
        core.jobs.end(copy);
        assert!(!core.may_free_space());
    }
}
