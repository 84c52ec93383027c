//! Measures each bar of the store beside its reference, in one run: at least five alternating pairs, medians, spread.
//!
//! `cenote-benches [--only NAME]... [--quick] [--pairs N] [--dir DIR] [--list]`
//! Prints a table and writes one JSON object a line to `target/bench.jsonl`. It uses the store only as programs and
//! views do, through the crates `cenote` and `cenote-posix`; it must not know how the store works.

#![allow(unsafe_code, reason = "a function of the allocator that its crate offers only with more dependencies")]

mod blocks;
mod cluster;
mod create;
mod curves;
mod files;
mod hdf5;
mod index;
mod latency;
mod measure;
mod metadata;
mod names;
mod packing;
mod peers;
mod places;
mod reference;
mod telemetry;

use std::process::ExitCode;

use measure::{Report, Settings};

type Bench = (&'static str, fn(&mut Report) -> Outcome);
/// The result of a bench: nothing, or why it could not be measured.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Benches that run only when named, and why.
const ON_DEMAND: &[(&str, &str)] = &[("store.ten_million", "makes 10 M objects: minutes, and 8 GB of memory")];
/// Bars that other commands measure: name, command, and the bar.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("crash", "make crash", "at least 500 kills, 0 acknowledged updates lost, 0 torn transactions"),
    ("faults", "make faults", "0 panics, 0 hangs, 0 wrong bytes"),
    ("simulate", "make simulate", "100,000 seeds within 10 minutes, all as the oracle says"),
];
const BENCHES: &[Bench] = &[
    ("store.get_4k", blocks::get_4k),
    ("store.put_4k", blocks::put_4k),
    ("store.put_1m", blocks::put_1m),
    ("store.get_1m", blocks::get_1m),
    ("store.by_reference", blocks::by_reference),
    ("store.file_put_1m", files::file_put_1m),
    ("store.file_get_1m", files::file_get_1m),
    ("store.create", create::create),
    ("index.put", index::put),
    ("index.get", index::get),
    ("index.next", index::next),
    ("store.metadata_bytes", metadata::metadata_and_open),
    ("store.ten_million", metadata::ten_million),
    ("curve.blocks", curves::blocks),
    ("curve.extents", curves::extents),
    ("telemetry.get_4k", telemetry::gets),
    ("telemetry.put_4k", telemetry::puts),
    ("telemetry.put_4k_waited", telemetry::puts_waited_for),
    ("hdf5.write_1m", hdf5::both),
    ("packed", packing::packing),
    ("heat.get_4k", telemetry::gets_tracked),
    ("heat.put_4k", telemetry::puts_tracked),
    ("names", names::names),
    ("cluster.local", cluster::local),
    ("cluster.remote", cluster::remote),
    ("cluster.index_put", peers::records),
    ("cluster.transaction", peers::transactions),
    ("cluster.parity", peers::parity),
];

unsafe extern "C" {
    /// Gives freed memory back to the system, as the daemon does after a checkpoint.
    safe fn mi_collect(force: bool);
}

/// The daemon's allocator, for both sides of each comparison.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cenote_host::memory::on_release(|| mi_collect(true));
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--child") {
        let done = match &words[1..] {
            [what, dir, policy] if what == "telemetry" => telemetry::child(dir, policy),
            [what, dir, policy] if what == "latency" => latency::child(dir, policy),
            [what, kind, dir, who, files] if what == "names" => names::child(kind, dir, who, files),
            words => metadata::child(words),
        };
        return match done {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("child: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let settings = match Settings::parse(&words) {
        Ok(settings) => settings,
        Err(message) => {
            eprintln!("cenote-benches: {message}");
            eprintln!("usage: cenote-benches [--only NAME]... [--quick] [--pairs N] [--dir DIR] [--list]");
            return ExitCode::from(2);
        }
    };
    if settings.list {
        for (name, _) in BENCHES {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    }
    let mut report = Report::new(settings);
    for (name, bench) in BENCHES {
        if !report.wants(name) {
            continue;
        }
        if let Some((_, why)) = ON_DEMAND.iter().find(|(on_demand, _)| on_demand == name)
            && !report.wants_by_name(name)
        {
            report.skip(name, &format!("only with `--only {name}`: it {why}"));
            continue;
        }
        report.begin(name);
        if let Err(error) = bench(&mut report) {
            report.skip(name, &error.to_string());
        }
    }
    for (bar, command, wanted) in ELSEWHERE {
        report.elsewhere(bar, command, wanted);
    }
    match report.finish() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cenote-benches: {error}");
            ExitCode::FAILURE
        }
    }
}
