//! `fast-first`: the fastest tier below its high watermark; the coldest bytes leave tiers that are too full.

use std::cmp::Reverse;
use std::sync::Arc;

use cenote_model::Durability;

use crate::place::{Refusal, refusal_for};
use crate::view::{order, tier_order};
use crate::{Action, Decision, DeviceView, Incoming, Limits, Plan, Planned, Policy, RangeView, Reason};

/// The policy `fast-first`.
#[derive(Clone, Copy, Debug, Default)]
pub struct FastFirst;

impl Policy for FastFirst {
    fn name(&self) -> &'static str {
        "fast-first"
    }
    fn about(&self) -> &'static str {
        "new bytes go to the fastest tier below its high watermark; the coldest leave tiers that are too full"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        place_by_order(devices, incoming)
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        relieve(devices, ranges, limits, |range| {
            (Reverse(range.heat.idle_ms(limits.now_ms).unwrap_or(u64::MAX)), range.copy.is_none())
        })
    }
}

/// The first tier in order below its high watermark; else the first with room. Bypass data use the reverse order.
pub(crate) fn place_by_order(devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
    let bypass = incoming.durability == Durability::Bypass;
    let mut best: Option<&DeviceView> = None;
    let mut first: Option<&DeviceView> = None; // in order, with or without room
    let mut roomy: Option<&DeviceView> = None; // the first with any room
    let before = |one: &DeviceView, other: Option<&DeviceView>| {
        other.is_none_or(|other| (tier_order(one, other) == std::cmp::Ordering::Less) != bypass)
    };
    for device in devices.iter().filter(|d| incoming.may_use(d)) {
        if before(device, first) {
            first = Some(device);
        }
        if device.free_bytes() < incoming.bytes {
            continue;
        }
        if before(device, roomy) {
            roomy = Some(device);
        }
        if device.below_high_with(incoming.bytes) && before(device, best) {
            best = Some(device);
        }
    }
    let bytes = incoming.bytes;
    if let (Some(device), Some(first)) = (best, first) {
        let tier = Arc::clone(&device.name);
        let reason = match (bypass, device.id == first.id) {
            (true, _) => Reason::Bypass { tier },
            (_, true) => Reason::First { tier },
            _ => Reason::Spill { tier, above: Arc::clone(&first.name), above_percent: first.use_percent() },
        };
        return Ok(Decision::Place { device: device.id, bytes, reason, past_watermarks: false });
    }
    let device = roomy.ok_or_else(|| refusal_for(devices, incoming))?;
    let reason = Reason::PastWatermarks { tier: Arc::clone(&device.name) };
    Ok(Decision::Place { device: device.id, bytes, reason, past_watermarks: true })
}

/// Plans what has to leave devices that are too full or being emptied: ranges leave in the order of `key`, to the
/// next lower tier with room, or to their copy.
pub(crate) fn relieve<K: Ord>(
    devices: &[DeviceView],
    ranges: &[RangeView<'_>],
    limits: &Limits<'_>,
    key: impl Fn(&RangeView<'_>) -> K,
) -> Plan {
    let mut plan = Plan::default();
    let tiers = order(devices);
    let mut room: Vec<u64> = tiers.iter().map(|d| if d.takes(false) { d.room_bytes() } else { 0 }).collect();
    let mut bytes_left = limits.bytes_max;
    let mut moved = vec![false; ranges.len()];
    for (at, device) in tiers.iter().enumerate() {
        let mut excess = limits.to_leave_bytes(device);
        if excess == 0 {
            continue;
        }
        let emptied = !device.is_online();
        let mut here: Vec<usize> = (0..ranges.len())
            .filter(|i| ranges[*i].device == device.id || ranges[*i].copy == Some(device.id))
            .filter(|i| !moved[*i] && (emptied || !ranges[*i].is_pinned) && ranges[*i].bytes > 0)
            .collect();
        here.sort_by_cached_key(|i| key(&ranges[*i]));
        for i in here {
            let range = &ranges[i];
            if excess == 0 || plan.moves.len() >= limits.moves_max || bytes_left < range.bytes {
                break;
            }
            let idle_ms = range.heat.idle_ms(limits.now_ms).unwrap_or(0);
            let Some((action, cost_ns)) = way_out(&tiers, &mut room, at, range) else { continue };
            moved[i] = true; // it may be read on one full tier and have its copy on another
            excess = excess.saturating_sub(range.bytes);
            bytes_left -= if cost_ns > 0.0 { range.bytes } else { 0 };
            let reason = Reason::leaves(device, idle_ms, range.copy.is_some());
            if plan.moves.is_empty() {
                plan.reason = reason.clone();
            }
            plan.moves.push(Planned { range: i, action, gain_ns: 0.0, cost_ns, reason });
        }
    }
    plan
}

/// How a range leaves the tier at `at`, and the cost: to its copy, or to the next suitable tier with room.
pub(crate) fn way_out(
    tiers: &[&DeviceView],
    room: &mut [u64],
    at: usize,
    range: &RangeView<'_>,
) -> Option<(Action, f64)> {
    let is_copy = range.copy == Some(tiers[at].id);
    if range.copy.is_some() && !is_copy {
        return Some((Action::Evict, 0.0));
    }
    let here = tiers.iter().find(|d| d.id == range.device);
    let is_spare = range.durability == Durability::Scratch || here.is_some_and(|d| d.kind.is_persistent());
    if is_copy && is_spare && here.is_some_and(|d| d.is_online() && !d.is_cache) {
        return Some((Action::DropCopy, 0.0));
    }
    let persistent_only = is_copy || !matches!(range.durability, Durability::Scratch);
    let fits =
        |to: &usize| room[*to] >= range.bytes && tiers[*to].takes(persistent_only) && tiers[*to].id != range.device;
    // Prefer a lower tier; a tier that is to be emptied may have none below it.
    let above = if tiers[at].is_online() { 0 } else { at };
    let to = (at + 1..tiers.len()).find(fits).or_else(|| (0..above).rev().find(fits))?;
    room[to] -= range.bytes;
    let cost_ns = tiers[at].speed.read_ns(range.bytes) + tiers[to].speed.write_ns(range.bytes);
    let to = tiers[to].id;
    Some((if is_copy { Action::Copy(to) } else { Action::Demote(to) }, cost_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::excess_bytes;
    use crate::testing::{devices, range};

    #[test]
    fn decides_as_the_free_function_does() {
        let mut devices = devices();
        let chosen = |devices: &[DeviceView], durability, bytes| {
            let new = FastFirst.place(devices, &Incoming::new(durability, bytes)).unwrap();
            let old = crate::place(devices, &crate::PlaceRequest { durability, bytes, avoid: &[] }).unwrap();
            assert_eq!(new.device(), old.device);
            new
        };
        for used in [0, 850, 950] {
            devices[0].used_bytes = used * devices[0].capacity_bytes / 1000;
            for durability in [Durability::Sync, Durability::Async, Durability::Scratch, Durability::Bypass] {
                chosen(&devices, durability, 100);
            }
        }
        let spilled = chosen(&devices, Durability::Async, 100);
        assert!(spilled.reason().to_string().contains("`memory` 94%"), "{}", spilled.reason());
        for device in &mut devices {
            device.used_bytes = device.capacity_bytes;
        }
        let refused = FastFirst.place(&devices, &Incoming::new(Durability::Async, 1)).unwrap_err();
        assert!(refused.reason.contains("`memory` (memory) 100%"), "{}", refused.reason);
    }

    #[test]
    fn the_coldest_leave_to_where_there_is_room() {
        let mut devices = devices();
        let mib = 1 << 20;
        devices[0].used_bytes = devices[0].high_bytes() + mib;
        let excess = excess_bytes(&devices[0]);
        let count = excess.div_ceil(mib);
        let mut ranges: Vec<_> = (0..40).map(|i| range(i, mib, devices[0].id)).collect();
        for (i, range) in ranges.iter_mut().enumerate() {
            range.heat.read(1_000 + (i as u64 * 37 % 40) * 10, 1);
        }
        ranges[0].is_pinned = true; // the coldest range
        let limits = Limits { now_ms: 60_000, ..Limits::default() };
        let plan = FastFirst.plan(&devices, &ranges, &limits);
        assert_eq!(plan.moves.len() as u64, count);
        assert!(plan.moves.iter().all(|m| m.range != 0 && m.action == Action::Demote(devices[1].id)));
        let idle = |i: usize| ranges[i].heat.idle_ms(60_000).unwrap();
        assert!(plan.moves.windows(2).all(|two| idle(two[0].range) >= idle(two[1].range)));
        devices[1].used_bytes = devices[1].capacity_bytes;
        let plan = FastFirst.plan(&devices, &ranges, &limits);
        assert!(plan.moves.iter().all(|m| m.action == Action::Demote(devices[2].id)), "the next one is full");
    }
}
