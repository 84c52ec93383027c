//! `foresight`: the least expected I/O time of coming accesses, predicted from past ones.
//!
//! *Placement of ranges.* Each range has an expected number `n` of reads within a horizon H: `n = p · H / t`, where `t`
//! is the mean interval of its reads and `p` falls when a read is overdue. For ranges that were read once or only
//! written, the share and delay come from their container's history. The value of a place on tier i is, per byte,
//!
//! `v = n · (read(elsewhere) - read(i)) / bytes`
//!
//! (frequency, size and cost of a miss, as GreedyDual-Size-Frequency: Cherkasova 1998). A range moves up if
//! `v · bytes - margin · (v of the ranges it displaces) > busy · (read(here) + write(i))`: movement costs what it takes
//! from the foreground. So a loop over more bytes than fit keeps a part of them in place, as Belady would, and a scan
//! displaces nothing.
//!
//! *Prefetch.* A range that a prefetcher announces, with probability `p` in `t`, also moves up, in the place of ranges that
//! are read only later (Belady's order), if `p · (read(here) - read(i)) > busy · (fetch + fetching back)`: it is fetched
//! as far as devices have time.
//!
//! *Bursts.* Writes that the rhythm of bursts announces claim room: `v = p · (write(below) - write(top)) / bytes`.
//!
//! *New bytes* go to the tier where they are soonest complete, queues included, so that all layers work when the top is
//! full: `min over i of queue(i) + write(i) + p · read(i) · e^(-t / horizon)`; or they wait, if room can be made there
//! without I/O.

mod planning;

use std::sync::Arc;

use cenote_model::Durability;

use planning::Planning;

use super::fast_first::{FastFirst, place_by_order};
use crate::place::Refusal;
use crate::{Coming, Decision, DeviceView, Heat, Incoming, Limits, Plan, Policy, RangeView, Reason, Rhythm};

/// Without any knowledge, the next read is expected after this time.
const UNKNOWN_MS: f32 = 20_000.0;
/// Without any knowledge, the next read comes with this probability.
const UNKNOWN_P: f32 = 0.5;
/// New bytes are placed with a view to reads within this many milliseconds.
const PLACE_HORIZON_MS: f32 = 10_000.0;
/// Estimated time to make room by dropping bytes that have copies elsewhere; somebody may miss them.
const MAKE_ROOM_NS: f64 = 200_000.0;
/// Weight of the container's read rate, in reads of a range.
const PRIOR_READS: f32 = 4.0;

/// The policy `foresight`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Foresight;

/// The expected reads of a range.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Next {
    /// Milliseconds until the next read.
    pub in_ms: f32,
    /// The probability that there is one.
    pub p: f32,
    /// Reads in the horizon.
    pub reads: f32,
    /// A prefetcher has announced the read.
    pub announced: bool,
}

impl Next {
    /// No read.
    pub const NEVER: Self = Self { in_ms: f32::MAX, p: 0.0, reads: 0.0, announced: false };

    /// A read that is expected once, seen at age `age_ms`; its probability falls when it is overdue.
    fn once(expected_ms: f32, age_ms: f32, share: f32, horizon_ms: f32) -> Self {
        let late = (age_ms / expected_ms.max(1.0) - 1.0).max(0.0);
        let left = if late > 0.0 { age_ms } else { expected_ms - age_ms };
        let p = share / (1.0 + late * late);
        Self { in_ms: left.max(0.0), p, reads: p * (horizon_ms / left.max(1.0)).min(1.0), announced: false }
    }
    /// Combines the range's heat, its prefetcher and its container's habits.
    fn of(heat: &Heat, coming: Option<Coming>, rhythm: Option<&Rhythm>, now_ms: u64, horizon_ms: f32) -> Self {
        let seen = Self::seen(heat, rhythm, now_ms, horizon_ms);
        match coming {
            Some(coming) if coming.in_ms == u32::MAX && coming.confidence >= 1.0 => Self::NEVER,
            Some(coming) => {
                let (in_ms, p) = (coming.in_ms as f32, coming.confidence.clamp(0.0, 1.0));
                Self { in_ms, p, reads: seen.reads, announced: true }
            }
            None => seen,
        }
    }
    fn seen(heat: &Heat, rhythm: Option<&Rhythm>, now_ms: u64, horizon_ms: f32) -> Self {
        if let Some(age) = heat.read_ms_ago(now_ms) {
            let Some((mean_rate, span_ms)) = rhythm.and_then(|rhythm| rhythm.reread_rate(now_ms)) else {
                return Self::once(UNKNOWN_MS, age, UNKNOWN_P, horizon_ms);
            };
            // Its own rate if it was read often enough, else that of its container (a gamma prior of that mean).
            let rereads = (heat.read_count(now_ms) - 1.0).max(0.0);
            let rate = (rereads + PRIOR_READS) / (span_ms + PRIOR_READS / mean_rate.max(1e-9));
            let by_rate = || {
                let late = (age * rate - 1.0).max(0.0) / 4.0;
                (1.0 / rate, 1.0 / (1.0 + late * late))
            };
            let (in_ms, p) = heat.next_read(now_ms).filter(|_| heat.reads() >= 3).unwrap_or_else(by_rate);
            return Self { in_ms, p, reads: p * rate * horizon_ms, announced: false };
        }
        match heat.written_ms_ago(now_ms) {
            Some(_) if rhythm.is_some_and(Rhythm::is_write_only) => Self::NEVER,
            Some(age) => {
                let (delay, share) = rhythm.and_then(Rhythm::read_back).unwrap_or((UNKNOWN_MS, UNKNOWN_P));
                Self::once(delay, age, share, horizon_ms)
            }
            None => Self { in_ms: 4.0 * UNKNOWN_MS, p: 0.25 * UNKNOWN_P, reads: 0.0, announced: false },
        }
    }
}

impl Foresight {
    /// A plan from given expectations of each range; `None` computes them.
    pub fn plan_knowing(
        devices: &[DeviceView],
        ranges: &[RangeView<'_>],
        limits: &Limits<'_>,
        next: Option<Vec<Next>>,
    ) -> Plan {
        let horizon_ms = limits.horizon_ms as f32;
        let of = |range: &RangeView<'_>| Next::of(&range.heat, range.coming, range.rhythm, limits.now_ms, horizon_ms);
        let next = next.filter(|next| next.len() == ranges.len());
        let next = next.unwrap_or_else(|| ranges.iter().map(of).collect());
        Planning::new(devices, ranges, limits, next).run()
    }
}

impl Policy for Foresight {
    fn name(&self) -> &'static str {
        "foresight"
    }
    fn about(&self) -> &'static str {
        "least expected I/O time of what is coming, learned from rhythms of reads, bursts of writes and access sequences"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        if incoming.durability == Durability::Bypass {
            return place_by_order(devices, incoming);
        }
        let bytes = incoming.bytes;
        let cold = Heat::default();
        let heat = incoming.heat.unwrap_or(&cold);
        let next = match (incoming.heat, incoming.coming) {
            (None, None) => {
                let (delay, share) = incoming.rhythm.and_then(Rhythm::read_back).unwrap_or((UNKNOWN_MS, 0.1));
                Next::once(delay, 0.0, share, PLACE_HORIZON_MS)
            }
            _ => Next::of(heat, incoming.coming, incoming.rhythm, incoming.now_ms, PLACE_HORIZON_MS),
        };
        let read_weight = f64::from(next.p * (-next.in_ms / PLACE_HORIZON_MS).exp());
        let mut best: Option<(&DeviceView, f64)> = None;
        let mut second: Option<(&DeviceView, f64)> = None;
        let mut makes_room: Option<(&DeviceView, f64)> = None;
        for device in devices.iter().filter(|d| incoming.may_use(d)) {
            let cost_ns = device.write_done_ns(bytes) + read_weight * device.speed.read_ns(bytes);
            if !device.below_high_with(bytes) {
                let after =
                    device.used_bytes.saturating_sub(device.evictable_bytes).saturating_add(device.reserved_bytes);
                let cost_ns = cost_ns + MAKE_ROOM_NS;
                if after.saturating_add(bytes) <= device.high_bytes() && makes_room.is_none_or(|(_, ns)| cost_ns < ns) {
                    makes_room = Some((device, cost_ns));
                }
                continue;
            }
            if best.is_none_or(|(_, ns)| cost_ns < ns) {
                second = best;
                best = Some((device, cost_ns));
            } else if second.is_none_or(|(_, ns)| cost_ns < ns) {
                second = Some((device, cost_ns));
            }
        }
        if let Some((device, expected_ns)) = makes_room
            && best.is_none_or(|(_, ns)| expected_ns < 0.5 * ns)
        {
            let instead_ns = best.map_or(f64::INFINITY, |(_, ns)| ns);
            let reason = Reason::FlushFirst { tier: Arc::clone(&device.name), expected_ns, instead_ns };
            return Ok(Decision::Wait { device: device.id, expected_ns: MAKE_ROOM_NS as u64, reason });
        }
        let Some((device, expected_ns)) = best else { return place_by_order(devices, incoming) };
        let (instead, instead_ns) = second.unwrap_or((device, expected_ns));
        let (tier, instead) = (Arc::clone(&device.name), Arc::clone(&instead.name));
        let reason = Reason::Expected { tier, expected_ns, instead, instead_ns };
        Ok(Decision::Place { device: device.id, bytes, reason, past_watermarks: false })
    }
    fn place_copy(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let bytes = incoming.bytes;
        let fits = |d: &&DeviceView| d.takes(true) && !incoming.avoid.contains(&d.id) && d.below_high_with(bytes);
        let done = |d: &DeviceView| d.write_done_ns(bytes);
        let Some(device) = devices.iter().filter(fits).min_by(|one, other| done(one).total_cmp(&done(other))) else {
            return FastFirst.place_copy(devices, incoming);
        };
        let tier = Arc::clone(&device.name);
        let reason =
            Reason::Expected { instead: Arc::clone(&tier), tier, expected_ns: done(device), instead_ns: done(device) };
        Ok(Decision::Place { device: device.id, bytes, reason, past_watermarks: false })
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        Self::plan_knowing(devices, ranges, limits, None)
    }
}

#[cfg(test)]
mod tests;
