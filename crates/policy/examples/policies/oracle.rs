//! A policy that knows the future: an earlier run of the same trace tells when each range will be read.
//!
//! It moves by Belady's order with the costs of movement, over all combinations of two settings: how far it looks ahead
//! and how far ahead it fetches. The best of these and of all online policies counts, for each trace separately, so the
//! oracle knows the future twice: the reads to come, and the best settings for them. It is no proven bound (placement
//! over tiers with costs and queues is NP-hard: it contains knapsack), but no online policy has come below it. The
//! column `bound` is proven: every access from the fastest tier, without queues.

use cenote_policy::{Decision, DeviceView, Foresight, Incoming, Limits, Next, Plan, Policy, RangeView, Refusal};

use crate::sim::{Future, Sim};
use crate::traces::Trace;

struct Oracle<'a> {
    future: &'a Future,
    firsts: Vec<usize>,
    horizon_ms: f32,
    prefetch_ms: f32,
}

impl Policy for Oracle<'_> {
    fn name(&self) -> &'static str {
        "oracle"
    }
    fn about(&self) -> &'static str {
        "knows the future"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        Foresight.place(devices, incoming)
    }
    fn place_copy(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        Foresight.place_copy(devices, incoming)
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        let now = limits.now_ms.saturating_sub(1_000) as u32;
        let next = |range: &RangeView<'_>| {
            let number = self.firsts[range.object.object.0 as usize] + (range.offset / range.bytes) as usize;
            let reads = &self.future[number];
            let from = reads.partition_point(|at| *at <= now);
            let Some(first) = reads.get(from) else { return Next::NEVER };
            let until = reads.partition_point(|at| f64::from(*at) < f64::from(now) + f64::from(self.horizon_ms));
            let in_ms = (first - now) as f32;
            Next { in_ms, p: 1.0, reads: (until - from) as f32, announced: in_ms <= self.prefetch_ms }
        };
        Foresight::plan_knowing(devices, ranges, limits, Some(ranges.iter().map(next).collect()))
    }
}

/// The least seconds of I/O that the oracle finds. `start`: the reads of a run without it.
pub fn best_s(trace: &Trace, start: Future) -> f64 {
    let mut firsts = Vec::new();
    let mut first = 0;
    for object in &trace.objects {
        firsts.push(first);
        first += object.ranges as usize;
    }
    let mut best = (f64::INFINITY, start);
    for horizon_ms in [1e3, 5e3, 2e4, 1e6] {
        for prefetch_ms in [0.0, 100.0, 1e3, 1e4] {
            for _ in 0..2 {
                let firsts = firsts.clone();
                let oracle = Oracle { future: &best.1, firsts, horizon_ms, prefetch_ms };
                let outcome = Sim::new(trace, &oracle, Some(&best.1), false).run();
                if outcome.io_s < best.0 {
                    best = (outcome.io_s, outcome.reads);
                }
            }
        }
    }
    best.0
}
