//! A short part of `make chaos`: tiers that vanish, fill, fail and shrink while data move between them.
#![cfg(feature = "crash")]

use std::process::Command;
use std::time::{Duration, Instant};

use cenote_testkit::sim::run_weather;

#[test]
fn seeds_pass_in_any_weather() {
    let only = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let (first, last) = only.map_or((0, 3000), |seed| (seed, seed + 1));
    let (begin, mut hit) = (Instant::now(), (0, 0));
    for seed in first..last {
        match run_weather(seed, false) {
            Ok(summary) => hit = (hit.0 + summary.faulty, hit.1 + summary.losses),
            Err(failure) => panic!("CENOTE_SEED={seed}\n{failure}"),
        }
        if begin.elapsed() > Duration::from_secs(6) {
            break;
        }
    }
    assert!(only.is_some() || (hit.0 > 50 && hit.1 > 3), "the weather was too fine: {hit:?}");
}

#[test]
fn a_seed_takes_the_same_steps_twice_in_any_weather() {
    for seed in 0..20 {
        let (Ok(a), Ok(b)) = (run_weather(seed, false), run_weather(seed, false)) else { panic!("seed {seed} fails") };
        assert_eq!((a.trace_hash, a.ios, a.jobs), (b.trace_hash, b.ios, b.jobs), "CENOTE_SEED={seed}");
    }
}

#[test]
fn a_daemon_that_dies_within_moves_loses_nothing_and_keeps_nothing_twice() {
    let seed = std::env::var("CENOTE_SEED").unwrap_or_else(|_| "1".into());
    let dir = std::env::temp_dir().join(format!("cenote-chaos-test-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .args(["--stride", "17", "--seconds", "15", "--quiet", "--seed", &seed, "--dir"])
        .arg(&dir)
        .output()
        .expect("the test starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "CENOTE_SEED={seed}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("0 failures") && !said.starts_with("0 deaths"), "CENOTE_SEED={seed}: {said}");
}
