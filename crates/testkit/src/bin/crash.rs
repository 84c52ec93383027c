//! The crash test: `crash [--kills N] [--seconds N] [--clients N] [--seed N] [--dir DIR] [--quiet]`
//!
//! The same program also runs as the clients (`client …`) and their daemon (`serve …`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote_testkit::crash::{Options, client_main, run};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.first().map(String::as_str) {
        Some("client") => client_main(&words[1..]),
        Some("serve") => cenote_testkit::crash::serve_main(&words[1..]),
        // Clients start the daemon from this program.
        _ if std::env::var_os("CENOTE_BIN").is_none() => again(&words),
        _ => test(&words),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("crash: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Runs itself with the path of the daemon's program in the environment.
fn again(words: &[String]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let status = std::process::Command::new(&program).args(words).env("CENOTE_BIN", &program).status();
    if status.map_err(|e| e.to_string())?.success() { Ok(()) } else { Err("see above".into()) }
}

fn test(words: &[String]) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok());
    let mut options = Options {
        seed: seed.unwrap_or_else(|| u64::from(std::process::id())),
        kills: 500,
        limit: Duration::from_mins(10),
        clients: 3,
        dir: std::env::temp_dir().join(format!("cenote-crash-{}", std::process::id())),
        program,
        verbose: true,
    };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        let number = |text: &String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--kills" => options.kills = number(value()?)?,
            "--seconds" => options.limit = Duration::from_secs(number(value()?)?),
            "--clients" => options.clients = number(value()?)?.clamp(1, 4),
            "--seed" => options.seed = number(value()?)?,
            "--dir" => options.dir = PathBuf::from(value()?),
            "--quiet" => options.verbose = false,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    println!("seed {}, store {}", options.seed, options.dir.display());
    let begin = Instant::now();
    let tally = run(&options)?;
    println!(
        "{} kills ({} of daemons, {} of clients) in {:.1} s; {} operations acknowledged, {} comparisons, {} failures",
        tally.daemon_kills + tally.client_kills,
        tally.daemon_kills,
        tally.client_kills,
        begin.elapsed().as_secs_f64(),
        tally.acknowledged,
        tally.comparisons,
        tally.failures.len()
    );
    for failure in &tally.failures {
        println!("FAILED: {failure}");
    }
    if tally.failures.is_empty() { Ok(()) } else { Err("something acknowledged was lost, torn or wrong".into()) }
}
