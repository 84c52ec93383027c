//! Moves between real tiers, with a daemon that dies at every step:
//! `chaos [--stride N] [--seconds N] [--seed N] [--dir DIR] [--quiet]`
//!
//! The same program also runs as the daemon (`serve …`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote_testkit::chaos::{Options, environment, run, serve_main};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.first().map(String::as_str) {
        Some("serve") => serve_main(&words[1..]),
        _ => options(&words).and_then(|options| {
            if std::env::var_os("CENOTE_BIN").is_none() { again(&words, &options) } else { test(&options) }
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("chaos: {message}");
            ExitCode::FAILURE
        }
    }
}

fn options(words: &[String]) -> Result<Options, String> {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok());
    let parent =
        std::env::var_os("CENOTE_CHAOS_OF").map_or_else(std::process::id, |_| std::os::unix::process::parent_id());
    let mut options = Options {
        seed: seed.unwrap_or_else(|| u64::from(parent)),
        stride: 1,
        limit: Duration::from_mins(4),
        dir: std::env::temp_dir().join(format!("cenote-chaos-{parent}")),
        verbose: true,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--stride" => options.stride = number(value()?)?.max(1),
            "--seconds" => options.limit = Duration::from_secs(number(value()?)?),
            "--seed" => options.seed = number(value()?)?,
            "--dir" => options.dir = PathBuf::from(value()?),
            "--quiet" => options.verbose = false,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

/// Runs itself with the environment that daemons need.
fn again(words: &[String], options: &Options) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let (name, arm) = environment(&options.dir);
    let mut command = std::process::Command::new(&program);
    command.args(words).env("CENOTE_BIN", &program).env("CENOTE_CHAOS_OF", "").env(name, arm);
    if command.status().map_err(|e| e.to_string())?.success() { Ok(()) } else { Err("see above".into()) }
}

fn test(options: &Options) -> Result<(), String> {
    println!("seed {}, store {}", options.seed, options.dir.display());
    let begin = Instant::now();
    let tally = run(options)?;
    println!(
        "{} deaths within {} kinds of moves in {:.1} s; {} comparisons, longest move {:.1} s, {} failures",
        tally.deaths,
        tally.kinds,
        begin.elapsed().as_secs_f64(),
        tally.comparisons,
        tally.longest.as_secs_f64(),
        tally.failures.len()
    );
    for failure in &tally.failures {
        println!("FAILED: {failure}\nreplay: CENOTE_SEED={} chaos --stride {}", options.seed, options.stride);
    }
    if tally.failures.is_empty() { Ok(()) } else { Err("something was lost, kept twice, or stuck".into()) }
}
