//! Persistent memory under power loss: `scripts/nvdimm.py` runs this in a virtual machine with an emulated NVDIMM.
//!
//! `nvdimm suite FILE SEED`: the conformance suite of devices on a tier there, which must be DAX.
//! `nvdimm cycle DIR FILE SEED`: creates or opens a store in DIR with its only tier in FILE, checks its content, and
//! continues writing until the power goes. It prints what exists (`HAVE n`) and, after each acknowledged object,
//! `ACK n`: everything reported must exist next time.
//! `nvdimm serve DIR`: the daemon that `cycle` starts.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use cenote::{Container, ContainerSpec, DeviceSpec, Durability, ErrorKind, Mode, OpenOptions, Store, StoreConfig};
use cenote_device::measure::{Probe, measure};
use cenote_device::{Devices as _, SystemClock, SystemDevices, conformance, write_back};
use cenote_model::{DeviceId, DeviceKind, ObjectId, StoreId, TierOptions};
use cenote_testkit::content::{self, WriteId};
use cenote_testkit::rng::{Rng, mix};

type Check<T> = Result<T, String>;

/// Upper bound of an object's length: some lie within a page, some span several huge ones.
const OBJECT_BYTES_MAX: u64 = 5 << 20;
const TIER_BYTES: u64 = 256 << 20;
/// Number of objects kept; older ones are overwritten, so that space is reused.
const KEPT: u64 = 24;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["suite", file, seed] => number(seed).and_then(|seed| suite(Path::new(file), seed)),
        ["cycle", dir, file, seed] => number(seed).and_then(|seed| cycle(Path::new(dir), Path::new(file), seed)),
        ["serve", ..] => {
            cenote_testkit::crash::serve_main(&words[1..].iter().map(ToString::to_string).collect::<Vec<_>>())
        }
        _ => Err("suite FILE SEED | cycle DIR FILE SEED".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            println!("FAILED {message}");
            ExitCode::FAILURE
        }
    }
}

fn number(text: &str) -> Check<u64> {
    text.parse().map_err(|_| format!("`{text}` is no number"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn spec(path: &Path, capacity_bytes: u64) -> DeviceSpec {
    DeviceSpec {
        name: "pmem".into(),
        kind: DeviceKind::PersistentMemory,
        path: path.to_owned(),
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options: TierOptions::default(),
    }
}

/// The device conformance suite, on DAX.
fn suite(file: &Path, seed: u64) -> Check<()> {
    let (devices, spec) = (SystemDevices::default(), spec(file, 20 << 20));
    conformance::devices(&devices, &spec, seed);
    let opened = devices.open(StoreId(seed.into()), DeviceId(1), &spec, true).map_err(text)?;
    let segment = opened.device.segment(0).map_err(text)?.ok_or("no segment")?;
    let io = cenote_device::SegmentIo::new(segment, true, "the segment").map_err(text)?;
    must_be_dax(file, &opened.device.note())?;
    // Ranges of every alignment to cache lines can be written back.
    let map = io.map().ok_or("no mapping")?;
    for (offset, len) in [(0, 0), (0, 1), (1, 63), (63, 2), (4095, 4099), (0, 3 << 20)] {
        map.copy_in(offset, &vec![7; len]).then_some(()).ok_or("no room in the mapping")?;
        write_back::persist(map, offset, len);
    }
    let device = opened.device.as_ref();
    let profile = measure(&Probe {
        device,
        kind: spec.kind,
        offset: 1 << 20,
        len: 16 << 20,
        budget_ns: 2_000_000_000,
        clock: &SystemClock,
        sync: &|| device.sync(),
        stop: &|| false,
    });
    let profile = profile.map_err(text)?.ok_or("nothing was measured")?;
    say(&format!("SPEED of the emulation {:?}", profile.speed().ok_or("no speed")?));
    drop((io, opened));
    devices.remove(StoreId(seed.into()), DeviceId(1), &spec).map_err(text)?;
    say(&format!("SUITE with {}", write_back::word()));
    Ok(())
}

/// Fails unless the device reports DAX and the kernel reports that this process maps the file with `MAP_SYNC`.
fn must_be_dax(file: &Path, note: &str) -> Check<()> {
    if !note.starts_with("DAX") {
        return Err(format!("the tier is not DAX: {note}"));
    }
    let maps = std::fs::read_to_string("/proc/self/smaps").map_err(text)?;
    let mut of_file = false;
    for line in maps.lines() {
        if line.split_whitespace().nth(5).is_some_and(|path| path.starts_with('/')) || line.contains("00:00 0") {
            of_file = line.ends_with(&file.display().to_string());
        }
        if of_file && line.strip_prefix("VmFlags:").is_some_and(|flags| flags.split_whitespace().any(|f| f == "sf")) {
            return Ok(());
        }
    }
    Err(format!("{} is not mapped with MAP_SYNC", file.display()))
}

/// The write id and length of object `n`.
fn shape(seed: u64, n: u64) -> (WriteId, usize) {
    (WriteId(n), 1 + Rng::new(mix(seed ^ mix(n))).size(OBJECT_BYTES_MAX) as usize)
}

fn open(dir: &Path, file: &Path) -> Check<Store> {
    let config = StoreConfig { devices: vec![spec(file, TIER_BYTES)], ..StoreConfig::default() };
    Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, create: true, config, ..OpenOptions::default() })
        .map_err(text)
}

fn cycle(dir: &Path, file: &Path, seed: u64) -> Check<()> {
    if std::env::var_os("CENOTE_BIN").is_none() {
        return Err("CENOTE_BIN must name this program".into());
    }
    let store = open(dir, file)?;
    let of = |label: &str, durability| {
        store.open_container(label, &ContainerSpec { durability, ..ContainerSpec::default() }).map_err(text)
    };
    let (sync, flushed) = (of("sync", Durability::Sync)?, of("async", Durability::Async)?);
    let have = check(&sync, &flushed, seed)?;
    say(&format!("HAVE {have}"));
    for n in have.. {
        let (id, len) = shape(seed, n);
        let bytes = content::bytes(id, 0, len);
        let container = if n % 3 == 2 { &flushed } else { &sync };
        if n >= KEPT {
            let old = ObjectId(u128::from(n - KEPT));
            let owner = if (n - KEPT) % 3 == 2 { &flushed } else { &sync };
            owner
                .delete_object(old)
                .or_else(|e| if e.kind() == ErrorKind::NotFound { Ok(()) } else { Err(e) })
                .map_err(text)?;
        }
        let object = match container.create_object(Some(ObjectId(u128::from(n))), None) {
            Err(error) if error.kind() == ErrorKind::Exists => container.object(ObjectId(u128::from(n))),
            made => made.map_err(text)?,
        };
        let before = write_back::written_back();
        if n % 3 == 1 {
            let mut write = object.write_in_place(len).map_err(text)?;
            write.bytes().copy_from_slice(&bytes);
            write.commit(0).map_err(text)?;
        } else {
            object.write_at(0, &bytes).map_err(text)?;
        }
        if n % 3 == 2 {
            flushed.flush().map_err(text)?;
        }
        if n == have {
            must_be_dax(file, "DAX")?;
        }
        let written = write_back::written_back() - before;
        if written < len as u64 {
            return Err(format!("of {len} bytes of object {n} only {written} were written back"));
        }
        say(&format!("ACK {n}"));
    }
    Ok(())
}

/// Returns whether object `n` exists whole; fails if it is neither whole nor empty.
fn is_there(container: &Container, seed: u64, n: u64) -> Check<bool> {
    let object = container.object(ObjectId(u128::from(n)));
    let size = match object.stat() {
        Ok(stat) => stat.size,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(text(error)),
    };
    if size == 0 {
        return Ok(false);
    }
    let (id, len) = shape(seed, n);
    let mut found = vec![0; len];
    let bytes = object.read_at(0, &mut found).map_err(text)?;
    if size != len as u64 || bytes != len {
        return Err(format!("object {n} has {size} bytes, {len} were written"));
    }
    match content::first_difference(id, 0, &found) {
        None => Ok(true),
        Some(at) => Err(format!("object {n} differs at {at} of {len} bytes")),
    }
}

/// Checks that all existing objects are whole; returns the number after the last one.
fn check(sync: &Container, flushed: &Container, seed: u64) -> Check<u64> {
    let mut last = None;
    for container in [sync, flushed] {
        for id in container.objects(None, 10_000).map_err(text)? {
            if is_there(container, seed, id.0 as u64)? {
                last = last.max(Some(id.0 as u64));
            }
        }
    }
    let end = last.map_or(0, |n| n + 1);
    for n in end.saturating_sub(KEPT - 1)..end {
        let container = if n % 3 == 2 { flushed } else { sync };
        if !is_there(container, seed, n)? {
            return Err(format!("object {n} is missing, and {} is there", end - 1));
        }
    }
    Ok(end)
}
