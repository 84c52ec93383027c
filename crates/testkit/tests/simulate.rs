//! A short run of the simulator; `make simulate` is the long one.

use std::time::{Duration, Instant};

use cenote_testkit::sim::{run_cluster, run_fleet, run_seed, run_weather};

#[test]
fn seeds_pass() {
    let only = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse::<u64>().ok());
    let (first, last) = only.map_or((0, 800), |seed| (seed, seed + 1));
    let begin = Instant::now();
    for seed in first..last {
        if let Err(failure) = run_seed(seed, false) {
            panic!("CENOTE_SEED={seed}\n{failure}");
        }
        if begin.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
}

#[test]
fn seeds_with_three_engines_pass() {
    let begin = Instant::now();
    for seed in 0..300 {
        if let Err(failure) = run_fleet(seed, 3, false) {
            panic!("CENOTE_SEED={seed}\n{failure}");
        }
        if begin.elapsed() > Duration::from_secs(5) {
            break;
        }
    }
}

#[test]
fn seeds_with_nodes_pass() {
    let begin = Instant::now();
    let (mut run, mut taken_over) = (0, 0);
    for seed in 0..200 {
        match run_cluster(seed, false) {
            Ok(summary) => taken_over += summary.cluster.taken_over,
            Err(failure) => panic!("CENOTE_SEED={seed}\n{failure}"),
        }
        run += 1;
        if begin.elapsed() > Duration::from_secs(8) {
            break;
        }
    }
    assert!(taken_over * 4 > run, "a simulation in which nothing happens proves nothing: {taken_over} of {run}");
}

/// Seeds that once found a defect: a home whose machine was back before it was missed; an heir that had not synced what came to
/// it as a mirror; a home that went to a node whose last changes were told without it; a node that was named a mirror before it
/// had all that was told; a home that was not given back, since its copy was given up; an heir that lost its memory at once; a
/// freeze for a node that had nothing.
#[test]
fn seeds_with_nodes_that_found_something_pass() {
    for seed in [14, 22, 221, 728, 939, 1072, 3927, 5152, 5255, 5644, 20_146, 20_211, 22_619, 35_978] {
        if let Err(failure) = run_cluster(seed, false) {
            panic!("CENOTE_SEED={seed}\n{failure}");
        }
    }
}

#[test]
fn a_seed_takes_the_same_steps_twice() {
    for seed in 0..20 {
        let (Ok(a), Ok(b)) = (run_seed(seed, false), run_seed(seed, false)) else { panic!("seed {seed} fails") };
        assert_eq!((a.trace_hash, a.ios, a.jobs), (b.trace_hash, b.ios, b.jobs), "CENOTE_SEED={seed}");
        let (Ok(a), Ok(b)) = (run_cluster(seed, false), run_cluster(seed, false)) else { panic!("seed {seed} fails") };
        assert_eq!((a.trace_hash, a.steps, a.jobs), (b.trace_hash, b.steps, b.jobs), "CENOTE_SEED={seed}");
    }
}

/// Seeds that once found a defect: moves to a tier that was removed meanwhile; a write at which the daemon died, behind
/// one of the engine's own; a label that had been restored.
#[test]
fn seeds_that_found_something_pass() {
    for seed in [7516, 25_514, 91_893, 120_331, 143_626, 155_162, 39_448, 208_849, 235_661, 239_975, 319_916] {
        if let Err(failure) = run_seed(seed, false) {
            panic!("CENOTE_SEED={seed}\n{failure}");
        }
    }
}

/// Seeds that once found a defect with weather: a tier that was never empty, since its pinned bytes could be read only
/// there, since a failed cut took each turn of the moves, or since a cut of deleted containers was retried without a
/// pause; a copy that came to lie where it was copied from; two copies of shared bytes, which are not too many.
#[test]
fn seeds_that_found_something_in_bad_weather_pass() {
    let hung = [10_852, 12_088, 12_864, 37_540, 56_367, 64_918, 73_024, 121_982, 122_091, 135_327, 141_593, 147_178];
    for seed in hung.into_iter().chain([39_686, 64_682, 66_992]) {
        if let Err(failure) = run_weather(seed, false) {
            panic!("CENOTE_SEED={seed}\n{failure}");
        }
    }
}
