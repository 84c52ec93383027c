//! Measures the cost of a decision: `cargo run --release -p cenote-policy --example decisions`.
//!
//! The median and the slowest of a hundred rounds of 10,000 decisions with 2 to 16 tiers, and of plans over 512 ranges.

use std::hint::black_box;
use std::time::Instant;

use cenote_model::{ContainerId, DeviceId, DeviceKind, Durability, ObjectId, ObjectKey};
use cenote_policy::{DeviceView, Heat, Incoming, Limits, Policy, RangeView, Rhythm, by_name, names};

fn devices(count: u16) -> Vec<DeviceView> {
    let kind = |i: u16| DeviceKind::ALL[usize::from(i) % DeviceKind::ALL.len()];
    let mut devices: Vec<_> =
        (0..count).map(|i| DeviceView::new(DeviceId(i), &format!("tier{i}"), kind(i), 1 << 30)).collect();
    // The upper half is full, so that the policy has to weigh.
    for device in devices.iter_mut().take(usize::from(count / 2)) {
        device.used_bytes = 1_000_000_000;
    }
    devices
}

/// Median and maximum nanoseconds of one call.
fn measure(rounds: usize, calls: u32, mut call: impl FnMut()) -> (f64, f64) {
    let mut ns: Vec<f64> = (0..rounds)
        .map(|_| {
            let began = Instant::now();
            (0..calls).for_each(|_| call());
            began.elapsed().as_nanos() as f64 / f64::from(calls)
        })
        .collect();
    ns.sort_by(f64::total_cmp);
    (ns[rounds / 2], ns[rounds - 1])
}

fn plan_of(policy: &dyn Policy, devices: &[DeviceView]) -> (f64, f64) {
    let rhythm = Rhythm::default();
    let range = |i: u64| {
        let mut heat = Heat::default();
        (0..i % 7).for_each(|k| heat.read(k * 100, 1 << 20));
        RangeView {
            object: ObjectKey { container: ContainerId(1), object: ObjectId(u128::from(i)) },
            offset: 0,
            bytes: 1 << 20,
            device: devices[i as usize % devices.len()].id,
            copy: None,
            durability: Durability::Scratch,
            heat,
            is_pinned: false,
            label: "data",
            name: None,
            object_bytes: 1 << 20,
            age_ms: 1000,
            unit: None,
            coming: None,
            rhythm: Some(&rhythm),
        }
    };
    let ranges: Vec<_> = (0..512).map(range).collect();
    let limits = Limits { now_ms: 1_000, ..Limits::default() };
    measure(30, 10, || drop(black_box(policy.plan(devices, &ranges, &limits))))
}

fn main() {
    println!("{:<16}{:>8}{:>18}{:>18}{:>22}", "policy", "tiers", "decision ns", "slowest round", "plan of 512, µs");
    for name in names() {
        let policy = by_name(name).expect("its name");
        for count in [2, 4, 8, 16] {
            let devices = devices(count);
            let heat = Heat::default();
            let incoming = Incoming { heat: Some(&heat), run_min: 4096, ..Incoming::new(Durability::Async, 1 << 20) };
            let (median, most) =
                measure(100, 10_000, || drop(black_box(policy.place(black_box(&devices), black_box(&incoming)))));
            let (plan, _) = plan_of(policy.as_ref(), &devices);
            println!("{name:<16}{count:>8}{median:>18.0}{most:>18.0}{:>22.0}", plan / 1e3);
        }
    }
}
