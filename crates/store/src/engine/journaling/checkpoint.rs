//! Checkpoints: plans and writes them, and removes the journal files that they replace.

use std::sync::Arc;

use cenote_device::{Device, MetaDir};
use cenote_model::{Error, Response, Result, Timed};

use super::Journaling;
use super::advance::Advance;
use crate::Outcome;
use crate::checkpoint::{Head, difference, encode, file_name, is_longer, sequence_of};
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

/// Most bytes of records that are copied out of a former checkpoint in one call.
const LEAVE_BYTES: u64 = 4 << 20;

/// The last checkpoint that was begun.
#[derive(Default)]
pub struct Last {
    pub sequence: u64,
    /// Sequence number of the last checkpoint that was written.
    pub on_media: u64,
    /// Journal position.
    pub position: u64,
    /// Length of the encoded checkpoint.
    pub bytes: usize,
}

/// Makes a checkpoint and writes it, then removes the files that it replaces.
struct WriteCheckpoint {
    meta: Arc<dyn MetaDir>,
    head: Head,
    content: Content,
}

/// The content of a checkpoint.
enum Content {
    /// Encoded while the engine was held.
    Encoded(Vec<u8>),
    /// To be made by the job. `expected`: what an encoding of the engine's state was, to be compared in tests.
    Behind { advance: Box<Advance>, expected: Option<Vec<u8>> },
}

/// Why there is no checkpoint.
enum Failure {
    /// The job could not make it from the last one.
    Make(Error),
    Write(Error),
}

impl Content {
    fn bytes(self, meta: &dyn MetaDir, head: &Head) -> Result<Vec<u8>> {
        match self {
            Self::Encoded(bytes) => Ok(bytes),
            Self::Behind { advance, expected } => {
                let bytes = advance.encode(meta, head)?;
                if let Some(expected) = expected {
                    assert!(bytes == expected, "a checkpoint: {}", difference(&expected, &bytes));
                }
                Ok(bytes)
            }
        }
    }
}

impl Work for WriteCheckpoint {
    /// The checkpoint's length in bytes.
    type Output = std::result::Result<usize, Failure>;
    const TIMED: Timed = Timed::Checkpoint;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new()
    }
    fn is_large(&self) -> bool {
        matches!(self.content, Content::Behind { .. })
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        let Self { meta, head, content } = self;
        let bytes = content.bytes(meta.as_ref(), &head).map_err(Failure::Make)?;
        meta.write_file(&file_name(head.sequence), &bytes).map_err(Failure::Write)?;
        remove_replaced(meta.as_ref(), &head);
        Ok(bytes.len())
    }
}

/// Removes the files that a checkpoint on media replaces. A file that cannot be removed now is removed after the next
/// checkpoint, or at the next opening.
fn remove_replaced(meta: &dyn MetaDir, head: &Head) {
    let is_replaced = |name: &&String| {
        journal::sequence_of(name).is_some_and(|sequence| sequence < head.journal_from)
            || sequence_of(name).is_some_and(|sequence| sequence < head.sequence)
    };
    for old in meta.list().unwrap_or_default().iter().filter(is_replaced) {
        let _ = meta.remove(old);
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

    /// Returns a job that makes and writes a checkpoint, if one is wanted. A small one is encoded here.
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
        if !core.state.leave_checkpoint(LEAVE_BYTES) {
            return None;
        }
        self.file = NextFile::NotWanted;
        if let Err(error) = core.journal.rotate(0) {
            self.checkpoint_failed(core, &error);
            return None;
        }
        let head = self.begin_checkpoint(core, core.journal.open.sequence);
        let content = self.content(core, &head);
        self.running = Some(self.begun);
        self.wanted = false;
        let work = WriteCheckpoint { meta: Arc::clone(&core.seams.meta), head, content };
        Some(core.start(Effect::Other, work, move |journaling: &mut Self, core, result| {
            journaling.finish_checkpoint(core, head.sequence, result);
        }))
    }

    /// Returns the head of a checkpoint of the present state, after which the journal continues in file `journal_from`.
    fn begin_checkpoint(&mut self, core: &mut Core, journal_from: u64) -> Head {
        core.look_at_times();
        core.state.prune_pins();
        self.begun += 1;
        self.last.sequence += 1;
        self.last.position = core.journal.position();
        Head {
            store: core.store.id,
            sequence: self.last.sequence,
            journal_from,
            position: core.journal.position(),
            epoch: core.state.epoch,
        }
    }

    /// Encodes a checkpoint of the present state if it is small; otherwise the job makes it.
    fn content(&self, core: &Core, head: &Head) -> Content {
        let hint = self.last.bytes + self.last.bytes / 4 + 65_536;
        if self.held || !is_longer(&core.state, core.settings.checkpoint_held_bytes) {
            return Content::Encoded(encode(&core.state, head, hint));
        }
        let expected = core.settings.check_checkpoints.then(|| encode(&core.state, head, hint));
        Content::Behind { advance: Box::new(Advance::new(core, self.last.on_media, hint)), expected }
    }

    /// Takes the result of a checkpoint job: answers those who wait for it, or schedules a retry.
    fn finish_checkpoint(&mut self, core: &mut Core, sequence: u64, result: std::result::Result<usize, Failure>) {
        let number = self.running.take().unwrap_or(0);
        match result {
            Ok(bytes) => {
                self.written(sequence, bytes);
                self.finished_until(core, number);
            }
            // A checkpoint written meanwhile removed the files that the job read, and replaces this one.
            Err(Failure::Make(_)) if self.last.on_media > sequence => {}
            Err(Failure::Make(error)) => {
                tracing::warn!(%error, "no checkpoint can be made from the last one: the engine stops to encode one");
                (self.wanted, self.held) = (true, true);
            }
            Err(Failure::Write(error)) => {
                self.wanted = true;
                self.checkpoint_failed(core, &error);
            }
        }
    }

    /// Notes that a checkpoint is on media.
    fn written(&mut self, sequence: u64, bytes: usize) {
        if sequence > self.last.on_media {
            (self.last.on_media, self.last.bytes, self.held) = (sequence, bytes, false);
        }
    }

    fn checkpoint_failed(&mut self, core: &mut Core, error: &Error) {
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
        while !core.state.leave_checkpoint(u64::MAX) {}
        let (header, file) = core.journal.prepare_restart(bytes)?;
        let head = self.begin_checkpoint(core, header.sequence);
        let encoded = encode(&core.state, &head, self.last.bytes + self.last.bytes / 4 + 65_536);
        let (name, number) = (file_name(head.sequence), self.begun);
        if let Err(error) = core.seams.meta.write_file(&name, &encoded) {
            core.journal.doubt(name);
            return Err(error);
        }
        core.journal.restart(&header, file);
        core.journal.media.dirty_since_ns = None;
        self.written(head.sequence, encoded.len());
        self.finished_until(core, number);
        remove_replaced(core.seams.meta.as_ref(), &head);
        Ok(())
    }
}
