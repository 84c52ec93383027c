//! Measures copying with checksums against plain copying: `cargo run --release -p cenote-device --example sums`.
//!
//! For each size, alternating rounds by processor time over a source and a target much larger than the caches, medians printed.

#![allow(unsafe_code, reason = "the raw copy")]

use cenote_device::sums::{copy_and_sum, copy_raw, sum_of};
use rustix::time::{ClockId, clock_gettime};

const SPAN_BYTES: usize = 256 << 20;
const ROUNDS: usize = 7;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Processor time of this thread: other load on the machine disturbs it less than wall time.
fn seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// GB/s of `each` over all pieces of the span.
fn rate(size: usize, mut each: impl FnMut(usize)) -> f64 {
    let begin = seconds();
    for at in (0..SPAN_BYTES).step_by(size) {
        each(at);
    }
    SPAN_BYTES as f64 / (seconds() - begin) / 1e9
}

fn main() {
    let source: Vec<u8> = (0..SPAN_BYTES).map(|i| ((i * 31) >> 3) as u8).collect();
    let mut target = vec![1_u8; SPAN_BYTES];
    let user = &source[..8 << 20];
    println!(
        "{:>9} {:>8} {:>8} {:>8} {:>8}   (source: {} MiB again and again, target: {} MiB)",
        "bytes",
        "memcpy",
        "lanes",
        "fused",
        "sum",
        user.len() >> 20,
        SPAN_BYTES >> 20
    );
    for size in [4 << 10, 16 << 10, 64 << 10, 1 << 20, 4 << 20] {
        let (mut plain, mut lanes, mut fused, mut summed) = (vec![], vec![], vec![], vec![]);
        let mut sums = Vec::with_capacity(64);
        for _ in 0..ROUNDS {
            let from = |at: usize| &user[at % user.len()..at % user.len() + size];
            plain.push(rate(size, |at| target[at..at + size].copy_from_slice(from(at))));
            // SAFETY: both slices have `size` bytes and are of different buffers.
            lanes.push(rate(size, |at| unsafe {
                copy_raw(target[at..at + size].as_mut_ptr(), from(at).as_ptr(), size);
            }));
            fused.push(rate(size, |at| {
                sums.clear();
                copy_and_sum(&mut target[at..at + size], from(at), &mut sums);
            }));
            let mut all = 0;
            summed.push(rate(size, |at| all ^= sum_of(from(at))));
            assert_ne!(all, 1);
        }
        let [plain, lanes, fused, summed] = [plain, lanes, fused, summed].map(median);
        println!(
            "{size:>9} {plain:>8.2} {lanes:>8.2} {fused:>8.2} {summed:>8.2}   lanes {:.0}%, fused {:.0}% of memcpy",
            lanes / plain * 100.0,
            fused / plain * 100.0
        );
    }
}
