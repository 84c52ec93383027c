//! A store in a world in memory (deterministic simulation), and a client that writes and reads through it as
//! real ones do.
#![allow(dead_code, reason = "each test uses its part")]

pub mod engines;
pub mod manage;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_device::mem::{Keep, MemClock, MemControl, MemDevices, MemMetaDir};
use cenote_device::object::fake::FakeService;
use cenote_device::object::{ObjectDevices, Patience};
use cenote_device::packing::Packer;
use cenote_device::{Clock, Device, Devices, OpenedDevice, SegmentFile};
use cenote_model::*;
use cenote_store::{Engine, Outcome, RecoveryReport, Seams, SessionId, SessionInfo, Tuning};

pub struct Rng(u64);
impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

pub fn crc(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

pub fn spec(name: &str, kind: DeviceKind, capacity_bytes: u64) -> DeviceSpec {
    DeviceSpec {
        name: name.into(),
        kind,
        path: name.into(),
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: cenote_model::TierOptions::default(),
    }
}

pub fn three_tiers(memory: u64, file: u64, directory: u64) -> StoreConfig {
    StoreConfig {
        devices: vec![
            spec("memory", DeviceKind::SharedMemory, memory),
            spec("file", DeviceKind::File, file),
            spec("capacity", DeviceKind::Directory, directory),
        ],
        ..StoreConfig::default()
    }
}

/// Memory in front of a bucket, in packs of 64 KiB.
pub fn memory_and_bucket(memory: u64, bucket: u64) -> StoreConfig {
    let mut cold = spec("cold", DeviceKind::S3, bucket);
    cold.path = "bucket/p".into();
    cold.options.set("pack", "64KiB");
    StoreConfig { devices: vec![spec("memory", DeviceKind::SharedMemory, memory), cold], ..StoreConfig::default() }
}

pub struct World {
    pub meta: MemMetaDir,
    pub devices: MemDevices,
    /// The tiers of object services.
    pub service: FakeService,
    pub clock: Arc<MemClock>,
    pub control: Arc<MemControl>,
    pub engine: Option<Engine>,
    pub session: SessionId,
    pub seq: u64,
    pub leases: Vec<Run>,
    /// Syncs of persistent devices fail, and drop unsynced data as operating systems do.
    pub sync_fails: Arc<AtomicBool>,
    /// Writes longer than 4 KiB silently lose a bit.
    pub writes_lie: Arc<AtomicBool>,
    /// Nanoseconds for each byte of a read or write on devices, with 100 us for each access; 0: neither.
    pub byte_ns: Arc<AtomicU64>,
    pub report: RecoveryReport,
    pub tuning: Tuning,
}

/// Small files, so that the journal turns over often and opening is quick.
pub fn tuning() -> Tuning {
    Tuning {
        log_bytes: 64 << 10,
        checkpoint_bytes: 512 << 10,
        checkpoint_held_bytes: 0,
        check_checkpoints: true,
        copy_bytes: 128 << 10,
        ..Tuning::default()
    }
}

pub const STORE: StoreId = StoreId(0xce);

impl World {
    pub fn new(config: &StoreConfig) -> Self {
        Self::tuned(config, tuning())
    }
    pub fn tuned(config: &StoreConfig, tuning: Tuning) -> Self {
        let mut world = Self {
            meta: MemMetaDir::default(),
            devices: MemDevices::new(16 << 20),
            service: FakeService::default(),
            clock: Arc::default(),
            control: Arc::default(),
            engine: None,
            session: SessionId(0),
            seq: 0,
            leases: Vec::new(),
            sync_fails: Arc::default(),
            writes_lie: Arc::default(),
            byte_ns: Arc::default(),
            report: RecoveryReport::default(),
            tuning,
        };
        world.engine = Some(Engine::create_tuned(world.seams(), STORE, config, tuning).unwrap());
        world.attach();
        world
    }
    pub fn seams(&self) -> Seams {
        Seams {
            meta: Arc::new(self.meta.clone()),
            devices: Arc::new(Dropping {
                inner: self.devices.clone(),
                service: self.service.clone(),
                fails: Arc::clone(&self.sync_fails),
                lies: Arc::clone(&self.writes_lie),
                pace: (Arc::clone(&self.clock), Arc::clone(&self.byte_ns)),
            }),
            clock: Arc::clone(&self.clock) as _,
            control: Arc::clone(&self.control) as _,
        }
    }
    pub fn engine(&mut self) -> &mut Engine {
        self.engine.as_mut().unwrap()
    }
    pub fn attach(&mut self) {
        let who = SessionInfo { nonce: 7, pid: 1, started: 1, uid: 0, write: true, ..SessionInfo::default() };
        self.session = self.engine().session_open(who).unwrap();
    }
    pub fn open(&mut self) -> Result<()> {
        let (engine, report) = Engine::open_tuned(self.seams(), self.tuning)?;
        self.engine = Some(engine);
        self.report = report;
        self.attach();
        Ok(())
    }
    pub fn kill(&mut self) {
        self.engine = None;
        self.meta.kill();
        self.devices.kill();
    }
    pub fn power_loss(&mut self, keep: Keep) {
        self.engine = None;
        self.meta.power_loss(keep);
        self.devices.power_loss(keep);
        self.control.power_loss();
        self.leases.clear();
    }
    /// Ticks and runs jobs until there are none.
    pub fn work(&mut self) {
        for _ in 0..2000 {
            self.engine().tick();
            let Some(job) = self.engine().next_job() else { return };
            let done = job.run();
            self.engine().finish_job(done);
        }
        panic!("jobs without end");
    }
    /// Works for some ticks, so that retired space becomes free.
    pub fn settle(&mut self) {
        for _ in 0..3 {
            self.clock.advance_ns(20_000_000);
            self.work();
        }
    }
    /// Runs one job at most.
    pub fn step(&mut self) -> bool {
        self.engine().tick();
        let Some(job) = self.engine().next_job() else { return false };
        let done = job.run();
        self.engine().finish_job(done);
        true
    }
    pub fn ask(&mut self, request: Request) -> Response {
        self.seq += 1;
        let seq = self.seq;
        self.ask_as(seq, request)
    }
    pub fn ask_as(&mut self, seq: u64, request: Request) -> Response {
        let session = self.session;
        match self.engine().handle(session, seq, request) {
            Outcome::Ready(response) => response,
            Outcome::Wait(ticket) => {
                for _ in 0..100_000 {
                    if let Some(found) = self.engine().take_finished().into_iter().find(|(t, _)| *t == ticket) {
                        return found.1;
                    }
                    if !self.step() {
                        self.clock.advance_ns(20_000_000);
                    }
                }
                panic!("no answer");
            }
        }
    }
    pub fn apply(&mut self, updates: Vec<Update>, atomic: bool) -> Response {
        self.ask(Request::Apply { checks: vec![], updates, atomic })
    }
    pub fn must(&mut self, updates: Vec<Update>) -> u64 {
        match self.apply(updates, true) {
            Response::Applied { epoch, .. } => epoch,
            other => panic!("{other:?}"),
        }
    }
    pub fn container(&mut self, label: &str, durability: Durability) -> ContainerId {
        let spec = ContainerSpec { durability, ..ContainerSpec::default() };
        match self.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }], true) {
            Response::Applied { created: Some(id), .. } => id,
            other => panic!("{other:?}"),
        }
    }
    /// Leases room for `len` bytes in one run; waits while some may become free.
    pub fn room(&mut self, container: ContainerId, len: u32) -> Result<Run> {
        let request =
            Request::Lease { container, bytes: u64::from(len), run_min: len, avoid: vec![], durability: None };
        for _ in 0..100 {
            match self.ask(request.clone()) {
                Response::Lease(lease) => return Ok(lease.runs[0]),
                Response::Failed(error) if error.kind() != ErrorKind::Busy => return Err(error),
                Response::Failed(_) => self.clock.advance_ns(20_000_000),
                other => panic!("{other:?}"),
            }
            self.work();
        }
        panic!("space is always about to become free, and never does");
    }
    /// Writes bytes to the device; returns the update that makes them a write.
    pub fn stage(&mut self, key: ObjectKey, offset: u64, bytes: &[u8]) -> Result<Update> {
        let run = self.room(key.container, bytes.len() as u32)?;
        let device = self.engine().device(run.device).unwrap();
        device.write_at(run.offset, bytes).unwrap();
        let sums: Vec<u32> = bytes.chunks(65536).map(crc).collect();
        let extent = Extent::whole(run.device, run.offset, bytes.len() as u32, Sums::from_slice(&sums));
        Ok(Update::Write { key, offset, extent })
    }
    pub fn write(&mut self, key: ObjectKey, offset: u64, bytes: &[u8]) -> Result<u64> {
        let update = self.stage(key, offset, bytes)?;
        match self.apply(vec![update], true) {
            Response::Applied { epoch, .. } => Ok(epoch),
            Response::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
    pub fn lookup(&mut self, key: ObjectKey) -> Result<Lookup> {
        match self.ask(Request::Lookup { key, offset: 0, len: u64::MAX, limit: u32::MAX }) {
            Response::Lookup(lookup) => Ok(lookup),
            Response::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
    /// Returns the whole object; verifies every checksum unit that it touches.
    pub fn read(&mut self, key: ObjectKey) -> Result<Vec<u8>> {
        let lookup = self.lookup(key)?;
        let mut bytes = vec![0; lookup.size as usize];
        let mut end = 0;
        for (at, extent) in lookup.extents {
            assert!(at >= end, "extents overlap");
            end = at + u64::from(extent.len);
            assert!(end <= lookup.size, "an extent past the size");
            let device = self.engine().device(extent.device).unwrap();
            let first = extent.skip / 65536;
            let last = (extent.skip + extent.len - 1) / 65536;
            let mut hull = Vec::new();
            for unit in first..=last {
                let len = (extent.run_len - unit * 65536).min(65536) as usize;
                let mut part = vec![0; len];
                match &extent.encoding {
                    Encoding::Plain => device.read_at(extent.run_offset + u64::from(unit) * 65536, &mut part)?,
                    Encoding::Packed(packed) => {
                        let mut stored = vec![0; packed.len_of(unit as usize) as usize];
                        device.read_at(extent.run_offset + u64::from(packed.start(unit as usize)), &mut stored)?;
                        Packer::default().unpack_unit(packed, unit as usize, &stored, &mut part)?;
                    }
                }
                assert_eq!(crc(&part), extent.sums.as_slice()[unit as usize], "checksum of {key} at {at}");
                hull.extend(part);
            }
            let from = (extent.skip - first * 65536) as usize;
            bytes[at as usize..end as usize].copy_from_slice(&hull[from..from + extent.len as usize]);
        }
        Ok(bytes)
    }
    pub fn flush(&mut self, target: FlushTarget) -> Result<()> {
        match self.ask(Request::Flush { target }) {
            Response::Done => Ok(()),
            Response::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
    pub fn used(&mut self) -> Vec<(String, u64, u64)> {
        let Response::Devices(devices) = self.ask(Request::Devices) else { panic!() };
        devices.into_iter().map(|d| (d.spec.name, d.used_bytes, d.reserved_bytes)).collect()
    }
    pub fn verify(&mut self) -> VerifyReport {
        match self.ask(Request::Verify { target: FlushTarget::Store }) {
            Response::Verified(report) => {
                assert!(report.contradictions.is_empty(), "{:?}", report.contradictions);
                report
            }
            other => panic!("{other:?}"),
        }
    }
    pub fn now_ns(&self) -> u64 {
        self.clock.now_ns()
    }
}

pub fn object(container: ContainerId, n: u128) -> ObjectKey {
    ObjectKey { container, object: ObjectId(n) }
}
pub fn index(container: ContainerId, n: u128) -> IndexKey {
    IndexKey { container, index: IndexId(n) }
}

/// Devices whose syncs can be told to fail.
struct Dropping {
    inner: MemDevices,
    service: FakeService,
    fails: Arc<AtomicBool>,
    lies: Arc<AtomicBool>,
    pace: (Arc<MemClock>, Arc<AtomicU64>),
}

impl Dropping {
    fn objects(&self) -> impl Devices + use<> {
        let service = self.service.clone();
        ObjectDevices::new(
            move |_: &DeviceSpec| Ok(service.clone()),
            false,
            Patience { tries: 1, ..Patience::default() },
        )
    }
}

impl Devices for Dropping {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        if spec.kind.is_object() {
            return self.objects().open(store, id, spec, create);
        }
        let OpenedDevice { device, survived } = self.inner.open(store, id, spec, create)?;
        let (media, fails, lies) = (self.inner.clone(), Arc::clone(&self.fails), Arc::clone(&self.lies));
        let pace = self.pace.clone();
        let device = Arc::new(DroppingDevice { device, media, of: (store, id), fails, lies, pace });
        Ok(OpenedDevice { device, survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        if spec.kind.is_object() {
            return self.objects().remove(store, id, spec);
        }
        self.inner.remove(store, id, spec)
    }
}

struct DroppingDevice {
    device: Arc<dyn Device>,
    media: MemDevices,
    of: (StoreId, DeviceId),
    fails: Arc<AtomicBool>,
    lies: Arc<AtomicBool>,
    pace: (Arc<MemClock>, Arc<AtomicU64>),
}

impl DroppingDevice {
    fn take_time(&self, bytes: usize) {
        let each = self.pace.1.load(Ordering::Relaxed);
        if each > 0 {
            self.pace.0.advance_ns(100_000 + bytes as u64 * each);
        }
    }
}

impl Device for DroppingDevice {
    fn capacity_bytes(&self) -> u64 {
        self.device.capacity_bytes()
    }
    fn unit_bytes(&self) -> u32 {
        self.device.unit_bytes()
    }
    fn segment_bytes(&self) -> u64 {
        self.device.segment_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.take_time(buf.len());
        self.device.read_at(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.take_time(bytes.len());
        if self.lies.load(Ordering::Relaxed) && bytes.len() > 4096 {
            let mut bytes = bytes.to_vec();
            bytes[4096] ^= 1;
            return self.device.write_at(offset, &bytes);
        }
        self.device.write_at(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        if self.fails.load(Ordering::Relaxed) {
            self.media.forget_unsynced(self.of.0, self.of.1);
            return Err(Error::new(ErrorKind::Io, "a test").because("this sync was told to fail"));
        }
        self.device.sync()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>> {
        self.device.segment(number)
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.device.mend(from)
    }
    fn note(&self) -> String {
        self.device.note()
    }
}
