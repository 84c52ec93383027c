//! Runs the engine under simulation for many seeds, or replays one seed.
//!
//! `simulate [--weather | --engines N | --nodes] [--seeds N] [--from SEED] [--threads N] [--keep-going] [--seconds N]` or
//! `simulate [--weather | --engines N | --nodes] --seed SEED [--trace]`; with `--weather` devices vanish, fill, fail and shrink
//! while things move; with `--engines` several engines share the devices of a store; with `--nodes` a cluster has mirrored
//! homes, and its nodes and links fail.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cenote_testkit::sim::{Failure, Summary, run_cluster, run_fleet, run_seed, run_weather};

/// What is simulated.
#[derive(Clone, Copy)]
enum World {
    Store,
    Weather,
    Engines(u16),
    Nodes,
}

struct Options {
    seeds: u64,
    from: u64,
    threads: usize,
    keep_going: bool,
    one: Option<u64>,
    trace: bool,
    world: World,
    seconds: u64,
}

impl Options {
    fn run(&self, seed: u64, print: bool) -> Result<Summary, Failure> {
        match self.world {
            World::Store => run_seed(seed, print),
            World::Weather => run_weather(seed, print),
            World::Engines(engines) => run_fleet(seed, engines, print),
            World::Nodes => run_cluster(seed, print),
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        seeds: 1000,
        from: 0,
        threads: std::thread::available_parallelism().map_or(2, usize::from),
        keep_going: false,
        one: std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()),
        trace: false,
        world: World::Store,
        seconds: u64::MAX,
    };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let text = words.next().ok_or(format!("{word} needs a number"))?;
            text.parse::<u64>().map_err(|_| format!("{word}: `{text}` is no number"))
        };
        match word.as_str() {
            "--seeds" => options.seeds = number()?,
            "--from" => options.from = number()?,
            "--threads" => options.threads = number()?.max(1) as usize,
            "--seed" => options.one = Some(number()?),
            "--seconds" => options.seconds = number()?,
            "--engines" => {
                let engines = number()?.min(16) as u16;
                options.world = if engines > 1 { World::Engines(engines) } else { World::Store };
            }
            "--weather" => options.world = World::Weather,
            "--nodes" => options.world = World::Nodes,
            "--trace" => options.trace = true,
            "--keep-going" => options.keep_going = true,
            _ => return Err(format!("unknown option {word}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(message) => {
            eprintln!(
                "simulate: {message}\nusage: simulate [--weather | --engines N | --nodes] [--seeds N] [--from SEED] [--threads N] \
                 [--keep-going] [--seconds N] | [--weather | --engines N | --nodes] --seed SEED [--trace]"
            );
            return ExitCode::from(2);
        }
    };
    // A panic is a finding with a seed; its own message would only repeat it.
    if options.one.is_none() {
        std::panic::set_hook(Box::new(|_| {}));
    }
    if let Some(seed) = options.one {
        return match options.run(seed, options.trace) {
            Ok(summary) => {
                println!("seed {seed} passes: {summary:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    if many(&options) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn many(options: &Options) -> bool {
    let next = AtomicU64::new(options.from);
    let end = options.from + options.seeds;
    let stop = AtomicBool::new(false);
    let failures: Mutex<Vec<Failure>> = Mutex::default();
    let total: Mutex<Summary> = Mutex::default();
    let done = AtomicU64::new(0);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let late = begin.elapsed().as_secs() >= options.seconds;
                    if seed >= end || late || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    match options.run(seed, false) {
                        Ok(summary) => add(&mut total.lock().expect("no holder panics"), &summary),
                        Err(failure) => {
                            let mut failures = failures.lock().expect("no holder panics");
                            if failures.is_empty() {
                                println!("\n{failure}");
                            } else {
                                println!("\nseed {} FAILED: {}", failure.seed, failure.message);
                            }
                            failures.push(failure);
                            if !options.keep_going {
                                stop.store(true, Ordering::Relaxed);
                            }
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        scope.spawn(|| progress(options, &done, &stop, begin));
    });
    let failures = failures.into_inner().expect("no holder panics");
    let seconds = begin.elapsed().as_secs_f64();
    let total = total.into_inner().expect("no holder panics");
    println!("\n{} seeds in {seconds:.1} s: {} failed\n{total:?}", done.into_inner(), failures.len());
    failures.is_empty()
}

fn progress(options: &Options, done: &AtomicU64, stop: &AtomicBool, begin: Instant) {
    let mut last_shown = Instant::now();
    loop {
        std::thread::sleep(std::time::Duration::from_millis(100));
        let so_far = done.load(Ordering::Relaxed);
        let late = begin.elapsed().as_secs() >= options.seconds;
        if so_far >= options.seeds || late || stop.load(Ordering::Relaxed) {
            return;
        }
        if last_shown.elapsed().as_secs() >= 2 {
            last_shown = Instant::now();
            let seconds = begin.elapsed().as_secs_f64();
            let left = seconds / so_far.max(1) as f64 * (options.seeds - so_far) as f64;
            eprint!("\r{so_far} of {} seeds, {seconds:.0} s, about {left:.0} s to go   ", options.seeds);
        }
    }
}

fn add(total: &mut Summary, one: &Summary) {
    total.steps += one.steps;
    total.requests += one.requests;
    total.updates += one.updates;
    total.deaths += one.deaths;
    total.power_losses += one.power_losses;
    total.errors += one.errors;
    total.flips += one.flips;
    total.jobs += one.jobs;
    total.faulty += one.faulty;
    total.losses += one.losses;
    total.recoveries += one.recoveries;
    total.packed += one.packed;
    total.shared += one.shared;
    total.cluster.add(&one.cluster);
}
