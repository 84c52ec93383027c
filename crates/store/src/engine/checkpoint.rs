//! Checkpoints are planned, written, and make old journal files superfluous.

use std::sync::Arc;

use cenote_model::{Response, Result};

use super::Engine;
use super::flush::{Wait, Waiter};
use super::jobs::What;
use crate::Outcome;
use crate::checkpoint::{Head, encode, file_name, sequence_of};
use crate::journal;
use crate::work::{Job, Work, write_checkpoint};

/// Length of the journal file of a closed store, which holds hardly more than its header.
const CLOSED_LOG_BYTES: u64 = 64 << 10;

/// After an opening that found more than one journal file, a checkpoint is due; for this long the first requests go before it.
const AFTER_OPENING_NS: u64 = 1_000_000_000;
/// With this many files it does not wait: journals must not grow however soon engines are killed.
const FILES_MAX: usize = 8;

/// The journal file that begins with a checkpoint: a job makes it, since to clear 64 MiB takes 8 ms.
#[derive(Default, PartialEq, Eq)]
pub(super) enum NextFile {
    #[default]
    NotWanted,
    Wanted,
    /// It is there, or the journal has to make one itself.
    Tried,
}

/// Which checkpoints there were, are, and are wanted.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// Sequence number of the last one begun.
    pub sequence: u64,
    /// Journal position of the last one begun.
    pub position: u64,
    /// Bytes of the last one.
    pub bytes: usize,
    wanted: bool,
    begun: u64,
    pub finished: u64,
    /// A job writes the one of this number.
    running: Option<u64>,
    pub file: NextFile,
    retry_ns: u64,
}

impl Engine {
    pub(super) fn checkpoint_begin(&mut self) -> Outcome {
        self.update_clock();
        self.checkpoint.wanted = true;
        self.checkpoint.retry_ns = 0;
        let number = self.checkpoint.begun + 1;
        let ticket = self.ticket();
        self.waiting.push(Waiter { ticket, what: Wait::Checkpoint { number }, response: Response::Done });
        Outcome::Wait(ticket)
    }

    /// The journal has so many files at the opening: the next opening is to read fewer.
    pub(super) fn want_checkpoint_after_opening(&mut self, files: usize) {
        self.checkpoint.wanted = files > 1;
        if files > 1 && files <= FILES_MAX {
            self.checkpoint.retry_ns = self.seams.clock.now_ns() + AFTER_OPENING_NS;
        }
    }

    pub(super) fn plan_checkpoint(&mut self) {
        let grown = self.journal.position().saturating_sub(self.checkpoint.position);
        // The journal of a small store is small: what it costs to write a checkpoint is in proportion to that.
        let (bytes, most) = (self.checkpoint.bytes as u64, self.settings.checkpoint_bytes);
        let limit = (8 * bytes).max(self.settings.log_bytes).min(most).max(2 * bytes);
        if grown > limit {
            self.checkpoint.wanted = true;
        }
    }

    pub(super) fn next_checkpoint(&mut self) -> Option<Job> {
        let now = self.state.now_ns;
        let busy = self.checkpoint.running.is_some() || self.journal.is_making();
        if !self.checkpoint.wanted || busy || self.checkpoint.retry_ns > now {
            return None;
        }
        if !self.reclaim(100_000) {
            return None; // what is half deleted is not in checkpoints
        }
        if self.checkpoint.file != NextFile::Tried && !self.journal.has_spare() {
            self.checkpoint.file = NextFile::Wanted;
            return None;
        }
        self.checkpoint.file = NextFile::NotWanted;
        if let Err(error) = self.journal.rotate(0) {
            self.checkpoint_failed(&error);
            return None;
        }
        let (name, bytes, remove) = self.encode_checkpoint(self.journal.sequence);
        self.checkpoint.running = Some(self.checkpoint.begun);
        self.checkpoint.wanted = false;
        let meta = Arc::clone(&self.seams.meta);
        Some(self.start(What::Checkpoint, Work::WriteCheckpoint { meta, name, bytes, remove }))
    }

    /// The state as a checkpoint after which the journal goes on in file `journal_from`; its name, its bytes, and the
    /// names of files that it makes superfluous.
    fn encode_checkpoint(&mut self, journal_from: u64) -> (String, Vec<u8>, Vec<String>) {
        self.look_at_times();
        self.prune_pins();
        self.state.leave_checkpoint();
        self.checkpoint.begun += 1;
        self.checkpoint.sequence += 1;
        self.checkpoint.position = self.journal.position();
        let head = Head {
            store: self.id,
            sequence: self.checkpoint.sequence,
            journal_from,
            position: self.journal.position(),
            epoch: self.state.epoch,
        };
        let hint = self.checkpoint.bytes + self.checkpoint.bytes / 4 + 65_536;
        let bytes = encode(&self.state, &head, hint);
        self.checkpoint.bytes = bytes.len();
        let superfluous = |name: &String| {
            journal::sequence_of(name).is_some_and(|sequence| sequence < journal_from)
                || sequence_of(name).is_some_and(|sequence| sequence < head.sequence)
        };
        let remove = self.seams.meta.list().unwrap_or_default().into_iter().filter(superfluous).collect();
        (file_name(head.sequence), bytes, remove)
    }

    pub(super) fn finish_checkpoint(&mut self, result: Result<()>) {
        let number = self.checkpoint.running.take().unwrap_or(0);
        match result {
            Ok(()) => self.checkpoint.finished = self.checkpoint.finished.max(number),
            Err(error) => {
                self.checkpoint.wanted = true;
                self.checkpoint_failed(&error);
            }
        }
    }

    fn checkpoint_failed(&mut self, error: &cenote_model::Error) {
        self.checkpoint.retry_ns = self.state.now_ns + self.settings.retry_ns;
        self.fail_waiters(error, |what| matches!(what, Wait::Checkpoint { .. }));
    }

    /// Writes a checkpoint here and now and begins a new journal file, whatever became of the old one.
    pub(super) fn checkpoint_now(&mut self) -> Result<()> {
        self.checkpoint_before(self.journal.file_bytes)
    }

    /// The same, with a new journal file of `bytes`.
    fn checkpoint_before(&mut self, bytes: u64) -> Result<()> {
        while !self.reclaim(1_000_000) {}
        let (header, file) = self.journal.prepare_restart(bytes)?;
        let (name, bytes, remove) = self.encode_checkpoint(header.sequence);
        let number = self.checkpoint.begun;
        if let Err(error) = write_checkpoint(self.seams.meta.as_ref(), &name, &bytes, &[]) {
            self.journal.doubt(name);
            return Err(error);
        }
        self.journal.restart(&header, file);
        self.journal_dirty_since_ns = None;
        self.checkpoint.finished = self.checkpoint.finished.max(number);
        for old in &remove {
            let _ = self.seams.meta.remove(old); // tried again after the next checkpoint
        }
        Ok(())
    }

    /// Flushes the journal and writes a checkpoint. No jobs may be running.
    pub fn close(&mut self) -> Result<()> {
        self.update_clock();
        self.write_profiles();
        // If it cannot be synced, the checkpoint brings on media what it says; and the other way round.
        let synced = self.journal.sync();
        // The next engine begins a file of its own, so this one is short: a store at rest takes little space.
        let bytes = self.journal.file_bytes.min(CLOSED_LOG_BYTES);
        self.checkpoint_before(bytes).and(if self.journal.is_tainted() { synced } else { Ok(()) })?;
        if !self.is_suspect() {
            // Else, and if this fails, the next engine takes what no mark covers for suspect.
            let _ = self.journal.append_closed(self.state.epoch);
        }
        Ok(())
    }
}
