//! Runs a bounded number of mutated inputs through every decoder of untrusted bytes. `CENOTE_SEED` replays a run;
//! `make fuzz` goes deeper.
#![cfg(feature = "fuzz")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cenote_testkit::fuzz::TARGETS;

/// Time for each target: enough for some thousand inputs of a target that opens a store each time.
const LIMIT: Duration = Duration::from_millis(600);
/// Least number of inputs for a target, however busy the machine is.
const INPUTS_MIN: u64 = 100;

#[test]
fn no_bytes_make_a_decoder_panic() {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("CENOTE_SEED={seed}");
    for target in TARGETS {
        let begin = Instant::now();
        let (mut last, mut slow) = (Vec::new(), Vec::new());
        let (mut inputs, mut slowest, mut before) = (0, Duration::ZERO, Instant::now());
        let run = catch_unwind(AssertUnwindSafe(|| {
            target.run_mutations(seed, u64::MAX, |input| {
                if before.elapsed() > slowest {
                    (slowest, slow) = (before.elapsed(), std::mem::take(&mut last));
                }
                last = input.to_vec();
                inputs += 1;
                before = Instant::now();
                begin.elapsed() < LIMIT || inputs <= INPUTS_MIN
            })
        }));
        assert!(run.is_ok(), "target {} fails (CENOTE_SEED={seed}) on the input {last:02x?}", target.name);
        println!("{}: {inputs} inputs, the slowest took {slowest:?}", target.name);
        let is_in_time = slowest < Duration::from_secs(5);
        assert!(is_in_time, "target {} (CENOTE_SEED={seed}): {slowest:?} for the input {slow:02x?}", target.name);
    }
}
