//! The cost of counting, and of tracking heat: two programs with a daemon each, one of which has it enabled, in turns.

use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cenote::{ContainerSpec, Durability, Mode, OpenOptions, Store};

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, memory};
use crate::reference::shuffled;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
const SPAN: usize = 128 * MIB;
/// Turns of each program for one figure; they are short, so that other load on the machine affects both alike.
const TURNS: usize = 40;
/// Environment variable that turns counting off in a process and in the daemon that it starts.
const VARIABLE: &str = "CENOTE_TELEMETRY";

/// The settings of a program's store.
#[derive(Clone, Copy)]
struct StoreSetting {
    /// Everything is counted and observed.
    counting: bool,
    /// The container's policy.
    policy: &'static str,
}

/// The program: `--child telemetry DIR POLICY`. For each line `get COUNT` or `put COUNT` it does that, and prints the
/// rate.
pub fn child(dir: &str, policy: &str) -> Outcome {
    let config = cenote::StoreConfig { devices: vec![memory(768)], ..cenote::StoreConfig::default() };
    let options = OpenOptions { mode: Mode::Daemon, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let spec = ContainerSpec { durability: Durability::Scratch, policy: policy.to_owned(), ..ContainerSpec::default() };
    let object = store.create_container("bench", &spec)?.create_object(None, Some(12))?;
    let piece = vec![3u8; MIB];
    for at in (0..SPAN).step_by(MIB) {
        object.write_at(at as u64, &piece)?;
    }
    println!("ready");
    let (mut buf, data) = (vec![0u8; BLOCK], vec![5u8; BLOCK]);
    for (turn, line) in std::io::stdin().lines().enumerate() {
        let line = line?;
        let (what, count) = line.split_once(' ').ok_or("what, and how often")?;
        let count: u64 = count.parse()?;
        let blocks = shuffled((SPAN / BLOCK) as u64, count, turn as u64);
        let rate = rate(count, || {
            for block in &blocks {
                let at = block * BLOCK as u64;
                match what {
                    "get" => drop(black_box(object.read_at(at, &mut buf)?)),
                    "put" => drop(object.launch_write(at, &data)?),
                    _ => object.write_at(at, &data)?,
                }
            }
            Ok(store.wait_all()?)
        })?;
        println!("{rate}");
    }
    store.close()?;
    Ok(())
}

/// A running program, and the observer of its store.
struct Program {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    watcher: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Program {
    fn start(dir: &Path, StoreSetting { counting, policy }: StoreSetting) -> Outcome<Self> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["--child", "telemetry", &dir.to_string_lossy(), policy])
            .env(VARIABLE, if counting { "1" } else { "0" })
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(process.stdout.take().ok_or("no pipe")?);
        let input = process.stdin.take();
        let mut program = Self { process, input, output, watcher: None };
        program.line()?;
        if counting {
            program.watcher = Some(watch(dir)?);
        }
        Ok(program)
    }
    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_owned())
    }
    fn turn(&mut self, what: &str, count: u64) -> Outcome<f64> {
        let input = self.input.as_mut().ok_or("no pipe")?;
        writeln!(input, "{what} {count}")?;
        input.flush()?;
        Ok(self.line()?.parse()?)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.watcher.take() {
            stop.store(true, Ordering::Relaxed);
            let _ = thread.join();
        }
        drop(self.input.take()); // ends the program's input
        let _ = self.process.wait();
    }
}

/// Requests a store's telemetry once a second, as `cenote top` and the page do.
fn watch(dir: &Path) -> Outcome<(Arc<AtomicBool>, JoinHandle<()>)> {
    let options = OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let stop = Arc::new(AtomicBool::new(false));
    let until = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut next = Instant::now();
        while !until.load(Ordering::Relaxed) {
            if Instant::now() >= next {
                let _ = store.telemetry(20);
                next += Duration::from_secs(1);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    Ok((stop, thread))
}

/// Rates with one setting and with the other: medians of turns.
fn session(what: &str, count: u64, round: usize, [one, other]: [StoreSetting; 2]) -> Outcome<(f64, f64)> {
    let place = BenchDir::in_memory("telemetry")?;
    let (on_dir, off_dir) = (place.path().join("on"), place.path().join("off"));
    // Alternate which one is created first, and so gets the better memory.
    let (mut on, mut off) = if round.is_multiple_of(2) {
        let on = Program::start(&on_dir, one)?;
        (on, Program::start(&off_dir, other)?)
    } else {
        let off = Program::start(&off_dir, other)?;
        (Program::start(&on_dir, one)?, off)
    };
    std::thread::sleep(Duration::from_secs(1));
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for turn in 0..TURNS {
        if turn % 2 == 0 {
            with.push(on.turn(what, count)?);
            without.push(off.turn(what, count)?);
        } else {
            without.push(off.turn(what, count)?);
            with.push(on.turn(what, count)?);
        }
    }
    drop((on, off));
    for dir in [on_dir, off_dir] {
        let _ = Store::destroy(&dir, true);
    }
    Ok((middle(with), middle(without)))
}

fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn both(report: &mut Report, bar: &str, what: &str, count: u64, ways: [StoreSetting; 2], reference: &str) -> Outcome {
    let count = report.settings.scaled(count);
    let mut round = 0;
    let without = std::cell::Cell::new(0.0);
    report.pairs(
        bar,
        "1/s",
        &mut || {
            round += 1;
            let (on, off) = session(what, count, round, ways)?;
            without.set(off);
            Ok(on)
        },
        &mut [Beside { name: reference, wanted: Some(0.97), run: &mut || Ok(without.get()) }],
    )
}

const COUNTED: StoreSetting = StoreSetting { counting: true, policy: "fast-first" };
const PLAIN: StoreSetting = StoreSetting { counting: false, policy: "fast-first" };
const TRACKED: StoreSetting = StoreSetting { counting: true, policy: "foresight" };
const UNCOUNTED: &str = "the same, nothing counted";
const UNTRACKED: &str = "the same, nothing tracked or counted";

/// 4 KiB gets with everything counted and observed, and with nothing.
pub fn gets(report: &mut Report) -> Outcome {
    both(report, "telemetry.get_4k", "get", 60_000, [COUNTED, PLAIN], UNCOUNTED)
}

/// 4 KiB puts, pipelined.
pub fn puts(report: &mut Report) -> Outcome {
    both(report, "telemetry.put_4k", "put", 40_000, [COUNTED, PLAIN], UNCOUNTED)
}

/// 4 KiB puts, waiting for each.
pub fn puts_waited_for(report: &mut Report) -> Outcome {
    both(report, "telemetry.put_4k_waited", "wait", 20_000, [COUNTED, PLAIN], UNCOUNTED)
}

/// 4 KiB gets with heat tracked as well, as the policy `foresight` needs, and with plans.
pub fn gets_tracked(report: &mut Report) -> Outcome {
    both(report, "heat.get_4k", "get", 60_000, [TRACKED, PLAIN], UNTRACKED)
}

/// The same for 4 KiB puts, pipelined.
pub fn puts_tracked(report: &mut Report) -> Outcome {
    both(report, "heat.put_4k", "put", 40_000, [TRACKED, PLAIN], UNTRACKED)
}
