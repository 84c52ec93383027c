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
