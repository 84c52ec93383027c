//! An index larger than the memory for its values:
//! `CENOTE_VALUES_MEMORY=64MiB cargo run --release -p cenote --example large_index -- [MiB of values] [DIR]`.
//!
//! Values of 100 B, 1 KiB and 64 KiB, a third of the bytes each. Prints the costs, and verifies every value read.

mod common;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Instant;

use cenote::{ContainerSpec, Error, ErrorKind, Index, Mode, OpenOptions, Result, Store, StoreConfig};

const SIZES: [usize; 3] = [100, 1024, 65_536];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "again") {
        return reopen(args[1].as_ref(), args[2].parse().unwrap_or(0));
    }
    let mib: u64 = args.first().and_then(|arg| arg.parse().ok()).unwrap_or(2048);
    let dir = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("cenote-large-index-{}", std::process::id()));
    let devices = common::memory_over_disk(&dir, 64 << 20, (mib << 20) * 2 + (1 << 30));
    let config = StoreConfig { devices, ..StoreConfig::default() };
    let store =
        Store::open_with(&dir, &OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() })?;
    let index = store.create_container("large", &ContainerSpec::default())?.create_index(None)?;
    println!("empty: {}", memory());
    let each = (mib << 20) / SIZES.len() as u64;
    let begin = Instant::now();
    let mut records = 0;
    let mut batch: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut batched = 0;
    for n in 0..each / SIZES[0] as u64 {
        for (kind, size) in SIZES.iter().enumerate() {
            if n * SIZES[0] as u64 % *size as u64 >= SIZES[0] as u64 {
                continue; // so that each kind has the same number of bytes
            }
            batch.push((key(kind, n), value(kind, n)));
            (records, batched) = (records + 1, batched + size);
        }
        if batched > 256 << 10 {
            put(&index, &mut batch)?;
            batched = 0;
        }
        if n % 1_000_000 == 999_999 {
            println!("  {records} records in {:.1} s: {}", begin.elapsed().as_secs_f64(), memory());
        }
    }
    put(&index, &mut batch)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{records} records, {mib} MiB of values in {seconds:.1} s: {}", memory());
    println!("  {:?}", store.stats()?);
    let begin = Instant::now();
    store.flush()?;
    println!("flush {:.2} s: {}", begin.elapsed().as_secs_f64(), memory());
    look(&index, records, each)?;
    let begin = Instant::now();
    let key = index.key();
    store.close()?;
    println!("close {:.2} s: {}", begin.elapsed().as_secs_f64(), memory());
    let again = std::env::current_exe().map_err(|error| Error::io("this program", &error))?;
    let status =
        std::process::Command::new(again).args(["again", &dir.to_string_lossy(), &records.to_string()]).status();
    println!("{key}: {status:?}");
    std::fs::remove_dir_all(&dir).map_err(|error| Error::io("the store", &error))
}

fn reopen(dir: &std::path::Path, records: u64) -> Result<()> {
    let begin = Instant::now();
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() })?;
    println!("reopened in {:.2} s: {}", begin.elapsed().as_secs_f64(), memory());
    let container = store.container("large")?;
    let Some(id) = container.indices(None, 1)?.first().copied() else {
        return Err(Error::new(ErrorKind::NotFound, "the index"));
    };
    let index = container.index(id);
    let begin = Instant::now();
    let mut found = 0;
    for record in index.iter(&[]) {
        let (key, value) = record?;
        check(&key, &value)?;
        found += 1;
    }
    println!("a walk over {found} records {:.1} s: {}", begin.elapsed().as_secs_f64(), memory());
    if found == records { Ok(()) } else { Err(Error::new(ErrorKind::Corrupt, format!("{found} of {records} records"))) }
}

fn look(index: &Index, records: u64, each: u64) -> Result<()> {
    let mut state = 7u64;
    let mut took: HashMap<usize, (u32, f64)> = HashMap::new();
    for _ in 0..3000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let kind = (state >> 33) as usize % SIZES.len();
        let size = SIZES[kind] as u64;
        let n = ((state >> 20) % (each / size) * size).div_ceil(SIZES[0] as u64);
        let begin = Instant::now();
        let found = index.get_one(&key(kind, n))?;
        let entry = took.entry(SIZES[kind]).or_default();
        *entry = (entry.0 + 1, entry.1 + begin.elapsed().as_secs_f64());
        match found {
            Some(found) => check(&key(kind, n), &found)?,
            None => return Err(Error::new(ErrorKind::NotFound, format!("record {n} of {kind} among {records}"))),
        }
    }
    for (size, (count, seconds)) in took {
        println!("get of {size} B at random: {:.0} us each", seconds / f64::from(count) * 1e6);
    }
    Ok(())
}

fn put(index: &Index, batch: &mut Vec<(Vec<u8>, Vec<u8>)>) -> Result<()> {
    let records: Vec<(&[u8], &[u8])> = batch.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    index.put(&records)?;
    batch.clear();
    Ok(())
}

fn key(kind: usize, n: u64) -> Vec<u8> {
    format!("{kind}/{n:012}").into_bytes()
}

fn value(kind: usize, n: u64) -> Vec<u8> {
    let mut bytes = vec![kind as u8; SIZES[kind]];
    for (at, word) in bytes.chunks_mut(8).enumerate() {
        let number = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at as u64).to_le_bytes();
        word.copy_from_slice(&number[..word.len()]);
    }
    bytes
}

fn check(key: &[u8], found: &[u8]) -> Result<()> {
    let text = String::from_utf8_lossy(key);
    let (kind, n) = text.split_once('/').unwrap_or_default();
    let wanted = value(kind.parse().unwrap_or_default(), n.parse().unwrap_or_default());
    if wanted == found { Ok(()) } else { Err(Error::new(ErrorKind::Corrupt, format!("the value of {text}"))) }
}

/// The private memory of this process.
fn memory() -> String {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?").trim().to_owned();
    format!("anonymous {}, high water {}", line("RssAnon:"), line("VmHWM:"))
}
