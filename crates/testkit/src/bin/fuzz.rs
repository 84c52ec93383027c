//! Runs seeded mutations of valid inputs through every decoder: `fuzz [--target NAME] [--seconds N] [--seed N]`.
//! For libFuzzer, `fuzz seeds DIR` writes valid inputs for each target into a directory, and `fuzz list` lists the
//! targets.
//!
//! An input that makes a target fail is written to `target/fuzz-<name>-<n>`; `fuzz replay NAME FILE` runs it again.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use cenote_testkit::fuzz::{TARGETS, Target, target};

const USAGE: &str = "usage: fuzz [--target NAME] [--seconds N] [--seed N] | list | seeds DIR | replay NAME FILE";

/// Location and message of the last panic.
static PLACE: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["list"] => {
            for target in TARGETS {
                println!("{}", target.name);
            }
            Ok(())
        }
        ["seeds", dir] => seeds(Path::new(dir)),
        ["replay", name, file] => replay(name, file),
        options => run(options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn seeds(dir: &Path) -> Result<(), String> {
    for target in TARGETS {
        let dir = dir.join(target.name);
        std::fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        for (number, seed) in (target.seeds)().iter().enumerate() {
            std::fs::write(dir.join(format!("seed-{number}")), seed).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

fn replay(name: &str, file: &str) -> Result<(), String> {
    let target = target(name).ok_or(USAGE)?;
    let input = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    (target.run)(&input);
    Ok(())
}

fn run(options: &[&str]) -> Result<(), String> {
    let (mut only, mut seconds, mut seed) = (None, 20, None);
    for pair in options.chunks(2) {
        let number = || pair.get(1).and_then(|text| text.parse::<u64>().ok()).ok_or(USAGE);
        match pair {
            ["--target", name] => only = Some(target(name).ok_or(USAGE)?),
            ["--seconds", _] => seconds = number()?,
            ["--seed", _] => seed = Some(number()?),
            _ => return Err(USAGE.into()),
        }
    }
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let seed = seed.unwrap_or(now);
    println!("seed {seed}");
    std::panic::set_hook(Box::new(|info| {
        if let Ok(mut place) = PLACE.lock() {
            place.1 = info.to_string();
            place.0 = info.location().map(ToString::to_string).unwrap_or_default();
        }
    }));
    let mut failures = 0;
    for target in TARGETS.iter().filter(|target| only.is_none_or(|only| only.name == target.name)) {
        failures += one(target, seed, Duration::from_secs(seconds));
    }
    if failures == 0 { Ok(()) } else { Err(format!("{failures} places fail; see target/fuzz-*")) }
}

/// Continues after failures; reports each location once.
fn one(target: &Target, seed: u64, limit: Duration) -> usize {
    let begin = Instant::now();
    let mut places: BTreeMap<String, (u64, String)> = BTreeMap::new();
    let (mut round, mut done) = (0, 0);
    while begin.elapsed() < limit {
        let mut last = Vec::new();
        let run = catch_unwind(AssertUnwindSafe(|| {
            target.run_mutations(seed.wrapping_add(round), u64::MAX, |input| {
                last.clear();
                last.extend_from_slice(input);
                done += 1;
                begin.elapsed() < limit
            })
        }));
        round += 1;
        if run.is_err() {
            let (place, said) = PLACE.lock().map(|place| place.clone()).unwrap_or_default();
            let found = places.entry(place).or_insert((0, said));
            found.0 += 1;
            if found.0 == 1 {
                let file = Path::new("target").join(format!("fuzz-{}-{}", target.name, places.len()));
                let _ = std::fs::write(file, &last);
            }
        }
    }
    println!("{:<12} {done} inputs, {} failures", target.name, places.len());
    for (count, said) in places.values() {
        println!("  {count} x {said}");
    }
    places.len()
}
