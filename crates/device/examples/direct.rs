//! Measures 1 MiB direct I/O of a file device beside `fio`, if it is installed:
//! `cargo run --release -p cenote-device --example direct -- DIRECTORY`.
//!
//! Alternating rounds with one and with four requests in flight; medians printed.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use cenote_device::aligned::AlignedBuf;
use cenote_device::{Devices, SystemDevices};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, StoreId};

const SPAN_BYTES: u64 = 512 << 20;
const PIECE_BYTES: usize = 1 << 20;
const ROUNDS: usize = 5;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// GB/s of `each` over all pieces, by `threads` threads.
fn rate(threads: u64, each: &(impl Fn(u64) + Sync)) -> f64 {
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                (thread..SPAN_BYTES / PIECE_BYTES as u64).step_by(threads as usize).for_each(each);
            });
        }
    });
    SPAN_BYTES as f64 / begin.elapsed().as_secs_f64() / 1e9
}

/// GB/s that `fio` reports; NaN if it is not installed.
fn fio(file: &Path, depth: u64, rw: &str) -> f64 {
    let output = Command::new("fio")
        .args(["--name=x", "--direct=1", "--bs=1m", "--ioengine=libaio", "--output-format=terse", "--overwrite=1"])
        .args([format!("--rw={rw}"), format!("--iodepth={depth}"), format!("--size={SPAN_BYTES}")])
        .arg(format!("--filename={}", file.display()))
        .output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let field = if rw == "read" { 6 } else { 47 }; // KiB/s
    text.split(';').nth(field).and_then(|kib| kib.parse::<f64>().ok()).map_or(f64::NAN, |kib| kib * 1024.0 / 1e9)
}

fn main() {
    let dir = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    let path = Path::new(&dir).join("cenote-direct-example");
    let reference = Path::new(&dir).join("cenote-direct-fio");
    let spec = DeviceSpec {
        name: "file".to_owned(),
        kind: DeviceKind::File,
        path: path.clone(),
        capacity_bytes: SPAN_BYTES,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options: cenote_model::TierOptions::default(),
    };
    let device = SystemDevices::default().open(StoreId(1), DeviceId(1), &spec, true).expect("device").device;
    let aligned = AlignedBuf::new(PIECE_BYTES);
    let plain = vec![1_u8; PIECE_BYTES + 1];
    let write = |n: u64| device.write_at(n * PIECE_BYTES as u64, &aligned).expect("write");
    let write_bounced = |n: u64| device.write_at(n * PIECE_BYTES as u64, &plain[1..]).expect("write");
    let read = |n: u64| {
        let mut buffer = AlignedBuf::reused(PIECE_BYTES);
        device.read_at(n * PIECE_BYTES as u64, &mut buffer).expect("read");
    };
    rate(1, &write); // `fio` also writes blocks that were written before
    fio(&reference, 1, "write");
    for depth in [1, 4] {
        let mut results: [Vec<f64>; 5] = Default::default();
        for _ in 0..ROUNDS {
            results[0].push(fio(&reference, depth, "write"));
            results[1].push(rate(depth, &write));
            results[2].push(rate(depth, &write_bounced));
            results[3].push(fio(&reference, depth, "read"));
            results[4].push(rate(depth, &read));
        }
        let [fio_write, write, bounced, fio_read, read] = results.map(median);
        println!(
            "{depth} in flight, GB/s: write {write:.2} ({bounced:.2} unaligned) fio {fio_write:.2}; read {read:.2} fio {fio_read:.2}"
        );
    }
    let _ = (std::fs::remove_file(path), std::fs::remove_file(reference));
}
