//! Syncs the journal, makes its next file, and replaces a file that cannot be synced.

use std::sync::Arc;

use cenote_device::{Device, MetaDir};
use cenote_model::{Error, ErrorKind, Result, Timed};

use super::Journaling;
use super::checkpoint::NextFile;
use crate::engine::core::{Core, Effect, Wait};
use crate::journal::file_name;
use crate::syncs::Log;
use crate::work::{Io, Job, Work};

/// Syncs the journal's file.
struct SyncLog(Arc<Log>);

impl Work for SyncLog {
    type Output = Result<()>;
    const TIMED: Timed = Timed::SyncJournal;
    const IS_BRIEF: bool = true;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        self.0.sync()
    }
}

/// Makes a file of the journal.
struct MakeLog {
    meta: Arc<dyn MetaDir>,
    name: String,
    bytes: u64,
}

impl Work for MakeLog {
    type Output = Result<Arc<Log>>;
    const TIMED: Timed = Timed::MakeJournal;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        match self.meta.remove(&self.name) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(Arc::new(Log::new(self.meta.create_log(&self.name, self.bytes)?))),
        }
    }
}

impl Journaling {
    fn finish_sync_log(&mut self, core: &mut Core, position: u64, sequence: u64, result: Result<()>) {
        match result {
            Ok(()) => core.journal.note_synced(position),
            Err(_) if sequence != core.journal.open.sequence => {} // its successor was begun only after it was on media
            Err(error) => {
                self.mend_journal(core, &error);
            }
        }
    }

    /// After a failed sync nobody knows which records are on media, and a later sync would not tell. A checkpoint
    /// replaces the file.
    fn mend_journal(&mut self, core: &mut Core, error: &Error) {
        let Err(second) = self.checkpoint_now(core) else { return };
        self.mend_ns = core.state.now.ns + core.settings.retry_ns;
        let error = Error::new(ErrorKind::Io, "the journal")
            .because(format!("{error}; nor could a checkpoint be written: {second}"))
            .try_next("check the file system of the store directory");
        core.fail_waiters(&error, |what| matches!(what, Wait::Durable { .. }));
    }

    /// Syncs the journal at once, before something that must not outlive a lost record. Fails if neither a sync nor
    /// a checkpoint succeeds.
    pub fn sync_log_now(&mut self, core: &mut Core) -> Result<()> {
        if core.journal.synced() >= core.journal.position() {
            return Ok(());
        }
        let synced = if core.journal.is_tainted() { Err(log_sync_failed()) } else { core.journal.sync() };
        let Err(failed) = synced else { return Ok(()) };
        self.mend_journal(core, &failed);
        if core.journal.is_tainted() {
            Err(failed.try_next("check the file system of the store directory"))
        } else {
            Ok(())
        }
    }

    /// Retries to replace a journal file that cannot be synced.
    pub fn mend_journal_if_due(&mut self, core: &mut Core) {
        if core.journal.is_tainted() && self.mend_ns <= core.state.now.ns {
            self.mend_journal(core, &log_sync_failed());
        }
    }

    fn finish_make_log(&mut self, core: &mut Core, sequence: u64, result: Result<Arc<Log>>) {
        // If it failed, the journal makes its next file itself, and reports an error if it cannot. It is not tried again
        // at once: a full disk or a silent pool would keep threads busy.
        if result.is_err() {
            self.make_ns = core.state.now.ns + core.settings.retry_ns;
        }
        if self.file == NextFile::Wanted {
            self.file = NextFile::Tried;
        }
        if !core.journal.give_spare(sequence, result.ok()) {
            let _ = core.seams.meta.remove(&file_name(sequence)); // it has no header, so it does no harm
        }
    }

    /// Returns a job that syncs the journal, if a response waits for it or the group commit interval is over.
    pub fn next_sync_log(&mut self, core: &mut Core) -> Option<Job> {
        if core.journal.is_tainted() || core.journal.synced() >= core.journal.position() {
            core.journal.media.dirty_since_ns = None;
            return None;
        }
        if self.is_syncing {
            return None;
        }
        let since = core.journal.media.dirty_since_ns.unwrap_or(0);
        let due = core.state.now.ns.saturating_sub(since) >= core.settings.group_commit_ns;
        if !due && core.journal_wanted() <= core.journal.synced() {
            return None;
        }
        core.journal.media.dirty_since_ns = None;
        let (file, position) = core.journal.to_sync();
        let sequence = core.journal.open.sequence;
        self.is_syncing = true;
        Some(core.start(Effect::FreesRetired, SyncLog(file), move |journaling: &mut Self, core, result| {
            journaling.is_syncing = false;
            journaling.finish_sync_log(core, position, sequence, result);
        }))
    }

    /// Returns a job that makes the journal's next file, if it needs one.
    pub fn next_log(&mut self, core: &mut Core) -> Option<Job> {
        if self.make_ns > core.state.now.ns {
            if self.file == NextFile::Wanted {
                self.file = NextFile::Tried;
            }
            return None;
        }
        let sequence = core.journal.make_spare(self.file == NextFile::Wanted)?;
        let (meta, bytes) = (Arc::clone(&core.seams.meta), core.settings.log_bytes);
        let work = MakeLog { meta, name: file_name(sequence), bytes };
        Some(core.start(Effect::Light, work, move |journaling: &mut Self, core, result| {
            journaling.finish_make_log(core, sequence, result);
        }))
    }
}

fn log_sync_failed() -> Error {
    Error::new(ErrorKind::Io, "the journal").because("a sync failed")
}
