//! The snapshot that decisions are made from: devices as placement sees them.

use std::cmp::Ordering;
use std::sync::Arc;

use cenote_model::{DeviceId, DeviceKind, DeviceState, Speed};

/// A device as placement sees it.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceView {
    /// Its id.
    pub id: DeviceId,
    /// Its name, for reasons.
    pub name: Arc<str>,
    /// Its kind.
    pub kind: DeviceKind,
    /// Its state.
    pub state: DeviceState,
    /// Its capacity in bytes.
    pub capacity_bytes: u64,
    /// Bytes of extents.
    pub used_bytes: u64,
    /// Bytes leased, or waiting for readers to leave.
    pub reserved_bytes: u64,
    /// Of the used bytes, those with a copy on another device, which can leave without I/O; 0 if unknown.
    pub evictable_bytes: u64,
    /// Draining starts above this use.
    pub watermark_high_permille: u16,
    /// Draining stops at this use.
    pub watermark_low_permille: u16,
    /// Its speed: as measured, or [`speed_preset`].
    pub speed: Speed,
    /// Bytes being read from it or known to be read next, in the foreground and in the background.
    pub queued_read_bytes: u64,
    /// Bytes being written to it or known to be written next.
    pub queued_write_bytes: u64,
    /// Share of the last seconds in which it worked for the foreground: 0 to 1; 0 if unknown.
    pub busy: f32,
    /// Bytes per second that background movement to and from it may take; `None`: no limit.
    pub budget_bytes_per_s: Option<f64>,
    /// True if it is a cache of the next lower tier (`use=cache`): it holds only bytes that have a copy there.
    pub is_cache: bool,
}

impl DeviceView {
    /// An empty device that is online, unmeasured, with default watermarks.
    pub fn new(id: DeviceId, name: &str, kind: DeviceKind, capacity_bytes: u64) -> Self {
        Self {
            id,
            name: name.into(),
            kind,
            state: DeviceState::Online,
            capacity_bytes,
            used_bytes: 0,
            reserved_bytes: 0,
            evictable_bytes: 0,
            watermark_high_permille: cenote_model::WATERMARK_HIGH_DEFAULT_PERMILLE,
            watermark_low_permille: cenote_model::WATERMARK_LOW_DEFAULT_PERMILLE,
            speed: speed_preset(kind),
            queued_read_bytes: 0,
            queued_write_bytes: 0,
            busy: 0.0,
            budget_bytes_per_s: None,
            is_cache: false,
        }
    }
    /// Bytes available now.
    pub fn free_bytes(&self) -> u64 {
        self.capacity_bytes.saturating_sub(self.used_bytes).saturating_sub(self.reserved_bytes)
    }
    /// Bytes used or reserved.
    pub fn taken_bytes(&self) -> u64 {
        self.used_bytes.saturating_add(self.reserved_bytes).min(self.capacity_bytes)
    }
    /// Bytes of use above which draining starts.
    pub fn high_bytes(&self) -> u64 {
        permille(self.capacity_bytes, self.watermark_high_permille)
    }
    /// Bytes of use at which draining stops.
    pub fn low_bytes(&self) -> u64 {
        permille(self.capacity_bytes, self.watermark_low_permille)
    }
    /// Bytes that can be added without exceeding the high watermark.
    pub fn room_bytes(&self) -> u64 {
        self.high_bytes().saturating_sub(self.used_bytes.saturating_add(self.reserved_bytes))
    }
    /// Returns true if it takes new data.
    pub fn is_online(&self) -> bool {
        self.state == DeviceState::Online
    }
    /// Returns true if new bytes of that durability may be placed on it: it is online, not just a cache, and persistent
    /// where that is required.
    pub fn takes(&self, persistent_only: bool) -> bool {
        self.is_online() && !self.is_cache && (!persistent_only || self.kind.is_persistent())
    }
    /// Returns true if use, with `more` added, stays at or below the high watermark.
    pub fn below_high_with(&self, more: u64) -> bool {
        self.used_bytes.saturating_add(self.reserved_bytes).saturating_add(more) <= self.high_bytes()
    }
    /// Nanoseconds until this many bytes are written, including the queue.
    pub fn write_done_ns(&self, bytes: u64) -> f64 {
        self.queue_ns() + self.speed.write_ns(bytes)
    }
    /// Nanoseconds until this many bytes are read, including the queue.
    pub fn read_done_ns(&self, bytes: u64) -> f64 {
        self.queue_ns() + self.speed.read_ns(bytes)
    }
    /// Nanoseconds of queued work.
    pub fn queue_ns(&self) -> f64 {
        let ns = |bytes: u64, bandwidth: f64| if bytes == 0 { 0.0 } else { bytes as f64 * 1e9 / bandwidth };
        ns(self.queued_read_bytes, self.speed.read_bandwidth) + ns(self.queued_write_bytes, self.speed.write_bandwidth)
    }
    /// Use in per cent.
    pub fn use_percent(&self) -> u8 {
        (u128::from(self.taken_bytes()) * 100).checked_div(u128::from(self.capacity_bytes)).unwrap_or(100) as u8
    }
    /// Use in words: `memory 98% of 64 MiB`.
    pub fn use_words(&self) -> String {
        let state = match self.state {
            DeviceState::Online => "",
            DeviceState::Draining => ", draining",
            DeviceState::Failed => ", failed",
        };
        let capacity = bytes_words(self.capacity_bytes);
        format!("`{}` ({}) {}% of {capacity}{state}", self.name, self.kind.word(), self.use_percent())
    }
}

/// Assumed speed of a device of that kind before any measurement: kinds are in the order of [`DeviceKind`], each some
/// times slower than the previous one. Figures after the table of devices in the Hermes paper.
pub fn speed_preset(kind: DeviceKind) -> Speed {
    let line = |latency_ns: f64, read: f64, write: f64| Speed {
        read_latency_ns: latency_ns,
        write_latency_ns: latency_ns,
        read_bandwidth: read * 1e6,
        write_bandwidth: write * 1e6,
    };
    match kind {
        DeviceKind::SharedMemory => line(200.0, 13_000.0, 10_000.0),
        DeviceKind::PersistentMemory => line(400.0, 6_000.0, 3_000.0),
        DeviceKind::File => line(20e3, 2_800.0, 1_900.0),
        DeviceKind::Directory => line(60e3, 550.0, 500.0),
        DeviceKind::Raid => line(300e3, 500.0, 300.0),
        DeviceKind::Rados => line(1e6, 300.0, 200.0),
        DeviceKind::S3 => line(10e6, 110.0, 100.0),
        DeviceKind::Swift => line(15e6, 100.0, 90.0),
    }
}

/// Orders two devices as tiers: memory, persistent memory, devices with files, services. Within a class the device that
/// writes 1 MiB sooner is higher, if it is about four times as fast: measurements are noisy, and placement should not
/// depend on noise. Ties by kind, then id.
pub fn tier_order(one: &DeviceView, other: &DeviceView) -> Ordering {
    let class = |device: &DeviceView| match device.kind {
        DeviceKind::SharedMemory => 0,
        DeviceKind::PersistentMemory => 1,
        DeviceKind::File | DeviceKind::Directory => 2,
        DeviceKind::Raid | DeviceKind::Rados | DeviceKind::S3 | DeviceKind::Swift => 3,
    };
    let speed = |device: &DeviceView| (device.speed.write_ns(1 << 20).log2() / 2.0).floor();
    let by_speed = speed(one).total_cmp(&speed(other));
    class(one).cmp(&class(other)).then(by_speed).then(one.kind.cmp(&other.kind)).then(one.id.cmp(&other.id))
}

/// The devices from the fastest tier to the slowest.
pub fn order(devices: &[DeviceView]) -> Vec<&DeviceView> {
    let mut all: Vec<_> = devices.iter().collect();
    all.sort_by(|one, other| tier_order(one, other));
    all
}

fn permille(bytes: u64, part: u16) -> u64 {
    (u128::from(bytes) * u128::from(part.min(1000)) / 1000) as u64
}

/// Formats a size for a person.
pub(crate) fn bytes_words(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut value = bytes as f64;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// Formats a time for a person.
pub(crate) fn ns_words(ns: f64) -> String {
    match ns.abs() {
        under if under < 1e3 => format!("{ns:.0} ns"),
        under if under < 1e6 => format!("{:.1} µs", ns / 1e3),
        under if under < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_are_ordered_by_what_was_measured_else_by_kind() {
        let kinds = DeviceKind::ALL;
        let mut devices: Vec<_> = kinds
            .iter()
            .rev()
            .enumerate()
            .map(|(i, kind)| DeviceView::new(DeviceId(i as u16), "t", *kind, 1))
            .collect();
        let order_of = |devices: &[DeviceView]| order(devices).iter().map(|d| d.kind).collect::<Vec<_>>();
        assert_eq!(order_of(&devices), kinds, "unmeasured: the order of kinds");
        let at = |kind: DeviceKind| kinds.iter().rev().position(|it| *it == kind).unwrap();
        let [directory, file, memory] = [DeviceKind::Directory, DeviceKind::File, DeviceKind::SharedMemory].map(at);
        devices[directory].speed = speed_preset(DeviceKind::PersistentMemory);
        devices[file].speed = speed_preset(DeviceKind::Swift);
        devices[memory].speed = speed_preset(DeviceKind::Directory);
        let measured = order_of(&devices);
        assert_eq!(measured[0], DeviceKind::SharedMemory, "memory stays on top, however busy it was when measured");
        assert_eq!(measured[2..4], [DeviceKind::Directory, DeviceKind::File]);
        devices[directory].speed.write_bandwidth = 0.9 * speed_preset(DeviceKind::File).write_bandwidth;
        devices[file].speed = speed_preset(DeviceKind::File);
        devices[memory].speed.write_bandwidth = f64::NAN;
        assert_eq!(order_of(&devices).len(), kinds.len(), "nonsense is ordered too");
    }

    #[test]
    fn what_is_queued_counts() {
        let mut device = DeviceView::new(DeviceId(1), "ssd", DeviceKind::Directory, 1 << 30);
        let idle = device.write_done_ns(1 << 20);
        device.queued_read_bytes = 550_000_000;
        assert!((device.write_done_ns(1 << 20) - idle - 1e9).abs() < 1e3);
        device.used_bytes = u64::MAX;
        assert_eq!((device.free_bytes(), device.room_bytes(), device.use_percent()), (0, 0, 100));
    }
}
