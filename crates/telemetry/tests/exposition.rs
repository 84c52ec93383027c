//! The whole text for a store with some of everything, byte for byte: dashboards rely on names, labels and types of metrics.

use std::path::PathBuf;

use cenote_model::{
    ContainerId, ContainerTelemetry, Counts, DeviceId, DeviceInfo, DeviceKind, DeviceSpec, DeviceState, Flow, FlowEnd,
    FlowWhy, HeatRow, Histogram, Latency, Speed, StoreId, StoreStats, Telemetry, TierOptions, Timed, histogram_bucket,
};

fn device(id: u16, name: &str, kind: DeviceKind, speed: Option<Speed>) -> DeviceInfo {
    DeviceInfo {
        id: DeviceId(id),
        spec: DeviceSpec {
            name: name.into(),
            kind,
            path: PathBuf::new(),
            capacity_bytes: 1 << 50,
            watermark_high_permille: 905,
            watermark_low_permille: 800,
            options: TierOptions::default(),
        },
        state: DeviceState::Draining,
        used_bytes: 123_456_789,
        reserved_bytes: 65_536,
        leased_bytes: 4096,
        evictable_bytes: 0,
        unit_bytes: 512,
        segment_bytes: 1 << 30,
        speed,
        note: String::new(),
        packed_bytes: 7,
        unpacked_bytes: 21,
    }
}

fn telemetry() -> Telemetry {
    let speed = Speed {
        read_latency_ns: 250.0,
        write_latency_ns: 1e6 / 3.0,
        read_bandwidth: 12.5e9,
        write_bandwidth: 1_000_000.5,
    };
    let times_ns = [1, 100, 130, 5_000, 5_001, 80_000_000, 90_000_000_000];
    let mut counts = vec![0; histogram_bucket(u64::MAX) + 1];
    for ns in times_ns {
        counts[histogram_bucket(ns)] += 1;
    }
    let histogram = Histogram::from_counts(counts, times_ns.iter().sum());
    let container = |id, label: &str| ContainerTelemetry {
        id: ContainerId(id),
        label: label.into(),
        objects: id,
        stored_bytes: 1 << 40,
        quota_bytes: 0,
        share_permille: 10,
    };
    let flow = |from, to, why| Flow { from, to, why, bytes: 10 << 30, operations: 77 };
    Telemetry {
        uptime_ns: 1_234_567_891,
        enabled: true,
        stats: StoreStats { objects: 5, records: 1 << 33, epoch: 1 << 52, scrub_findings: 1, ..StoreStats::default() },
        devices: vec![
            device(0, "memory", DeviceKind::SharedMemory, Some(speed)),
            device(1, "a \"quoted\\ tier\n", DeviceKind::File, None),
        ],
        flows: vec![
            flow(FlowEnd::Client, FlowEnd::Tier(DeviceId(0)), FlowWhy::Write),
            flow(FlowEnd::Tier(DeviceId(9)), FlowEnd::Engine, FlowWhy::Verify),
        ],
        heat: vec![HeatRow { tier: DeviceId(0), bytes: [1, 2, 3, 4, 5, 6], objects: [0; 6] }],
        containers: vec![container(1, "runs"), container(2, "a\"b\\c\nd \u{e9}")],
        latencies: vec![
            Latency { what: Timed::Get, tier: Some(DeviceId(0)), histogram, sampled_in: 64 },
            Latency { what: Timed::SyncJournal, tier: None, histogram: Histogram::default(), sampled_in: 1 },
        ],
        counts: Counts { requests: 3, stalls: 2, ..Counts::default() },
        ..Telemetry::default()
    }
}

#[test]
fn the_text_is_as_it_always_was() {
    let text = cenote_telemetry::prometheus(StoreId(7), &telemetry());
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    if let Some(path) = std::env::var_os("WRITE_EXPOSITION") {
        std::fs::write(path, &text).unwrap();
    }
    let wanted = include_str!("exposition.prom");
    for (line, wanted) in text.lines().zip(wanted.lines()) {
        assert_eq!(line, wanted);
    }
    assert_eq!(text, wanted);
}
