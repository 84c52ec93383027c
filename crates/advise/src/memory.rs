//! Selects memory objects that could leave the machine's memory without a noticeable loss.
//!
//! The evidence is the number of their pages that were touched between two samples. A touched page counts once per
//! sample, however often it was touched: all times are lower bounds, both now and elsewhere.

use cenote_model::DeviceKind;
use cenote_policy::{DeviceView, speed_preset};
use cenote_tally::MemoryUse;

use crate::cost::{PIECE_BYTES, fastest};

const PAGE_BYTES: f64 = 4096.0;
/// Objects seen in fewer samples are not judged.
pub(crate) const SAMPLES_LEAST: u64 = 3;
/// Largest acceptable additional time of all accesses to an object, as a share of the run's time.
const LOSS_SHARE: f64 = 0.01;

/// Seconds of the touched bytes in the machine's memory.
pub(crate) fn now_seconds(memory: &MemoryUse, tiers: &[DeviceView]) -> f64 {
    let own = fastest(tiers, |tier| tier.kind == DeviceKind::SharedMemory).map(|tier| tier.speed);
    let speed = own.unwrap_or_else(|| speed_preset(DeviceKind::SharedMemory));
    memory.touched_bytes as f64 / speed.read_bandwidth
}

/// Seconds of the same accesses on a tier, mapped: each touched page has to be fetched, in a sweep over an object in
/// larger pieces. `None` if the object cannot be there, or would not leave the machine's memory.
pub(crate) fn there_seconds(memory: &MemoryUse, tier: &DeviceView, tiers: &[DeviceView]) -> Option<f64> {
    if !tier.takes(false) || tier.kind.is_object() || tier.kind == DeviceKind::SharedMemory {
        return None;
    }
    let (touched, swept) = (memory.touched_bytes as f64, memory.swept_bytes.min(memory.touched_bytes) as f64);
    let waits = (touched - swept) / PAGE_BYTES + swept / PIECE_BYTES;
    let more = touched / tier.speed.read_bandwidth + waits * tier.speed.read_latency_ns / 1e9;
    Some(now_seconds(memory, tiers) + more)
}

/// Objects with less than this are not worth a move.
const BYTES_LEAST: u64 = 64 << 10;

/// Bytes of the objects: as seen in memory, or all if they were never sampled.
pub(crate) fn taken_bytes(memory: &MemoryUse) -> u64 {
    if memory.samples == 0 { memory.live_bytes_max } else { memory.resident_bytes_max }
}

/// Returns true if hardly any of it was ever used, so that it takes no memory.
pub(crate) fn is_empty(memory: &MemoryUse) -> bool {
    taken_bytes(memory) < BYTES_LEAST
}

/// Returns true if the object may leave memory at the cost of this many seconds.
pub(crate) fn is_bearable(memory: &MemoryUse, loss_s: f64, wall_s: f64) -> bool {
    memory.samples >= SAMPLES_LEAST && !is_empty(memory) && loss_s <= wall_s * LOSS_SHARE
}

/// Share of the sampled live pages that had been touched since the previous sample.
pub(crate) fn touched_share(memory: &MemoryUse) -> f64 {
    if memory.sampled_bytes == 0 { 0.0 } else { memory.touched_bytes as f64 / memory.sampled_bytes as f64 }
}
