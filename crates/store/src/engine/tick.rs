//! What time demands.

use cenote_device::Control;

use super::Engine;

/// Extents and records given up in one tick.
const RECLAIM_BUDGET: usize = 20_000;

impl Engine {
    /// Releases space, begins cuts, plans moves and checkpoints. Call it every few milliseconds.
    pub fn tick(&mut self) {
        self.update_clock();
        self.reclaim(RECLAIM_BUDGET);
        self.release_space();
        self.update_wanted();
        let pressure = self.is_under_pressure();
        self.renew_cuts();
        self.begin_cuts(pressure);
        self.plan_moves();
        self.plan_checkpoint();
        self.answer_waiters();
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
        let readers_min = self.seams.control.slots_min().min(self.jobs.min_epoch());
        let synced = self.journal.synced();
        for slot in &mut self.state.space.slots {
            slot.release_retired(readers_min, synced);
        }
    }
}
