//! What a container needs to go back to its persisted epoch after power loss.

use cenote_model::{ContainerId, ContainerSpec, IndexId, ObjectId};

use crate::index::{Index, Key, Record};
use crate::map::Pieces;

/// One change after the persisted epoch, and what it replaced. Owns the space that its extents name.
#[derive(Debug)]
pub(crate) struct Undo {
    pub epoch: u64,
    pub change: Change,
}

/// What changed, and how it was before.
#[derive(Debug)]
pub(crate) enum Change {
    /// A range of an object's map: it held `pieces` and for the rest holes. The object's size was `size`.
    Range { object: ObjectId, from: u64, to: u64, pieces: Pieces, size: u64 },
    /// The object was not there.
    ObjectCreated { object: ObjectId },
    /// The object was there; it waits, detached, in this slot.
    ObjectDeleted { slot: u32 },
    /// The index was not there.
    IndexCreated { index: IndexId },
    /// The index was there.
    IndexDeleted { index: IndexId, was: Box<Index> },
    /// The record had this value, or was not there.
    Record { index: IndexId, key: Key, was: Option<Record> },
    /// The snapshot was not there.
    SnapshotMade { id: ContainerId },
    /// The snapshot was there; it waits under its id.
    SnapshotDeleted { id: ContainerId },
    /// The container had this label.
    Renamed { was: String },
    /// The container had these settings.
    Set { was: Box<ContainerSpec> },
    /// The container was not there. Noted only of one whose label another had until an update that power loss may still
    /// take back; other containers are there from their creation on.
    Made,
}
