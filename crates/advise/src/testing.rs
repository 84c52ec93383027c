//! Files and tiers for the tests of this crate.

use cenote_model::{DeviceId, DeviceKind};
use cenote_policy::DeviceView;
use cenote_tally::read::{Seen, Side};
use cenote_tally::{FileUse, MemoryUse, Run};

/// Memory of 64 MiB, persistent memory of 256 MiB, an SSD of 4 GiB, a bucket; with the assumed speeds of their kinds.
pub(crate) fn tiers() -> Vec<DeviceView> {
    let tier = |id, name, kind, mib: u64| DeviceView::new(DeviceId(id), name, kind, mib << 20);
    vec![
        tier(1, "ram", DeviceKind::SharedMemory, 64),
        tier(2, "pm", DeviceKind::PersistentMemory, 256),
        tier(3, "ssd", DeviceKind::Directory, 4 << 10),
        tier(4, "cold", DeviceKind::S3, 1 << 20),
    ]
}

/// Accesses of one size, in order or not.
pub(crate) fn side(accesses: u64, each_bytes: u64, is_sequential: bool, seconds: f64) -> Side {
    let sequential = if is_sequential { accesses } else { 0 };
    Side { accesses, bytes: accesses * each_bytes, ns: (seconds * 1e9) as u64, sequential, ..Side::default() }
}

pub(crate) fn file(path: &str, size_bytes: u64, reads: Side, writes: Side) -> FileUse {
    let [reads, writes] = [reads, writes].map(|side| {
        let seen = Seen::first(size_bytes.min(side.bytes));
        Side { seen, ..side }
    });
    FileUse { path: path.into(), size_bytes, reads, writes, opens: 1, processes: 1, ..FileUse::default() }
}

/// One object that was alive all the time; `touched_share` of its bytes was touched between two samples.
pub(crate) fn memory(place: &str, mib: u64, touched_share: f64, samples: u64) -> MemoryUse {
    let bytes = mib << 20;
    MemoryUse {
        place: place.into(),
        made: 1,
        made_bytes: bytes,
        live_bytes_max: bytes,
        resident_bytes_max: bytes,
        object_bytes_max: bytes,
        samples,
        sampled_bytes: bytes * samples,
        touched_bytes: (bytes as f64 * samples as f64 * touched_share) as u64,
        ..MemoryUse::default()
    }
}

pub(crate) fn run(files: &[FileUse], memory: &[MemoryUse]) -> Run {
    let mut run = Run::default();
    for file in files {
        run.add_file(file);
    }
    for memory in memory {
        run.add_memory(memory);
    }
    run
}
