//! Estimates how long the accesses to a file would take on a tier.

use cenote_model::DeviceKind;
use cenote_policy::DeviceView;
use cenote_tally::FileUse;
use cenote_tally::read::Side;

/// Cost of a call to the store, in addition to the tier's time.
const CALL_NS: f64 = 300.0;
/// Cost of a flush, in addition to the writes, where it copies bytes to a persistent tier.
const FLUSH_NS: f64 = 100e3;
/// Sequential accesses are read ahead and written behind in pieces of this many bytes.
pub(crate) const PIECE_BYTES: f64 = (256 << 10) as f64;
/// Data in an object service is fetched in pieces of this many bytes.
const FETCH_BYTES: u64 = 4 << 20;

/// Bytes of the file on a tier.
pub fn footprint_bytes(file: &FileUse) -> u64 {
    if file.is(cenote_tally::file_flag::GROUP) {
        // The number of files in a group is unknown: use the moved bytes, without repetitions.
        file.size_bytes.max(file.reads.bytes.max(file.writes.bytes))
    } else {
        file.size_bytes.max(file.reads.unique_bytes()).max(file.writes.unique_bytes())
    }
}

fn is_memory(tier: &DeviceView) -> bool {
    matches!(tier.kind, DeviceKind::SharedMemory | DeviceKind::PersistentMemory)
}

/// Nanoseconds of the reads or of the writes.
fn side_ns(side: &Side, tier: &DeviceView, latency_ns: f64, bandwidth: f64) -> f64 {
    if side.accesses == 0 {
        return 0.0;
    }
    let accesses = side.accesses as f64;
    let foreseen = ((side.sequential.saturating_add(side.strided)) as f64).min(accesses);
    let waits = if is_memory(tier) {
        accesses
    } else {
        // One latency for each piece of a predictable sequence, and one for each unpredictable access.
        let pieces = (side.bytes as f64 * foreseen / accesses / PIECE_BYTES).max(1.0);
        accesses - foreseen + foreseen.min(pieces)
    };
    accesses * CALL_NS + waits * latency_ns + side.bytes as f64 * 1e9 / bandwidth
}

/// Seconds of all accesses on that tier, among these tiers. `None` if the file cannot be there.
pub fn file_seconds(file: &FileUse, tier: &DeviceView, tiers: &[DeviceView]) -> Option<f64> {
    if !tier.takes(false) {
        return None;
    }
    let speed = &tier.speed;
    if tier.kind.is_object() {
        return object_seconds(file, tier, tiers);
    }
    let mut ns = side_ns(&file.reads, tier, speed.read_latency_ns, speed.read_bandwidth)
        + side_ns(&file.writes, tier, speed.write_latency_ns, speed.write_bandwidth);
    let syncs = file.waits_for_media();
    if syncs > 0 {
        if tier.kind.is_persistent() {
            ns += syncs as f64 * speed.write_latency_ns;
        } else {
            // Volatile memory makes nothing durable: each sync waits for the fastest persistent tier.
            let below = fastest(tiers, |other| other.takes(true) && !other.kind.is_object())?;
            ns += syncs as f64 * (FLUSH_NS + below.speed.write_latency_ns);
            ns += file.writes.bytes as f64 * 1e9 / below.speed.write_bandwidth;
        }
    }
    Some(ns / 1e9)
}

/// An object service is not accessed directly: reads are fetched once, and writes are sent later, which counts as if
/// somebody waited for it.
fn object_seconds(file: &FileUse, tier: &DeviceView, tiers: &[DeviceView]) -> Option<f64> {
    let front = fastest(tiers, |other| other.takes(false) && !other.kind.is_object())?;
    let moved = |bytes: u64, latency_ns: f64, bandwidth: f64| {
        bytes.div_ceil(FETCH_BYTES) as f64 * latency_ns + bytes as f64 * 1e9 / bandwidth
    };
    let speed = &tier.speed;
    let ns = moved(file.reads.unique_bytes(), speed.read_latency_ns, speed.read_bandwidth)
        + moved(file.writes.unique_bytes(), speed.write_latency_ns, speed.write_bandwidth);
    Some(ns / 1e9 + file_seconds(file, front, tiers)?)
}

/// The tier that writes 1 MiB in the least time, among those that `is_wanted` accepts.
pub(crate) fn fastest(tiers: &[DeviceView], is_wanted: impl Fn(&DeviceView) -> bool) -> Option<&DeviceView> {
    let time = |tier: &DeviceView| tier.speed.write_ns(1 << 20);
    tiers.iter().filter(|tier| is_wanted(tier)).min_by(|a, b| time(a).total_cmp(&time(b)))
}
