//! Changes to a store: what transactions and the journal are made of.

#![allow(missing_docs, reason = "the line above a variant says what its fields are")]

use crate::{ContainerId, ContainerSpec, DeviceId, Extent, IndexKey, ObjectKey, Run};

/// One change to a store. Every change by a user is a list of these; a transaction is one list, applied whole or not at
/// all, and the journal is a sequence of such lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// Creates a container. With id 0 the engine chooses the id.
    ContainerCreate { id: ContainerId, label: String, spec: ContainerSpec },
    /// Changes its label.
    ContainerRename { id: ContainerId, label: String },
    /// Changes its variable settings: durability, quota, policy, owner.
    ContainerSet { id: ContainerId, spec: ContainerSpec },
    /// Deletes it with all its content.
    ContainerDelete { id: ContainerId },
    /// Creates a snapshot of a container: its current content, read-only. `id`, by which it is read, and the time are
    /// chosen by the engine when 0. With `replace`, it replaces a snapshot of that name.
    SnapshotCreate { of: ContainerId, id: ContainerId, name: String, replace: bool, unix_ms: u64 },
    /// Deletes a snapshot.
    SnapshotDelete { of: ContainerId, name: String },
    /// Restores the content that the container had when the snapshot was created; the snapshot stays.
    SnapshotRollback { of: ContainerId, name: String },
    /// Creates an empty object with blocks of 2^`block_shift` bytes.
    ObjectCreate { key: ObjectKey, block_shift: u8 },
    /// Keeps all bytes of an object, present and future, on a tier: of one that the same request creates.
    ObjectKeep { key: ObjectKey, device: DeviceId },
    /// Deletes it.
    ObjectDelete { key: ObjectKey },
    /// Fills leased space with these bytes, which its client could not write there itself: for a [`Update::Write`] of the
    /// same request. The space is in memory. Not in the journal: what the write needs is in the extent.
    Fill { container: ContainerId, run: Run, bytes: Vec<u8> },
    /// Points `[offset, offset + extent.len)` at bytes already written to the device; grows the size to cover it.
    Write { key: ObjectKey, offset: u64, extent: Extent },
    /// Turns a range into a hole; the size stays.
    Punch { key: ObjectKey, offset: u64, len: u64 },
    /// Sets the size; drops the bytes beyond it.
    Truncate { key: ObjectKey, size: u64 },
    /// Creates an empty index.
    IndexCreate { key: IndexKey },
    /// Deletes it with its records.
    IndexDelete { key: IndexKey },
    /// Sets a record. With `only_new`, fails with [`crate::KeyCode::Exists`] if the key exists.
    Put { index: IndexKey, key: Vec<u8>, value: Vec<u8>, only_new: bool },
    /// Deletes a record.
    Del { index: IndexKey, key: Vec<u8> },
    /// Makes `[at, at + len)` of `to` equal to `[offset, offset + len)` of `from`, holes included, without copying
    /// bytes: both refer to the same bytes until either is overwritten. Grows the size to cover the range. `from` is an
    /// object of the same container, or of a snapshot of it; its range must lie below its size, and the two ranges must
    /// not overlap if both are of one object.
    Share { to: ObjectKey, at: u64, from: ObjectKey, offset: u64, len: u64 },
}

impl Update {
    /// Returns true if it is about a snapshot: a request with such an update has no others, and one of each container.
    pub fn is_about_snapshot(&self) -> bool {
        matches!(self, Self::SnapshotCreate { .. } | Self::SnapshotDelete { .. } | Self::SnapshotRollback { .. })
    }
    /// Returns true if it is about a container itself.
    pub fn is_about_container(&self) -> bool {
        matches!(
            self,
            Self::ContainerCreate { .. }
                | Self::ContainerRename { .. }
                | Self::ContainerSet { .. }
                | Self::ContainerDelete { .. }
        )
    }
    /// The hash of the version word of what it changes: of an object that is there, or of an index. Changes of containers and
    /// snapshots, which concern many words or none, have no one word.
    pub fn word_hash(&self) -> Option<u64> {
        match self {
            Self::ObjectDelete { key }
            | Self::Write { key, .. }
            | Self::Punch { key, .. }
            | Self::Truncate { key, .. }
            | Self::Share { to: key, .. } => Some(key.word_hash()),
            Self::IndexCreate { key } | Self::IndexDelete { key } => Some(key.word_hash()),
            Self::Put { index, .. } | Self::Del { index, .. } => Some(index.word_hash()),
            Self::ContainerCreate { .. }
            | Self::ContainerRename { .. }
            | Self::ContainerSet { .. }
            | Self::ContainerDelete { .. }
            | Self::SnapshotCreate { .. }
            | Self::SnapshotDelete { .. }
            | Self::SnapshotRollback { .. }
            | Self::ObjectCreate { .. }
            | Self::ObjectKeep { .. }
            | Self::Fill { .. } => None,
        }
    }
    /// The container that it changes.
    pub fn container(&self) -> ContainerId {
        match self {
            Self::ContainerCreate { id, .. }
            | Self::ContainerRename { id, .. }
            | Self::ContainerSet { id, .. }
            | Self::Fill { container: id, .. }
            | Self::ContainerDelete { id } => *id,
            Self::SnapshotCreate { of, .. } | Self::SnapshotDelete { of, .. } | Self::SnapshotRollback { of, .. } => {
                *of
            }
            Self::ObjectCreate { key, .. }
            | Self::ObjectKeep { key, .. }
            | Self::ObjectDelete { key }
            | Self::Write { key, .. }
            | Self::Punch { key, .. }
            | Self::Truncate { key, .. }
            | Self::Share { to: key, .. } => key.container,
            Self::IndexCreate { key } | Self::IndexDelete { key } => key.container,
            Self::Put { index, .. } | Self::Del { index, .. } => index.container,
        }
    }
}
