//! Planning of `foresight`: which ranges leave, which come, and in whose place.

use std::sync::Arc;

use cenote_model::Durability;

use super::Next;
use crate::policies::fast_first::way_out;
use crate::view::order;
use crate::{Action, DeviceView, Limits, Plan, Planned, RangeView, Reason};

/// A range must be worth this many times as much as the range that it displaces.
const MARGIN: f32 = 1.5;
/// Confidence from which a burst is prepared for.
const BURST_CONFIDENCE: f32 = 0.4;
/// A range that leaves for a prefetch has to come back, which costs at least this share of its time.
const PREFETCH_BUSY_MIN: f32 = 0.1;
/// Movement is never free: it takes at least this share of its time from the foreground.
const BUSY_MIN: f32 = 0.2;
/// Devices busier than this are not drained ahead.
const BUSY_TO_DRAIN: f32 = 0.5;
/// Ranges with fewer expected reads in the horizon count as cold.
const COLD_READS: f32 = 0.1;
/// Upper bound of the ranges that leave one tier ahead of a burst in one plan.
const DRAIN_MAX: usize = 16;
/// Upper bound of the moves with I/O in one plan: the next plan knows more.
const COSTLY_MAX: usize = 64;

/// A plan under construction.
pub(super) struct Planning<'a> {
    tiers: Vec<&'a DeviceView>,
    ranges: &'a [RangeView<'a>],
    limits: &'a Limits<'a>,
    /// For each range: time and probability of the next read, and reads in the horizon.
    next: Vec<Next>,
    /// For each range: its tier.
    at: Vec<usize>,
    room: Vec<u64>,
    /// For each range: the tier where it belongs.
    home: Vec<usize>,
    /// For each tier: the ranges that do not belong there, the least valuable last.
    guests: Vec<Vec<usize>>,
    moved: Vec<bool>,
    bytes_left: u64,
    costly: usize,
    plan: Plan,
}

impl<'a> Planning<'a> {
    pub fn new(
        devices: &'a [DeviceView],
        ranges: &'a [RangeView<'a>],
        limits: &'a Limits<'a>,
        next: Vec<Next>,
    ) -> Self {
        let tiers = order(devices);
        let at =
            ranges.iter().map(|range| tiers.iter().position(|d| d.id == range.device).unwrap_or(usize::MAX)).collect();
        let room = tiers.iter().map(|d| if d.takes(false) || d.is_cache { d.room_bytes() } else { 0 }).collect();
        Self {
            tiers,
            ranges,
            limits,
            next,
            at,
            room,
            home: Vec::new(),
            guests: Vec::new(),
            moved: vec![false; ranges.len()],
            bytes_left: limits.bytes_max,
            costly: 0,
            plan: Plan::default(),
        }
    }

    pub fn run(mut self) -> Plan {
        for tier in 0..self.tiers.len() {
            self.relieve(tier);
        }
        if self.limits.room_only {
            return self.finish();
        }
        self.prepare_for_burst();
        self.drain_ahead();
        self.assign();
        let leave = self.plan.moves.len();
        for tier in 0..self.tiers.len().saturating_sub(1) {
            if self.tiers[tier].is_online() {
                self.prefetch(tier);
                self.fill(tier);
            }
        }
        // First the moves that make room, then those with the largest gain per time.
        let rate = |planned: &Planned| match planned.action {
            Action::Promote(_) => planned.gain_ns / self.ranges[planned.range].bytes.max(1) as f64,
            _ => f64::INFINITY,
        };
        self.plan.moves[leave..].sort_by(|one, other| rate(other).total_cmp(&rate(one)));
        self.finish()
    }

    fn finish(mut self) -> Plan {
        if let Some(first) = self.plan.moves.first() {
            self.plan.reason = first.reason.clone();
        }
        self.plan
    }

    /// Time that a read of the range takes elsewhere, minus the time on this tier, in ns.
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
    /// Value of a place on one tier rather than on another, per byte.
    fn value_against(&self, i: usize, tier: usize, other: usize) -> f32 {
        let range = &self.ranges[i];
        let ns = self.tiers[other].speed.read_ns(range.bytes) - self.tiers[tier].speed.read_ns(range.bytes);
        self.next[i].reads * (ns / range.bytes.max(1) as f64) as f32
    }
    /// Value of the range's place on the tier, per byte.
    fn value(&self, i: usize, tier: usize) -> f32 {
        let next = &self.next[i];
        let reads = next.reads.max(if next.announced { next.p } else { 0.0 });
        reads * (self.saving_ns(i, tier) / self.ranges[i].bytes.max(1) as f64) as f32
    }
    fn may_move(&self, i: usize) -> bool {
        !self.moved[i] && !self.ranges[i].is_pinned && self.ranges[i].bytes > 0 && self.at[i] != usize::MAX
    }
    fn idle_ms(&self, i: usize) -> u64 {
        self.ranges[i].heat.idle_ms(self.limits.now_ms).unwrap_or(0)
    }

    /// Assigns each range to a tier by the value of its place, tier after tier. Ranges that are there already have a
    /// bonus, so that nothing swings.
    fn assign(&mut self) {
        let last = self.tiers.len().saturating_sub(1);
        self.home = self.at.clone();
        let mut left: Vec<usize> = (0..self.ranges.len()).filter(|i| self.may_move(*i)).collect();
        for tier in 0..last {
            if !self.tiers[tier].is_online() {
                continue;
            }
            let here = left.iter().filter(|i| self.at[**i] == tier).map(|i| self.ranges[*i].bytes).sum::<u64>();
            let mut room = self.room[tier] + here;
            let worth = |i: usize| {
                let bonus = if self.at[i] <= tier { MARGIN } else { 1.0 };
                self.value_against(i, tier, last) * bonus
            };
            let mut order: Vec<(f32, usize)> = left.iter().map(|i| (worth(*i), *i)).collect();
            order.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
            left.clear();
            for (value, i) in order {
                let bytes = self.ranges[i].bytes;
                if bytes <= room && (value > 0.0 || self.at[i] == tier) {
                    room -= bytes;
                    self.home[i] = tier;
                } else {
                    left.push(i);
                }
            }
        }
        for i in left {
            self.home[i] = self.home[i].max(last);
        }
        // Ranges that do not belong to a tier, the least valuable last.
        self.guests = (0..self.tiers.len())
            .map(|tier| {
                let guest = |i: &usize| self.at[*i] == tier && self.home[*i] > tier && self.may_move(*i);
                let mut guests: Vec<(f32, usize)> =
                    (0..self.ranges.len()).filter(guest).map(|i| (self.value(i, tier), i)).collect();
                guests.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
                guests.into_iter().map(|(_, i)| i).collect()
            })
            .collect();
    }

    /// Moves one range off a tier, to where it belongs; returns false if no place can take it.
    fn leave(&mut self, i: usize, tier: usize, reason: Reason) -> bool {
        if self.moved[i] {
            return false; // it has made room for another one
        }
        let range = self.ranges[i];
        let is_copy = self.at[i] != tier;
        let below = range.copy.and_then(|copy| self.tiers.iter().position(|d| d.id == copy));
        let home = self.home.get(i).copied().unwrap_or(usize::MAX);
        let free = range.copy.is_some() && !is_copy;
        let may_cost = !free && range.durability != Durability::Scratch;
        if may_cost && (self.bytes_left < range.bytes || self.costly >= COSTLY_MAX) {
            return false;
        }
        // Between this tier and its copy, if it is worth a place there.
        let between = below.is_some_and(|below| home > tier && home < below) && free && !self.is_over();
        let persistent = || self.tiers[home].takes(range.durability != Durability::Scratch);
        let (action, cost_ns) = if between && persistent() && self.make_room(home, range.bytes) {
            self.room[home] -= range.bytes;
            let cost_ns = self.tiers[tier].speed.read_ns(range.bytes) + self.tiers[home].speed.write_ns(range.bytes);
            (Action::Demote(self.tiers[home].id), cost_ns)
        } else {
            let Some(way) = way_out(&self.tiers, &mut self.room, tier, &range) else { return false };
            way
        };
        if cost_ns > 0.0 {
            self.bytes_left = self.bytes_left.saturating_sub(range.bytes);
            self.costly += 1;
        }
        self.room[tier] += range.bytes;
        self.moved[i] = true;
        let gain_ns = -f64::from(self.next[i].reads) * self.saving_ns(i, tier);
        self.plan.moves.push(Planned { range: i, action, gain_ns, cost_ns, reason });
        true
    }

    /// Moves the least valuable ranges off a tier that is too full or being emptied.
    fn relieve(&mut self, tier: usize) {
        let device = self.tiers[tier];
        let mut excess = self.limits.to_leave_bytes(device);
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

    /// Makes room on the top tier for the expected burst, as far as the ranges there are worth less.
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
        let claim = confidence * saving as f32;
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
                continue; // its copy is being written anyway
            }
            let reason = Reason::Reserve { tier: Arc::clone(&top.name), bytes, in_ms };
            self.leave(i, 0, reason);
        }
        // Room reserved for the burst is not available to others.
        self.room[0] = self.room[0].saturating_sub(wanted);
    }

    /// Makes room for two bursts on all but the lowest tier while devices are idle, by moving ranges that will hardly
    /// be read. Otherwise writes would wait for that work when all but the lowest tier are full.
    fn drain_ahead(&mut self) {
        let Some(burst) = self.limits.rhythm.and_then(|rhythm| rhythm.room_bytes(self.limits.now_ms)) else { return };
        for tier in 0..self.tiers.len().saturating_sub(1) {
            let (device, below) = (self.tiers[tier], self.tiers[tier + 1]);
            let wanted = (2 * burst).min(device.high_bytes() / 2);
            if !device.is_online() || self.room[tier] >= wanted || device.busy.max(below.busy) > BUSY_TO_DRAIN {
                continue;
            }
            let here = |i: &usize| self.at[*i] == tier || self.ranges[*i].copy == Some(device.id);
            // On the top tier, bytes that must be persistent are copied anyway, and later leave without I/O.
            let stays = |i: &usize| tier == 0 && self.ranges[*i].durability != Durability::Scratch;
            let cold = |i: &usize| self.next[*i].reads < COLD_READS && !self.next[*i].announced && !stays(i);
            let mut order: Vec<(f32, usize)> = (0..self.ranges.len())
                .filter(|i| self.may_move(*i) && here(i) && cold(i))
                .map(|i| (self.next[i].reads, i))
                .collect();
            order.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
            for (_, i) in order.into_iter().take(DRAIN_MAX) {
                if self.room[tier] >= wanted || self.is_over() {
                    break;
                }
                let reason = Reason::Reserve { tier: Arc::clone(&device.name), bytes: 2 * burst, in_ms: 0 };
                self.leave(i, tier, reason);
            }
        }
    }

    /// Time that moving the range to the tier takes from the foreground.
    fn taken_ns(&self, i: usize, tier: usize) -> f64 {
        let (from, to) = (self.tiers[self.at[i]], self.tiers[tier]);
        let bytes = self.ranges[i].bytes;
        let busy = |device: &DeviceView| f64::from(device.busy.max(BUSY_MIN));
        busy(from) * from.speed.read_ns(bytes) + busy(to) * to.speed.write_ns(bytes)
    }
    fn is_over(&self) -> bool {
        self.costly >= COSTLY_MAX || self.plan.moves.len() >= self.limits.moves_max
    }
    fn promote(&mut self, i: usize, tier: usize, gain_ns: f64, cost_ns: f64) {
        let (range, next) = (&self.ranges[i], self.next[i]);
        self.room[tier] -= range.bytes;
        self.bytes_left -= range.bytes;
        self.costly += 1;
        self.moved[i] = true;
        let to = self.tiers[tier];
        let in_ms = (next.in_ms < 1e9).then_some(next.in_ms as u64);
        let reads = if next.announced { next.p } else { next.reads };
        let reason = Reason::ReadSoon { tier: Arc::clone(&to.name), reads, in_ms };
        self.plan.moves.push(Planned { range: i, action: Action::Promote(to.id), gain_ns, cost_ns, reason });
    }

    /// Promotes ranges that prefetchers have announced, soonest first, in the place of ranges that are read much later.
    fn prefetch(&mut self, tier: usize) {
        let mut up: Vec<usize> = (0..self.ranges.len())
            .filter(|i| self.next[*i].announced && self.at[*i] > tier && self.may_move(*i))
            .collect();
        if up.is_empty() {
            return;
        }
        up.sort_unstable_by(|one, other| self.next[*one].in_ms.total_cmp(&self.next[*other].in_ms));
        // Ranges that can leave for it without I/O: the one with the latest next read.
        let mut out: Vec<usize> = (0..self.ranges.len())
            .filter(|i| self.at[*i] == tier && self.may_move(*i) && self.ranges[*i].copy.is_some())
            .collect();
        let later = |next: &Next| next.in_ms / next.p.max(1e-3);
        out.sort_unstable_by(|one, other| later(&self.next[*one]).total_cmp(&later(&self.next[*other])));
        let mut lead_ns = vec![0.0; self.tiers.len()];
        for i in up {
            let (range, next) = (&self.ranges[i], self.next[i]);
            if self.moved[i] {
                continue;
            }
            if self.is_over() || range.bytes > self.bytes_left {
                return;
            }
            let (from, to) = (self.tiers[self.at[i]], self.tiers[tier]);
            let fetch_ns = from.speed.read_ns(range.bytes) + to.speed.write_ns(range.bytes);
            if f64::from(next.in_ms) * 1e6 < 0.5 * lead_ns[self.at[i]] {
                continue; // it is read before it could be here
            }
            let gain_ns = f64::from(next.p) * self.saving_ns(i, tier);
            let mut cost_ns = f64::from(1.0 - next.p) * fetch_ns * f64::from(from.busy);
            while self.room[tier] < range.bytes {
                let Some(victim) = out.pop() else { return };
                let theirs = self.next[victim];
                if later(&theirs) < 2.0 * next.in_ms + (2.0 * fetch_ns / 1e6) as f32 {
                    return; // they are read as soon
                }
                // The displaced range may have to come back.
                let back_ns = f64::from(theirs.reads.min(1.0)) * self.saving_ns(victim, tier);
                cost_ns += f64::from(from.busy.max(PREFETCH_BUSY_MIN)) * back_ns;
                if gain_ns <= cost_ns {
                    return;
                }
                let tier_name = Arc::clone(&to.name);
                let reason = Reason::LessUse { tier: tier_name, reads: theirs.reads, idle_ms: self.idle_ms(victim) };
                self.leave(victim, tier, reason);
            }
            if gain_ns <= cost_ns || self.moved[i] {
                continue;
            }
            lead_ns[self.at[i]] += fetch_ns;
            self.promote(i, tier, gain_ns, cost_ns);
        }
    }

    /// Promotes ranges that belong on a tier, in the place of ranges that do not.
    fn fill(&mut self, tier: usize) {
        let belongs = |i: &usize| self.home[*i] == tier && self.at[*i] > tier && self.may_move(*i);
        let mut up: Vec<(f32, usize)> =
            (0..self.ranges.len()).filter(belongs).map(|i| (self.value(i, tier), i)).collect();
        up.sort_unstable_by(|one, other| other.0.total_cmp(&one.0));
        for (value, i) in up {
            if self.is_over() {
                return;
            }
            let bytes = self.ranges[i].bytes;
            let gain_ns = f64::from(value) * bytes as f64;
            let cost_ns = self.taken_ns(i, tier);
            if gain_ns <= cost_ns * f64::from(MARGIN) || bytes > self.bytes_left || self.moved[i] {
                continue;
            }
            if self.make_room(tier, bytes) && !self.moved[i] {
                self.promote(i, tier, gain_ns, cost_ns);
            }
        }
    }

    /// Moves ranges off a tier where they do not belong, until there is room.
    fn make_room(&mut self, tier: usize, bytes: u64) -> bool {
        while self.room[tier] < bytes {
            let Some(victim) = self.guests.get_mut(tier).and_then(Vec::pop) else { return false };
            if self.moved[victim] {
                continue;
            }
            let theirs = self.next[victim].reads;
            let name = Arc::clone(&self.tiers[tier].name);
            let reason = Reason::LessUse { tier: name, reads: theirs, idle_ms: self.idle_ms(victim) };
            if !self.leave(victim, tier, reason) && self.is_over() {
                return false;
            }
        }
        true
    }
}
