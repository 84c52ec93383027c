//! `hot-data`: the hotter a range, the higher its tier (Hermes' policy for workloads with a spectrum from hot to cold).
//!
//! The score is the combined recency and frequency of Lee et al. (LRFU, IEEE ToC 2001): `S = Σ 2^(-age / half life)` over
//! all accesses. Ranges sorted by score fill the tiers from the top, each up to its high watermark: the score where a tier
//! is full is its threshold. A range moves if it is on the wrong side of a threshold by a quarter, so that nothing swings.

use std::sync::Arc;

use super::fast_first::{place_by_order, relieve, way_out};
use crate::place::Refusal;
use crate::view::order;
use crate::{Action, Decision, DeviceView, Incoming, Limits, Plan, Planned, Policy, RangeView, Reason};

/// A range moves if its score is this many times the threshold.
const MARGIN: f32 = 1.25;
/// New bytes whose neighbours have a lower score than this leave the fastest tier to others.
const COLD: f32 = 0.1;

/// The policy `hot-data`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HotData;

impl Policy for HotData {
    fn name(&self) -> &'static str {
        "hot-data"
    }
    fn about(&self) -> &'static str {
        "what is read and written most and last is on the fastest tier, by a score that halves every half minute"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        let score = incoming.heat.map(|heat| heat.score(incoming.now_ms));
        if let Some(score) = score.filter(|score| *score < COLD) {
            let tiers = order(devices);
            let fits = |d: &&&DeviceView| incoming.may_use(d) && d.below_high_with(incoming.bytes);
            if let Some(device) = tiers.iter().skip(1).find(fits) {
                let reason = Reason::Heat { tier: Arc::clone(&device.name), score, from_score: 0.0 };
                let (device, bytes) = (device.id, incoming.bytes);
                return Ok(Decision::Place { device, bytes, reason, past_watermarks: false });
            }
        }
        place_by_order(devices, incoming)
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        let scores: Vec<f32> = ranges.iter().map(|range| range.heat.score(limits.now_ms)).collect();
        // Positive floats are in the order of their bits.
        let mut plan = relieve(devices, ranges, limits, |range| range.heat.score(limits.now_ms).to_bits());
        if limits.room_only {
            return plan;
        }
        let tiers = order(devices);
        let mut moved = vec![false; ranges.len()];
        for planned in &plan.moves {
            moved[planned.range] = true;
        }
        let mut room: Vec<u64> = tiers.iter().map(|d| if d.is_online() { d.room_bytes() } else { 0 }).collect();
        let tier_of = |range: &RangeView<'_>| tiers.iter().position(|d| d.id == range.device);
        let mut hottest: Vec<usize> = (0..ranges.len()).filter(|i| !moved[*i] && !ranges[*i].is_pinned).collect();
        hottest.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]));
        let mut bytes_left = limits.bytes_max;
        for to in 0..tiers.len().saturating_sub(1) {
            if !tiers[to].is_online() {
                continue;
            }
            let threshold = threshold(&hottest, ranges, &scores, tiers[to].high_bytes(), &tiers[..to]);
            let mut coldest = hottest.iter().rev().filter(|i| ranges[**i].device == tiers[to].id).peekable();
            for &i in &hottest {
                let range = &ranges[i];
                if scores[i] <= threshold * MARGIN || bytes_left < range.bytes || plan.moves.len() >= limits.moves_max {
                    break;
                }
                let Some(at) = tier_of(range).filter(|at| *at > to && !moved[i]) else { continue };
                while room[to] < range.bytes {
                    let Some(victim) = coldest.next_if(|v| scores[**v] * MARGIN < scores[i]).copied() else { break };
                    if moved[victim] {
                        continue;
                    }
                    let Some((action, cost_ns)) = way_out(&tiers, &mut room, to, &ranges[victim]) else { break };
                    moved[victim] = true;
                    room[to] += ranges[victim].bytes;
                    let tier = Arc::clone(&tiers[to].name);
                    let reason = Reason::Heat { tier, score: scores[victim], from_score: threshold };
                    plan.moves.push(Planned { range: victim, action, gain_ns: 0.0, cost_ns, reason });
                }
                if room[to] < range.bytes {
                    break;
                }
                moved[i] = true;
                room[to] -= range.bytes;
                bytes_left -= range.bytes;
                let gain_ns = tiers[at].speed.read_ns(range.bytes) - tiers[to].speed.read_ns(range.bytes);
                let cost_ns = tiers[at].speed.read_ns(range.bytes) + tiers[to].speed.write_ns(range.bytes);
                let tier = Arc::clone(&tiers[to].name);
                let reason = Reason::Heat { tier, score: scores[i], from_score: threshold };
                let action = Action::Promote(tiers[to].id);
                plan.moves.push(Planned { range: i, action, gain_ns, cost_ns, reason });
            }
        }
        plan
    }
}

/// Score of the coldest range that still fits if the hottest ranges fill the tiers above and then this one of `bytes`
/// bytes.
fn threshold(hottest: &[usize], ranges: &[RangeView<'_>], scores: &[f32], bytes: u64, above: &[&DeviceView]) -> f32 {
    let mut left = bytes.saturating_add(above.iter().map(|d| d.high_bytes()).sum());
    for &i in hottest {
        if left < ranges[i].bytes {
            return scores[i];
        }
        left -= ranges[i].bytes;
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Heat;
    use crate::testing::{devices, range};

    #[test]
    fn the_hottest_go_up_in_the_place_of_the_coldest_and_then_nothing_swings() {
        let mut devices = devices();
        let mib = 1 << 20;
        let in_memory = devices[0].high_bytes() / mib;
        devices[0].used_bytes = in_memory * mib;
        devices[2].used_bytes = 60 * mib;
        let mut ranges: Vec<_> = (0..in_memory).map(|i| range(u128::from(i), mib, devices[0].id)).collect();
        ranges.extend((0..60).map(|i| range(1000 + i, mib, devices[2].id)));
        for (i, range) in ranges.iter_mut().enumerate() {
            range.copy = Some(devices[3].id);
            let reads = if i % 5 == 0 { 10 } else { 1 };
            (0..reads).for_each(|k| range.heat.read(k * 100, mib));
        }
        let limits = Limits { now_ms: 2_000, ..Limits::default() };
        let plan = HotData.plan(&devices, &ranges, &limits);
        crate::check_plan(&plan, &devices, &ranges).unwrap();
        let up: Vec<_> = plan.moves.iter().filter(|m| m.action == Action::Promote(devices[0].id)).collect();
        assert!(up.len() >= 10 && up.iter().all(|m| ranges[m.range].heat.reads() == 10), "{}", up.len());
        assert!(plan.moves.iter().any(|m| m.action == Action::Evict && ranges[m.range].heat.reads() == 1));
        for planned in &plan.moves {
            match planned.action {
                Action::Promote(to) => ranges[planned.range].device = to,
                _ => ranges[planned.range].device = devices[3].id,
            }
        }
        let again = HotData.plan(&devices, &ranges, &limits);
        assert!(again.moves.iter().all(|m| m.action != Action::Evict), "swings: {:?}", again.moves);
    }

    #[test]
    fn what_is_known_to_be_cold_leaves_the_top_to_others() {
        let devices = devices();
        let mut heat = Heat::default();
        heat.write(0, 1);
        let place = |now_ms| {
            let incoming =
                Incoming { heat: Some(&heat), now_ms, ..Incoming::new(cenote_model::Durability::Async, 4096) };
            HotData.place(&devices, &incoming).unwrap().device()
        };
        assert_eq!(place(1_000), devices[0].id);
        assert_eq!(place(600_000), devices[1].id);
    }
}
