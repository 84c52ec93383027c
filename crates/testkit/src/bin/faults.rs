//! The full fault sweep: `faults [--seeds N] [--from SEED] [--io-stride N] [--byte-stride N]`

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote_testkit::faults::{Watchdog, segments_dir, sweep, sweep_segments};

fn main() -> ExitCode {
    let mut numbers = [("--seeds", 6u64), ("--from", 0), ("--io-stride", 1), ("--byte-stride", 1)];
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().and_then(|text| text.parse().ok());
        let slot = numbers.iter_mut().find(|(name, _)| *name == word);
        let (Some(slot), Some(value)) = (slot, value) else {
            eprintln!("usage: faults [--seeds N] [--from SEED] [--io-stride N] [--byte-stride N]");
            return ExitCode::from(2);
        };
        slot.1 = value;
    }
    let [(_, seeds), (_, from), (_, io_stride), (_, byte_stride)] = numbers;
    std::panic::set_hook(Box::new(|_| {}));
    let begin = Instant::now();
    let dog = Watchdog::start(Duration::from_secs(20));
    let report = sweep_segments(&segments_dir(), byte_stride as usize, &dog);
    for failure in report.failures.iter().take(20) {
        println!("{failure}\n");
    }
    println!("files of real tiers: {} cases, {} failures", report.cases, report.failures.len());
    let (mut cases, mut errors, mut repaired) = (report.cases, report.errors, report.repaired);
    let mut failures = report.failures.len();
    let begin_seeds = Instant::now();
    for seed in from..from + seeds {
        let report = sweep(seed..seed + 1, io_stride, byte_stride as usize, &dog);
        for failure in report.failures.iter().take(20) {
            println!("{failure}\n");
        }
        cases += report.cases;
        errors += report.errors;
        repaired += report.repaired;
        failures += report.failures.len();
        let done = seed - from + 1;
        let left = begin_seeds.elapsed().as_secs_f64() / done as f64 * (seeds - done) as f64;
        println!("seed {seed}: {} cases, {} failures; about {left:.0} s to go", report.cases, report.failures.len());
    }
    println!(
        "{cases} cases in {:.1} s: {errors} errors, {repaired} unharmed or repaired, {failures} FAILURES",
        begin.elapsed().as_secs_f64()
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
