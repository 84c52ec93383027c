//! Promotion of recently read bytes: the rule of policies that do not look ahead.

use std::sync::Arc;

use super::fast_first::way_out;
use crate::view::order;
use crate::{Action, DeviceView, Limits, Plan, Planned, RangeView, Reason};

/// Bytes read within this many milliseconds are recent.
const RECENT_MS: u64 = 1_000;

/// Adds promotions to a plan: recently read ranges go up to the fastest tier, in the place of the least recently used
/// ranges there, as far as those can leave without I/O.
pub(crate) fn promote_recent(devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>, plan: &mut Plan) {
    if limits.room_only {
        return;
    }
    let tiers = order(devices);
    let Some(top) = tiers.iter().position(|device| device.is_online()) else { return };
    let top_id = tiers[top].id;
    let mut room: Vec<u64> = tiers.iter().map(|d| if d.is_online() { d.room_bytes() } else { 0 }).collect();
    let idle = |i: &usize| ranges[*i].heat.idle_ms(limits.now_ms).unwrap_or(u64::MAX);
    let recent = |i: &usize| idle(i) <= RECENT_MS && ranges[*i].heat.was_read();
    let mut moved = vec![false; ranges.len()];
    for planned in &plan.moves {
        moved[planned.range] = true;
    }
    let free = |i: &usize| !moved[*i] && !ranges[*i].is_pinned;
    let mut up: Vec<usize> =
        (0..ranges.len()).filter(free).filter(|i| ranges[*i].device != top_id && recent(i)).collect();
    up.sort_by_key(idle);
    let mut out: Vec<usize> =
        (0..ranges.len()).filter(free).filter(|i| ranges[*i].device == top_id && ranges[*i].copy.is_some()).collect();
    out.sort_by_key(idle); // the oldest is the last
    let mut bytes_left = limits.bytes_max;
    for i in up {
        let range = &ranges[i];
        while room[top] < range.bytes {
            let Some(victim) = out.pop_if(|victim| idle(victim) > idle(&i)) else { break };
            let Some((action, cost_ns)) = way_out(&tiers, &mut room, top, &ranges[victim]) else { break };
            room[top] += ranges[victim].bytes;
            let reason = Reason::leaves(tiers[top], idle(&victim), true);
            plan.moves.push(Planned { range: victim, action, gain_ns: 0.0, cost_ns, reason });
        }
        if room[top] < range.bytes || bytes_left < range.bytes || plan.moves.len() >= limits.moves_max {
            return;
        }
        let Some(here) = tiers.iter().find(|device| device.id == range.device) else { continue };
        room[top] -= range.bytes;
        bytes_left -= range.bytes;
        let gain_ns = here.speed.read_ns(range.bytes) - tiers[top].speed.read_ns(range.bytes);
        let cost_ns = here.speed.read_ns(range.bytes) + tiers[top].speed.write_ns(range.bytes);
        let reason = Reason::ReadSoon { tier: Arc::clone(&tiers[top].name), reads: 1.0, in_ms: None };
        plan.moves.push(Planned { range: i, action: Action::Promote(top_id), gain_ns, cost_ns, reason });
    }
}
