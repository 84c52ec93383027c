//! Measures each bar of the store beside its reference, in one run: at least five alternating pairs, medians, spread.
//!
//! `cenote-benches [--only NAME]... [--quick] [--pairs N] [--dir DIR] [--list]`
//! Prints a table and writes one JSON object a line to `target/bench.jsonl`. It reaches the store only as a program
//! would, through the `cenote` crate; it must not know how the store does anything.

mod blocks;
mod create;
mod curves;
mod files;
mod hdf5;
mod index;
mod measure;
mod metadata;
mod places;
mod reference;

use std::process::ExitCode;

use measure::{Report, Settings};

type Bench = (&'static str, fn(&mut Report) -> Outcome);
/// What a bench gives: nothing, or why it could not be measured.
pub type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

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
    ("curve.blocks", curves::blocks),
    ("curve.extents", curves::extents),
    ("hdf5.write_1m", hdf5::both),
];

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "--child") {
        return match metadata::child(&words[1..]) {
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
        report.begin(name);
        if let Err(error) = bench(&mut report) {
            report.skip(name, &error.to_string());
        }
    }
    match report.finish() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cenote-benches: {error}");
            ExitCode::FAILURE
        }
    }
}
