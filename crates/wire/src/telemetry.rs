//! Encodings of a store's telemetry.

use cenote_model::{
    ClientTelemetry, ContainerTelemetry, Counts, Flow, FlowEnd, FlowWhy, HISTOGRAM_BUCKETS, HeatRow, Histogram,
    HotObject, Latency, Result, Telemetry, Timed, UserTelemetry,
};

use crate::codec::{Input, Wire, malformed, wire_enum, wire_struct};

impl Wire for FlowWhy {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let code = u8::take(input)?;
        Self::ALL.into_iter().find(|why| *why as u8 == code).ok_or_else(|| malformed("unknown reason of a flow"))
    }
}

impl Wire for Timed {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self as u8);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let code = u8::take(input)?;
        Self::ALL.into_iter().find(|what| *what as u8 == code).ok_or_else(|| malformed("unknown kind of latency"))
    }
}

impl Wire for Histogram {
    const BYTES_MIN: usize = 12;
    fn put(&self, out: &mut Vec<u8>) {
        self.counts.put(out);
        self.sum_ns.put(out);
    }
    /// Accepts only existing buckets, in order, once each: code that uses them need
    /// not check.
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let counts = Vec::<(u8, u64)>::take(input)?;
        let rises = counts.windows(2).all(|pair| pair[0].0 < pair[1].0);
        if !rises || counts.last().is_some_and(|(bucket, _)| *bucket as usize >= HISTOGRAM_BUCKETS) {
            return Err(malformed("a histogram has no such buckets"));
        }
        Ok(Self { counts, sum_ns: u64::take(input)? })
    }
}

wire_enum!(FlowEnd, 1, "end of a flow", { 1 => Client, 2 => Engine, 3 => Tier(device) });
wire_struct!(Flow, 19, { from, to, why, bytes, operations });
wire_struct!(HotObject, 56, { key, label, size, score, idle_ms, tiers });
wire_struct!(HeatRow, 98, { tier, bytes, objects });
wire_struct!(ClientTelemetry, 69, {
    session, pid, uid, program, write, written_bytes, writes, read_bytes, reads, requests, leased_bytes,
});
wire_struct!(ContainerTelemetry, 38, { id, label, objects, stored_bytes, quota_bytes, share_permille });
wire_struct!(Latency, 18, { what, tier, sampled_in, histogram });
wire_struct!(Counts, 56, {
    requests, stalls, refusals, prefetched_bytes, prefetch_used_bytes, prefetch_wasted_bytes, moves_failed,
});
wire_struct!(UserTelemetry, 10, { uid, weight, taken });
wire_struct!(Telemetry, 193, {
    uptime_ns, unix_ms, enabled, stats, devices, flows, hot, heat, clients, users, containers, latencies, counts,
});
