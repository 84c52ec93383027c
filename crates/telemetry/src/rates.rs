//! Rates between two states of one store.

use std::collections::HashMap;

use cenote_model::{FlowEnd, FlowWhy, Histogram, Latency, Telemetry};

/// A flow and its rate.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlowRate {
    /// Source.
    pub from: FlowEnd,
    /// Destination.
    pub to: FlowEnd,
    /// Reason.
    pub why: FlowWhy,
    /// Bytes since the engine was opened.
    pub bytes: u64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Operations per second.
    pub operations_per_s: f64,
}

/// A client's rates per second: bytes written, bytes read, messages.
pub type ClientRate = (f64, f64, f64);

/// Differences between two states, per second.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rates {
    /// Seconds between the two states.
    pub seconds: f64,
    /// All flows of the later state, largest rate first.
    pub flows: Vec<FlowRate>,
    /// Rates by session.
    pub clients: HashMap<u64, ClientRate>,
    /// Messages per second.
    pub requests_per_s: f64,
}

impl Rates {
    /// Computes the rates from `before` to `now`. Without an earlier state of the same engine all rates are 0.
    pub fn between(before: Option<&Telemetry>, now: &Telemetry) -> Self {
        let before = before.filter(|before| before.uptime_ns < now.uptime_ns);
        let seconds = before.map_or(0.0, |before| (now.uptime_ns - before.uptime_ns) as f64 / 1e9);
        let rate = |now: u64, before: Option<u64>| match before {
            Some(before) if seconds > 0.0 => now.saturating_sub(before) as f64 / seconds,
            _ => 0.0,
        };
        let flows = now.flows.iter().map(|flow| {
            let same = before.map(|before| {
                let found =
                    before.flows.iter().find(|old| (old.from, old.to, old.why) == (flow.from, flow.to, flow.why));
                found.map_or((0, 0), |old| (old.bytes, old.operations))
            });
            FlowRate {
                from: flow.from,
                to: flow.to,
                why: flow.why,
                bytes: flow.bytes,
                bytes_per_s: rate(flow.bytes, same.map(|(bytes, _)| bytes)),
                operations_per_s: rate(flow.operations, same.map(|(_, operations)| operations)),
            }
        });
        let mut flows: Vec<FlowRate> = flows.collect();
        flows.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s).then(b.bytes.cmp(&a.bytes)));
        let clients = now.clients.iter().map(|client| {
            let old = before.map(|before| {
                let found = before.clients.iter().find(|old| old.session == client.session);
                found.map_or((0, 0, 0), |old| (old.written_bytes, old.read_bytes, old.requests))
            });
            let rates = (
                rate(client.written_bytes, old.map(|old| old.0)),
                rate(client.read_bytes, old.map(|old| old.1)),
                rate(client.requests, old.map(|old| old.2)),
            );
            (client.session, rates)
        });
        Self {
            seconds,
            flows,
            clients: clients.collect(),
            requests_per_s: rate(now.counts.requests, before.map(|before| before.counts.requests)),
        }
    }
    /// Returns the latency between two states, or that since the engine was opened if nothing happened in between.
    pub fn latency(before: Option<&Telemetry>, now: &Latency) -> Histogram {
        let same = |old: &&Latency| (old.what, old.tier) == (now.what, now.tier);
        let old = before.and_then(|before| before.latencies.iter().find(same));
        let since = old.map_or_else(|| now.histogram.clone(), |old| now.histogram.since(&old.histogram));
        if since.count() == 0 { now.histogram.clone() } else { since }
    }
    /// Returns the total rate of all flows for one reason.
    pub fn of(&self, why: FlowWhy) -> f64 {
        self.flows.iter().filter(|flow| flow.why == why).map(|flow| flow.bytes_per_s).sum()
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ClientTelemetry, Counts, DeviceId, Flow};

    use super::*;

    fn state(seconds: u64, bytes: u64) -> Telemetry {
        let (from, to) = (FlowEnd::Client, FlowEnd::Tier(DeviceId(1)));
        Telemetry {
            uptime_ns: seconds * 1_000_000_000,
            flows: vec![Flow { from, to, why: FlowWhy::Write, bytes, operations: bytes / 100 }],
            clients: vec![ClientTelemetry { session: 3, written_bytes: bytes, ..ClientTelemetry::default() }],
            counts: Counts { requests: bytes / 10, ..Counts::default() },
            ..Telemetry::default()
        }
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rates = Rates::between(Some(&state(10, 1000)), &state(12, 5000));
        assert_eq!((rates.flows[0].bytes_per_s, rates.flows[0].operations_per_s), (2000.0, 20.0));
        assert_eq!((rates.clients[&3].0, rates.requests_per_s, rates.of(FlowWhy::Write)), (2000.0, 200.0, 2000.0));
        let rates = Rates::between(None, &state(12, 5000));
        assert_eq!((rates.flows[0].bytes_per_s, rates.flows[0].bytes), (0.0, 5000));
        // Another engine counts from zero: no rate may be negative or absurd.
        let rates = Rates::between(Some(&state(100, 900_000)), &state(1, 500));
        assert_eq!(rates.flows[0].bytes_per_s as u64, 0);
        // A flow missing from the earlier state started at zero, not at its present total.
        let mut before = state(10, 1000);
        before.flows.clear();
        assert_eq!(Rates::between(Some(&before), &state(12, 5000)).flows[0].bytes_per_s as u64, 2500);
    }
}
