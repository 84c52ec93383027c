//! Costs of a million objects: memory, and the time to open a store after a crash.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cenote::{Durability, Mode, ObjectId, OpenOptions, Store};

use crate::Outcome;
use crate::measure::Report;
use crate::places::{BenchDir, container, memory};

/// A memory figure of this process in bytes, by its name in /proc/self/status.
fn resident_bytes(name: &str) -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with(name)).ok_or("no such figure")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("no figure")?.parse()?;
    Ok(kib * 1024.0)
}

/// Waits until this process's anonymous memory has rested for a second: the checkpoint that filling began is written
/// then. Returns the figure in bytes, and the highest one seen.
fn at_rest() -> Outcome<(f64, f64)> {
    const STEP: Duration = Duration::from_millis(10);
    let (mut last, mut peak, mut rested) = (0.0, 0.0_f64, 0);
    while rested < 100 {
        let now = resident_bytes("RssAnon:")?;
        rested = if (now - last).abs() < 1e6 { rested + 1 } else { 0 };
        (last, peak) = (now, peak.max(now));
        std::thread::sleep(STEP);
    }
    Ok((last, peak))
}

/// The process that fills a store and waits to be killed: `--child DIR COUNT`.
pub fn child(words: &[String]) -> Outcome {
    let [dir, count] = words else { return Err("--child DIR COUNT".into()) };
    let count: u64 = count.parse()?;
    let config = cenote::StoreConfig {
        devices: vec![memory(((count * 600) >> 20).max(1024))],
        ..cenote::StoreConfig::default()
    };
    let options = OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let container = container(&store, "bench", Durability::Scratch)?;
    let before = resident_bytes("RssAnon:")?;
    let id = |n: u64| ObjectId(u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let data = [4u8; 512];
    for first in (0..count).step_by(1024) {
        let chunk: Vec<ObjectId> = (first..count.min(first + 1024)).map(id).collect();
        container.create_objects(&chunk, None)?;
        for id in &chunk {
            let _op = container.object(*id).launch_write(0, &data)?;
        }
        store.wait_all()?;
    }
    let (after, peak) = at_rest()?;
    let (stats, shared) = (store.stats()?, resident_bytes("RssShmem:")?);
    let (after_bytes, peak_bytes) = (after - before, peak - before);
    println!("{after_bytes} {peak_bytes} {} {} {}", stats.metadata_bytes, stats.extents, after + shared);
    loop {
        std::thread::sleep(Duration::from_hours(1));
    }
}

/// What the process that filled a store reported before it was killed.
struct Filled {
    /// Growth of anonymous memory, at rest.
    metadata: f64,
    /// The same while a checkpoint was made.
    peak: f64,
    /// The store's own estimate of that growth.
    estimated: f64,
    /// All resident memory, including the memory tier.
    resident: f64,
}

fn fill(dir: &Path, count: u64) -> Outcome<Filled> {
    let mut process = Command::new(std::env::current_exe()?)
        .args(["--child", &dir.to_string_lossy(), &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    process.kill()?;
    process.wait()?;
    let figures: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [metadata, peak, estimated, extents, resident] = figures[..] else {
        return Err("the child said nothing".into());
    };
    if (extents as u64) < count {
        return Err(format!("{extents} extents for {count} objects").into());
    }
    Ok(Filled { metadata, peak, estimated, resident })
}

/// A process creates a million objects of one extent each and is killed; then the store is opened
/// again.
pub fn metadata_and_open(report: &mut Report) -> Outcome {
    let count = report.settings.scaled(1_000_000);
    let (place, filled) = filled(report, "million", count)?;
    let limit = 300e6 * count as f64 / 1e6;
    report.limit("store.metadata_bytes", "bytes", filled.metadata, "300 MB a million, resident", limit);
    report.note("store.metadata_bytes", "bytes", filled.peak, "while a checkpoint is made : at rest", filled.metadata);
    report.note(
        "store.metadata_bytes",
        "bytes",
        filled.estimated,
        "the store's own estimate : resident",
        filled.metadata,
    );
    opening(report, "store.open_1m", &place, count)
}

/// The same with ten million, including data of 512 bytes each, in a process that may use 8 GB.
pub fn ten_million(report: &mut Report) -> Outcome {
    let count = report.settings.scaled(10_000_000);
    let (place, filled) = filled(report, "tenmillion", count)?;
    let limit = 8e9 * count as f64 / 1e7;
    report.limit("store.ten_million", "bytes", filled.resident, "8 GB, resident with the memory tier", limit);
    report.limit(
        "store.ten_million_metadata",
        "bytes",
        filled.metadata,
        "300 MB a million, resident",
        limit * 3.0 / 8.0,
    );
    opening(report, "store.ten_million_open", &place, count)
}

/// A store that a process filled with `count` objects before it was killed.
fn filled(report: &Report, name: &str, count: u64) -> Outcome<(BenchDir, Filled)> {
    std::fs::create_dir_all(&report.settings.dir)?;
    let place = BenchDir::on_disk(&report.settings.dir, name)?;
    let filled = fill(&place.path().join("store"), count)?;
    Ok((place, filled))
}

fn opening(report: &mut Report, bar: &str, place: &BenchDir, count: u64) -> Outcome {
    let dir = place.path().join("store");
    let begin = Instant::now();
    let store = Store::open_with(&dir, &OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() })?;
    let container = store.container("bench")?;
    let objects = container.info()?.objects;
    let seconds = begin.elapsed().as_secs_f64();
    if objects != count {
        return Err(format!("{objects} of {count} objects after the crash").into());
    }
    report.limit(bar, "s", seconds, "5 s a million", 5.0 * count as f64 / 1e6);
    store.close()?;
    Ok(())
}
