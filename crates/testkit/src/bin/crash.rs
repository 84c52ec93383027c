//! The crash test: `crash [--kills N] [--seconds N] [--clients N] [--nodes N] [--protect N] [--early] [--seed N] [--dir DIR] [--quiet]`
//!
//! With `--protect` nodes are lost for good. The same program also runs as the clients (`client …`, `probe …`) and their
//! daemon (`serve …`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cenote_testkit::crash::{Options, Tally, client_main, probe_main, run};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let result = match words.first().map(String::as_str) {
        Some("client") => client_main(&words[1..]),
        Some("probe") => probe_main(&words[1..]),
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
        nodes: 1,
        protect: 0,
        early: false,
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
            "--nodes" => options.nodes = number(value()?)?.clamp(1, 8) as usize,
            "--protect" => options.protect = number(value()?)?.clamp(0, 3) as u8,
            "--seed" => options.seed = number(value()?)?,
            "--dir" => options.dir = PathBuf::from(value()?),
            "--early" => options.early = true,
            "--quiet" => options.verbose = false,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    println!("seed {}, store {}", options.seed, options.dir.display());
    let begin = Instant::now();
    let tally = run(&options)?;
    say(&tally, begin.elapsed());
    for failure in &tally.failures {
        println!("FAILED: {failure}");
    }
    if tally.failures.is_empty() { Ok(()) } else { Err("something acknowledged was lost, torn or wrong".into()) }
}

fn say(tally: &Tally, after: Duration) {
    println!(
        "{} kills ({} of daemons, {} of clients), {} pauses in {:.1} s; {} operations acknowledged, {} comparisons, {} failures",
        tally.kills(),
        tally.daemon_kills,
        tally.client_kills,
        tally.pauses,
        after.as_secs_f64(),
        tally.acknowledged,
        tally.comparisons,
        tally.failures.len()
    );
    if tally.losses + tally.absences + tally.hangs > 0 {
        println!(
            "{} nodes lost, {} away and back, {} hung and back, {} excluded by surprise; {} programs of such nodes gave up; the longest operation of a program on \
             another node took {:.1} s; all was mirrored again after {:.1} s at most",
            tally.losses,
            tally.absences,
            tally.hangs,
            tally.surprises,
            tally.given_up,
            tally.stall.as_secs_f64(),
            tally.whole.as_secs_f64()
        );
    }
}
