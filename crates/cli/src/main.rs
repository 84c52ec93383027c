//! The `cenote` command: reads the command line, calls the client, and writes for people (or, with `--json`, for
//! programs).
//!
//! This crate must not know how the engine keeps its data: everything goes through the client's API, as for any other
//! program. Only `serve` names the daemon.
//!
//! Exit codes: 0 success, 1 failure, 2 invalid command line, 3 damage found.

mod allocator;
mod args;
mod cmd;
mod config;
mod copy;
mod durability;
mod failure;
mod mode;
mod out;
mod target;
mod users;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;

/// `mount -t cenote` calls a program `mount.cenote` with its arguments.
const AS_HELPER: &str = "mount.cenote";

/// Returns the command line; called as `mount.cenote`, that of `cenote mount`.
fn words() -> Vec<OsString> {
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.first().is_some_and(|name| Path::new(name).file_name() == Some(AS_HELPER.as_ref())) {
        words.insert(1, "mount".into());
    }
    words
}

fn main() -> ExitCode {
    allocator::set_up();
    let cli = args::Cli::parse_from(words());
    let mut out = out::Out::new(cli.json);
    match cmd::run(&cli, &mut out).and_then(|()| out.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
