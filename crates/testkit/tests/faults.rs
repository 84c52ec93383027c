//! A bounded fault sweep; `cargo run --release -p cenote-testkit --bin faults` is the full one.

use std::time::Duration;

use cenote_testkit::faults::{Watchdog, segments_dir, sweep_bytes, sweep_io, sweep_segments};

#[test]
fn io_errors_and_deaths_are_errors_or_repairs() {
    let dog = Watchdog::start(Duration::from_mins(1));
    let report = sweep_io(1, 41, &dog);
    assert!(report.failures.is_empty(), "{} of {} cases: {}", report.failures.len(), report.cases, report.failures[0]);
    assert!(report.cases > 10, "only {} cases", report.cases);
}

#[test]
fn changed_bytes_are_errors_or_repairs() {
    let dog = Watchdog::start(Duration::from_mins(1));
    for clean in [true, false] {
        let report = sweep_bytes(2, clean, 24, 199, &dog);
        assert!(report.failures.is_empty(), "{} of {}: {}", report.failures.len(), report.cases, report.failures[0]);
        assert!(report.cases > 50 && report.errors > 10, "{} cases, {} errors", report.cases, report.errors);
    }
}

#[test]
fn damaged_files_of_real_tiers_are_errors_or_repairs() {
    let dog = Watchdog::start(Duration::from_mins(1));
    let report = sweep_segments(&segments_dir(), 53, &dog);
    assert!(report.failures.is_empty(), "{} of {}: {}", report.failures.len(), report.cases, report.failures[0]);
    assert!(report.cases > 100 && report.errors > 50, "{} cases, {} errors", report.cases, report.errors);
}
