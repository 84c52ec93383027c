//! A simulated world: devices, store directory, control table and clock in memory, which fail on command.
//!
//! Every I/O of the engine passes [`Faults`], which counts it and can make it fail, tear it, or let the process "die"
//! there: from then on the engine's actions have no effect, until the world is crashed and the store opened again.
//! This module must not know what the bytes mean.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cenote_device::mem::{Keep, MemClock, MemControl, MemDevices, MemMetaDir};
use cenote_device::object::fake::FakeService;
use cenote_device::object::{ObjectDevices, Patience};
use cenote_device::{Device, Devices, LogFile, MetaDir, OpenedDevice, SegmentFile};
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId};
use cenote_store::Seams;

use crate::rng::Rng;
use crate::weather::Weather;

/// Kind of an I/O.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Io {
    /// Opening or creating a device.
    DeviceOpen,
    /// Removing a device's files.
    DeviceRemove,
    /// Reading from a device.
    DeviceRead,
    /// Writing to a device.
    DeviceWrite,
    /// Making a device's writes durable.
    DeviceSync,
    /// Discarding free space of a device.
    DeviceDiscard,
    /// Creating a log.
    LogCreate,
    /// Opening a log.
    LogOpen,
    /// Writing to a log.
    LogWrite,
    /// Reading from a log.
    LogRead,
    /// Making a log's writes durable.
    LogSync,
    /// Replacing a small file.
    FileWrite,
    /// Reading a small file.
    FileRead,
    /// Deleting a file or log.
    FileRemove,
    /// Listing the directory.
    List,
}

/// Which I/Os fail.
#[derive(Clone, Debug, Default)]
struct Plan {
    die_at: Option<u64>,
    /// The I/Os `[from, to)` fail.
    fail: Option<(u64, u64)>,
    only: Option<Io>,
    permille: u64,
    rng: Option<Rng>,
    log: Option<Vec<Io>>,
}

/// Counts I/Os and decides their fate. One for a whole world.
#[derive(Debug, Default)]
pub struct Faults {
    count: AtomicU64,
    injected: AtomicU64,
    dead: AtomicBool,
    paused: AtomicBool,
    plan: Mutex<Plan>,
}

enum Verdict {
    Go,
    /// Fails; still writes this many thousandths of the bytes.
    Fail(Error, u64),
}

impl Faults {
    /// Number of I/Os so far.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }
    /// Number of injected failures so far.
    pub fn injected(&self) -> u64 {
        self.injected.load(Ordering::Relaxed)
    }
    /// Lets the process die at the I/O with this number.
    pub fn die_at(&self, number: u64, torn: Rng) {
        let mut plan = self.lock();
        plan.die_at = Some(number);
        plan.rng = Some(torn);
    }
    /// Returns true if the process has died.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }
    /// Lets the I/Os numbered `[from, to)` fail (with `only`: those of one kind).
    pub fn fail(&self, from: u64, to: u64, only: Option<Io>, torn: Rng) {
        let mut plan = self.lock();
        plan.fail = Some((from, to));
        plan.only = only;
        plan.rng = Some(torn);
    }
    /// Lets each I/O fail with this probability from now on.
    pub fn fail_at_random(&self, permille: u64, rng: Rng) {
        let mut plan = self.lock();
        plan.permille = permille;
        plan.rng = Some(rng);
    }
    /// Ends all failures, and revives the process.
    pub fn heal(&self) {
        let log = self.lock().log.take();
        *self.lock() = Plan { log, ..Plan::default() };
        self.dead.store(false, Ordering::Relaxed);
    }
    /// While paused, I/Os pass uncounted: those of the test itself.
    pub fn pause(&self, on: bool) {
        self.paused.store(on, Ordering::Relaxed);
    }
    /// Records the kind of each I/O from now on, for [`Faults::recorded`].
    pub fn record(&self) {
        self.lock().log = Some(Vec::new());
    }
    /// The kinds of the I/Os since [`Faults::record`].
    pub fn recorded(&self) -> Vec<Io> {
        self.lock().log.clone().unwrap_or_default()
    }
    fn lock(&self) -> std::sync::MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn enter(&self, io: Io, subject: &str) -> Verdict {
        if self.paused.load(Ordering::Relaxed) {
            return Verdict::Go;
        }
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        if self.is_dead() {
            return Verdict::Fail(Error::new(ErrorKind::Io, subject).because("the simulated process has died"), 0);
        }
        let mut plan = self.lock();
        if let Some(log) = &mut plan.log {
            log.push(io);
        }
        let tear = |plan: &mut Plan| plan.rng.as_mut().map_or(0, |rng| rng.below(3) * rng.below(1000) / 2);
        if plan.die_at.is_some_and(|at| number >= at) {
            self.dead.store(true, Ordering::Relaxed);
            let torn = tear(&mut plan);
            return Verdict::Fail(Error::new(ErrorKind::Io, subject).because("the simulated process dies here"), torn);
        }
        let planned = plan.fail.is_some_and(|(from, to)| (from..to).contains(&number));
        let fits = plan.only.is_none_or(|only| only == io);
        let permille = plan.permille;
        let random = permille > 0 && plan.rng.as_mut().is_some_and(|rng| rng.chance(permille));
        if (planned && fits) || random {
            self.injected.fetch_add(1, Ordering::Relaxed);
            let torn = tear(&mut plan);
            return Verdict::Fail(
                Error::new(ErrorKind::Io, subject).because(format!("injected at I/O {number}")),
                torn,
            );
        }
        Verdict::Go
    }
    fn gate(&self, io: Io, subject: &str) -> Result<()> {
        match self.enter(io, subject) {
            Verdict::Go => Ok(()),
            Verdict::Fail(error, _) => Err(error),
        }
    }
    /// An atomic change; a failed one may have taken effect.
    fn change<T>(&self, io: Io, subject: &str, change: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.enter(io, subject) {
            Verdict::Go => change(),
            Verdict::Fail(error, permille) => {
                if permille > 500 {
                    let _ = change(); // nobody learns of it
                }
                Err(error)
            }
        }
    }
    /// A sync; a failed one may have dropped the bytes that it should have made durable.
    fn sync(&self, io: Io, subject: &str, sync: impl FnOnce() -> Result<()>, drop: impl FnOnce()) -> Result<()> {
        match self.enter(io, subject) {
            Verdict::Go => sync(),
            Verdict::Fail(error, permille) => {
                if permille > 0 {
                    drop();
                }
                Err(error)
            }
        }
    }
    /// A write that may be torn: a failed one may have written a prefix.
    fn write(&self, io: Io, subject: &str, bytes: &[u8], write: impl Fn(&[u8]) -> Result<()>) -> Result<()> {
        match self.enter(io, subject) {
            Verdict::Go => write(bytes),
            Verdict::Fail(error, permille) => {
                // A processor stores a few bytes at once or not at all.
                let permille = if bytes.len() <= 8 { 0 } else { permille.min(999) };
                let part = (bytes.len() as u64 * permille / 1000) as usize;
                if part > 0 {
                    write(&bytes[..part])?;
                }
                Err(error)
            }
        }
    }
}

/// The world of one store.
#[derive(Clone)]
pub struct World {
    /// Its devices.
    pub devices: MemDevices,
    /// Its store directory.
    pub meta: MemMetaDir,
    /// Its control table.
    pub control: Arc<MemControl>,
    /// Its clock.
    pub clock: Arc<MemClock>,
    /// Its faults.
    pub faults: Arc<Faults>,
    /// The faults of its devices.
    pub weather: Arc<Weather>,
    /// The object service of its buckets.
    pub service: FakeService,
    /// Bytes in each segment of its devices.
    pub segment_bytes: u64,
}

impl World {
    /// A world without a store; `segment_bytes` for its devices, `words` version words in its control table.
    pub fn new(segment_bytes: u64, words: usize) -> Self {
        let clock: Arc<MemClock> = Arc::default();
        Self {
            devices: MemDevices::new(segment_bytes),
            meta: MemMetaDir::default(),
            control: Arc::new(MemControl::new(words)),
            weather: Arc::new(Weather::new(Arc::clone(&clock))),
            service: FakeService::default(),
            clock,
            faults: Arc::default(),
            segment_bytes,
        }
    }
    /// The world as the engine sees it.
    pub fn seams(&self) -> Seams {
        Seams {
            meta: Arc::new(FaultyMeta { inner: self.meta.clone(), faults: Arc::clone(&self.faults) }),
            devices: Arc::new(FaultyDevices {
                inner: self.devices.clone(),
                service: self.service.clone(),
                faults: Arc::clone(&self.faults),
                weather: Arc::clone(&self.weather),
            }),
            clock: Arc::clone(&self.clock) as Arc<_>,
            control: Arc::clone(&self.control) as Arc<_>,
        }
    }
    /// Lets the engine's process die: memory, files and control table stay.
    pub fn kill(&self) {
        self.devices.kill();
        self.meta.kill();
    }
    /// Lets the machine lose power.
    pub fn power_loss(&self, keep: Keep) {
        self.devices.power_loss(keep);
        self.meta.power_loss(keep);
        self.control.power_loss();
    }
}

struct FaultyDevices {
    inner: MemDevices,
    service: FakeService,
    faults: Arc<Faults>,
    weather: Arc<Weather>,
}

impl FaultyDevices {
    /// Buckets without background threads and without retries.
    fn buckets(&self) -> impl Devices + use<> {
        let service = self.service.clone();
        let patience = Patience { tries: 1, pause: Duration::ZERO, total: Duration::from_mins(1) };
        ObjectDevices::new(move |_: &DeviceSpec| Ok(service.clone()), false, patience)
    }
}

impl Devices for FaultyDevices {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        self.faults.gate(Io::DeviceOpen, &spec.name)?;
        self.weather.meet(id, Io::DeviceOpen, &spec.name, 0, 0)?;
        let is_object = spec.kind.is_object();
        let opened = if is_object {
            self.buckets().open(store, id, spec, create).inspect_err(|_| self.weather.note_hit())?
        } else {
            self.inner.open(store, id, spec, create)?
        };
        let device = FaultyDevice {
            inner: opened.device,
            media: self.inner.clone(),
            of: (store, id),
            is_object,
            faults: Arc::clone(&self.faults),
            weather: Arc::clone(&self.weather),
            name: format!("simulated device `{}`", spec.name),
        };
        Ok(OpenedDevice { device: Arc::new(device), survived: opened.survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        self.faults.gate(Io::DeviceRemove, &spec.name)?;
        self.weather.meet(id, Io::DeviceRemove, &spec.name, 0, 0)?;
        if spec.kind.is_object() {
            self.buckets().remove(store, id, spec).inspect_err(|_| self.weather.note_hit())
        } else {
            self.inner.remove(store, id, spec)
        }
    }
}

struct FaultyDevice {
    inner: Arc<dyn Device>,
    media: MemDevices,
    of: (StoreId, DeviceId),
    is_object: bool,
    faults: Arc<Faults>,
    weather: Arc<Weather>,
    name: String,
}

impl FaultyDevice {
    fn meet(&self, io: Io, offset: u64, len: u64) -> Result<()> {
        self.weather.meet(self.of.1, io, &self.name, offset, len)
    }
    /// A refusal by the service counts as weather.
    fn served<T>(&self, result: Result<T>) -> Result<T> {
        if self.is_object && result.is_err() {
            self.weather.note_hit();
        }
        result
    }
}

impl Device for FaultyDevice {
    fn capacity_bytes(&self) -> u64 {
        self.inner.capacity_bytes()
    }
    fn unit_bytes(&self) -> u32 {
        self.inner.unit_bytes()
    }
    fn segment_bytes(&self) -> u64 {
        self.inner.segment_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.faults.gate(Io::DeviceRead, &self.name)?;
        self.meet(Io::DeviceRead, offset, buf.len() as u64)?;
        self.served(self.inner.read_at(offset, buf))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.meet(Io::DeviceWrite, offset, bytes.len() as u64)?;
        let write = |part: &[u8]| self.served(self.inner.write_at(offset, part));
        self.faults.write(Io::DeviceWrite, &self.name, bytes, write)
    }
    fn sync(&self) -> Result<()> {
        // A bucket's device keeps unsent bytes as long as its process lives.
        let drop = || self.media.forget_unsynced(self.of.0, self.of.1);
        if let Err(error) = self.meet(Io::DeviceSync, 0, 0) {
            drop();
            return Err(error);
        }
        self.faults.sync(Io::DeviceSync, &self.name, || self.served(self.inner.sync()), drop)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.faults.gate(Io::DeviceDiscard, &self.name)?;
        self.meet(Io::DeviceDiscard, offset, len)?;
        self.inner.discard(offset, len)?;
        // Overwrite the bytes, so that whoever still needs them notices.
        if self.is_object { Ok(()) } else { self.inner.write_at(offset, &vec![0xDD; len as usize]) }
    }
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        self.meet(Io::DeviceDiscard, 0, 0)?;
        self.inner.retain(live)
    }
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>> {
        self.inner.segment(number)
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.inner.mend(from)
    }
    fn note(&self) -> String {
        self.inner.note()
    }
}

struct FaultyMeta {
    inner: MemMetaDir,
    faults: Arc<Faults>,
}

impl FaultyMeta {
    fn wrap(&self, inner: Box<dyn LogFile>, name: &str) -> Box<dyn LogFile> {
        let (meta, faults) = (self.inner.clone(), Arc::clone(&self.faults));
        let subject = format!("simulated log `{name}`");
        Box::new(FaultyLog { inner, meta, file: name.to_owned(), faults, name: subject })
    }
}

impl MetaDir for FaultyMeta {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        let made = self.faults.change(Io::LogCreate, name, || self.inner.create_log(name, capacity))?;
        Ok(self.wrap(made, name))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        self.faults.gate(Io::LogOpen, name)?;
        Ok(self.wrap(self.inner.open_log(name)?, name))
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.faults.change(Io::FileWrite, name, || self.inner.write_file(name, bytes))
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        self.faults.gate(Io::FileRead, name)?;
        self.inner.read_file(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.faults.gate(Io::List, "simulated store directory")?;
        self.inner.list()
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.faults.change(Io::FileRemove, name, || self.inner.remove(name))
    }
}

struct FaultyLog {
    inner: Box<dyn LogFile>,
    meta: MemMetaDir,
    file: String,
    faults: Arc<Faults>,
    name: String,
}

impl LogFile for FaultyLog {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.faults.write(Io::LogWrite, &self.name, bytes, |part| self.inner.write(offset, part))
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.faults.gate(Io::LogRead, &self.name)?;
        self.inner.read(offset, buf)
    }
    fn sync(&self) -> Result<()> {
        let drop = || self.meta.forget_unsynced(&self.file);
        self.faults.sync(Io::LogSync, &self.name, || self.inner.sync(), drop)
    }
    fn data_from(&self, offset: u64) -> Option<u64> {
        self.inner.data_from(offset)
    }
}
