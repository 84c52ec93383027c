//! Scheduling: ticks, the next job, and finished jobs.

use super::Engine;
use crate::work::{Job, JobDone};

/// Extents and records given up in one tick.
const RECLAIM_BUDGET: usize = 20_000;

impl Engine {
    /// Releases space, begins cuts, plans moves and checkpoints. Call it every few milliseconds.
    pub fn tick(&mut self) {
        let Self { core, activities } = self;
        core.update_clock();
        core.forget_trouble();
        core.reclaim(RECLAIM_BUDGET);
        core.release_space();
        core.update_wanted();
        core.look_at_pace();
        core.look_at_times();
        activities.tick(core);
        core.answer_waiters();
        core.note_progress();
    }

    /// Returns the next job, to be run on any thread. Several may run at once.
    pub fn next_job(&mut self) -> Option<Job> {
        self.core.update_clock();
        self.activities.next_job(&mut self.core)
    }

    /// Takes a job's result. Jobs may come back in any order.
    ///
    /// # Panics
    /// If the job belongs to another engine: its result would be lost there, and done twice here.
    pub fn finish_job(&mut self, done: JobDone) {
        let Self { core, activities } = self;
        core.update_clock();
        core.jobs.end(done.id);
        activities.devices.observe(core, &done.seen);
        (done.finish)(activities, core);
        activities.settle(core);
        core.answer_waiters();
    }
}
