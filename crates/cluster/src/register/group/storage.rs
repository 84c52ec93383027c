//! Log, state and snapshot of a member, as `openraft` wants them.
#![allow(clippy::result_large_err, reason = "the error is openraft's")]

use std::fmt::Debug;
use std::ops::RangeBounds;
use std::sync::Arc;

use openraft::storage::{LogFlushed, RaftLogStorage, RaftStateMachine};
use openraft::{
    EmptyNode, Entry, EntryPayload, LogId, LogState, OptionalSend, RaftLogReader, RaftSnapshotBuilder, Snapshot,
    SnapshotMeta, StorageError, StorageIOError, StoredMembership, Vote,
};
use parking_lot::Mutex;

use super::disk::Disk;
use super::types::{Blob, Guard, State, Types};

type Stored<T> = std::result::Result<T, StorageError<u64>>;

/// The log; clones are the same one.
#[derive(Clone)]
pub struct Log(Arc<Mutex<Disk>>);

/// What the log makes of itself.
#[derive(Debug, Default)]
struct Made {
    applied: Option<LogId<u64>>,
    membership: StoredMembership<u64, EmptyNode>,
    state: State,
}

/// The state machine; clones are the same one.
#[derive(Clone)]
pub struct Machine {
    disk: Arc<Mutex<Disk>>,
    made: Arc<Mutex<Made>>,
}

/// Both, over one file.
pub fn over(disk: Disk) -> (Log, Machine) {
    let made = disk.kept.snapshot.clone().map_or_else(Made::default, |(meta, state)| Made {
        applied: meta.last_log_id,
        membership: meta.last_membership,
        state,
    });
    let disk = Arc::new(Mutex::new(disk));
    (Log(disk.clone()), Machine { disk, made: Arc::new(Mutex::new(made)) })
}

fn of_logs(error: &cenote_model::Error) -> StorageError<u64> {
    StorageIOError::write_logs(error).into()
}

impl Machine {
    /// The record and its stamp, as far as this member knows them.
    pub fn record(&self) -> Option<(Guard, Blob)> {
        self.made.lock().state.record.clone()
    }
}

impl RaftLogReader<Types> for Log {
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Stored<Vec<Entry<Types>>> {
        let disk = self.0.lock();
        Ok(disk.kept.entries.iter().filter(|entry| range.contains(&entry.log_id.index)).cloned().collect())
    }
}

impl RaftLogStorage<Types> for Log {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Stored<LogState<Types>> {
        let disk = self.0.lock();
        let purged = disk.kept.purged;
        let last = disk.kept.entries.last().map(|entry| entry.log_id).or(purged);
        Ok(LogState { last_purged_log_id: purged, last_log_id: last })
    }
    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }
    async fn save_vote(&mut self, vote: &Vote<u64>) -> Stored<()> {
        self.0.lock().change(|kept| kept.vote = Some(*vote)).map_err(|error| StorageIOError::write_vote(&error).into())
    }
    async fn read_vote(&mut self) -> Stored<Option<Vote<u64>>> {
        Ok(self.0.lock().kept.vote)
    }
    async fn save_committed(&mut self, committed: Option<LogId<u64>>) -> Stored<()> {
        // Durable before it is applied and answered: a leader that is restarted goes on as leader, and its reads reach no
        // further than what it knows to be committed.
        self.0.lock().change(|kept| kept.committed = committed).map_err(|error| of_logs(&error))
    }
    async fn read_committed(&mut self) -> Stored<Option<LogId<u64>>> {
        Ok(self.0.lock().kept.committed)
    }
    async fn append<I>(&mut self, entries: I, callback: LogFlushed<Types>) -> Stored<()>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let written = self.0.lock().change(|kept| kept.entries.extend(entries));
        callback.log_io_completed(written.as_ref().map(drop).map_err(|error| std::io::Error::other(error.to_string())));
        written.map_err(|error| of_logs(&error))
    }
    async fn truncate(&mut self, since: LogId<u64>) -> Stored<()> {
        let cut = self.0.lock().change(|kept| kept.entries.retain(|entry| entry.log_id.index < since.index));
        cut.map_err(|error| of_logs(&error))
    }
    async fn purge(&mut self, until: LogId<u64>) -> Stored<()> {
        let purged = self.0.lock().change(|kept| {
            kept.entries.retain(|entry| entry.log_id.index > until.index);
            kept.purged = kept.purged.max(Some(until));
        });
        purged.map_err(|error| of_logs(&error))
    }
}

impl RaftSnapshotBuilder<Types> for Machine {
    async fn build_snapshot(&mut self) -> Stored<Snapshot<Types>> {
        let (meta, state) = {
            let made = self.made.lock();
            let snapshot_id = made.applied.map_or_else(|| "0".into(), |at| format!("{}-{}", at.leader_id, at.index));
            let last_membership = made.membership.clone();
            (SnapshotMeta { last_log_id: made.applied, last_membership, snapshot_id }, made.state.clone())
        };
        self.keep(&meta, &state)?;
        Ok(Snapshot { meta, snapshot: Box::new(state) })
    }
}

impl Machine {
    fn keep(&self, meta: &SnapshotMeta<u64, EmptyNode>, state: &State) -> Stored<()> {
        let kept = self.disk.lock().change(|kept| kept.snapshot = Some((meta.clone(), state.clone())));
        kept.map_err(|error| StorageIOError::write_snapshot(Some(meta.signature()), &error).into())
    }
}

impl RaftStateMachine<Types> for Machine {
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Stored<(Option<LogId<u64>>, StoredMembership<u64, EmptyNode>)> {
        let made = self.made.lock();
        Ok((made.applied, made.membership.clone()))
    }
    async fn apply<I>(&mut self, entries: I) -> Stored<Vec<bool>>
    where
        I: IntoIterator<Item = Entry<Types>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut made = self.made.lock();
        let apply = |entry: Entry<Types>| {
            made.applied = Some(entry.log_id);
            match entry.payload {
                EntryPayload::Blank => true,
                EntryPayload::Normal(change) => made.state.change(change),
                EntryPayload::Membership(members) => {
                    made.membership = StoredMembership::new(Some(entry.log_id), members);
                    true
                }
            }
        };
        Ok(entries.into_iter().map(apply).collect())
    }
    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }
    async fn begin_receiving_snapshot(&mut self) -> Stored<Box<State>> {
        Ok(Box::default())
    }
    async fn install_snapshot(&mut self, meta: &SnapshotMeta<u64, EmptyNode>, snapshot: Box<State>) -> Stored<()> {
        self.keep(meta, &snapshot)?;
        *self.made.lock() =
            Made { applied: meta.last_log_id, membership: meta.last_membership.clone(), state: *snapshot };
        Ok(())
    }
    async fn get_current_snapshot(&mut self) -> Stored<Option<Snapshot<Types>>> {
        let kept = self.disk.lock().kept.snapshot.clone();
        Ok(kept.map(|(meta, state)| Snapshot { meta, snapshot: Box::new(state) }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use openraft::testing::{StoreBuilder, Suite};

    use super::*;

    struct Place(PathBuf);

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    struct Builder;

    impl StoreBuilder<Types, Log, Machine, Place> for Builder {
        async fn build(&self) -> Stored<(Place, Log, Machine)> {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let name = format!("cenote-group-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            let dir = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&dir).unwrap();
            Disk::make(&dir).unwrap();
            let (log, machine) = over(Disk::open(&dir).unwrap());
            Ok((Place(dir), log, machine))
        }
    }

    /// `openraft`'s own suite for what it is given.
    #[test]
    fn log_and_state_are_what_openraft_wants() {
        Suite::test_all(Builder).unwrap();
    }
}
