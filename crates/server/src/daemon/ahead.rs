//! Faults in some memory of the memory tiers beyond what is in use, so that writers find it ready.
//!
//! It keeps as much ahead as is in use already, within bounds: a store that holds little takes little, and one that
//! grows meets present pages. It runs only between bursts, at the lowest priority, and not while the machine is short
//! of memory: a kernel that makes a huge page holds locks that a concurrent writer would wait for, longest when all
//! cores are busy. Afterwards it converts small pages that writers faulted in into huge ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cenote_device::{SegmentFile, ahead};
use cenote_model::{DeviceId, DeviceInfo, DeviceKind, DeviceState};

use super::Daemon;

/// Required time without any client's request.
const CALM: Duration = Duration::from_millis(100);
/// Pause when there was nothing to do.
const PAUSE: Duration = Duration::from_millis(250);
/// Bytes per step: enough to amortise the kernel's fixed cost of a call, few enough to stop soon.
const STEP_BYTES: u64 = 8 << 20;
/// A tier with less in use than this gets none ahead.
const USED_BYTES_MIN: u64 = 8 << 20;
/// Bounds of the bytes kept ahead; never more than a quarter of the tier.
const AHEAD_BYTES_MIN: u64 = 64 << 20;
const AHEAD_BYTES_MAX: u64 = 1 << 30;

/// Progress in each segment of each device.
#[derive(Default)]
struct Progress {
    /// No hole exists before this offset.
    holes: HashMap<(DeviceId, usize), u64>,
    /// Every page before this offset is huge, or cannot become huge.
    huge: HashMap<(DeviceId, usize), u64>,
}

pub(super) fn start(daemon: &Arc<Daemon>) {
    let weak = Arc::downgrade(daemon);
    let run = move || {
        let _ = rustix::process::nice(19); // of this thread
        let (mut seen, mut progress) = (0, Progress::default());
        while let Some(daemon) = weak.upgrade() {
            if daemon.is_stopping() {
                return;
            }
            let requests = daemon.host.service.requests();
            let pause = if requests != seen {
                CALM
            } else if memory_tiers(&daemon).iter().any(|info| step(&daemon, info, &mut progress)) {
                Duration::ZERO
            } else {
                PAUSE
            };
            seen = requests;
            drop(daemon);
            std::thread::sleep(pause);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("cenote-ahead".into()).spawn(run) {
        tracing::warn!(%error, "no thread to make memory ready ahead");
    }
}

fn memory_tiers(daemon: &Daemon) -> Vec<DeviceInfo> {
    let mut devices = daemon.host.service.device_infos().unwrap_or_default();
    devices.retain(|info| info.spec.kind == DeviceKind::SharedMemory && info.state == DeviceState::Online);
    devices
}

/// Faults in more memory, if there is too little ahead, or makes huge pages. Returns false if nothing could be done.
fn step(daemon: &Daemon, info: &DeviceInfo, progress: &mut Progress) -> bool {
    let used = info.used_bytes + info.reserved_bytes;
    let wanted = used + ahead_bytes(used, info.spec.capacity_bytes);
    if used < USED_BYTES_MIN {
        return false;
    }
    let segments = segments(daemon, info);
    let present: u64 = segments.iter().map(|file| ahead::present_bytes(file).unwrap_or(u64::MAX / 1024)).sum();
    if memory_available() < 4 * AHEAD_BYTES_MAX.min(wanted) {
        return false;
    }
    let too_little = present < wanted.min(info.spec.capacity_bytes);
    segments.iter().enumerate().any(|(number, file)| {
        let at = (info.id, number);
        let hole = progress.holes.entry(at).or_default();
        (too_little && ahead::fill_first_hole(file, hole, STEP_BYTES).is_ok_and(|bytes| bytes > 0))
            || ahead::make_huge(file, progress.huge.entry(at).or_default(), STEP_BYTES).unwrap_or(false)
    })
}

fn ahead_bytes(used: u64, capacity: u64) -> u64 {
    used.clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX).min(capacity / 4)
}

fn segments(daemon: &Daemon, info: &DeviceInfo) -> Vec<SegmentFile> {
    let Some(device) = daemon.host.service.device(info.id) else { return Vec::new() };
    let count = info.spec.capacity_bytes.div_ceil(info.segment_bytes.max(1));
    (0..count).filter_map(|number| device.segment(number).ok().flatten()).collect()
}

/// Memory that the machine can provide without taking it from others; 0 if unknown.
fn memory_available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_much_ahead_as_is_used_within_bounds() {
        const MIB: u64 = 1 << 20;
        assert_eq!(ahead_bytes(10 * MIB, 4096 * MIB), 64 * MIB);
        assert_eq!(ahead_bytes(500 * MIB, 4096 * MIB), 500 * MIB);
        assert_eq!(ahead_bytes(3000 * MIB, 8192 * MIB), 1024 * MIB);
        assert_eq!(ahead_bytes(30 * MIB, 64 * MIB), 16 * MIB);
    }
    #[test]
    fn the_machine_says_what_memory_it_has() {
        assert!(memory_available() > 0);
    }
}
