//! Estimates how long a checkpoint would be, without encoding it.

use super::{HEAD_BYTES, SECTION_HEAD};
use crate::container::Container;
use crate::map::Pieces;
use crate::state::EngineState;
use crate::undo::{Change, Undo};

/// Bytes of an extent, an object, a record, an undo entry, and a recorded response, without what varies.
const EXTENT: u64 = 67;
const OBJECT: u64 = 45;
const RECORD: u64 = 29;
const UNDO: u64 = 45;
const OUTCOME: u64 = 25;
/// Bytes of a container or a session with nothing in it.
const EMPTY: u64 = 200;

/// Returns true if an encoding of the state would be longer than about `most` bytes. Takes time in proportion to
/// `most`, and not to the state.
pub(crate) fn is_longer(state: &EngineState, most: u64) -> bool {
    let mut bytes = (HEAD_BYTES + SECTION_HEAD) as u64 + state.space.extents * EXTENT;
    let mut add = |more: u64| {
        bytes = bytes.saturating_add(more);
        bytes > most
    };
    let sessions = state.sessions.open.values();
    if sessions.map(|session| EMPTY + session.outcomes().len() as u64 * OUTCOME).any(&mut add) {
        return true;
    }
    let mut parts =
        state.two_phase.prepared.values().map(|it| EMPTY + (it.checks.len() + it.updates.len()) as u64 * RECORD);
    if parts.any(&mut add) {
        return true;
    }
    if state.containers.iter().map(bytes_of).any(&mut add) {
        return true;
    }
    state.containers.iter().flat_map(|container| &container.back.undo).map(|undo| hidden_bytes(state, undo)).any(add)
}

/// Bytes of a container, with its undo entries but not with what they hold.
fn bytes_of(container: &Container) -> u64 {
    let content = &container.content;
    EMPTY
        + content.objects.len() as u64 * OBJECT
        + content.records * RECORD
        + content.record_bytes
        + container.back.undo.len() as u64 * UNDO
}

/// Bytes of what an undo entry holds.
fn hidden_bytes(state: &EngineState, undo: &Undo) -> u64 {
    match &undo.change {
        Change::Range { pieces, .. } => Pieces::len(pieces) as u64 * EXTENT,
        Change::ObjectDeleted { slot } => OBJECT + state.objects.get(*slot).map.extents() * EXTENT,
        Change::IndexDeleted { was, .. } => was.len() * RECORD + was.bytes,
        Change::Record { key, was, .. } => {
            key.bytes().len() as u64 + was.as_ref().map_or(0, |was| RECORD + was.value.len() as u64)
        }
        _ => 0,
    }
}
