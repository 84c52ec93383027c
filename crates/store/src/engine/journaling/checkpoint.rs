//! Checkpoints: plans and writes them, and removes the journal files that they replace.

use std::sync::Arc;

use cenote_device::{Device, MetaDir};
use cenote_model::{Response, Result, Timed};

use super::Journaling;
use crate::Outcome;
use crate::checkpoint::{Head, encode, file_name, sequence_of};
use crate::engine::core::{Core, Effect};
use crate::journal;
use crate::work::{Io, Job, Work};

/// Length of the journal file of a closed store, which holds hardly more than its header.
const CLOSED_LOG_BYTES: u64 = 64 << 10;

/// After an opening that found more than one journal file, a checkpoint is due; the first requests go before it for
/// this long.
const AFTER_OPENING_NS: u64 = 1_000_000_000;
/// With this many files the checkpoint does not wait: journals must not grow however soon engines are killed.
const FILES_MAX: usize = 8;

/// The journal file that begins with a checkpoint. A job makes it, since clearing 64 MiB takes 8 ms.
#[derive(Default, PartialEq, Eq)]
pub enum NextFile {
    #[default]
    NotWanted,
    Wanted,
    /// It is there, or the journal has to make one itself.
    Tried,
}

/// The last checkpoint that was begun.
#[derive(Default)]
pub struct Last {
    pub sequence: u64,
    /// Journal position.
    pub position: u64,
    /// Length of the encoded checkpoint.
    pub bytes: usize,
}

/// Writes a checkpoint, then removes the files that it replaces.
struct WriteCheckpoint {
    meta: Arc<dyn MetaDir>,
    name: String,
    bytes: Vec<u8>,
    remove: Vec<String>,
}

impl Work for WriteCheckpoint {
    type Output = Result<()>;
    const TIMED: Timed = Timed::Checkpoint;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        self.meta.write_file(&self.name, &self.bytes)?;
        for old in &self.remove {
            // A file that cannot be removed now is removed after the next checkpoint, or at the next opening.
            let _ = self.meta.remove(old);
        }
        Ok(())
    }
}

impl Journaling {
    /// Requests a checkpoint; the response waits until it is written.
    pub fn checkpoint_begin(&mut self, core: &mut Core) -> Outcome {
        core.update_clock();
        self.wanted = true;
        self.retry_ns = 0;
        let number = self.begun + 1;
        let ticket = core.ticket();
        self.waiting.push((ticket, number));
        Outcome::Wait(ticket)
    }

    /// Requests a checkpoint if the opening found several journal files, so that the next opening reads fewer.
    pub fn want_checkpoint_after_opening(&mut self, core: &Core, files: usize) {
        self.wanted = files > 1;
        if files > 1 && files <= FILES_MAX {
            self.retry_ns = core.seams.clock.now_ns() + AFTER_OPENING_NS;
        }
    }

    /// Requests a checkpoint once the journal has grown by several times the last one.
    pub fn plan_checkpoint(&mut self, core: &Core) {
        let grown = core.journal.position().saturating_sub(self.last.position);
        // A small store has a small journal: the limit follows the cost of a checkpoint.
        let (bytes, most) = (self.last.bytes as u64, core.settings.checkpoint_bytes);
        let limit = (8 * bytes).max(core.settings.log_bytes).min(most).max(2 * bytes);
        if grown > limit {
            self.wanted = true;
        }
    }

    /// Returns a job that writes a checkpoint, if one is wanted. The state is encoded here; the job writes it.
    pub fn next_checkpoint(&mut self, core: &mut Core) -> Option<Job> {
        let now = core.state.now.ns;
        let busy = self.running.is_some() || core.journal.is_making();
        if !self.wanted || busy || self.retry_ns > now {
            return None;
        }
        if !core.reclaim(100_000) {
            return None; // checkpoints cannot hold half deleted objects
        }
        if self.file != NextFile::Tried && !core.journal.has_spare() {
            self.file = NextFile::Wanted;
            return None;
        }
        self.file = NextFile::NotWanted;
        if let Err(error) = core.journal.rotate(0) {
            self.checkpoint_failed(core, &error);
            return None;
        }
        let (name, bytes, remove) = self.encode_checkpoint(core, core.journal.open.sequence);
        self.running = Some(self.begun);
        self.wanted = false;
        let meta = Arc::clone(&core.seams.meta);
        let work = WriteCheckpoint { meta, name, bytes, remove };
        Some(core.start(Effect::Other, work, |journaling: &mut Self, core, result| {
            journaling.finish_checkpoint(core, result);
        }))
    }

    /// Encodes the state as a checkpoint after which the journal continues in file `journal_from`. Returns its name,
    /// its bytes, and the names of the files that it replaces.
    fn encode_checkpoint(&mut self, core: &mut Core, journal_from: u64) -> (String, Vec<u8>, Vec<String>) {
        core.look_at_times();
        core.prune_pins();
        core.state.leave_checkpoint();
        self.begun += 1;
        self.last.sequence += 1;
        self.last.position = core.journal.position();
        let head = Head {
            store: core.store.id,
            sequence: self.last.sequence,
            journal_from,
            position: core.journal.position(),
            epoch: core.state.epoch,
        };
        let hint = self.last.bytes + self.last.bytes / 4 + 65_536;
        let bytes = encode(&core.state, &head, hint);
        self.last.bytes = bytes.len();
        let superfluous = |name: &String| {
            journal::sequence_of(name).is_some_and(|sequence| sequence < journal_from)
                || sequence_of(name).is_some_and(|sequence| sequence < head.sequence)
        };
        let remove = core.seams.meta.list().unwrap_or_default().into_iter().filter(superfluous).collect();
        (file_name(head.sequence), bytes, remove)
    }

    /// Takes the result of a checkpoint job: answers those who wait for it, or schedules a retry.
    pub fn finish_checkpoint(&mut self, core: &mut Core, result: Result<()>) {
        let number = self.running.take().unwrap_or(0);
        match result {
            Ok(()) => self.finished_until(core, number),
            Err(error) => {
                self.wanted = true;
                self.checkpoint_failed(core, &error);
            }
        }
    }

    fn checkpoint_failed(&mut self, core: &mut Core, error: &cenote_model::Error) {
        self.retry_ns = core.state.now.ns + core.settings.retry_ns;
        let answered = self.waiting.drain(..).map(|(ticket, _)| (ticket, Response::Failed(error.clone())));
        core.answers.finished.extend(answered);
    }

    /// Answers those who wait for a checkpoint up to this number, all of which are on media.
    fn finished_until(&mut self, core: &mut Core, number: u64) {
        let over = self.waiting.extract_if(.., |(_, wanted)| *wanted <= number);
        core.answers.finished.extend(over.map(|(ticket, _)| (ticket, Response::Done)));
    }

    /// Writes a checkpoint at once and begins a new journal file, whatever the state of the old one. Fails if either
    /// cannot be written.
    pub fn checkpoint_now(&mut self, core: &mut Core) -> Result<()> {
        self.checkpoint_before(core, core.journal.next.file_bytes)
    }

    /// Writes a checkpoint before the store is closed. The next engine begins a file of its own, so the new journal
    /// file is short: a store at rest takes little space.
    pub fn last_checkpoint(&mut self, core: &mut Core) -> Result<()> {
        self.checkpoint_before(core, core.journal.next.file_bytes.min(CLOSED_LOG_BYTES))
    }

    /// Writes a checkpoint at once and begins a new journal file of `bytes`.
    fn checkpoint_before(&mut self, core: &mut Core, bytes: u64) -> Result<()> {
        while !core.reclaim(1_000_000) {}
        let (header, file) = core.journal.prepare_restart(bytes)?;
        let (name, bytes, remove) = self.encode_checkpoint(core, header.sequence);
        let number = self.begun;
        if let Err(error) = core.seams.meta.write_file(&name, &bytes) {
            core.journal.doubt(name);
            return Err(error);
        }
        core.journal.restart(&header, file);
        core.journal.media.dirty_since_ns = None;
        self.finished_until(core, number);
        for old in &remove {
            let _ = core.seams.meta.remove(old); // tried again after the next checkpoint
        }
        Ok(())
    }
}
