//! Corrects checksums, lengths and names by `docs/format.md`, so that the code behind these checks is reached.

use cenote_model::{DeviceId, StoreId};
use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Bytes of a journal file before its records.
pub(super) const JOURNAL_HEADER: usize = 4096;
/// The used part of a journal's header.
pub(super) const JOURNAL_HEADER_USED: usize = 64;
/// Header of a pack or a catalogue.
const OBJECT_HEADER: usize = 128;
const RECORD_HEADER: usize = 17;
const CHECKPOINT_HEAD: usize = 64;
const SECTION_HEAD: usize = 16;
const SECTION_END: u32 = 8;

fn sum_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(Crc32Iscsi, bytes) as u32
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, u32::from_le_bytes)
}

/// Corrects magic, version and checksum of a superblock, a stamp, or the head of a journal or checkpoint: the sum
/// is at byte 12 of `len` bytes.
pub(super) fn head(bytes: &mut [u8], magic: [u8; 8], len: usize, store: Option<(usize, StoreId)>) {
    if bytes.len() < len || len < 16 {
        return;
    }
    bytes[..8].copy_from_slice(&magic);
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    if let Some((at, store)) = store.filter(|(at, _)| at + 16 <= len) {
        bytes[at..at + 16].copy_from_slice(&store.0.to_le_bytes());
    }
    bytes[12..16].fill(0);
    let sum = sum_of(&bytes[..len]);
    bytes[12..16].copy_from_slice(&sum.to_le_bytes());
}

/// Corrects a header of shared memory files and segments: the sum is in its last four bytes.
pub(super) fn tail_sum(bytes: &mut [u8], magic: [u8; 8], len: usize) {
    if bytes.len() < len {
        return;
    }
    bytes[..8].copy_from_slice(&magic);
    let is_control = matches!(&magic, b"CENOTCTL" | b"CENOTCLI");
    let version = if is_control { cenote_device::control::CONTROL_VERSION } else { 1 };
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes[12..16].copy_from_slice(&(len as u32).to_le_bytes());
    let sum = sum_of(&bytes[..len - 4]);
    bytes[len - 4..len].copy_from_slice(&sum.to_le_bytes());
}

/// Corrects a checkpoint: its head, length and sum of each section, and a missing end.
pub(super) fn checkpoint(bytes: &mut Vec<u8>, store: StoreId) {
    head(bytes, *b"CENOTEC\0", CHECKPOINT_HEAD, Some((16, store)));
    let mut at = CHECKPOINT_HEAD;
    let mut kind = 0;
    while at + SECTION_HEAD <= bytes.len() {
        kind = u32_at(bytes, at);
        let len = u64::from(u32_at(bytes, at + 8)) | u64::from(u32_at(bytes, at + 12)) << 32;
        let len = len.min((bytes.len() - at - SECTION_HEAD) as u64);
        bytes[at + 8..at + 16].copy_from_slice(&len.to_le_bytes());
        bytes[at + 4..at + 8].fill(0);
        let end = at + SECTION_HEAD + len as usize;
        let sum = sum_of(&bytes[at..end]);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at = end;
        if kind == SECTION_END {
            break;
        }
    }
    if kind != SECTION_END && at >= CHECKPOINT_HEAD {
        bytes.truncate(at);
        let mut end = [0; SECTION_HEAD];
        end[..4].copy_from_slice(&SECTION_END.to_le_bytes());
        let sum = sum_of(&end);
        end[4..8].copy_from_slice(&sum.to_le_bytes());
        bytes.extend_from_slice(&end);
    }
}

/// Corrects a journal: its header and the checksums of its records; shortens a length that exceeds the end.
pub(super) fn journal(bytes: &mut [u8], store: StoreId, sequence: u64) {
    if bytes.len() < JOURNAL_HEADER {
        return;
    }
    bytes[32..40].copy_from_slice(&sequence.to_le_bytes());
    head(bytes, *b"CENOTEJ\0", 512, Some((16, store)));
    let mut at = JOURNAL_HEADER;
    while at + RECORD_HEADER <= bytes.len() {
        let len = u32_at(bytes, at) as usize;
        if len == 0 {
            break;
        }
        let len = len.clamp(RECORD_HEADER - 8, bytes.len() - at - 8);
        bytes[at..at + 4].copy_from_slice(&(len as u32).to_le_bytes());
        bytes[at + 4..at + 8].fill(0);
        let sum = sum_of(&bytes[at..at + 8 + len]);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
        at = (at + 8 + len).next_multiple_of(8);
    }
}

/// Sets the owner of an object in a bucket.
fn object_owner(bytes: &mut [u8], store: StoreId, device: DeviceId) {
    bytes[16..32].copy_from_slice(&store.0.to_le_bytes());
    bytes[32..34].copy_from_slice(&device.0.to_le_bytes());
}

/// Corrects a pack: its header, and the checksum of its table, which ends with the object at the latest.
pub(super) fn pack(bytes: &mut [u8], store: StoreId, device: DeviceId) {
    if bytes.len() < OBJECT_HEADER {
        return;
    }
    object_owner(bytes, store, device);
    let table = u64::from(u32_at(bytes, 80)) * 24 + u64::from(u32_at(bytes, 84)) * 4;
    let end = (OBJECT_HEADER as u64 + table).min(bytes.len() as u64) as usize;
    let sum = sum_of(&bytes[OBJECT_HEADER..end]);
    bytes[120..124].copy_from_slice(&sum.to_le_bytes());
    tail_sum(bytes, *b"CENOTPAK", OBJECT_HEADER);
}

/// Corrects a catalogue: its header, and the length and checksum of what follows.
pub(super) fn catalogue(bytes: &mut [u8], store: StoreId, device: DeviceId) {
    if bytes.len() < OBJECT_HEADER {
        return;
    }
    object_owner(bytes, store, device);
    let body = (bytes.len() - OBJECT_HEADER) as u64;
    bytes[72..80].copy_from_slice(&body.to_le_bytes());
    let sum = sum_of(&bytes[OBJECT_HEADER..]);
    bytes[120..124].copy_from_slice(&sum.to_le_bytes());
    tail_sum(bytes, *b"CENOTMAP", OBJECT_HEADER);
}
