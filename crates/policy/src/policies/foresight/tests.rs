//! Where `foresight` puts new data when tiers are full, slow or busy.

use cenote_model::Durability;

use super::*;
use crate::Action;
use crate::testing::{devices, range};

const MIB: u64 = 1 << 20;

#[test]
fn all_layers_are_written_at_once_when_the_top_is_full() {
    let mut devices = devices();
    devices[0].used_bytes = devices[0].capacity_bytes;
    let mut bytes = [0; 4];
    for _ in 0..40 {
        let incoming = Incoming::new(Durability::Async, MIB);
        let decision = Foresight.place(&devices, &incoming).unwrap();
        crate::check_decision(&decision, &devices, &incoming).unwrap();
        let chosen = devices.iter().position(|d| d.id == decision.device()).unwrap();
        devices[chosen].queued_write_bytes += MIB;
        bytes[chosen] += 1;
    }
    assert_eq!(bytes[0], 0);
    assert!(bytes[1] > bytes[2] && bytes[2] >= 5, "in proportion to bandwidth: {bytes:?}");
}

#[test]
fn waits_for_room_that_costs_nothing_rather_than_for_a_slow_tier() {
    let mut devices = devices();
    devices.remove(1);
    devices[0].used_bytes = devices[0].high_bytes();
    let incoming = Incoming::new(Durability::Async, 4 * MIB);
    assert_eq!(Foresight.place(&devices, &incoming).unwrap().device(), devices[1].id);
    devices[0].evictable_bytes = 16 * MIB;
    let decision = Foresight.place(&devices, &incoming).unwrap();
    assert!(matches!(decision, Decision::Wait { device, .. } if device == devices[0].id), "{decision:?}");
    // Room is made where somebody waits for it, of the least valuable ranges, and no more than needed.
    let mut ranges: Vec<_> = (0..20).map(|i| range(i, MIB, devices[0].id)).collect();
    for (i, range) in ranges.iter_mut().enumerate() {
        range.copy = Some(devices[1].id);
        (0..i as u64 % 5).for_each(|k| range.heat.read(k * 1000, MIB));
    }
    let wanted = [(devices[0].id, 4 * MIB)];
    let limits = Limits { now_ms: 6_000, room_wanted: &wanted, room_only: true, ..Limits::default() };
    let plan = Foresight.plan(&devices, &ranges, &limits);
    crate::check_plan(&plan, &devices, &ranges).unwrap();
    assert_eq!(plan.moves.len(), 4);
    assert!(plan.moves.iter().all(|m| m.action == Action::Evict && ranges[m.range].heat.reads() == 0));
}

#[test]
fn a_scan_displaces_nothing_and_a_favourite_goes_up() {
    let mut devices = devices();
    let count = devices[0].high_bytes() / MIB;
    devices[0].used_bytes = count * MIB;
    let mut rhythm = Rhythm::default();
    let mut ranges: Vec<_> = (0..count).map(|i| range(u128::from(i), MIB, devices[0].id)).collect();
    for range in &mut ranges {
        range.copy = Some(devices[2].id);
        for k in 0..6 {
            rhythm.read(k * 500, &range.heat);
            range.heat.read(k * 500, MIB);
        }
    }
    let mut scanned = Rhythm::default();
    for i in 0..100 {
        let mut one = range(1000 + i, MIB, devices[3].id);
        scanned.read(2_000 + i as u64 * 10, &one.heat);
        one.heat.read(2_000 + i as u64 * 10, MIB);
        ranges.push(one);
    }
    let favourite = ranges.len();
    let mut hot = range(5000, MIB, devices[3].id);
    for k in 0..60 {
        rhythm.read(k * 50, &hot.heat);
        hot.heat.read(k * 50, MIB);
    }
    ranges.push(hot);
    for (i, range) in ranges.iter_mut().enumerate() {
        let is_scanned = i as u64 >= count && i != favourite;
        range.rhythm = Some(if is_scanned { &scanned } else { &rhythm });
    }
    devices[3].busy = 0.8;
    let plan = Foresight.plan(&devices, &ranges, &Limits { now_ms: 3_050, ..Limits::default() });
    crate::check_plan(&plan, &devices, &ranges).unwrap();
    let up: Vec<usize> =
        plan.moves.iter().filter(|m| matches!(m.action, Action::Promote(_))).map(|m| m.range).collect();
    assert_eq!(up, [favourite], "{:?}", plan.reason.to_string());
}

#[test]
fn a_loop_over_more_than_fits_keeps_what_is_there() {
    let mut devices = devices();
    let fits = devices[0].high_bytes() / MIB;
    devices[0].used_bytes = fits * MIB;
    let mut ranges: Vec<_> =
        (0..2 * fits).map(|i| range(u128::from(i), MIB, devices[usize::from(i >= fits)].id)).collect();
    let mut rhythm = Rhythm::default();
    for pass in 0..4 {
        for (i, range) in ranges.iter_mut().enumerate() {
            let now = pass * 3_000 + i as u64 * 50;
            rhythm.read(now, &range.heat);
            range.heat.read(now, MIB);
        }
    }
    for range in &mut ranges {
        range.rhythm = Some(&rhythm);
    }
    let plan = Foresight.plan(&devices, &ranges, &Limits { now_ms: 12_100, ..Limits::default() });
    assert!(plan.moves.is_empty(), "{:?}", plan.moves);
}

#[test]
fn what_a_prefetcher_announces_goes_up_while_devices_have_time() {
    let mut devices = devices();
    let mut ranges: Vec<_> = (0..8).map(|i| range(i, MIB, devices[3].id)).collect();
    for (i, range) in ranges.iter_mut().enumerate() {
        range.coming = Some(Coming { in_ms: 400 - i as u32 * 50, confidence: 0.9 });
    }
    let limits = Limits { now_ms: 1_000, ..Limits::default() };
    let plan = Foresight.plan(&devices, &ranges, &limits);
    assert!(plan.moves.len() >= 4 && plan.moves.iter().all(|m| m.action == Action::Promote(devices[0].id)));
    devices[3].busy = 1.0;
    for range in &mut ranges {
        range.coming = Some(Coming { in_ms: 400, confidence: 0.3 });
    }
    assert!(Foresight.plan(&devices, &ranges, &limits).moves.is_empty(), "a guess on a busy device");
}

#[test]
fn devices_and_ranges_that_make_no_sense_do_no_harm() {
    let mut devices = devices();
    devices[1].speed.read_bandwidth = 0.0;
    devices[2].speed.write_latency_ns = f64::NAN;
    devices[3].capacity_bytes = 0;
    devices[0].used_bytes = u64::MAX;
    let mut ranges: Vec<_> = (0..6).map(|i| range(i, u64::MAX >> i, cenote_model::DeviceId(i as u16))).collect();
    ranges[2].bytes = 0;
    ranges[3].copy = Some(cenote_model::DeviceId(77));
    for devices in [&devices[..], &devices[..1], &[]] {
        let _ = Foresight.place(devices, &Incoming::new(Durability::Async, MIB));
        let plan = Foresight.plan(devices, &ranges, &Limits::default());
        crate::check_plan(&plan, devices, &ranges).unwrap();
    }
}
