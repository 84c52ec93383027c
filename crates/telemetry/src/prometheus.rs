//! The text format that Prometheus and those compatible with it scrape (version 0.0.4).

use std::fmt::Write as _;

use cenote_model::{DeviceState, HEAT_AGES, HEAT_AGES_S, Histogram, StoreId, Telemetry};

use crate::Names;
use crate::json::state_word;

/// What the text is, for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets that are told: powers of two from 128 ns to 34 s. The store has four times as many.
const BUCKETS_NS: std::ops::RangeInclusive<u32> = 7..=35;

/// All metrics of a store. Names, units and types are in `docs/observing.md`.
pub fn prometheus(store: StoreId, telemetry: &Telemetry) -> String {
    let mut text = Text(String::with_capacity(16 << 10));
    let id = store.to_string();
    text.family("cenote_info", "gauge", "The store; always 1.");
    text.sample("cenote_info", &[("store", &id), ("version", env!("CARGO_PKG_VERSION"))], 1);
    text.family("cenote_uptime_seconds", "gauge", "Time since the engine was opened.");
    text.sample("cenote_uptime_seconds", &[], telemetry.uptime_ns as f64 / 1e9);
    text.family("cenote_counting", "gauge", "1 unless counting was turned off (CENOTE_TELEMETRY=0).");
    text.sample("cenote_counting", &[], u8::from(telemetry.enabled));
    tiers(&mut text, telemetry);
    flows(&mut text, telemetry);
    latencies(&mut text, telemetry);
    containers(&mut text, telemetry);
    plain(&mut text, telemetry);
    text.0
}

/// The text as it grows.
struct Text(String);

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        self.0.push_str(name);
        for (number, (label, word)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"", if number == 0 { '{' } else { ',' });
            for c in word.chars() {
                match c {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    c => self.0.push(c),
                }
            }
            self.0.push('"');
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let mut end = |word: &str, count: u64| {
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", word)]).collect();
            self.sample(&bucket, &labels, count);
        };
        for shift in BUCKETS_NS {
            end(&format!("{}", (1u64 << shift) as f64 / 1e9), histogram.below(1 << shift));
        }
        end("+Inf", histogram.count());
        self.sample(&format!("{name}_sum"), labels, histogram.sum_ns as f64 / 1e9);
        self.sample(&format!("{name}_count"), labels, histogram.count());
    }
}

fn tiers(text: &mut Text, telemetry: &Telemetry) {
    type Value = fn(&cenote_model::DeviceInfo) -> f64;
    let gauges: [(&str, &str, Value); 6] = [
        ("cenote_tier_capacity_bytes", "Bytes that the tier may hold.", |d| d.spec.capacity_bytes as f64),
        ("cenote_tier_used_bytes", "Bytes of the tier that hold data.", |d| d.used_bytes as f64),
        (
            "cenote_tier_reserved_bytes",
            "Bytes of the tier that clients hold to write to, or that readers may still look at.",
            |d| d.reserved_bytes as f64,
        ),
        ("cenote_tier_watermark_high_ratio", "Part of the tier above which data leave it.", |d| {
            f64::from(d.spec.watermark_high_permille) / 1000.0
        }),
        ("cenote_tier_packed_bytes", "Bytes of the tier that hold compressed data.", |d| d.packed_bytes as f64),
        ("cenote_tier_unpacked_bytes", "Bytes that these are before compression.", |d| d.unpacked_bytes as f64),
    ];
    for (name, help, value) in gauges {
        text.family(name, "gauge", help);
        for device in &telemetry.devices {
            text.sample(name, &[("tier", &device.spec.name), ("kind", device.spec.kind.word())], value(device));
        }
    }
    speeds(text, telemetry);
    text.family("cenote_tier_state", "gauge", "1 for the state that the tier is in.");
    for device in &telemetry.devices {
        for state in [DeviceState::Online, DeviceState::Draining, DeviceState::Failed] {
            let labels = [("tier", device.spec.name.as_str()), ("state", state_word(state))];
            text.sample("cenote_tier_state", &labels, u8::from(device.state == state));
        }
    }
    let names = Names::of(telemetry);
    let age = |number: usize| HEAT_AGES_S.get(number).map_or("+Inf".to_owned(), u32::to_string);
    text.family("cenote_tier_idle_bytes", "gauge", "Bytes of the tier by the seconds since their object was last used (up to and without `idle`, and not in the one before).");
    for row in &telemetry.heat {
        for number in 0..HEAT_AGES {
            let labels = [("tier", &*names.tier(row.tier)), ("idle", &*age(number))];
            text.sample("cenote_tier_idle_bytes", &labels, row.bytes[number]);
        }
    }
}

/// What was measured of tiers.
fn speeds(text: &mut Text, telemetry: &Telemetry) {
    type Measured = fn(&cenote_model::Speed) -> f64;
    let speeds: [(&str, &str, Measured); 4] = [
        ("cenote_tier_read_latency_seconds", "Measured time before the first byte of a read.", |s| {
            s.read_latency_ns / 1e9
        }),
        ("cenote_tier_write_latency_seconds", "Measured time before the first byte of a write.", |s| {
            s.write_latency_ns / 1e9
        }),
        ("cenote_tier_read_bytes_per_second", "Measured bandwidth of long reads.", |s| s.read_bandwidth),
        ("cenote_tier_write_bytes_per_second", "Measured bandwidth of long writes.", |s| s.write_bandwidth),
    ];
    for (name, help, value) in speeds {
        text.family(name, "gauge", help);
        for (device, speed) in telemetry.devices.iter().filter_map(|device| Some((device, device.speed?))) {
            text.sample(name, &[("tier", &device.spec.name), ("kind", device.spec.kind.word())], value(&speed));
        }
    }
}

fn flows(text: &mut Text, telemetry: &Telemetry) {
    let names = Names::of(telemetry);
    for (name, help) in [
        ("cenote_flow_bytes_total", "Bytes that went from one place to another, and why."),
        ("cenote_flow_operations_total", "In how many pieces they went: writes, reads, extents."),
    ] {
        text.family(name, "counter", help);
        for flow in &telemetry.flows {
            let (from, to) = (names.end(flow.from), names.end(flow.to));
            let value = if name.ends_with("bytes_total") { flow.bytes } else { flow.operations };
            text.sample(name, &[("from", &from), ("to", &to), ("why", flow.why.word())], value);
        }
    }
}

fn latencies(text: &mut Text, telemetry: &Telemetry) {
    let names = Names::of(telemetry);
    let name = "cenote_latency_seconds";
    text.family(name, "histogram", "How long things took; of gets one in 64 is timed, of messages with puts and of requests one in 16, of the rest all.");
    for latency in &telemetry.latencies {
        let tier = latency.tier.map_or(String::new(), |id| names.tier(id));
        text.histogram(name, &[("operation", latency.what.word()), ("tier", &tier)], &latency.histogram);
    }
}

fn containers(text: &mut Text, telemetry: &Telemetry) {
    type Value = fn(&cenote_model::ContainerTelemetry) -> u64;
    let gauges: [(&str, &str, Value); 3] = [
        (
            "cenote_container_stored_bytes",
            "Bytes that the container's extents take (the 256 largest containers).",
            |c| c.stored_bytes,
        ),
        ("cenote_container_quota_bytes", "Most bytes that they may take; 0 for no limit.", |c| c.quota_bytes),
        ("cenote_container_objects", "Objects in the container.", |c| c.objects),
    ];
    for (name, help, value) in gauges {
        text.family(name, "gauge", help);
        for container in &telemetry.containers {
            text.sample(name, &[("container", &container.label)], value(container));
        }
    }
}

fn plain(text: &mut Text, telemetry: &Telemetry) {
    let (stats, counts) = (&telemetry.stats, &telemetry.counts);
    for (name, kind, help, value) in [
        ("cenote_sessions", "gauge", "Sessions of clients now open.", stats.sessions),
        ("cenote_containers", "gauge", "Containers.", stats.containers),
        ("cenote_objects", "gauge", "Objects in all containers.", stats.objects),
        ("cenote_indices", "gauge", "Indices in all containers.", stats.indices),
        ("cenote_records", "gauge", "Records in all indices.", stats.records),
        ("cenote_extents", "gauge", "Extents in all maps.", stats.extents),
        ("cenote_journal_bytes", "gauge", "Bytes of journal since the last checkpoint.", stats.journal_bytes),
        (
            "cenote_metadata_bytes",
            "gauge",
            "Estimated bytes of process memory that metadata take.",
            stats.metadata_bytes,
        ),
        (
            "cenote_values_memory_bytes",
            "gauge",
            "Bytes of values of records in memory that may leave it.",
            stats.values_here_bytes,
        ),
        ("cenote_values_budget_bytes", "gauge", "So many of them may be there.", stats.values_budget_bytes),
        ("cenote_values_tier_bytes", "gauge", "Bytes of values of records that are on tiers.", stats.values_away_bytes),
        ("cenote_updates_total", "counter", "Updates applied in the life of the store: its epoch.", stats.epoch),
        ("cenote_requests_total", "counter", "Messages from clients.", counts.requests),
        (
            "cenote_stalls_total",
            "counter",
            "Requests for space that were told to ask again, because tiers were full.",
            counts.stalls,
        ),
        (
            "cenote_refusals_total",
            "counter",
            "Requests for space that were refused, because tiers were full.",
            counts.refusals,
        ),
        (
            "cenote_prefetched_bytes_total",
            "counter",
            "Bytes brought to a faster tier because they were expected to be used.",
            counts.prefetched_bytes,
        ),
        ("cenote_prefetch_used_bytes_total", "counter", "Those of them that were used.", counts.prefetch_used_bytes),
        (
            "cenote_prefetch_wasted_bytes_total",
            "counter",
            "Those of them that left again unused.",
            counts.prefetch_wasted_bytes,
        ),
        ("cenote_move_failures_total", "counter", "Batches of copies and moves that failed.", counts.moves_failed),
        ("cenote_scrub_findings_total", "counter", "Bad ranges that the background scrub found.", stats.scrub_findings),
    ] {
        text.family(name, kind, help);
        text.sample(name, &[], value);
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ContainerTelemetry};

    use super::*;

    #[test]
    fn labels_cannot_end_early() {
        let label = "a\"b\\c\nd".to_owned();
        let container = ContainerTelemetry {
            id: ContainerId(1),
            label,
            objects: 1,
            stored_bytes: 2,
            quota_bytes: 0,
            share_permille: 1000,
        };
        let text = prometheus(StoreId(7), &Telemetry { containers: vec![container], ..Telemetry::default() });
        assert!(text.contains("cenote_container_objects{container=\"a\\\"b\\\\c\\nd\"} 1\n"), "{text}");
        assert!(text.lines().all(|line| line.starts_with("# ") || line.starts_with("cenote_")), "{text}");
    }
}
