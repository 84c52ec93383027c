//! `advise`: watches an unmodified program and recommends a tier for each of its files and memory objects.
//!
//! The program keeps its standard streams: the report goes to standard error, or to a file.

mod args;
mod plot;
mod policy_file;
mod program;
mod report;
mod sample;
mod signals;
mod tiers;
mod watch;

pub use args::AdviseArgs;

use std::fs::File;
use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind};
use cenote_advise::advise as judge;

use super::Context;
use crate::failure::{Done, Failure};
use crate::out::Out;

/// File name of the tracer.
const TRACER: &str = "libcenote_trace.so";
/// Environment variable with its path.
const TRACER_VARIABLE: &str = "CENOTE_TRACE_LIBRARY";

pub fn advise(context: &mut Context<'_>, args: &AdviseArgs) -> Done {
    // Find every error before the program does anything.
    let tracer = tracer()?;
    let program = program::find(&args.program[0])?;
    let known = tiers::known(context, args.apply)?;
    if let Some(plot) = &args.plot {
        plot::check(plot)?;
    }
    let mut out = match &args.output {
        None => Out::to(Box::new(std::io::stderr()), context.out.json),
        Some(file) => {
            let made = File::create(file).map_err(|error| Error::io(format!("report {}", file.display()), &error))?;
            Out::to(Box::new(made), context.out.json)
        }
    };
    let mut seen = watch::watch(&program, args, &tracer)?;
    report::look_again(&mut seen.run);
    let advice = judge(&seen.run, &known.tiers, seen.wall_s);
    let reported = told(&mut out, args, &known, &seen, &advice);
    // The program's outcome takes precedence over the report's.
    match (seen.exit_code, reported) {
        (0, reported) => reported,
        (code, reported) => {
            if let Err(failure) = reported {
                failure.report();
            }
            Err(Failure::Program(code))
        }
    }
}

/// Writes the requested outputs.
fn told(
    out: &mut Out,
    args: &AdviseArgs,
    known: &tiers::TierSet,
    seen: &watch::Seen,
    advice: &cenote_advise::Advice,
) -> Done {
    let mut policy: Option<(PathBuf, cenote_advise::Rules)> = None;
    // If nothing was seen, no policy is replaced.
    if seen.run.processes > 0 {
        for file in [known.policy_file(args.apply), args.policy.clone()].into_iter().flatten() {
            let rules = cenote_advise::policy_text(advice, &known.tiers)?;
            policy_file::write(&file, &rules.text)?;
            policy = Some((file, rules));
        }
    }
    if let Some(file) = &args.plot {
        plot::draw(file, advice, &known.tiers)?;
    }
    let policy = policy.as_ref().map(|(file, rules)| (file.as_path(), rules));
    report::write(out, args, known, seen, advice, policy)?;
    out.flush()
}

/// Finds the library to preload: in the variable, next to the command, or in the installation directory.
fn tracer() -> cenote::Result<PathBuf> {
    if let Some(named) = std::env::var_os(TRACER_VARIABLE).filter(|named| !named.is_empty()) {
        return usable(Path::new(&named)).ok_or_else(|| missing(&[PathBuf::from(named)]));
    }
    let mut places = Vec::new();
    if let Ok(own) = std::env::current_exe().and_then(std::fs::canonicalize)
        && let Some(dir) = own.parent()
    {
        places.extend([dir.join(TRACER), dir.join("../lib/cenote").join(TRACER), dir.join("../lib").join(TRACER)]);
    }
    places.iter().find_map(|place| usable(place)).ok_or_else(|| missing(&places))
}

/// Returns an absolute path, if the run-time linker's list can hold it.
fn usable(place: &Path) -> Option<PathBuf> {
    let place = std::fs::canonicalize(place).ok()?;
    let text = place.to_str()?;
    // Spaces and colons separate the entries of the list.
    (!text.contains([' ', ':'])).then_some(place)
}

fn missing(places: &[PathBuf]) -> Error {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Error::new(ErrorKind::NotFound, format!("the tracer {TRACER}"))
        .because(format!(
            "it is not to be had as {} (a path with a space or colon would not do either)",
            places.join(", ")
        ))
        .try_next(format!("build it (make build), or name it in {TRACER_VARIABLE}"))
}
