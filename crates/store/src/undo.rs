//! Undo lists: what a container needs to go back to its persisted epoch after power loss.

use cenote_model::{ContainerId, ContainerSpec, IndexId, ObjectId};

use crate::index::{Index, Key, Record};
use crate::map::Pieces;

/// One change after the persisted epoch, and what it replaced. Owns the space that its extents name.
#[derive(Debug)]
pub(crate) struct Undo {
    pub epoch: u64,
    pub change: Change,
}

/// A change, with the previous state.
#[derive(Debug)]
pub(crate) enum Change {
    /// A range of an object's map: it held `pieces` and for the rest holes. The object's size was `size`.
    Range { object: ObjectId, from: u64, to: u64, pieces: Pieces, size: u64 },
    /// The object did not exist.
    ObjectCreated { object: ObjectId },
    /// The object existed; it waits, detached, in this slot.
    ObjectDeleted { slot: u32 },
    /// The index did not exist.
    IndexCreated { index: IndexId },
    /// The index existed.
    IndexDeleted { index: IndexId, was: Box<Index> },
    /// The record had this value, or did not exist.
    Record { index: IndexId, key: Key, was: Option<Record> },
    /// The snapshot did not exist.
    SnapshotMade { id: ContainerId },
    /// The snapshot existed; it waits under its id.
    SnapshotDeleted { id: ContainerId },
    /// The container had this label.
    Renamed { was: String },
    /// The container had these settings.
    Set { was: Box<ContainerSpec> },
    /// The container did not exist. Noted only if another container had its label until an update that power loss may
    /// still take back; other containers exist from their creation on.
    Made,
}
