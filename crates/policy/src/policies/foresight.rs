//! `foresight`: the least expected I/O time of what is coming, from what has been seen.
//!
//! *Which bytes are where.* Of each range the next read is expected in `t` with probability `p`: from the stream's
//! prefetcher; else from the rhythm of its own reads; else from what became of other ranges of its container (how long after
//! a write the first read comes, what share is read again). Its place on tier i is worth, per byte and unit of time,
//!
//! `v = p · (read(where else) - read(i)) / bytes / t`,
//!
//! which for certain times is Belady's order (soonest next use first), for random ones that by rates, and in both weighs what
//! a miss costs (GreedyDual-Size-Frequency: Cherkasova 1998). A tier is filled by `v`. A range goes up if
//! `p · (read(here) - read(i)) > (1 - idle) · (1 - p) · (read(here) + write(i))`, and who leaves is worth less by a margin.
//! Writes that the rhythm of bursts announces claim room in the same way: `v = p · (write(below) - write(top)) / bytes / t`.
//!
//! *Where new bytes go.* To the tier where they are soonest complete, queues included, so that all layers are at work when
//! the top is full: `min over i of queue(i) + write(i) + p · read(i) · e^(-t / horizon)`; or they wait, if room without I/O is there.

use std::sync::Arc;

use cenote_model::Durability;

use super::fast_first::{place_by_order, way_out};
use crate::drain::excess_bytes;
use crate::place::Refusal;
use crate::view::tier_order;
use crate::{
    Action, Coming, Decision, DeviceView, Heat, Incoming, Limits, Plan, Planned, Policy, RangeView, Reason, Rhythm,
};

/// Who takes another's place is worth so many times as much.
const MARGIN: f32 = 1.3;
/// A read sooner than this is as urgent as one at this time.
const SOON_MS: f32 = 1.0;
/// Of what nothing is known: the next read is expected after so long…
const UNKNOWN_MS: f32 = 20_000.0;
/// …with this probability.
const UNKNOWN_P: f32 = 0.5;
/// A burst is prepared for when it is so sure.
const BURST_CONFIDENCE: f32 = 0.4;
/// Moves of one plan that cost I/O, at most: the next plan knows more.
const COSTLY_MAX: usize = 64;

/// The policy `foresight`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Foresight;

/// When a range is expected to be read, and how probably at all.
fn next_read(heat: &Heat, coming: Option<Coming>, rhythm: Option<&Rhythm>, now_ms: u64) -> (f32, f32) {
    let never = (f32::MAX, 0.0);
    let seen = match heat.next_read(now_ms) {
        Some(known) => known,
        None if heat.was_read() => {
            let (interval, share) = rhythm.and_then(Rhythm::read_again).unwrap_or((UNKNOWN_MS, UNKNOWN_P));
            let age = heat.read_ms_ago(now_ms).unwrap_or(0.0);
            if share <= 0.0 { never } else { wait(interval, age, share) }
        }
        None => match heat.written_ms_ago(now_ms) {
            Some(_) if rhythm.is_some_and(Rhythm::is_write_only) => never,
            Some(age) => {
                let (delay, share) = rhythm.and_then(Rhythm::read_back).unwrap_or((UNKNOWN_MS, UNKNOWN_P));
                wait(delay, age, share)
            }
            None => (4.0 * UNKNOWN_MS, 0.25 * UNKNOWN_P),
        },
    };
    match coming {
        // Who is certain need not be weighed against anything.
        Some(coming) if coming.confidence >= 1.0 => {
            if coming.in_ms == u32::MAX {
                never
            } else {
                (coming.in_ms as f32, 1.0)
            }
        }
        Some(coming) if worth((coming.in_ms as f32, coming.confidence)) > worth(seen) => {
            (coming.in_ms as f32, coming.confidence)
        }
        _ => seen,
    }
}

/// A time that is expected once, seen after some of it is over; who is late is ever less probable.
fn wait(expected_ms: f32, age_ms: f32, share: f32) -> (f32, f32) {
    let late = (age_ms / expected_ms.max(1.0) - 1.0).max(0.0);
    let left = if late > 0.0 { age_ms } else { expected_ms - age_ms };
    (left.max(0.0), share / (1.0 + late * late))
}

fn worth((in_ms, p): (f32, f32)) -> f32 {
    p / in_ms.max(SOON_MS)
}

/// The devices in order of tiers, without allocation for a sort of references of many.
fn tiers_of(devices: &[DeviceView]) -> Vec<&DeviceView> {
    let mut tiers: Vec<&DeviceView> = devices.iter().collect();
    tiers.sort_unstable_by(|one, other| tier_order(one, other));
    tiers
}

impl Policy for Foresight {
    fn name(&self) -> &'static str {
        "foresight"
    }
    fn about(&self) -> &'static str {
        "least expected I/O time of what is coming, learned from rhythms of reads, bursts of writes and streams"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        if incoming.durability == Durability::Bypass {
            return place_by_order(devices, incoming);
        }
        let bytes = incoming.bytes;
        let cold = Heat::default();
        let heat = incoming.heat.unwrap_or(&cold);
        let (in_ms, p) = match (incoming.heat, incoming.coming) {
            (None, None) => {
                let (delay, share) = incoming.rhythm.and_then(Rhythm::read_back).unwrap_or((UNKNOWN_MS, 0.1));
                (delay, share)
            }
            _ => next_read(heat, incoming.coming, incoming.rhythm, incoming.now_ms),
        };
        let read_weight = f64::from(p * (-in_ms / 10_000.0).exp());
        let mut best: Option<(&DeviceView, f64)> = None;
        let mut second: Option<(&DeviceView, f64)> = None;
        let mut makes_room: Option<(&DeviceView, f64)> = None;
        for device in devices.iter().filter(|d| incoming.may_use(d)) {
            let cost_ns = device.write_done_ns(bytes) + read_weight * device.speed.read_ns(bytes);
            if !device.below_high_with(bytes) {
                let after =
                    device.used_bytes.saturating_sub(device.evictable_bytes).saturating_add(device.reserved_bytes);
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
            return Ok(Decision::Wait { device: device.id, expected_ns: 0, reason });
        }
        let Some((device, expected_ns)) = best else { return place_by_order(devices, incoming) };
        let (instead, instead_ns) = second.unwrap_or((device, expected_ns));
        let (tier, instead) = (Arc::clone(&device.name), Arc::clone(&instead.name));
        let reason = Reason::Expected { tier, expected_ns, instead, instead_ns };
        Ok(Decision::Place { device: device.id, bytes, reason, past_watermarks: false })
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        Planning::new(devices, ranges, limits).run()
    }
}

/// A plan in the making.
struct Planning<'a> {
    tiers: Vec<&'a DeviceView>,
    ranges: &'a [RangeView<'a>],
    limits: &'a Limits<'a>,
    /// Of each range: when it is read next, and how probably.
    next: Vec<(f32, f32)>,
    /// Of each range: its tier.
    at: Vec<usize>,
    room: Vec<u64>,
    moved: Vec<bool>,
    bytes_left: u64,
    costly: usize,
    plan: Plan,
}

impl<'a> Planning<'a> {
    fn new(devices: &'a [DeviceView], ranges: &'a [RangeView<'a>], limits: &'a Limits<'a>) -> Self {
        let tiers = tiers_of(devices);
        let at =
            ranges.iter().map(|range| tiers.iter().position(|d| d.id == range.device).unwrap_or(usize::MAX)).collect();
        let next =
            ranges.iter().map(|range| next_read(&range.heat, range.coming, range.rhythm, limits.now_ms)).collect();
        let room = tiers.iter().map(|d| if d.takes(false) || d.is_cache { d.room_bytes() } else { 0 }).collect();
        Self {
            tiers,
            ranges,
            limits,
            next,
            at,
            room,
            moved: vec![false; ranges.len()],
            bytes_left: limits.bytes_max,
            costly: 0,
            plan: Plan::default(),
        }
    }

    fn run(mut self) -> Plan {
        for tier in 0..self.tiers.len() {
            self.relieve(tier);
        }
        self.prepare_for_burst();
        for tier in 0..self.tiers.len().saturating_sub(1) {
            if self.tiers[tier].is_online() {
                self.fill(tier);
            }
        }
        if let Some(first) = self.plan.moves.first() {
            self.plan.reason = first.reason.clone();
        }
        self.plan
    }

    /// What a read of the range costs if it is not on this tier, less what it costs there, in ns.
    fn saving_ns(&self, i: usize, tier: usize) -> f64 {
        let range = &self.ranges[i];
        let below = if self.at[i] == tier {
            let copy = range.copy.and_then(|copy| self.tiers.iter().position(|d| d.id == copy));
            copy.unwrap_or((tier + 1).min(self.tiers.len() - 1))
        } else {
            self.at[i]
        };
        let below = self.tiers.get(below).unwrap_or(&self.tiers[tier]);
        (below.speed.read_ns(range.bytes) - self.tiers[tier].speed.read_ns(range.bytes)).max(0.0)
    }
    /// Worth of the range's place on the tier, per byte and time.
    fn value(&self, i: usize, tier: usize) -> f32 {
        worth(self.next[i]) * (self.saving_ns(i, tier) / self.ranges[i].bytes.max(1) as f64) as f32
    }
    fn may_move(&self, i: usize) -> bool {
        !self.moved[i] && !self.ranges[i].is_pinned && self.ranges[i].bytes > 0 && self.at[i] != usize::MAX
    }
    fn idle_ms(&self, i: usize) -> u64 {
        self.ranges[i].heat.idle_ms(self.limits.now_ms).unwrap_or(0)
    }

    /// Moves one range off a tier; false if it has nowhere to go.
    fn leave(&mut self, i: usize, tier: usize, reason: Reason) -> bool {
        let range = &self.ranges[i];
        let is_copy = self.at[i] != tier;
        let free = range.copy.is_some() && !is_copy;
        if !free && (self.bytes_left < range.bytes || self.costly >= COSTLY_MAX) {
            return false;
        }
        let Some((action, cost_ns)) = way_out(&self.tiers, &mut self.room, tier, range) else { return false };
        if action != Action::Evict {
            self.bytes_left -= range.bytes;
            self.costly += 1;
        }
        self.room[tier] += range.bytes;
        self.moved[i] = true;
        let gain_ns = -f64::from(self.next[i].1) * self.saving_ns(i, tier);
        self.plan.moves.push(Planned { range: i, action, gain_ns, cost_ns, reason });
        true
    }

    /// What must leave a tier that is too full or is being emptied: what is worth least.
    fn relieve(&mut self, tier: usize) {
        let device = self.tiers[tier];
        let mut excess = excess_bytes(device);
        if excess == 0 {
            return;
        }
        let emptied = !device.is_online();
        let here = |i: &usize| {
            (self.at[*i] == tier || self.ranges[*i].copy == Some(device.id))
                && !self.moved[*i]
                && (emptied || self.may_move(*i))
        };
        let mut order: Vec<(f32, usize)> =
            (0..self.ranges.len()).filter(here).map(|i| (self.value(i, tier), i)).collect();
        order.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        for (_, i) in order {
            if excess == 0 || self.plan.moves.len() >= self.limits.moves_max {
                return;
            }
            let reason = Reason::leaves(device, self.idle_ms(i), self.ranges[i].copy.is_some());
            if self.leave(i, tier, reason) {
                excess = excess.saturating_sub(self.ranges[i].bytes);
            }
        }
    }

    /// Room on the top tier for the burst that is expected, as far as what is there is worth less.
    fn prepare_for_burst(&mut self) {
        let now = self.limits.now_ms;
        let Some(rhythm) = self.limits.rhythm else { return };
        let (in_ms, bytes, confidence) = match (rhythm.burst_left_bytes(now), rhythm.next_burst(now)) {
            (Some(left), _) => (0, left, 0.8),
            (None, Some(burst)) => (burst.in_ms, burst.bytes, burst.confidence),
            (None, None) => return,
        };
        if confidence < BURST_CONFIDENCE || in_ms > self.limits.horizon_ms || self.tiers.len() < 2 {
            return;
        }
        let (top, below) = (self.tiers[0], self.tiers[1]);
        let saving = (below.speed.write_ns(1 << 20) - top.speed.write_ns(1 << 20)) / f64::from(1 << 20);
        let claim = confidence / (in_ms as f32).max(SOON_MS) * saving as f32;
        let wanted = bytes.min(top.high_bytes());
        let mut order: Vec<(f32, usize)> = (0..self.ranges.len())
            .filter(|i| self.at[*i] == 0 && self.may_move(*i))
            .map(|i| (self.value(i, 0), i))
            .collect();
        order.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
        for (value, i) in order {
            if self.room[0] >= wanted || value * MARGIN > claim || self.plan.moves.len() >= self.limits.moves_max {
                break;
            }
            let free = self.ranges[i].copy.is_some();
            if !free && self.ranges[i].durability != Durability::Scratch {
                continue; // its copy is under way anyway
            }
            let reason = Reason::Reserve { tier: Arc::clone(&top.name), bytes, in_ms };
            self.leave(i, 0, reason);
        }
        // What is promised to the burst is nobody else's.
        self.room[0] = self.room[0].saturating_sub(wanted);
    }

    /// Promotes to a tier what is worth more there than what it displaces.
    fn fill(&mut self, tier: usize) {
        let below = |i: &usize| self.at[*i] > tier && self.may_move(*i) && self.next[*i].1 > 0.0;
        let mut up: Vec<(f32, usize)> =
            (0..self.ranges.len()).filter(below).map(|i| (self.value(i, tier), i)).collect();
        up.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        let mut out: Vec<(f32, usize)> = (0..self.ranges.len())
            .filter(|i| self.at[*i] == tier && self.may_move(*i))
            .map(|i| (self.value(i, tier), i))
            .collect();
        out.sort_unstable_by(|one, other| other.0.total_cmp(&one.0)); // least worth is last
        let mut lead_ns = vec![0.0; self.tiers.len()];
        for (value, i) in up {
            if self.costly >= COSTLY_MAX || self.plan.moves.len() >= self.limits.moves_max || value <= 0.0 {
                return;
            }
            let range = &self.ranges[i];
            if range.bytes > self.bytes_left {
                continue;
            }
            let (from, to) = (self.tiers[self.at[i]], self.tiers[tier]);
            let (in_ms, p) = self.next[i];
            let fetch_ns = from.speed.read_ns(range.bytes) + to.speed.write_ns(range.bytes);
            let sure = range.coming.is_some_and(|coming| coming.in_ms as f32 <= in_ms);
            if sure && f64::from(in_ms) * 1e6 < lead_ns[self.at[i]] * 0.5 {
                continue; // it is read before it could be here
            }
            let gain_ns = f64::from(p) * self.saving_ns(i, tier);
            let cost_ns = f64::from((1.0 - self.limits.idle) * (1.0 - p)) * fetch_ns;
            if gain_ns <= cost_ns {
                continue;
            }
            if !self.make_room(tier, i, value, &mut out) {
                if out.last().is_none_or(|(least, _)| least * MARGIN >= value) {
                    return; // nor is there for those that are worth less
                }
                continue;
            }
            lead_ns[self.at[i]] += fetch_ns;
            self.room[tier] -= range.bytes;
            self.bytes_left -= range.bytes;
            self.costly += 1;
            self.moved[i] = true;
            let in_ms = (in_ms < 1e9).then_some(in_ms as u64);
            let reason = Reason::ReadSoon { tier: Arc::clone(&to.name), reads: p, in_ms };
            self.plan.moves.push(Planned { range: i, action: Action::Promote(to.id), gain_ns, cost_ns, reason });
        }
    }

    /// Lets ranges leave that are worth less, until there is room for range `i`.
    fn make_room(&mut self, tier: usize, i: usize, value: f32, out: &mut Vec<(f32, usize)>) -> bool {
        while self.room[tier] < self.ranges[i].bytes {
            let Some((least, victim)) = out.pop_if(|(least, _)| *least * MARGIN < value) else { return false };
            let idle_ms = self.idle_ms(victim);
            let reason =
                Reason::LessUse { tier: Arc::clone(&self.tiers[tier].name), reads: self.next[victim].1, idle_ms };
            // What has no copy yet costs I/O to move: only for what is worth much more.
            if self.ranges[victim].copy.is_none() && least * 2.0 * MARGIN > value {
                continue;
            }
            self.leave(victim, tier, reason);
        }
        true
    }
}
