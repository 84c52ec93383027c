//! `data-locality`: a dispersion unit (object, dataset, key range) stays together, spread over the layers in proportion
//! (Hermes: sideways, by the place of bytes that are buffered already and the ratio between layers).
//!
//! Each buffering tier (all but the lowest) is to hold of every unit the share `w(i) = capacity(i) / Σ capacity` of
//! these tiers. New bytes go to the tier with the largest deficit: `max over i of w(i) - held(i) / held`. A unit with a
//! home on one tier with room stays there until it exceeds its share by a run. The units idle for longest leave as a
//! whole.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use cenote_model::{DeviceId, Durability};

use super::fast_first::{place_by_order, relieve};
use super::recent::promote_recent;
use crate::place::Refusal;
use crate::view::order;
use crate::{Decision, DeviceView, Incoming, Limits, Plan, Policy, RangeView, Reason};

/// The policy `data-locality`.
#[derive(Clone, Copy, Debug, Default)]
pub struct DataLocality;

impl Policy for DataLocality {
    fn name(&self) -> &'static str {
        "data-locality"
    }
    fn about(&self) -> &'static str {
        "each object or dataset is spread over the layers in proportion to their capacity, and stays together"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        if incoming.durability == Durability::Bypass {
            return place_by_order(devices, incoming);
        }
        let mut tiers = order(devices);
        tiers.retain(|device| incoming.may_use(device));
        if tiers.len() > 2 {
            tiers.pop(); // the lowest tier holds the rest
        }
        let total: f64 = tiers.iter().map(|d| d.high_bytes() as f64).sum();
        let held = |id: DeviceId| incoming.unit_places.iter().find(|(at, _)| *at == id).map_or(0, |(_, bytes)| *bytes);
        let all = incoming.unit_places.iter().map(|(_, bytes)| *bytes).sum::<u64>() as f64 + incoming.bytes as f64;
        let lacking = |device: &DeviceView| device.high_bytes() as f64 / total - held(device.id) as f64 / all;
        let fits = tiers.iter().filter(|device| device.below_high_with(incoming.bytes));
        let Some(device) = fits.max_by(|one, other| lacking(one).total_cmp(&lacking(other))) else {
            return place_by_order(devices, incoming);
        };
        let permille = |share: f64| (share * 1000.0).clamp(0.0, 1000.0) as u16;
        let reason = Reason::Unit {
            tier: Arc::clone(&device.name),
            held_permille: permille(held(device.id) as f64 / all),
            wanted_permille: permille(device.high_bytes() as f64 / total),
        };
        Ok(Decision::Place { device: device.id, bytes: incoming.bytes, reason, past_watermarks: false })
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        // A unit is as idle as its most recently used range.
        let unit_of = |range: &RangeView<'_>| range.unit.unwrap_or_else(|| range.object.word_hash());
        let idle_of = |range: &RangeView<'_>| range.heat.idle_ms(limits.now_ms).unwrap_or(u64::MAX);
        let mut idle: HashMap<u64, u64> = HashMap::with_capacity(ranges.len());
        for range in ranges {
            let least = idle.entry(unit_of(range)).or_insert(u64::MAX);
            *least = idle_of(range).min(*least);
        }
        let mut plan = relieve(devices, ranges, limits, |range| {
            let unit = unit_of(range);
            (Reverse(idle[&unit]), unit, Reverse(idle_of(range)))
        });
        promote_recent(devices, ranges, limits, &mut plan);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{devices, range};

    #[test]
    fn a_unit_is_spread_in_proportion() {
        let devices = devices();
        let mut held: Vec<(DeviceId, u64)> = Vec::new();
        for _ in 0..672 {
            let incoming = Incoming { unit_places: &held, ..Incoming::new(Durability::Async, 64 << 10) };
            let chosen = DataLocality.place(&devices, &incoming).unwrap().device();
            match held.iter_mut().find(|(id, _)| *id == chosen) {
                Some((_, bytes)) => *bytes += 64 << 10,
                None => held.push((chosen, 64 << 10)),
            }
        }
        held.sort();
        let parts: Vec<u64> = held.iter().map(|(_, bytes)| bytes >> 16).collect();
        assert_eq!(parts, [32, 128, 512], "as 32 MiB, 128 MiB and 512 MiB");
    }

    #[test]
    fn units_leave_as_a_whole() {
        let mut devices = devices();
        let mib = 1 << 20;
        devices[0].used_bytes = devices[0].high_bytes() + 1;
        let mut ranges: Vec<_> = (0..30).map(|i| range(i, mib, devices[0].id)).collect();
        for (i, range) in ranges.iter_mut().enumerate() {
            range.unit = Some(i as u64 % 3);
            range.heat.write(i as u64 * 100, mib);
        }
        let plan = DataLocality.plan(&devices, &ranges, &Limits { now_ms: 10_000, ..Limits::default() });
        let units: Vec<_> = plan.moves.iter().map(|m| ranges[m.range].unit.unwrap()).collect();
        assert!(!units.is_empty() && units.iter().all(|unit| *unit == 0), "{units:?}");
    }
}
