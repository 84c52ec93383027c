//! The text format that Prometheus and compatible tools scrape (version 0.0.4).

use ::prometheus::TextEncoder;
use ::prometheus::proto::{self, MetricFamily, MetricType};
use cenote_model::{DeviceState, HEAT_AGES, HEAT_AGES_S, Histogram, StoreId, Telemetry};

use crate::Names;
use crate::json::state_word;

/// Content type for HTTP.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const COUNTER: MetricType = MetricType::COUNTER;
const GAUGE: MetricType = MetricType::GAUGE;
const HISTOGRAM: MetricType = MetricType::HISTOGRAM;

/// Exported buckets: powers of two from 128 ns to 34 s. The store has four times as many.
const BUCKETS_NS: std::ops::RangeInclusive<u32> = 7..=35;

/// Exports all metrics of a store. Names, units and types are in `docs/observing.md`.
pub fn prometheus(store: StoreId, telemetry: &Telemetry) -> String {
    let mut all = Families::default();
    let id = store.to_string();
    all.family("cenote_info", GAUGE, "The store; always 1.");
    all.sample(&[("store", &id), ("version", env!("CARGO_PKG_VERSION"))], 1.0);
    all.family("cenote_uptime_seconds", GAUGE, "Time since the engine was opened.");
    all.sample(&[], telemetry.uptime_ns as f64 / 1e9);
    all.family("cenote_counting", GAUGE, "1 unless counting was turned off (CENOTE_TELEMETRY=0).");
    all.sample(&[], flag(telemetry.enabled));
    tiers(&mut all, telemetry);
    flows(&mut all, telemetry);
    latencies(&mut all, telemetry);
    containers(&mut all, telemetry);
    plain(&mut all, telemetry);
    all.text()
}

/// Metric families of one answer, in the library's types. A family without a sample is omitted.
#[derive(Default)]
struct Families(Vec<MetricFamily>);

impl Families {
    /// Begins a family, which the following samples belong to.
    fn family(&mut self, name: &str, kind: MetricType, help: &str) {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        self.0.push(family);
    }
    /// Adds a sample of a counter or a gauge.
    fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        let Some(family) = self.0.last_mut() else { return };
        let mut metric = labelled(labels);
        if family.get_field_type() == COUNTER {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        }
        family.mut_metric().push(metric);
    }
    /// Adds a histogram in seconds; the library adds the `+Inf` bucket.
    fn histogram(&mut self, labels: &[(&str, &str)], histogram: &Histogram) {
        let Some(family) = self.0.last_mut() else { return };
        let bucket = |shift: u32| {
            let mut bucket = proto::Bucket::default();
            bucket.set_upper_bound((1u64 << shift) as f64 / 1e9);
            bucket.set_cumulative_count(histogram.below(1 << shift));
            bucket
        };
        let mut sums = proto::Histogram::default();
        sums.set_bucket(BUCKETS_NS.map(bucket).collect());
        sums.set_sample_sum(histogram.sum_ns as f64 / 1e9);
        sums.set_sample_count(histogram.count());
        let mut metric = labelled(labels);
        metric.set_histogram(sums);
        family.mut_metric().push(metric);
    }
    fn text(mut self) -> String {
        self.0.retain(|family| !family.get_metric().is_empty());
        let mut text = String::with_capacity(16 << 10);
        // Encoding fails only for families without a name or a sample, and there are none.
        let encoded = TextEncoder::new().encode_utf8(&self.0, &mut text);
        debug_assert!(encoded.is_ok(), "{encoded:?}");
        text
    }
}

/// Creates a metric with these labels and no value.
fn labelled(labels: &[(&str, &str)]) -> proto::Metric {
    let pair = |(name, value): &(&str, &str)| {
        let mut pair = proto::LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    };
    proto::Metric::from_label(labels.iter().map(pair).collect())
}

/// Returns a gauge's value for a condition.
fn flag(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn tiers(all: &mut Families, telemetry: &Telemetry) {
    type Get = fn(&cenote_model::DeviceInfo) -> f64;
    let gauges: [(&str, &str, Get); 6] = [
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
        all.family(name, GAUGE, help);
        for device in &telemetry.devices {
            all.sample(&[("tier", &device.spec.name), ("kind", device.spec.kind.word())], value(device));
        }
    }
    speeds(all, telemetry);
    all.family("cenote_tier_state", GAUGE, "1 for the state that the tier is in.");
    for device in &telemetry.devices {
        for state in [DeviceState::Online, DeviceState::Draining, DeviceState::Failed] {
            let labels = [("tier", device.spec.name.as_str()), ("state", state_word(state))];
            all.sample(&labels, flag(device.state == state));
        }
    }
    let names = Names::of(telemetry);
    let age = |number: usize| HEAT_AGES_S.get(number).map_or("+Inf".to_owned(), u32::to_string);
    all.family("cenote_tier_idle_bytes", GAUGE, "Bytes of the tier by the seconds since their object was last used (up to and without `idle`, and not in the one before).");
    for row in &telemetry.heat {
        for number in 0..HEAT_AGES {
            let labels = [("tier", &*names.tier(row.tier)), ("idle", &*age(number))];
            all.sample(&labels, row.bytes[number] as f64);
        }
    }
}

/// Exports the measured speeds of tiers.
fn speeds(all: &mut Families, telemetry: &Telemetry) {
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
        all.family(name, GAUGE, help);
        for (device, speed) in telemetry.devices.iter().filter_map(|device| Some((device, device.speed?))) {
            all.sample(&[("tier", &device.spec.name), ("kind", device.spec.kind.word())], value(&speed));
        }
    }
}

fn flows(all: &mut Families, telemetry: &Telemetry) {
    let names = Names::of(telemetry);
    for (name, help) in [
        ("cenote_flow_bytes_total", "Bytes that went from one place to another, and why."),
        ("cenote_flow_operations_total", "In how many pieces they went: writes, reads, extents."),
    ] {
        all.family(name, COUNTER, help);
        for flow in &telemetry.flows {
            let (from, to) = (names.end(flow.from), names.end(flow.to));
            let value = if name.ends_with("bytes_total") { flow.bytes } else { flow.operations };
            all.sample(&[("from", &from), ("to", &to), ("why", flow.why.word())], value as f64);
        }
    }
}

fn latencies(all: &mut Families, telemetry: &Telemetry) {
    let names = Names::of(telemetry);
    let name = "cenote_latency_seconds";
    all.family(name, HISTOGRAM, "How long things took; of gets one in 64 is timed, of messages with puts and of requests one in 16, of the rest all.");
    for latency in &telemetry.latencies {
        let tier = latency.tier.map_or(String::new(), |id| names.tier(id));
        all.histogram(&[("operation", latency.what.word()), ("tier", &tier)], &latency.histogram);
    }
}

fn containers(all: &mut Families, telemetry: &Telemetry) {
    type Get = fn(&cenote_model::ContainerTelemetry) -> u64;
    let gauges: [(&str, &str, Get); 3] = [
        (
            "cenote_container_stored_bytes",
            "Bytes that the container's extents take (the 256 largest containers).",
            |c| c.stored_bytes,
        ),
        ("cenote_container_quota_bytes", "Most bytes that they may take; 0 for no limit.", |c| c.quota_bytes),
        ("cenote_container_objects", "Objects in the container.", |c| c.objects),
    ];
    for (name, help, value) in gauges {
        all.family(name, GAUGE, help);
        for container in &telemetry.containers {
            all.sample(&[("container", &container.label)], value(container) as f64);
        }
    }
}

fn plain(all: &mut Families, telemetry: &Telemetry) {
    let (stats, counts) = (&telemetry.stats, &telemetry.counts);
    for (name, kind, help, value) in [
        ("cenote_sessions", GAUGE, "Sessions of clients now open.", stats.sessions),
        ("cenote_containers", GAUGE, "Containers.", stats.containers),
        ("cenote_objects", GAUGE, "Objects in all containers.", stats.objects),
        ("cenote_indices", GAUGE, "Indices in all containers.", stats.indices),
        ("cenote_records", GAUGE, "Records in all indices.", stats.records),
        ("cenote_extents", GAUGE, "Extents in all maps.", stats.extents),
        ("cenote_journal_bytes", GAUGE, "Bytes of journal since the last checkpoint.", stats.journal_bytes),
        ("cenote_metadata_bytes", GAUGE, "Estimated bytes of process memory that metadata take.", stats.metadata_bytes),
        (
            "cenote_values_memory_bytes",
            GAUGE,
            "Bytes of values of records in memory that may leave it.",
            stats.values_here_bytes,
        ),
        ("cenote_values_budget_bytes", GAUGE, "So many of them may be there.", stats.values_budget_bytes),
        ("cenote_values_tier_bytes", GAUGE, "Bytes of values of records that are on tiers.", stats.values_away_bytes),
        ("cenote_updates_total", COUNTER, "Updates applied in the life of the store: its epoch.", stats.epoch),
        ("cenote_requests_total", COUNTER, "Messages from clients.", counts.requests),
        (
            "cenote_stalls_total",
            COUNTER,
            "Requests for space that were told to ask again, because tiers were full.",
            counts.stalls,
        ),
        (
            "cenote_refusals_total",
            COUNTER,
            "Requests for space that were refused, because tiers were full.",
            counts.refusals,
        ),
        (
            "cenote_prefetched_bytes_total",
            COUNTER,
            "Bytes brought to a faster tier because they were expected to be used.",
            counts.prefetched_bytes,
        ),
        ("cenote_prefetch_used_bytes_total", COUNTER, "Those of them that were used.", counts.prefetch_used_bytes),
        (
            "cenote_prefetch_wasted_bytes_total",
            COUNTER,
            "Those of them that left again unused.",
            counts.prefetch_wasted_bytes,
        ),
        ("cenote_move_failures_total", COUNTER, "Batches of copies and moves that failed.", counts.moves_failed),
        ("cenote_scrub_findings_total", COUNTER, "Bad ranges that the background scrub found.", stats.scrub_findings),
    ] {
        all.family(name, kind, help);
        all.sample(&[], value as f64);
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
