//! A small store on real files, kept as an earlier version wrote it: its content, how to make it, and how to check it.
//! `docs/format.md` says when to make a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::{Devices, FsMetaDir, OpenedDevice, SharedControl, SystemClock, SystemDevices};
use cenote_model::{
    Arrange, ArrangeTarget, ContainerId, ContainerSpec, DeviceId, DeviceKind, DeviceSpec, Durability, Encoding,
    FlushTarget, IndexId, IndexKey, NextFrom, ObjectId, ObjectKey, Request, Response, Result as ModelResult,
    StoreConfig, StoreId, Update,
};
use cenote_store::{Engine, Outcome, RecoveryReport, Seams, SessionId, SessionInfo, Tuning};

use crate::access::{read_extent, write_run};
use crate::content::{WriteId, bytes};

const STORE: StoreId = StoreId(0x0f1e_2d3c_4b5a_6978_8796_a5b4_c3d2_e1f0);
/// Records in the index of container `first`.
const RECORDS: u64 = 300;
/// The container of compressed objects, which stores of earlier versions lack, and the size of each object.
const PACKED: &str = "packed";
const PACKED_BYTES: usize = 70_000;
/// Files in a fixture's directory.
const META: &str = "store";
const MEMORY: &str = "memory";

/// Tiers whose paths are relative to the fixture, wherever it is unpacked.
struct Below {
    inner: SystemDevices,
    dir: PathBuf,
}

impl Below {
    fn spec(&self, spec: &DeviceSpec) -> DeviceSpec {
        DeviceSpec { path: self.dir.join(&spec.path), ..spec.clone() }
    }
}

impl Devices for Below {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> ModelResult<OpenedDevice> {
        self.inner.open(store, id, &self.spec(spec), create)
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> ModelResult<()> {
        self.inner.remove(store, id, &self.spec(spec))
    }
}

/// A store below a directory: metadata in `store`, shared memory in `memory`, tiers beside them.
pub struct Fixture {
    engine: Engine,
    session: SessionId,
    seq: u64,
}

fn seams(dir: &Path) -> ModelResult<Seams> {
    let io = |path: &Path, error: &std::io::Error| cenote_model::Error::io(path.display().to_string(), error);
    for name in [META, MEMORY] {
        let path = dir.join(name);
        std::fs::create_dir_all(&path).map_err(|error| io(&path, &error))?;
    }
    let memory = dir.join(MEMORY);
    Ok(Seams {
        meta: Arc::new(FsMetaDir::open(&dir.join(META))?),
        devices: Arc::new(Below { inner: SystemDevices::with_shm_base(&memory), dir: dir.to_owned() }),
        clock: Arc::new(SystemClock),
        control: Arc::new(SharedControl::new(&memory)),
    })
}

fn tuning() -> Tuning {
    Tuning { log_bytes: 64 << 10, ..Tuning::default() }
}

impl Fixture {
    fn of(mut engine: Engine) -> ModelResult<Self> {
        let session = engine.session_open(SessionInfo {
            nonce: 0xF1,
            pid: 1,
            started: 1,
            uid: 0,
            write: true,
            ..SessionInfo::default()
        })?;
        Ok(Self { engine, session, seq: 0 })
    }
    /// Opens the store below `dir`.
    pub fn open(dir: &Path) -> ModelResult<(Self, RecoveryReport)> {
        let (engine, report) = Engine::open_tuned(seams(dir)?, tuning())?;
        Ok((Self::of(engine)?, report))
    }
    fn work(&mut self) {
        self.engine.tick();
        while let Some(job) = self.engine.next_job() {
            let done = job.run();
            self.engine.finish_job(done);
        }
    }
    fn ask(&mut self, request: Request) -> ModelResult<Response> {
        self.seq += 1;
        let answer = match self.engine.handle(self.session, self.seq, request) {
            Outcome::Ready(response) => response,
            Outcome::Wait(ticket) => loop {
                self.work();
                if let Some((_, response)) = self.engine.take_finished().into_iter().find(|(found, _)| *found == ticket)
                {
                    break response;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            },
        };
        match answer {
            Response::Failed(error) => Err(error),
            response => Ok(response),
        }
    }
    fn apply(&mut self, updates: Vec<Update>) -> ModelResult<Option<ContainerId>> {
        match self.ask(Request::Apply { checks: Vec::new(), updates, atomic: true })? {
            Response::Applied { created, .. } => Ok(created),
            other => panic!("{other:?}"),
        }
    }
    fn container(&mut self, label: &str, durability: Durability) -> ModelResult<ContainerId> {
        let spec =
            ContainerSpec { durability, quota_bytes: 1 << 30, policy: "fast-first".into(), ..Default::default() };
        let made = self.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }])?;
        Ok(made.expect("a container has an id"))
    }
    /// The update of a write whose bytes are on the device already.
    fn write_leased(&mut self, key: ObjectKey, offset: u64, write: u64, len: usize) -> ModelResult<Update> {
        let lease = Request::Lease {
            container: key.container,
            bytes: len as u64,
            run_min: len as u32,
            avoid: vec![],
            durability: None,
        };
        let Response::Lease(lease) = self.ask(lease)? else { panic!("no lease") };
        let run = lease.runs[0];
        let device = self.engine.device(run.device).expect("a leased device is open");
        let extent = write_run(device.as_ref(), run.device, run.offset, &bytes(WriteId(write), 0, len));
        Ok(Update::Write { key, offset, extent: extent.expect("a write") })
    }
    /// Makes an object, and moves it to the compressing tier.
    fn pack(&mut self, key: ObjectKey, number: u64) -> ModelResult<()> {
        self.apply(vec![Update::ObjectCreate { key, block_shift: 12 }])?;
        let write = self.write_leased(key, 0, WriteId::COMPRESSIBLE | number, PACKED_BYTES)?;
        self.apply(vec![write])?;
        let what = Arrange::Demote { to: Some("folder".into()) };
        self.ask(Request::Arrange { target: Box::new(ArrangeTarget::Object(key)), what, dry_run: false }).map(drop)
    }
    /// The whole content of an object.
    fn read(&mut self, key: ObjectKey) -> ModelResult<Vec<u8>> {
        let lookup = Request::Lookup { key, offset: 0, len: u64::MAX, limit: u32::MAX };
        let Response::Lookup(lookup) = self.ask(lookup)? else { panic!("no extents") };
        let mut whole = vec![0; lookup.size as usize];
        for (at, extent) in &lookup.extents {
            let device = self.engine.device(extent.device).expect("the device of an extent");
            let part = read_extent(&device, extent).expect("checksums");
            whole[*at as usize..*at as usize + part.len()].copy_from_slice(&part);
        }
        Ok(whole)
    }
    fn by_label(&mut self, label: &str) -> ModelResult<(ContainerId, ContainerSpec)> {
        match self.ask(Request::ContainerByLabel { label: label.into() })? {
            Response::Container(info) => Ok((info.id, info.spec)),
            other => panic!("{other:?}"),
        }
    }
}

fn object(container: ContainerId, id: u128) -> ObjectKey {
    ObjectKey { container, object: ObjectId(id) }
}

fn record(number: u64) -> (Vec<u8>, Vec<u8>) {
    (number.to_be_bytes().to_vec(), bytes(WriteId(1000 + number), 0, 1 + number as usize % 40))
}

/// Makes the store below `dir`, which must be empty. [`check`] expects this content.
pub fn make(dir: &Path) -> ModelResult<()> {
    let spec = |name: &str, kind, capacity_bytes| DeviceSpec {
        name: name.into(),
        kind,
        path: if kind == DeviceKind::SharedMemory { PathBuf::new() } else { name.into() },
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: cenote_model::TierOptions::default(),
    };
    let mut devices = vec![spec("file", DeviceKind::File, 512 << 10), spec("folder", DeviceKind::Directory, 512 << 10)];
    devices[1].options.set("compress", "zstd");
    let config =
        StoreConfig { devices, writers: vec![1001], readers: vec![1002], engines: 1, ..StoreConfig::default() };
    let mut store = Fixture::of(Engine::create_tuned(seams(dir)?, STORE, &config, tuning())?)?;
    let first = store.container("first", Durability::Async)?;
    let second = store.container("zweite läufe", Durability::Sync)?;
    let gone = store.container("gone", Durability::Scratch)?;
    let (whole, holes, index) = (object(first, 1), object(first, 2), IndexKey { container: first, index: IndexId(1) });
    store.apply(vec![
        Update::ObjectCreate { key: whole, block_shift: 12 },
        Update::ObjectCreate { key: holes, block_shift: 6 },
        Update::IndexCreate { key: index },
    ])?;
    let write = store.write_leased(whole, 0, 1, 100_000)?;
    store.apply(vec![write])?;
    for (number, offset) in [(2, 5_000), (3, 70_000)] {
        let write = store.write_leased(holes, offset, number, 3_000)?;
        store.apply(vec![write])?;
    }
    store.apply(vec![Update::Punch { key: holes, offset: 6_000, len: 1_000 }])?;
    store.apply(vec![Update::Truncate { key: holes, size: 1 << 20 }])?;
    let put = |number| {
        let (key, value) = record(number);
        Update::Put { index, key, value, only_new: true }
    };
    store.apply((0..RECORDS).map(put).collect())?;
    store.apply(vec![Update::Del { index, key: record(7).0 }])?;
    let packed = store.container(PACKED, Durability::Sync)?;
    store.pack(object(packed, 1), 7)?;
    store.ask(Request::Checkpoint)?;
    store.pack(object(packed, 2), 8)?;
    // From here on the content is in the journal. An overwrite beside the old bytes, and a transaction over both
    // containers.
    let over = store.write_leased(whole, 40_000, 4, 10_000)?;
    let other = object(second, u128::MAX - 5);
    let created = Update::ObjectCreate { key: other, block_shift: 24 };
    store.apply(vec![created])?;
    let beside = store.write_leased(other, 1 << 40, 5, 4_096)?;
    store.apply(vec![over, beside, put(RECORDS)])?;
    store.apply(vec![Update::ContainerRename { id: second, label: "second".into() }])?;
    store.apply(vec![Update::ContainerDelete { id: gone }])?;
    store.ask(Request::Flush { target: FlushTarget::Store })?;
    // After the last cut: power loss takes it back, and unpacking elsewhere counts as one.
    let late = store.write_leased(whole, 0, 6, 2_000)?;
    store.apply(vec![late, Update::ObjectDelete { key: holes }])?;
    store.ask(Request::Lease { container: first, bytes: 8_192, run_min: 4_096, avoid: vec![], durability: None })?;
    // Simulates the death of the process: nothing is closed cleanly, but its locks go.
    drop(store);
    Ok(())
}

/// Opens the store below `dir` and checks everything that [`make`] put there; then writes to it and opens it again.
pub fn check(dir: &Path) -> Result<(), String> {
    let text = |error: cenote_model::Error| error.to_string();
    for round in 0..2 {
        let (mut store, report) = Fixture::open(dir).map_err(text)?;
        if (round == 0) != report.power_lost {
            return Err(format!("round {round}: {report:?}"));
        }
        if store.engine.id() != STORE || !report.failed_devices.is_empty() {
            return Err(format!("{}: {report:?}", store.engine.id()));
        }
        let summary = store.engine.summary();
        same("rights", &(summary.writers, summary.readers), &(vec![1001], vec![1002]))?;
        contents(&mut store)?;
        let Response::Verified(found) = store.ask(Request::Verify { target: FlushTarget::Store }).map_err(text)? else {
            return Err("no verify report".into());
        };
        same("findings", &found.findings.len(), &0)?;
        if round == 0 {
            let (first, _) = store.by_label("first").map_err(text)?;
            let key = object(first, 9);
            store.apply(vec![Update::ObjectCreate { key, block_shift: 12 }]).map_err(text)?;
            let write = store.write_leased(key, 0, 9, 5_000).map_err(text)?;
            store.apply(vec![write]).map_err(text)?;
        } else {
            let (first, _) = store.by_label("first").map_err(text)?;
            same("what was added", &store.read(object(first, 9)).map_err(text)?, &bytes(WriteId(9), 0, 5_000))?;
        }
        store.engine.close().map_err(text)?;
    }
    Ok(())
}

fn contents(store: &mut Fixture) -> Result<(), String> {
    let text = |error: cenote_model::Error| error.to_string();
    let (first, spec) = store.by_label("first").map_err(text)?;
    let wanted = (Durability::Async, 1u64 << 30, "fast-first".to_owned());
    same("policy of first", &(spec.durability, spec.quota_bytes, spec.policy), &wanted)?;
    let (second, spec) = store.by_label("second").map_err(text)?;
    same("durability of second", &spec.durability, &Durability::Sync)?;
    for label in ["gone", "zweite läufe"] {
        same(label, &store.by_label(label).map_err(|error| error.kind()), &Err(cenote_model::ErrorKind::NotFound))?;
    }
    let mut whole = bytes(WriteId(1), 0, 100_000);
    whole[40_000..50_000].copy_from_slice(&bytes(WriteId(4), 0, 10_000));
    same("object 1", &store.read(object(first, 1)).map_err(text)?, &whole)?;
    let mut holes = vec![0; 1 << 20];
    holes[5_000..8_000].copy_from_slice(&bytes(WriteId(2), 0, 3_000));
    holes[70_000..73_000].copy_from_slice(&bytes(WriteId(3), 0, 3_000));
    holes[6_000..7_000].fill(0);
    same("object 2", &store.read(object(first, 2)).map_err(text)?, &holes)?;
    let far = object(second, u128::MAX - 5);
    let Response::Lookup(lookup) =
        store.ask(Request::Lookup { key: far, offset: 0, len: u64::MAX, limit: 9 }).map_err(text)?
    else {
        return Err("no extents".into());
    };
    same("size of the far object", &(lookup.size, lookup.extents.len()), &((1 << 40) + 4_096, 1))?;
    let device = store.engine.device(lookup.extents[0].1.device).ok_or("no device")?;
    same("the far bytes", &read_extent(&device, &lookup.extents[0].1)?, &bytes(WriteId(5), 0, 4_096))?;
    let index = IndexKey { container: first, index: IndexId(1) };
    let all = Request::Next { index, from: NextFrom::Start, prefix: vec![], limit: 1000, bytes_max: 1 << 20 };
    let Response::Records { records, more: false } = store.ask(all).map_err(text)? else {
        return Err("no records".into());
    };
    packed(store)?;
    let wanted: Vec<_> = (0..=RECORDS).filter(|number| *number != 7).map(record).collect();
    same("records", &records.to_vec(), &wanted)
}

/// Checks the compressed objects, if the version had them.
fn packed(store: &mut Fixture) -> Result<(), String> {
    let text = |error: cenote_model::Error| error.to_string();
    let Ok((packed, _)) = store.by_label(PACKED) else { return Ok(()) };
    for number in [7, 8] {
        let key = object(packed, u128::from(number) - 6);
        let wanted = bytes(WriteId(WriteId::COMPRESSIBLE | number), 0, PACKED_BYTES);
        same(PACKED, &store.read(key).map_err(text)?, &wanted)?;
        let lookup = store.ask(Request::Lookup { key, offset: 0, len: u64::MAX, limit: 9 }).map_err(text)?;
        let Response::Lookup(lookup) = lookup else { return Err("no extents".into()) };
        let is_packed = |extent: &cenote_model::Extent| matches!(extent.encoding, Encoding::Packed(_));
        same("compressed", &lookup.extents.iter().all(|(_, extent)| is_packed(extent)), &true)?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    let short = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    Err(format!("{what}: found {}, not {}", short(found), short(wanted)))
}
