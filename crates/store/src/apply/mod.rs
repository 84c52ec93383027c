//! Applies updates to the state: one file for each kind of thing that changes.
//!
//! Every step can be reverted until [`EngineState::commit`], so that a transaction leaves nothing when a later update of it
//! fails or the journal does not take it. This module must not know the journal and does no
//! I/O: replay applies the same updates.

mod commit;
mod container;
mod object;
mod range;
mod record;
mod revert;
mod share;
mod snapshot;
mod write;

use cenote_model::{ContainerId, ContainerSpec, Error, ErrorKind, HomeId, IndexId, KeyCode, TransactionId, Update};

use crate::SessionId;
use crate::index::{Index, Key, Record};
use crate::map::{DeviceIndex, Pieces, Splits};
use crate::state::EngineState;
use crate::value_log::VALUE_LOG;

/// Why an update was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub code: KeyCode,
    pub why: &'static str,
}

pub(crate) const fn refuse(code: KeyCode, why: &'static str) -> Refusal {
    Refusal { code, why }
}
pub(crate) const NO_CONTAINER: Refusal = refuse(KeyCode::NotFound, "no such container");
pub(crate) const NO_OBJECT: Refusal = refuse(KeyCode::NotFound, "no such object");
pub(crate) const NO_SNAPSHOT: Refusal = refuse(KeyCode::NotFound, "no such snapshot of it");
pub(crate) const NO_KEY: Refusal = refuse(KeyCode::NotFound, "no such key");
pub(crate) const PAST_QUOTA: Refusal =
    refuse(KeyCode::Limit, "the container's quota is used up: bytes of objects, and keys and values of records");
const RESERVED: Refusal = refuse(KeyCode::Invalid, "objects of this id are Cenote's own");
pub(crate) const NO_INDEX: Refusal = refuse(KeyCode::NotFound, "no such index");

/// The updates of a request that are being applied.
#[derive(Default)]
pub(crate) struct Txn {
    pub epoch: u64,
    pub session: SessionId,
    pub steps: Vec<Step>,
    /// The container that a `ContainerCreate` made.
    pub created: Option<ContainerId>,
    /// The containers that were changed, known after the commit.
    pub touched: Vec<ContainerId>,
    /// The transaction deleted a `Sync` container, or changed its durability: the response waits until the journal is
    /// on media.
    pub ends_sync: bool,
    /// It was decided elsewhere, after its quotas were checked.
    pub is_settled: bool,
    /// The transaction over several homes that it decides, and the homes that have prepared it.
    pub decision: Option<(TransactionId, Vec<HomeId>)>,
}

/// What one update did, with the previous state.
pub(crate) enum Step {
    Range(RangeStep),
    ObjectCreated {
        slot: u32,
    },
    ObjectDeleted {
        slot: u32,
    },
    IndexCreated {
        container: u32,
        index: IndexId,
    },
    IndexDeleted {
        container: u32,
        index: IndexId,
        was: Box<Index>,
    },
    /// `in_new_index`: the index was made after the last cut.
    Record {
        container: u32,
        index: IndexId,
        key: Key,
        was: Option<Record>,
        in_new_index: bool,
    },
    ContainerCreated {
        slot: u32,
    },
    ContainerRenamed {
        slot: u32,
        was: String,
    },
    ContainerSet {
        slot: u32,
        was: ContainerSpec,
    },
    ContainerDeleted {
        slot: u32,
    },
    /// A snapshot was made; this is the step of the original.
    SnapshotMade {
        origin: u32,
        id: ContainerId,
    },
    /// The step of the snapshot itself.
    SnapshotFilled {
        slot: u32,
    },
    SnapshotDeleted {
        origin: u32,
        slot: u32,
    },
    /// The container went back to a snapshot, by the steps before this one; there may be none.
    RolledBack {
        origin: u32,
    },
    /// A rollback brought an object back from a snapshot.
    ObjectCloned {
        slot: u32,
    },
}

/// A change of an object's map.
pub(crate) struct RangeStep {
    pub slot: u32,
    pub from: u64,
    pub to: u64,
    pub pieces: Pieces,
    pub splits: Splits,
    pub size_before: u64,
    /// True if this step changed the size; a later one of the same transaction may change it back.
    pub resized: bool,
    pub epoch_before: u64,
    pub brought: Brought,
}

/// The new content of the range.
#[derive(Clone, Copy)]
pub(crate) enum Brought {
    /// A hole.
    Nothing,
    /// The extent of a write.
    Written(Written),
    /// Extents shared with others, and holes.
    Shared,
}

/// The extent that a write brought.
#[derive(Clone, Copy)]
pub(crate) struct Written {
    pub dev: DeviceIndex,
    pub run_offset: u64,
    pub padded: u64,
    pub merged: Option<Merged>,
}

/// The left neighbour that a write was merged into, as it was.
#[derive(Clone, Copy)]
pub(crate) struct Merged {
    pub offset: u64,
    pub len: u32,
    pub run_len: u32,
    pub units: u32,
    pub last_sum: u32,
}

impl EngineState {
    /// Prefetches into the cache what these updates read: one wait for memory for all of them.
    pub fn touch(&mut self, updates: &[Update]) {
        let place = |update: &Update| match update {
            Update::Write { key, offset, .. } => Some((*key, *offset)),
            _ => None,
        };
        let same_object = |a: &Update, b: &Update| place(a).map(|(key, _)| key) == place(b).map(|(key, _)| key);
        for run in updates.chunk_by(same_object).filter(|run| run.len() > 1) {
            if let Some((key, _)) = place(&run[0])
                && let Some(slot) = self.find_object(key)
            {
                self.objects.get(slot).map.touch(run.iter().filter_map(place).map(|(_, offset)| offset));
            }
        }
    }
    /// Applies one update; changes nothing if it is refused.
    pub fn apply(&mut self, txn: &mut Txn, update: Update) -> Result<(), Refusal> {
        if self.containers.is_snapshot(update.container()) {
            return Err(refuse(KeyCode::Invalid, "it is a snapshot, which is for reading only"));
        }
        if names_value_log(&update) && !self.space.replaying {
            return Err(RESERVED);
        }
        match update {
            Update::ContainerCreate { id, label, spec } => self.container_create(txn, id, label, spec),
            Update::ContainerRename { id, label } => self.container_rename(txn, id, label),
            Update::ContainerSet { id, spec } => self.container_set(txn, id, spec),
            Update::ContainerDelete { id } => self.container_delete(txn, id),
            Update::SnapshotCreate { of, id, name, replace, unix_ms } => {
                self.snapshot_create(txn, (of, &name), id, replace, unix_ms)
            }
            Update::SnapshotDelete { of, name } => self.snapshot_delete(txn, of, &name),
            Update::SnapshotRollback { of, name } => self.snapshot_rollback(txn, of, &name),
            Update::ObjectCreate { key, block_shift } => self.object_create(txn, key, block_shift),
            Update::ObjectKeep { key, device } => self.object_keep(txn, key, device),
            Update::ObjectDelete { key } => self.object_delete(txn, key),
            Update::Fill { .. } => Ok(()), // the engine has done it before
            Update::Write { key, offset, extent } => self.write(txn, key, offset, &extent),
            Update::Punch { key, offset, len } => self.punch(txn, key, offset, len),
            Update::Truncate { key, size } => self.truncate(txn, key, size),
            Update::IndexCreate { key } => self.index_create(txn, key),
            Update::IndexDelete { key } => self.index_delete(txn, key),
            Update::Put { index, key, value, only_new } => self.put(txn, index, &key, value, only_new),
            Update::Del { index, key } => self.del(txn, index, &key),
            Update::Share { to, at, from, offset, len } => self.share(txn, (to, at), (from, offset), len),
        }
    }
}

/// Returns true if the update is about an object that can only be a value log.
fn names_value_log(update: &Update) -> bool {
    match update {
        Update::ObjectCreate { key, .. }
        | Update::ObjectKeep { key, .. }
        | Update::ObjectDelete { key }
        | Update::Write { key, .. }
        | Update::Punch { key, .. }
        | Update::Truncate { key, .. } => key.object == VALUE_LOG,
        Update::Share { to, from, .. } => to.object == VALUE_LOG || from.object == VALUE_LOG,
        _ => false,
    }
}

/// Returns the error that tells a person about a refused update.
#[cold]
pub(crate) fn refusal_error(refusal: Refusal, subject: String) -> Error {
    let (kind, next) = match refusal.code {
        KeyCode::NotFound => (ErrorKind::NotFound, "check the name, or create it first"),
        KeyCode::Exists => (ErrorKind::Exists, "use the existing one, or another name"),
        KeyCode::Limit => (ErrorKind::LimitExceeded, "stay within the limit, or raise the quota"),
        KeyCode::Invalid | KeyCode::Ok => (ErrorKind::InvalidInput, ""),
    };
    Error::new(kind, subject).because(refusal.why).try_next(next)
}

/// Returns what an update is about, as text.
#[cold]
pub(crate) fn subject_of(update: &Update) -> String {
    match update {
        Update::ContainerCreate { label, .. } => format!("creating container `{}`", shortened(label)),
        Update::ContainerRename { id, label } => format!("renaming container {id} to `{}`", shortened(label)),
        Update::ContainerSet { id, .. } => format!("changing container {id}"),
        Update::ContainerDelete { id } => format!("deleting container {id}"),
        Update::SnapshotCreate { of, name, .. } => format!("making snapshot `{}` of container {of}", shortened(name)),
        Update::SnapshotDelete { of, name } => format!("deleting snapshot `{}` of container {of}", shortened(name)),
        Update::SnapshotRollback { of, name } => {
            format!("rolling container {of} back to snapshot `{}`", shortened(name))
        }
        Update::ObjectCreate { key, .. } => format!("creating object {key}"),
        Update::ObjectKeep { key, device } => format!("keeping object {key} on device {device}"),
        Update::ObjectDelete { key } => format!("deleting object {key}"),
        Update::Fill { run, .. } => format!("filling {} bytes at {} of device {}", run.len, run.offset, run.device),
        Update::Write { key, offset, extent } => format!("writing {} bytes at {offset} of object {key}", extent.len),
        Update::Punch { key, offset, len } => format!("punching {len} bytes at {offset} of object {key}"),
        Update::Truncate { key, size } => format!("truncating object {key} to {size} bytes"),
        Update::IndexCreate { key } => format!("creating index {key}"),
        Update::IndexDelete { key } => format!("deleting index {key}"),
        Update::Put { index, key, .. } => format!("putting key `{}` into index {index}", shortened_bytes(key)),
        Update::Del { index, key } => format!("deleting key `{}` from index {index}", shortened_bytes(key)),
        Update::Share { to, at, from, offset, len } => {
            format!("sharing {len} bytes at {offset} of object {from} with object {to}, at {at}")
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}
pub(crate) fn shortened_bytes(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(40)].escape_ascii().to_string()
}
