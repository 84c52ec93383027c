//! Damage to the real files of a store's tiers: headers, stamps, lengths, and files in each other's places.
//!
//! After each case the store must have named the damage, or be correct; and when the damage is undone, everything must
//! be readable again, since the store must not have changed anything.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::header::{HEADER_BYTES, SegmentHeader};
use cenote_device::{FsMetaDir, SharedControl, SystemClock, SystemDevices};
use cenote_model::{
    ContainerId, ContainerSpec, DeviceId, DeviceKind, DeviceSpec, Durability, ErrorKind, FlushTarget, ObjectId,
    ObjectKey, Request, Response, StoreConfig, StoreId, Update,
};
use cenote_store::{Engine, Outcome, RecoveryReport, Seams, SessionId, SessionInfo, Tuning};

use super::{Report, Watchdog, panic_text};
use crate::access::{read_extent, write_run};
use crate::content::{WriteId, bytes};

const STORE: StoreId = StoreId(0x5e90_fa17);
const CAPACITY_BYTES: u64 = 256 << 10;
const OBJECT_BYTES: usize = 30_000;
const PAGE: usize = 4096;
const STAMP_BYTES: usize = 512;
/// The tiers come first among the subject's files; the control table is the last.
const TIERS: usize = 8;

/// Content of a file: its length, and its pages that are not zero.
#[derive(Clone, PartialEq, Eq)]
struct Content {
    len: u64,
    pages: Vec<(usize, Vec<u8>)>,
}

/// A store below a directory, with two tiers of each kind and an object on each of them alone, as its process left it
/// when it died.
struct Subject {
    dir: PathBuf,
    files: BTreeMap<PathBuf, Content>,
    tiers: Vec<Tier>,
}

struct Tier {
    spec: DeviceSpec,
    /// Its first segment file, and the offset of the data in it.
    path: PathBuf,
    data_at: usize,
}

/// A change of a file.
enum Harm {
    Flip { at: usize, xor: u8 },
    Cut { len: u64 },
    Remove,
    Replace(Content),
    Write { at: usize, bytes: Vec<u8> },
}

struct Open {
    engine: Engine,
    report: RecoveryReport,
    session: SessionId,
    seq: u64,
}

/// Converts a value to text.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn key(tier: usize) -> ObjectKey {
    ObjectKey { container: ContainerId(tier as u64 + 1), object: ObjectId(1) }
}

fn content_of(tier: usize) -> Vec<u8> {
    bytes(WriteId(tier as u64 + 1), 0, OBJECT_BYTES)
}

fn seams(dir: &Path) -> Result<Seams, String> {
    let memory = dir.join("memory");
    for path in [&memory, &dir.join("store")] {
        std::fs::create_dir_all(path).map_err(text)?;
    }
    Ok(Seams {
        meta: Arc::new(FsMetaDir::open(&dir.join("store")).map_err(text)?),
        devices: Arc::new(SystemDevices::with_shm_base(&memory)),
        clock: Arc::new(SystemClock),
        control: Arc::new(SharedControl::new(&memory)),
    })
}

fn tuning() -> Tuning {
    Tuning { log_bytes: 32 << 10, ..Tuning::default() }
}

impl Open {
    fn of(mut engine: Engine, report: RecoveryReport) -> Result<Self, String> {
        let who = SessionInfo {
            nonce: 1,
            pid: std::process::id(),
            started: 1,
            uid: 0,
            write: true,
            ..SessionInfo::default()
        };
        let session = engine.session_open(who).map_err(text)?;
        Ok(Self { engine, report, session, seq: 0 })
    }
    fn ask(&mut self, request: Request) -> Result<Response, String> {
        self.seq += 1;
        let answer = match self.engine.handle(self.session, self.seq, request) {
            Outcome::Ready(response) => response,
            Outcome::Wait(ticket) => loop {
                self.engine.tick();
                while let Some(job) = self.engine.next_job() {
                    let done = job.run();
                    self.engine.finish_job(done);
                }
                let mut finished = self.engine.take_finished().into_iter();
                if let Some((_, response)) = finished.find(|(found, _)| *found == ticket) {
                    break response;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            },
        };
        match answer {
            Response::Failed(error) => Err(text(error)),
            response => Ok(response),
        }
    }
    fn apply(&mut self, updates: Vec<Update>) -> Result<(), String> {
        self.ask(Request::Apply { checks: vec![], updates, atomic: true }).map(drop)
    }
    /// Reads the object of a tier. `Ok(None)`: it is as it was written. `Ok(Some(why))`: the store reported what is
    /// wrong with it. `Err`: wrong bytes.
    fn look(&mut self, tier: usize) -> Result<Option<String>, String> {
        let lookup = Request::Lookup { key: key(tier), offset: 0, len: u64::MAX, limit: u32::MAX };
        let lookup = match self.ask(lookup) {
            Ok(Response::Lookup(lookup)) => lookup,
            Ok(other) => return Err(format!("{other:?}")),
            Err(why) => return Ok(Some(why)),
        };
        let wanted = content_of(tier);
        let mut covered = 0;
        for (at, extent) in &lookup.extents {
            let Some(device) = self.engine.device(extent.device) else {
                return Ok(Some(format!("device {} is not there", extent.device)));
            };
            match read_extent(&device, extent) {
                Ok(found) if wanted.get(*at as usize..*at as usize + found.len()) == Some(&found[..]) => {
                    covered += found.len();
                }
                Ok(_) => return Err(format!("WRONG BYTES at {at} of the object on tier {tier}")),
                Err(why) => return Ok(Some(why)),
            }
        }
        if covered == OBJECT_BYTES && lookup.size == OBJECT_BYTES as u64 {
            return Ok(None);
        }
        Err(format!("{covered} bytes of the object on tier {tier}, size {}", lookup.size))
    }
}

impl Subject {
    fn make(dir: &Path) -> Result<Self, String> {
        let (memory, file, directory) = (DeviceKind::SharedMemory, DeviceKind::File, DeviceKind::Directory);
        let pmem = DeviceKind::PersistentMemory;
        let names = [
            ("mem1", memory),
            ("mem2", memory),
            ("pm1", pmem),
            ("pm2", pmem),
            ("f1", file),
            ("f2", file),
            ("d1", directory),
            ("d2", directory),
        ];
        let spec = |(name, kind): (&str, DeviceKind)| DeviceSpec {
            name: name.into(),
            kind,
            path: if kind == memory { PathBuf::new() } else { dir.join(name) },
            capacity_bytes: CAPACITY_BYTES,
            watermark_high_permille: 900,
            watermark_low_permille: 700,
            options: cenote_model::TierOptions::default(),
        };
        let devices: Vec<DeviceSpec> = names.into_iter().map(spec).collect();
        let config = StoreConfig { devices: devices.clone(), ..StoreConfig::default() };
        let engine = Engine::create_tuned(seams(dir)?, STORE, &config, tuning()).map_err(text)?;
        let mut store = Open::of(engine, RecoveryReport::default())?;
        for (n, device) in devices.iter().enumerate() {
            let spec = ContainerSpec { durability: Durability::Async, ..ContainerSpec::default() };
            store.apply(vec![Update::ContainerCreate { id: key(n).container, label: device.name.clone(), spec }])?;
            store.apply(vec![Update::ObjectCreate { key: key(n), block_shift: 12 }])?;
            let avoid = (0..devices.len()).filter(|other| *other != n).map(|n| DeviceId(n as u16 + 1)).collect();
            let (bytes, container) = (OBJECT_BYTES as u64, key(n).container);
            let lease = Request::Lease { container, bytes, run_min: OBJECT_BYTES as u32, avoid, durability: None };
            let Response::Lease(lease) = store.ask(lease)? else { return Err("no lease".into()) };
            let run = lease.runs[0];
            let opened = store.engine.device(run.device).ok_or("no device")?;
            let extent = write_run(opened.as_ref(), run.device, run.offset, &content_of(n))?;
            store.apply(vec![Update::Write { key: key(n), offset: 0, extent }])?;
            if device.kind.is_persistent() {
                store.ask(Request::Flush { target: FlushTarget::Container(container) })?;
            }
        }
        drop(store);
        let tier = |(n, spec): (usize, DeviceSpec)| {
            let memory = dir.join("memory").join(format!("cenote-{STORE}"));
            let (path, data_at) = match spec.kind {
                DeviceKind::SharedMemory => (memory.join(format!("dev-{}-seg-0", n + 1)), 2 << 20),
                DeviceKind::PersistentMemory => (spec.path.clone(), 2 << 20),
                DeviceKind::File => (spec.path.clone(), PAGE),
                DeviceKind::Directory => (spec.path.join("seg-000000"), PAGE),
                other => unreachable!("no {} tier is asked for here", other.word()),
            };
            Tier { spec, path, data_at }
        };
        let mut tiers: Vec<Tier> = devices.into_iter().enumerate().map(tier).collect();
        let path = dir.join("memory").join(format!("cenote-{STORE}")).join("control");
        tiers.push(Tier { spec: spec(("control", memory)), path, data_at: PAGE });
        Ok(Self { dir: dir.to_owned(), files: read_tree(dir)?, tiers })
    }

    /// Restores every file.
    fn restore(&self) -> Result<(), String> {
        for path in paths(&self.dir)? {
            if !self.files.contains_key(&path) {
                std::fs::remove_file(&path).map_err(text)?;
            }
        }
        self.files.iter().try_for_each(|(path, content)| write_content(path, content))
    }

    fn harm(&self, tier: usize, harm: &Harm) -> Result<(), String> {
        let path = &self.tiers[tier].path;
        let file = || std::fs::File::options().read(true).write(true).open(path).map_err(text);
        match harm {
            Harm::Remove => std::fs::remove_file(path).map_err(text),
            Harm::Replace(content) => write_content(path, content),
            Harm::Cut { len } => file()?.set_len(*len).map_err(text),
            Harm::Write { at, bytes } => file()?.write_all_at(bytes, *at as u64).map_err(text),
            Harm::Flip { at, xor } => {
                let mut byte = [0];
                let file = file()?;
                file.read_exact_at(&mut byte, *at as u64).map_err(text)?;
                file.write_all_at(&[byte[0] ^ xor], *at as u64).map_err(text)
            }
        }
    }

    /// `Ok(true)`: the store reported the damage. `Ok(false)`: all content is correct.
    fn case(&self, harms: &[(usize, Harm)], may_lose: bool) -> Result<bool, String> {
        self.restore()?;
        harms.iter().try_for_each(|(tier, harm)| self.harm(*tier, harm))?;
        let attempt = catch_unwind(AssertUnwindSafe(|| self.judge(harms, may_lose)));
        let (said, lost) = attempt.unwrap_or_else(|panic| Err(format!("PANIC {}", panic_text(panic.as_ref()))))?;
        if said && !lost {
            // Undo the damage: nothing else may have changed.
            for (tier, _) in harms {
                let path = &self.tiers[*tier].path;
                write_content(path, &self.files[path])?;
            }
            let mut store = self.open().map_err(|error| format!("after it was mended: {error}"))?;
            if store.report.power_lost || !store.report.failed_devices.is_empty() {
                return Err(format!("after it was mended: {:?}", store.report));
            }
            for tier in 0..TIERS {
                if let Some(why) = store.look(tier)? {
                    return Err(format!("after it was mended: {why}"));
                }
            }
        }
        Ok(said)
    }

    fn open(&self) -> Result<Open, cenote_model::Error> {
        let seams = seams(&self.dir).map_err(|why| cenote_model::Error::new(ErrorKind::Internal, why))?;
        let (engine, report) = Engine::open_tuned(seams, tuning())?;
        Open::of(engine, report).map_err(|why| cenote_model::Error::new(ErrorKind::Internal, why))
    }

    /// Returns whether the store reported anything, and whether it dropped data that were only in memory, and reported
    /// that.
    fn judge(&self, harms: &[(usize, Harm)], may_lose: bool) -> Result<(bool, bool), String> {
        let named = |why: &str| harms.iter().any(|(tier, _)| why.contains(&self.tiers[*tier].spec.name));
        let mut store = match self.open() {
            Err(error) if error.kind() == ErrorKind::Internal => return Err(text(error)),
            Err(error) if !named(&error.to_string()) => return Err(format!("the error does not say where: {error}")),
            Err(_) => return Ok((true, false)),
            Ok(store) => store,
        };
        let lost = store.report.power_lost;
        if lost && !may_lose {
            return Err("what was in memory was given up".into());
        }
        if let Some((name, _)) = store.report.failed_devices.iter().find(|(name, _)| !named(name)) {
            return Err(format!("device {name} failed: {:?}", store.report));
        }
        let mut said = lost || !store.report.failed_devices.is_empty();
        for (n, tier) in self.tiers[..TIERS].iter().enumerate() {
            let Some(why) = store.look(n)? else { continue };
            said = true;
            let harmed = harms.iter().any(|(harmed, _)| *harmed == n);
            if !harmed && (!lost || tier.spec.kind.is_persistent()) {
                return Err(format!("the object on {} is harmed: {why} ({:?})", tier.spec.name, store.report));
            }
        }
        Ok((said, lost))
    }

    /// Headers of a tier with one field changed and a valid checksum.
    fn bent_headers(&self, tier: usize) -> Result<Vec<(String, Harm)>, String> {
        let tier = &self.tiers[tier];
        let head: [u8; HEADER_BYTES] = self.head(&tier.path, 0, HEADER_BYTES).try_into().map_err(|_| "no header")?;
        let good = SegmentHeader::decode(&head, "a tier").map_err(text)?;
        let bent = |change: &dyn Fn(&mut SegmentHeader)| {
            let mut header = good.clone();
            change(&mut header);
            header.encode().to_vec()
        };
        let other_kind = if good.kind == DeviceKind::File { DeviceKind::Directory } else { DeviceKind::File };
        let mut headers = vec![
            ("store", bent(&|h| h.store = StoreId(7))),
            ("device", bent(&|h| h.device = DeviceId(99))),
            ("kind", bent(&|h| h.kind = other_kind)),
            ("unit", bent(&|h| h.unit_bytes ^= 4096 ^ 512)),
            ("number", bent(&|h| (h.number, h.capacity_bytes) = (1, h.capacity_bytes * 2))),
            ("segment bytes", bent(&|h| h.segment_bytes *= 2)),
            ("data offset", bent(&|h| h.data_offset += 4096)),
            ("length", bent(&|h| h.len -= 4096)),
            ("capacity", bent(&|h| h.capacity_bytes += 4096)),
            ("boot", bent(&|h| h.boot_id[3] ^= 1)),
        ];
        for (name, at) in [("version", 8), ("header length", 12)] {
            let mut bytes = head.to_vec();
            bytes[at] += 1;
            let sum = crc_of(&bytes[..HEADER_BYTES - 4]);
            bytes[HEADER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
            headers.push((name, bytes));
        }
        let mut harms: Vec<(String, Harm)> = headers
            .into_iter()
            .map(|(name, bytes)| (format!("another {name}"), Harm::Write { at: 0, bytes }))
            .collect();
        // version, store, device, incarnation
        for (name, at) in [("version", 8), ("store", 16), ("device", 32), ("incarnation", 34)] {
            let mut bytes = self.head(&tier.path, tier.data_at, STAMP_BYTES);
            bytes[at] = bytes[at].wrapping_add(1); // any incarnation is valid
            bytes[12..16].fill(0);
            let sum = crc_of(&bytes);
            bytes[12..16].copy_from_slice(&sum.to_le_bytes());
            harms.push((format!("a stamp of another {name}"), Harm::Write { at: tier.data_at, bytes }));
        }
        Ok(harms)
    }

    /// `len` bytes at `at`, which is the start of a page.
    fn head(&self, path: &Path, at: usize, len: usize) -> Vec<u8> {
        let page = self.files[path].pages.iter().find(|(from, _)| *from == at);
        page.map_or_else(|| vec![0; len], |(_, bytes)| bytes[..len].to_vec())
    }
}

fn crc_of(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

fn paths(dir: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).map_err(text)? {
            let path = entry.map_err(text)?.path();
            if path.is_dir() { open.push(path) } else { found.push(path) }
        }
    }
    Ok(found)
}

fn read_tree(dir: &Path) -> Result<BTreeMap<PathBuf, Content>, String> {
    let mut files = BTreeMap::new();
    for path in paths(dir)? {
        let bytes = std::fs::read(&path).map_err(text)?;
        let pages = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
        let pages = pages.map(|(n, page)| (n * PAGE, page.to_vec())).collect();
        files.insert(path, Content { len: bytes.len() as u64, pages });
    }
    Ok(files)
}

fn write_content(path: &Path, content: &Content) -> Result<(), String> {
    let file = std::fs::File::create(path).map_err(text)?;
    file.set_len(content.len).map_err(text)?;
    content.pages.iter().try_for_each(|(at, page)| file.write_all_at(page, *at as u64)).map_err(text)
}

/// All changes of one tier's file alone.
fn harms_of(subject: &Subject, tier: usize, stride: usize) -> Result<Vec<(String, Harm)>, String> {
    let it = &subject.tiers[tier];
    let stride = stride.max(1);
    let mut harms = Vec::new();
    let places = (0..HEADER_BYTES)
        .step_by(stride)
        .chain((HEADER_BYTES..PAGE).step_by(61 * stride))
        .chain((it.data_at..it.data_at + 64).step_by(stride))
        .chain((it.data_at + 64..it.data_at + STAMP_BYTES).step_by(7 * stride))
        .chain((it.data_at + STAMP_BYTES..it.data_at + PAGE + OBJECT_BYTES).step_by(977 * stride));
    for (n, at) in places.enumerate() {
        let xor = [1, 0x80, 0xff][n % 3];
        harms.push((format!("byte {at} xor {xor:#x}"), Harm::Flip { at, xor }));
    }
    let len = subject.files[&it.path].len;
    let data_at = it.data_at as u64;
    for len in [0, 1, 64, 127, 128, 4095, 4096, data_at, data_at + 100, data_at + 512, len / 2, len - 4096, len - 1] {
        harms.push((format!("cut to {len} bytes"), Harm::Cut { len }));
    }
    harms.push(("made longer".into(), Harm::Cut { len: len + 12_345 }));
    harms.push(("missing".into(), Harm::Remove));
    harms.push(("all zeros".into(), Harm::Replace(Content { len, pages: Vec::new() })));
    let noise = Content { len, pages: vec![(0, bytes(WriteId(999), 0, PAGE))] };
    harms.push(("something else".into(), Harm::Replace(noise)));
    if tier < TIERS {
        harms.extend(subject.bent_headers(tier)?);
    }
    Ok(harms)
}

/// A directory for [`sweep_segments`]: in memory, where syncs take no time.
pub fn segments_dir() -> PathBuf {
    let base = [cenote_host::home::shm_base(), std::env::temp_dir()].into_iter().find(|base| base.is_dir());
    base.unwrap_or_default().join(format!("testkit-faults-{}", std::process::id()))
}

/// Damages every tier's files of a store below `dir` in every way; of the bytes of headers every `stride`-th.
pub fn sweep_segments(dir: &Path, stride: usize, dog: &Watchdog) -> Report {
    let mut report = Report::default();
    dog.beat(|| "making the store with real tiers".into());
    let outcome = Subject::make(dir).and_then(|subject| sweep(&subject, stride, dog, &mut report));
    if let Err(message) = outcome {
        report.failures.push(format!("real tiers: {message}"));
    }
    let _ = std::fs::remove_dir_all(dir);
    report
}

fn sweep(subject: &Subject, stride: usize, dog: &Watchdog, report: &mut Report) -> Result<(), String> {
    let mut note = |what: &str, harms: &[(usize, Harm)]| {
        dog.beat(|| format!("real tiers: {what}"));
        report.cases += 1;
        let may_lose = what.ends_with(": missing") || what.ends_with(" boot") || what.ends_with(" incarnation");
        match subject.case(harms, may_lose) {
            Ok(true) => report.errors += 1,
            Ok(false) => report.repaired += 1,
            Err(message) => report.failures.push(format!("real tiers: {what}: {message}")),
        }
    };
    note("nothing", &[]);
    for (n, tier) in subject.tiers.iter().enumerate() {
        for (what, harm) in harms_of(subject, n, stride)? {
            note(&format!("{}: {what}", tier.spec.name), &[(n, harm)]);
        }
        // Two files exchanged.
        for (m, other) in subject.tiers.iter().enumerate().skip(n + 1) {
            let content = |tier: &Tier| Harm::Replace(subject.files[&tier.path].clone());
            let what = format!("{} and {} swapped", tier.spec.name, other.spec.name);
            note(&what, &[(n, content(other)), (m, content(tier))]);
        }
    }
    Ok(())
}
