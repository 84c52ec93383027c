//! Checkpoints: the whole state in one file, from which recovery begins.
//!
//! `docs/format.md` has the bytes. A checkpoint names the first journal file to be replayed on top of it. This module
//! must not know when checkpoints are written, or by whom.

mod decode;
mod encode;
mod records;
mod size;
#[cfg(test)]
mod tests;
mod two_phase;

use cenote_model::{Error, StoreId};

use crate::codec::ordinal_in_name;

pub(crate) use decode::decode;
pub(crate) use encode::encode;
pub(crate) use size::is_longer;

const MAGIC: [u8; 8] = *b"CENOTEC\0";
/// Version 1 had no snapshots, version 2 no undo of changes of containers, version 3 no groups and modes, version 4 no
/// value logs, version 5 one copy, no births and no nodes, version 6 no transactions over several homes; all are still
/// read.
const VERSION: u32 = 9;
/// Magic, version, checksum of the head, store, sequence, journal file, journal position, epoch.
const HEAD_BYTES: usize = 64;
/// Section header: kind, checksum, length.
const SECTION_HEAD: usize = 16;

const SECTION_META: u32 = 1;
const SECTION_SESSIONS: u32 = 2;
const SECTION_RETIRED: u32 = 3;
const SECTION_CONTAINER: u32 = 4;
const SECTION_OBJECTS: u32 = 5;
const SECTION_INDEX: u32 = 6;
const SECTION_UNDO: u32 = 7;
const SECTION_END: u32 = 8;
/// Replaces a container's section: the container is a snapshot.
const SECTION_SNAPSHOT: u32 = 9;
/// After a container's section: its extents share space with others.
const SECTION_SHARES: u32 = 10;
/// After a container's section: its value log.
const SECTION_VALUES: u32 = 11;
/// Pins.
const SECTION_PINS: u32 = 20;
/// The table of epochs and times.
const SECTION_TIMES: u32 = 21;
/// Transactions over several homes.
const SECTION_TWO_PHASE: u32 = 22;

/// The head of a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Head {
    pub store: StoreId,
    pub sequence: u64,
    /// The first journal file to be replayed.
    pub journal_from: u64,
    /// Position at which that file's records begin.
    pub position: u64,
    pub epoch: u64,
}

/// Returns the name of a checkpoint's file.
pub(crate) fn file_name(sequence: u64) -> String {
    format!("checkpoint-{sequence:06}")
}
/// Returns the sequence number in a checkpoint's file name.
pub(crate) fn sequence_of(name: &str) -> Option<u64> {
    ordinal_in_name(name, "checkpoint-")
}

/// Returns the store of a checkpoint.
pub(crate) fn store_of(name: &str, bytes: &[u8]) -> cenote_model::Result<StoreId> {
    decode::decode_head(name, bytes).map(|(_, head)| head.store)
}
/// Changes the store of a checkpoint whose head [`store_of`] has checked.
pub(crate) fn change_store(bytes: &mut [u8], store: StoreId) {
    bytes[16..32].copy_from_slice(&store.0.to_le_bytes());
    bytes[12..16].fill(0);
    let sum = crate::sums::sum_of(&bytes[..HEAD_BYTES]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Returns where two checkpoints differ, as text.
#[cold]
pub(crate) fn difference(a: &[u8], b: &[u8]) -> String {
    let same = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let mut at = HEAD_BYTES;
    let mut kind = 0;
    while let Some(head) = a.get(at..at + SECTION_HEAD).filter(|_| at <= same) {
        kind = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let len = head[8..].iter().rev().fold(0, |len, byte| len << 8 | usize::from(*byte));
        if at + SECTION_HEAD + len > same {
            break;
        }
        at += SECTION_HEAD + len;
    }
    let bytes = |bytes: &[u8]| bytes.get(at..).unwrap_or_default().iter().take(200).copied().collect::<Vec<_>>();
    format!("section {kind} at {at}, byte {same} of {} and {}: {:02x?}, {:02x?}", a.len(), b.len(), bytes(a), bytes(b))
}

/// Returns the error for damage in a checkpoint.
#[cold]
fn corrupt(name: &str, offset: usize, why: &str) -> Error {
    crate::codec::unreadable(format!("checkpoint `{name}` at byte {offset}"), why)
}
