//! What time demands.

use cenote_device::Control;

use super::Engine;
use super::jobs::What;

/// Extents and records given up in one tick.
const RECLAIM_BUDGET: usize = 20_000;

/// For so long after anything changed that has to do with space, more of it may become free.
const SETTLED_NS: u64 = 50_000_000;

/// What of the state makes space free sooner or later, as it was when it last changed.
#[derive(Default)]
pub(super) struct Progress {
    seen: [u64; 6],
    changed_ns: u64,
}

impl Engine {
    /// Releases space, begins cuts, plans moves and checkpoints. Call it every few milliseconds.
    pub fn tick(&mut self) {
        self.update_clock();
        self.forget_trouble();
        self.reclaim(RECLAIM_BUDGET);
        self.release_space();
        self.update_wanted();
        self.look_at_pace();
        let pressure = self.is_under_pressure();
        self.renew_cuts();
        self.begin_cuts(pressure);
        self.plan_moves();
        self.plan_tiers();
        self.look_at_times();
        self.run_rules();
        self.keep_pins();
        self.plan_checkpoint();
        self.answer_waiters();
        self.note_progress();
    }

    fn note_progress(&mut self) {
        let slots = &self.state.space.slots;
        let seen = [
            self.state.epoch,
            self.state.cuts.next_id,
            self.state.reclaim.len() as u64,
            self.moved_bytes,
            slots.iter().map(|slot| slot.map.free_units()).sum(),
            slots.iter().map(|slot| slot.retired.bytes()).sum(),
        ];
        if seen != self.progress.seen {
            self.progress = Progress { seen, changed_ns: self.state.now_ns };
        }
    }

    /// True if space is being freed, or may be about to. If not, none becomes free unless somebody deletes something.
    pub(super) fn may_free_space(&self) -> bool {
        let retired = self.state.space.slots.iter().any(|slot| slot.retired.bytes() > 0);
        let frees = |what: &What| match what {
            What::Copy { .. }
            | What::Move { .. }
            | What::Rewrite { .. }
            | What::SyncDevices { .. }
            | What::Spare(_) => true,
            What::SyncLog { .. } => retired,
            _ => false,
        };
        // A change since the last tick counts too.
        self.progress.seen[0] != self.state.epoch
            || self.state.now_ns.saturating_sub(self.progress.changed_ns) < SETTLED_NS
            || self.jobs.count(frees) > 0
            || self.tiering.doubted.any()
            || self.state.cuts.pending.values().any(|cut| self.is_held_up(cut))
    }

    /// Gives up what was deleted; true if nothing is left.
    pub(super) fn reclaim(&mut self, budget: usize) -> bool {
        if self.state.reclaim.is_empty() {
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

    /// Makes space free that no reader can hold.
    pub(super) fn release_space(&mut self) {
        if self.state.space.slots.iter().all(|slot| slot.retired.bytes() == 0) {
            return;
        }
        let readers_min = self.seams.control.slots_min();
        let synced = self.journal.synced();
        for (dev, slot) in self.state.space.slots.iter_mut().enumerate() {
            slot.release_retired(readers_min.min(self.jobs.min_epoch(dev as u8)), synced);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::mem::MemClock;

    use super::*;
    use crate::engine::filled::filled;
    use crate::work::Work;

    /// Who finds no space waits while jobs may make some free, and for nothing else.
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
        assert!(!engine.may_free_space(), "nothing is under way");
        let none = || Work::Check { parts: Vec::new() };
        let sync = engine.start(What::SyncLog { position: 0, sequence: 0 }, none()).id;
        assert!(!engine.may_free_space(), "nothing waits for the journal");
        engine.state.space.get_mut(0).retired.push(crate::space::Tag::default(), 0, 512);
        assert!(engine.may_free_space(), "what was given up is free once the journal is on media");
        engine.jobs.running.remove(&sync);
        assert!(!engine.may_free_space());
        let copy = engine.start(What::Copy { cut: 0, parts: Vec::new() }, none()).id;
        assert!(engine.may_free_space(), "what has a copy can leave");
        engine.jobs.running.remove(&copy);
        assert!(!engine.may_free_space());
    }
}
