//! Prints the steps of a seed, for tests that are not written in Rust: `workload SEED WINDOW STEPS`.
//!
//! A line for each step: `+17` puts ordinal 17, `-17` deletes it.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use cenote_workload::{Step, Steps};

fn main() -> ExitCode {
    let numbers: Vec<u64> = std::env::args().skip(1).filter_map(|word| word.parse().ok()).collect();
    let [seed, window, count] = numbers[..] else {
        eprintln!("usage: workload SEED WINDOW STEPS");
        return ExitCode::from(2);
    };
    let mut steps = Steps::new(seed, u32::try_from(window).unwrap_or(u32::MAX));
    let mut out = BufWriter::new(std::io::stdout().lock());
    for _ in 0..count {
        let step = steps.step();
        let sign = if matches!(step, Step::Put(_)) { '+' } else { '-' };
        if writeln!(out, "{sign}{}", step.ordinal()).is_err() {
            return ExitCode::SUCCESS; // the reader has enough
        }
    }
    ExitCode::SUCCESS
}
