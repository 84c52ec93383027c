//! One engine beside four in one daemon: `cargo run --release --example engines -- [clients] [rounds] [seconds]`.
//!
//! Two stores, alike but for the number of engines, each with a daemon; as many client processes as asked for, each with a
//! container of its own. They work on one store and on the other in turns; what counts is the ratio within a pair.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Durability, Mode, OpenOptions, Result, Store, StoreConfig};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 16 << 10;
const KINDS: [&str; 2] = ["put", "create"];
const ENGINES: [u16; 2] = [1, 4];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some("serve") => {
            let background = args.iter().any(|arg| arg == "--background");
            let idle_exit = Some(Duration::from_mins(1));
            let options = cenote_server::daemon::DaemonOptions { idle_exit, background, ..Default::default() };
            cenote_server::daemon::run(args[1].as_ref(), &options)
        }
        Some("client") => client(args[1].as_ref(), &args[2]),
        _ => {
            let number = |at: usize, preset: f64| args.get(at).and_then(|arg| arg.parse().ok()).unwrap_or(preset);
            compare(number(0, 4.0) as usize, number(1, 7.0) as usize, Duration::from_secs_f64(number(2, 0.5)))
        }
    }
}

fn make(dir: &Path, engines: u16) -> Result<Store> {
    let devices = common::memory_over_disk(dir, 3 << 30, 4 << 30);
    let config = StoreConfig { devices, engines, ..StoreConfig::default() };
    Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, create: true, config, ..OpenOptions::default() })
}

/// A client process: does what its input says (a kind and a time in milliseconds), and prints how often.
struct Worker {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(dir: &Path, label: &str) -> Self {
        let program = std::env::current_exe().expect("a program knows its file");
        let mut command = Command::new(program);
        command.arg("client").arg(dir).arg(label).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the system starts a process");
        let output = BufReader::new(child.stdout.take().expect("its output is piped"));
        let mut worker = Self { child, output };
        worker.line();
        worker
    }
    fn line(&mut self) -> f64 {
        let mut line = String::new();
        let _ = self.output.read_line(&mut line);
        line.trim().parse().unwrap_or(0.0)
    }
    fn ask(&mut self, kind: &str, time: Duration) {
        if let Some(input) = &mut self.child.stdin {
            let _ = writeln!(input, "{kind} {}", time.as_millis());
        }
    }
}

fn compare(clients: usize, rounds: usize, time: Duration) -> Result<()> {
    let base = std::env::temp_dir().join(format!("cenote-engines-{}", std::process::id()));
    std::fs::create_dir_all(&base).map_err(|error| cenote::Error::io("a directory for the stores", &error))?;
    let mut stores = Vec::new();
    for engines in ENGINES {
        let dir = base.join(format!("engines-{engines}"));
        let store = make(&dir, engines)?;
        let labels = labels(&store, clients, engines)?;
        let workers: Vec<Worker> = labels.iter().map(|label| Worker::start(&dir, label)).collect();
        stores.push((store, dir, workers));
    }
    for kind in KINDS {
        let mut ratios = Vec::new();
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            let mut rate = [0.0; 2];
            for turn in 0..2 {
                let which = (turn + round) % 2;
                let workers = &mut stores[which].2;
                for worker in workers.iter_mut() {
                    worker.ask(kind, time);
                }
                rate[which] = workers.iter_mut().map(Worker::line).sum();
            }
            if round > 0 {
                ratios.push(rate[1] / rate[0]);
                rates.iter_mut().zip(rate).for_each(|(rates, rate)| rates.push(rate));
            }
        }
        let (one, four) = (median(&mut rates[0]), median(&mut rates[1]));
        let ratio = median(&mut ratios);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "{kind:<6} {clients} clients: one engine {one:>9.0}/s, four {four:>9.0}/s, four/one {ratio:.2} ({least:.2}-{most:.2})"
        );
    }
    for (store, dir, workers) in stores {
        for mut worker in workers {
            drop(worker.child.stdin.take());
            let _ = worker.child.wait();
        }
        store.close()?;
        let _ = Store::stop_daemon(&dir);
        let _ = Store::destroy(&dir, true);
    }
    let _ = std::fs::remove_dir_all(&base);
    Ok(())
}

/// New containers, evenly over the engines.
fn labels(store: &Store, clients: usize, engines: u16) -> Result<Vec<String>> {
    let scratch = ContainerSpec { durability: Durability::Scratch, ..ContainerSpec::default() };
    let mut labels = Vec::new();
    for number in 0.. {
        if labels.len() == clients {
            break;
        }
        let label = format!("container-{number}");
        let container = store.create_container(&label, &scratch)?;
        if container.id().0 % u64::from(engines) == labels.len() as u64 % u64::from(engines) {
            labels.push(label);
        }
    }
    Ok(labels)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn client(dir: &Path, label: &str) -> Result<()> {
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() })?;
    let container = store.container(label)?;
    let object = container.create_object(None, None)?;
    let page = vec![1u8; BLOCK];
    for at in 0..BLOCKS {
        drop(object.launch_write(at * BLOCK as u64, &page)?);
    }
    store.wait_all()?;
    say(0.0);
    let mut input = BufReader::new(std::io::stdin().lock());
    let mut line = String::new();
    let mut at = 1u64;
    while input.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let mut words = line.split_whitespace();
        let (kind, ms) = (words.next().unwrap_or(""), words.next().and_then(|word| word.parse().ok()).unwrap_or(0));
        let (begin, mut count) = (Instant::now(), 0u64);
        while begin.elapsed() < Duration::from_millis(ms) {
            for _ in 0..64 {
                if kind == "put" {
                    at = (at * 6_364_136 + 1_442_695) % BLOCKS;
                    drop(object.launch_write(at * BLOCK as u64, &page)?);
                } else {
                    drop(container.launch_create(None, None)?);
                }
                count += 1;
            }
        }
        store.wait_all()?;
        say(count as f64 / begin.elapsed().as_secs_f64());
        line.clear();
    }
    store.close()
}

fn say(number: f64) {
    println!("{number}");
    let _ = std::io::stdout().flush();
}
