//! Journal and checkpoints on media: syncs, files, checkpoints, and removal of the files that they
//! replace.

mod advance;
mod checkpoint;
mod syncing;

use super::activity::{Activity, Urgency};
use super::core::Core;
use crate::Ticket;
use crate::work::Job;

use checkpoint::{Last, NextFile};

/// See the module.
#[derive(Default)]
pub struct Journaling {
    /// The last checkpoint that was begun.
    pub last: Last,
    wanted: bool,
    /// A job could not make the last checkpoint: the next one is encoded while the engine is held.
    held: bool,
    begun: u64,
    /// The number of the checkpoint that a job is writing.
    running: Option<u64>,
    file: NextFile,
    retry_ns: u64,
    /// The requests that wait, by the number of their checkpoint.
    waiting: Vec<(Ticket, u64)>,
    /// A job is syncing the journal.
    is_syncing: bool,
    /// When to try again to make a file ahead, after that failed.
    make_ns: u64,
    /// When to try again to replace a journal that cannot be synced by a checkpoint.
    mend_ns: u64,
}

impl Activity for Journaling {
    fn tick(&mut self, core: &mut Core) {
        self.plan_checkpoint(core);
    }
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        match urgency {
            Urgency::Awaited => {
                self.mend_journal_if_due(core);
                self.next_sync_log(core)
            }
            Urgency::Housekeeping => self.next_checkpoint(core).or_else(|| self.next_log(core)),
            _ => None,
        }
    }
}
