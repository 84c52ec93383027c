//! Telemetry as one JSON document, for pages and scripts.

use cenote_model::{DeviceState, HEAT_AGES_S, HISTOGRAM_BUCKETS, Latency, StoreId, Telemetry, histogram_end_ns};
use serde_json::{Map, Value, json};

use crate::Names;

/// Converts a store's telemetry, with names instead of numbers. Counters are cumulative: for rates, take the difference of
/// two documents.
pub fn json(store: StoreId, telemetry: &Telemetry) -> Value {
    let names = Names::of(telemetry);
    let (stats, counts) = (&telemetry.stats, &telemetry.counts);
    json!({
        "store": store.to_string(),
        "uptime_s": telemetry.uptime_ns as f64 / 1e9,
        "unix_ms": telemetry.unix_ms,
        "enabled": telemetry.enabled,
        "tiers": telemetry.devices.iter().map(|device| json!({
            "id": device.id.0,
            "name": device.spec.name,
            "kind": device.spec.kind.word(),
            "persistent": device.spec.kind.is_persistent(),
            "state": state_word(device.state),
            "capacity_bytes": device.spec.capacity_bytes,
            "used_bytes": device.used_bytes,
            "reserved_bytes": device.reserved_bytes,
            "packed_bytes": device.packed_bytes,
            "unpacked_bytes": device.unpacked_bytes,
            "watermark_low_permille": device.spec.watermark_low_permille,
            "watermark_high_permille": device.spec.watermark_high_permille,
            "speed": device.speed.map(|speed| json!({
                "read_latency_ns": speed.read_latency_ns,
                "write_latency_ns": speed.write_latency_ns,
                "read_bytes_per_s": speed.read_bandwidth,
                "write_bytes_per_s": speed.write_bandwidth,
            })),
        })).collect::<Vec<_>>(),
        "flows": telemetry.flows.iter().map(|flow| json!({
            "from": names.end(flow.from),
            "to": names.end(flow.to),
            "why": flow.why.word(),
            "bytes": flow.bytes,
            "operations": flow.operations,
        })).collect::<Vec<_>>(),
        "hot": telemetry.hot.iter().map(|hot| json!({
            "object": Names::object(hot),
            "size_bytes": hot.size,
            "score": hot.score,
            "idle_ms": hot.idle_ms,
            "tiers": hot.tiers.iter().map(|(id, bytes)| (names.tier(*id), (*bytes).into()))
                .collect::<Map<String, Value>>(),
        })).collect::<Vec<_>>(),
        "heat": {
            "ages_s": HEAT_AGES_S,
            "tiers": telemetry.heat.iter().map(|row| json!({
                "tier": names.tier(row.tier), "bytes": row.bytes, "objects": row.objects,
            })).collect::<Vec<_>>(),
        },
        "clients": telemetry.clients.iter().map(|client| json!({
            "session": client.session,
            "pid": client.pid,
            "uid": client.uid,
            "program": client.program,
            "write": client.write,
            "written_bytes": client.written_bytes,
            "writes": client.writes,
            "read_bytes": client.read_bytes,
            "reads": client.reads,
            "requests": client.requests,
            "leased_bytes": client.leased_bytes,
        })).collect::<Vec<_>>(),
        "users": telemetry.users.iter().map(|user| json!({
            "uid": user.uid,
            "weight": user.weight,
            "taken_bytes": user.taken.iter().map(|(id, bytes)| (names.tier(*id), (*bytes).into()))
                .collect::<Map<String, Value>>(),
        })).collect::<Vec<_>>(),
        "containers": telemetry.containers.iter().map(|container| json!({
            "id": container.id.0,
            "label": container.label,
            "objects": container.objects,
            "stored_bytes": container.stored_bytes,
            "quota_bytes": container.quota_bytes,
            "share_permille": container.share_permille,
        })).collect::<Vec<_>>(),
        "latencies": telemetry.latencies.iter().map(|latency| latency_of(latency, &names)).collect::<Vec<_>>(),
        "counters": {
            "requests": counts.requests,
            "stalls": counts.stalls,
            "refusals": counts.refusals,
            "prefetched_bytes": counts.prefetched_bytes,
            "prefetch_used_bytes": counts.prefetch_used_bytes,
            "prefetch_wasted_bytes": counts.prefetch_wasted_bytes,
            "moves_failed": counts.moves_failed,
        },
        "stats": {
            "epoch": stats.epoch,
            "containers": stats.containers,
            "objects": stats.objects,
            "indices": stats.indices,
            "records": stats.records,
            "extents": stats.extents,
            "journal_bytes": stats.journal_bytes,
            "moved_bytes": stats.moved_bytes,
            "sessions": stats.sessions,
            "scrub_findings": stats.scrub_findings,
            "metadata_bytes": stats.metadata_bytes,
            "values_here_bytes": stats.values_here_bytes,
            "values_budget_bytes": stats.values_budget_bytes,
            "values_away_bytes": stats.values_away_bytes,
        },
    })
}

/// Converts a latency. `buckets`: pairs of a bucket's end in nanoseconds and its count.
fn latency_of(latency: &Latency, names: &Names<'_>) -> Value {
    let histogram = &latency.histogram;
    let buckets = histogram.counts.iter().filter(|(bucket, _)| (*bucket as usize) < HISTOGRAM_BUCKETS);
    json!({
        "what": latency.what.word(),
        "tier": latency.tier.map(|id| names.tier(id)),
        "foreground": latency.what.is_foreground(),
        "sampled_in": latency.sampled_in,
        "count": histogram.count(),
        "sum_ns": histogram.sum_ns,
        "p50_ns": histogram.quantile_ns(0.5),
        "p99_ns": histogram.quantile_ns(0.99),
        "buckets": buckets.map(|(bucket, count)| (histogram_end_ns(*bucket as usize), *count)).collect::<Vec<_>>(),
    })
}

pub(crate) fn state_word(state: DeviceState) -> &'static str {
    match state {
        DeviceState::Online => "online",
        DeviceState::Draining => "draining",
        DeviceState::Failed => "failed",
    }
}
