//! Memory objects: what could leave the machine's memory without anybody noticing.
//!
//! What is known of them is how many of their pages were touched between two samples. A page that was touched counts once for
//! a sample, however often it was: times are the least that they can be, both now and elsewhere.

use cenote_model::DeviceKind;
use cenote_policy::{DeviceView, speed_preset};
use cenote_tally::MemoryUse;

use crate::cost::{PIECE_BYTES, fastest};

const PAGE_BYTES: f64 = 4096.0;
/// Objects that were seen in fewer samples are not judged.
pub(crate) const SAMPLES_LEAST: u64 = 3;
/// Least share of the run's time that all of an object's accesses may cost more.
const LOSS_SHARE: f64 = 0.01;

/// Seconds of what was touched, in the machine's memory.
pub(crate) fn now_seconds(memory: &MemoryUse, tiers: &[DeviceView]) -> f64 {
    let own = fastest(tiers, |tier| tier.kind == DeviceKind::SharedMemory).map(|tier| tier.speed);
    let speed = own.unwrap_or_else(|| speed_preset(DeviceKind::SharedMemory));
    memory.touched_bytes as f64 / speed.read_bandwidth
}

/// The same on a tier, mapped: each page that is touched has to be fetched, where somebody went all over an object in pieces.
/// `None`: it cannot be there, or would not leave
/// the machine's memory.
pub(crate) fn there_seconds(memory: &MemoryUse, tier: &DeviceView, tiers: &[DeviceView]) -> Option<f64> {
    if !tier.takes(false) || tier.kind.is_object() || tier.kind == DeviceKind::SharedMemory {
        return None;
    }
    let (touched, swept) = (memory.touched_bytes as f64, memory.swept_bytes.min(memory.touched_bytes) as f64);
    let waits = (touched - swept) / PAGE_BYTES + swept / PIECE_BYTES;
    let more = touched / tier.speed.read_bandwidth + waits * tier.speed.read_latency_ns / 1e9;
    Some(now_seconds(memory, tiers) + more)
}

/// What holds less than this is not in anybody's way.
const BYTES_LEAST: u64 = 64 << 10;

/// Bytes that it takes: those that were seen in memory, or all if it was never looked at.
pub(crate) fn taken_bytes(memory: &MemoryUse) -> u64 {
    if memory.samples == 0 { memory.live_bytes_max } else { memory.resident_bytes_max }
}

/// True if hardly any of it was ever used, and so it takes no memory.
pub(crate) fn is_empty(memory: &MemoryUse) -> bool {
    taken_bytes(memory) < BYTES_LEAST
}

/// True if the object can leave memory for that many seconds more.
pub(crate) fn is_bearable(memory: &MemoryUse, loss_s: f64, wall_s: f64) -> bool {
    memory.samples >= SAMPLES_LEAST && !is_empty(memory) && loss_s <= wall_s * LOSS_SHARE
}

/// Of the pages that lived when samples were taken, the share that had been touched since the sample before.
pub(crate) fn touched_share(memory: &MemoryUse) -> f64 {
    if memory.sampled_bytes == 0 { 0.0 } else { memory.touched_bytes as f64 / memory.sampled_bytes as f64 }
}
