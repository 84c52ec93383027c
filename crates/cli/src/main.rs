//! The `cenote` command: the composition root.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cenote_model::{Error, ErrorKind, Result};
use cenote_server::daemon::{self, DaemonOptions};

fn main() -> ExitCode {
    match command(std::env::args_os().skip(1)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cenote: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command(mut args: impl Iterator<Item = OsString>) -> Result<()> {
    match args.next().as_ref().and_then(|word| word.to_str()) {
        Some("serve") => serve(args),
        _ => Err(usage("cenote serve DIR [--idle-exit SECONDS] [--background] [--create]")),
    }
}

fn serve(mut args: impl Iterator<Item = OsString>) -> Result<()> {
    let mut dir = None;
    let mut options = DaemonOptions::default();
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--background") => options.background = true,
            Some("--create") => options.create = true,
            Some("--idle-exit") => {
                let seconds = args.next().and_then(|a| a.to_str().and_then(|s| s.parse::<u64>().ok()));
                options.idle_exit = Some(Duration::from_secs(seconds.ok_or_else(|| usage("--idle-exit SECONDS"))?));
            }
            _ if dir.is_none() => dir = Some(PathBuf::from(arg)),
            _ => return Err(usage("cenote serve DIR [--idle-exit SECONDS] [--background] [--create]")),
        }
    }
    daemon::run(&dir.ok_or_else(|| usage("cenote serve DIR"))?, &options)
}

fn usage(line: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "command line").try_next(format!("usage: {line}"))
}
