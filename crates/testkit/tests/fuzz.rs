//! Every decoder of untrusted bytes with a bounded number of mutated inputs. `CENOTE_SEED` replays a run; `make fuzz`
//! goes deeper.
#![cfg(feature = "fuzz")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use cenote_testkit::fuzz::TARGETS;

/// For each target; those that open a store each time get through some thousand inputs in it.
const LIMIT: Duration = Duration::from_millis(600);

#[test]
fn no_bytes_make_a_decoder_panic() {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("CENOTE_SEED={seed}");
    for target in TARGETS {
        let begin = Instant::now();
        let mut last = Vec::new();
        let (mut slowest, mut before) = (Duration::ZERO, Instant::now());
        let run = catch_unwind(AssertUnwindSafe(|| {
            target.run_mutations(seed, u64::MAX, |input| {
                slowest = slowest.max(before.elapsed());
                before = Instant::now();
                last = input.to_vec();
                begin.elapsed() < LIMIT
            })
        }));
        let Ok(done) = run else {
            panic!("target {} fails (CENOTE_SEED={seed}) on the input {last:02x?}", target.name);
        };
        assert!(done > 5, "target {} is too slow: {done} inputs in {LIMIT:?}", target.name);
        assert!(slowest < Duration::from_secs(5), "target {}: an input took {slowest:?}", target.name);
    }
}
