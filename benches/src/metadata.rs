//! What a million objects cost: memory, and the time to open a store after a crash.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use cenote::{Durability, Mode, ObjectId, OpenOptions, Store};

use crate::Outcome;
use crate::measure::Report;
use crate::places::{Place, container, memory};

fn anonymous_bytes() -> Outcome<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).ok_or("no RssAnon")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("no figure")?.parse()?;
    Ok(kib * 1024.0)
}

/// The process that fills a store and waits to be killed: `--child DIR COUNT`.
pub fn child(words: &[String]) -> Outcome {
    let [dir, count] = words else { return Err("--child DIR COUNT".into()) };
    let count: u64 = count.parse()?;
    let config = cenote::StoreConfig { devices: vec![memory(1024)], ..cenote::StoreConfig::default() };
    let options = OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let container = container(&store, "bench", Durability::Scratch)?;
    let before = anonymous_bytes()?;
    let ids: Vec<ObjectId> = (0..count).map(|n| ObjectId(u128::from(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)))).collect();
    let data = [4u8; 512];
    for chunk in ids.chunks(1024) {
        container.create_objects(chunk, None)?;
        for id in chunk {
            let _op = container.object(*id).launch_write(0, &data)?;
        }
        store.wait_all()?;
    }
    let after = anonymous_bytes()?;
    let stats = store.stats()?;
    println!("{} {} {}", after - before, stats.metadata_bytes, stats.extents);
    loop {
        std::thread::sleep(std::time::Duration::from_secs(3600));
    }
}

/// A process makes a million objects of one extent each and is killed; the store is opened again.
pub fn metadata_and_open(report: &mut Report) -> Outcome {
    std::fs::create_dir_all(&report.settings.dir)?;
    let place = Place::on_disk(&report.settings.dir, "million")?;
    let count = report.settings.scaled(1_000_000);
    let dir = place.path().join("store");
    let mut process = Command::new(std::env::current_exe()?)
        .args(["--child", &dir.to_string_lossy(), &count.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    BufReader::new(process.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
    process.kill()?;
    process.wait()?;
    let figures: Vec<f64> = line.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [resident, estimated, extents] = figures[..] else { return Err("the child said nothing".into()) };
    if (extents as u64) < count {
        return Err(format!("{extents} extents for {count} objects").into());
    }
    let limit = 300e6 * count as f64 / 1e6;
    report.limit("store.metadata_bytes", "bytes", resident, "300 MB a million, resident", limit);
    report.note("store.metadata_bytes", "bytes", estimated, "the store's own estimate : resident", resident);
    opening(report, &dir, count)
}

fn opening(report: &mut Report, dir: &Path, count: u64) -> Outcome {
    let begin = Instant::now();
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() })?;
    let container = store.container("bench")?;
    let objects = container.info()?.objects;
    let seconds = begin.elapsed().as_secs_f64();
    if objects != count {
        return Err(format!("{objects} of {count} objects after the crash").into());
    }
    report.limit("store.open_1m", "s", seconds, "5 s a million", 5.0 * count as f64 / 1e6);
    store.close()?;
    Ok(())
}
