//! `max-bandwidth`: top-down, like Hermes' default policy (Kougkas et al., HPDC'18, document 003).
//!
//! From the fastest tier on: if the bytes fit, they go there; else the cheapest of three:
//!
//! - *split*: as much as fits here and the rest below: `T = Σ write(tier k, part k)`;
//! - *skip*: the first lower tier that takes all: `T = write(tier j, bytes)`;
//! - *flush first*: make room here, then write here: `T = missing / min(read here, write below) + write(here, bytes)`.
//!
//! Times are by measured speeds and include the queue. One pass over the tiers. Recently read bytes go up to the
//! fastest tier with room; the least recently used bytes go down.

use std::cmp::Reverse;
use std::sync::Arc;

use cenote_model::Durability;

use super::fast_first::{place_by_order, relieve};
use super::recent::promote_recent;
use crate::place::Refusal;
use crate::view::order;
use crate::{Decision, DeviceView, Incoming, Limits, Plan, Policy, RangeView, Reason};

/// The policy `max-bandwidth`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MaxBandwidth;

/// One way to place the bytes.
#[derive(Clone, Copy)]
struct Choice<'a> {
    device: &'a DeviceView,
    bytes: u64,
    wait_ns: f64,
    total_ns: f64,
}

impl Policy for MaxBandwidth {
    fn name(&self) -> &'static str {
        "max-bandwidth"
    }
    fn about(&self) -> &'static str {
        "top-down: the fastest tier that fits, else the cheapest of splitting, skipping the tier and flushing it first"
    }
    fn place(&self, devices: &[DeviceView], incoming: &Incoming<'_>) -> Result<Decision, Refusal> {
        if incoming.durability == Durability::Bypass {
            return place_by_order(devices, incoming);
        }
        let mut tiers = order(devices);
        tiers.retain(|device| incoming.may_use(device));
        let bytes = incoming.bytes;
        let Some(top) = tiers.first() else { return place_by_order(devices, incoming) };
        if top.room_bytes() >= bytes {
            let reason = Reason::First { tier: Arc::clone(&top.name) };
            return Ok(Decision::Place { device: top.id, bytes, reason, past_watermarks: false });
        }
        let skip = tiers.iter().find(|device| device.room_bytes() >= bytes).map(|device| Choice {
            device,
            bytes,
            wait_ns: 0.0,
            total_ns: device.write_done_ns(bytes),
        });
        let choices = [split(&tiers, incoming), skip, flush(&tiers, bytes)];
        let mut sorted: Vec<(usize, Choice<'_>)> =
            choices.iter().enumerate().filter_map(|(i, choice)| choice.map(|choice| (i, choice))).collect();
        sorted.sort_by(|(_, one), (_, other)| one.total_ns.total_cmp(&other.total_ns));
        let Some((kind, best)) = sorted.first().copied() else { return place_by_order(devices, incoming) };
        let instead_ns = sorted.get(1).map_or(best.total_ns, |(_, next)| next.total_ns);
        let (tier, expected_ns) = (Arc::clone(&best.device.name), best.total_ns);
        let device = best.device.id;
        let reason = match kind {
            0 => Reason::Split { tier, bytes: best.bytes, expected_ns, instead_ns },
            1 => Reason::Skip { tier, skipped: Arc::clone(&top.name), expected_ns, instead_ns },
            _ => {
                let reason = Reason::FlushFirst { tier, expected_ns, instead_ns };
                return Ok(Decision::Wait { device, expected_ns: best.wait_ns as u64, reason });
            }
        };
        Ok(Decision::Place { device, bytes: best.bytes, reason, past_watermarks: false })
    }
    fn plan(&self, devices: &[DeviceView], ranges: &[RangeView<'_>], limits: &Limits<'_>) -> Plan {
        let mut plan = relieve(devices, ranges, limits, |range| {
            (Reverse(range.heat.idle_ms(limits.now_ms).unwrap_or(u64::MAX)), range.copy.is_none())
        });
        promote_recent(devices, ranges, limits, &mut plan);
        plan
    }
}

/// Splits the bytes over the tiers from the top down, as much as fits on each; the first part is the decision.
fn split<'a>(tiers: &[&'a DeviceView], incoming: &Incoming<'_>) -> Option<Choice<'a>> {
    let mut left = incoming.bytes;
    let mut total_ns = 0.0;
    let mut first = None;
    for device in tiers {
        let part = device.room_bytes().min(left);
        if part < incoming.least_bytes().min(left) || part == 0 {
            continue;
        }
        first = first.or(Some((*device, part)));
        total_ns += device.write_done_ns(part);
        left -= part;
        if left == 0 {
            break;
        }
    }
    let (device, bytes) = first.filter(|(_, bytes)| left == 0 && *bytes < incoming.bytes)?;
    Some(Choice { device, bytes, wait_ns: 0.0, total_ns })
}

/// The tier where making room and writing take the least time.
fn flush<'a>(tiers: &[&'a DeviceView], bytes: u64) -> Option<Choice<'a>> {
    let flushed = tiers.iter().zip(tiers.iter().skip(1)).filter(|(device, below)| {
        device.high_bytes() >= bytes && (below.room_bytes() >= bytes || device.evictable_bytes >= bytes)
    });
    let choices = flushed.map(|(device, below)| {
        let missing = bytes.saturating_sub(device.room_bytes()).saturating_sub(device.evictable_bytes);
        let bandwidth = device.speed.read_bandwidth.min(below.speed.write_bandwidth).max(1.0);
        let wait_ns = device.queue_ns() + below.queue_ns() + missing as f64 * 1e9 / bandwidth;
        Choice { device, bytes, wait_ns, total_ns: wait_ns + device.speed.write_ns(bytes) }
    });
    choices.min_by(|one, other| one.total_ns.total_cmp(&other.total_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::devices;

    fn decide(devices: &[DeviceView], bytes: u64, run_min: u64) -> Decision {
        let incoming = Incoming { run_min, ..Incoming::new(Durability::Async, bytes) };
        let decision = MaxBandwidth.place(devices, &incoming).unwrap();
        crate::check_decision(&decision, devices, &incoming).unwrap();
        decision
    }

    #[test]
    fn fits_else_splits_skips_or_flushes_whichever_is_cheapest() {
        let mut devices = devices();
        let mib = 1 << 20;
        assert!(matches!(decide(&devices, 4 * mib, mib), Decision::Place { device, .. } if device == devices[0].id));
        // 2 MiB of room in memory, and no fast tier below: split.
        devices[0].used_bytes = devices[0].high_bytes() - 2 * mib;
        devices[1].used_bytes = devices[1].high_bytes() - 3 * mib;
        let split = decide(&devices, 4 * mib, mib);
        assert!(matches!(split.reason(), Reason::Split { bytes, .. } if *bytes == 2 * mib), "{split:?}");
        // Pieces must be whole: flushing 2 MiB to the next tier takes less time than writing all 4 there...
        devices[1].used_bytes = 0;
        let flush = decide(&devices, 4 * mib, 4 * mib);
        assert!(matches!(flush.reason(), Reason::FlushFirst { .. }), "{flush:?}");
        // ...unless memory is busy.
        devices[0].queued_read_bytes = 1 << 30;
        let skip = decide(&devices, 4 * mib, 4 * mib);
        assert!(matches!(skip.reason(), Reason::Skip { .. }) && skip.device() == devices[1].id, "{skip:?}");
        // Bytes in memory have copies: room costs nothing.
        devices[0].used_bytes = devices[0].high_bytes();
        devices[0].evictable_bytes = 8 * mib;
        devices[0].queued_read_bytes = 0;
        let flush = decide(&devices, 4 * mib, 4 * mib);
        assert!(matches!(flush, Decision::Wait { device, expected_ns: 0, .. } if device == devices[0].id), "{flush:?}");
        // Without copies, and with a long queue on the next tier, it skips that tier too.
        devices[0].evictable_bytes = 0;
        devices[1].queued_write_bytes = 4 << 30;
        assert_eq!(decide(&devices, 4 * mib, 4 * mib).device(), devices[2].id);
    }
}
