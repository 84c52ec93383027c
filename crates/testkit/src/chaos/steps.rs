//! A world that kills its own process by SIGKILL at a given step: before or after any I/O of the engine, and whenever
//! a version word rises. Steps are counted from the moment when a file asks for it.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use cenote_device::{Control, Device, Devices, LogFile, MetaDir, OpenedDevice, SegmentFile};
use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};
use cenote_store::Seams;

/// Environment variable that names the file with the step to die at; the file is deleted when it is read.
pub const ARM: &str = "CENOTE_CHAOS_ARM";

/// Steps left; negative: no death was requested yet.
static TO_GO: AtomicI64 = AtomicI64::new(-1);
static ARM_FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Inserts the steps between an engine and its world.
pub fn wrap(seams: Seams) -> Seams {
    Seams {
        meta: Arc::new(Stepped(seams.meta)),
        devices: Arc::new(Stepped(seams.devices)),
        clock: seams.clock,
        control: Arc::new(Stepped(seams.control)),
    }
}

fn step() {
    if TO_GO.load(Ordering::Relaxed) < 0 && !arm() {
        return;
    }
    if TO_GO.fetch_sub(1, Ordering::Relaxed) == 0 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        loop {
            std::thread::park(); // nothing is done any more
        }
    }
}

fn arm() -> bool {
    let Some(file) = ARM_FILE.get_or_init(|| std::env::var_os(ARM).map(PathBuf::from)) else { return false };
    let Ok(text) = std::fs::read_to_string(file) else { return false };
    let Ok(steps) = text.trim().parse() else { return false };
    // Only one of several threads that read it succeeds.
    if std::fs::remove_file(file).is_ok() {
        TO_GO.store(steps, Ordering::Relaxed);
    }
    true
}

fn around<T>(act: impl FnOnce() -> T) -> T {
    step();
    let done = act();
    step();
    done
}

struct Stepped<T>(T);

impl Devices for Stepped<Arc<dyn Devices>> {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        let opened = around(|| self.0.open(store, id, spec, create))?;
        Ok(OpenedDevice { device: Arc::new(Stepped(opened.device)), survived: opened.survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        around(|| self.0.remove(store, id, spec))
    }
}

impl Device for Stepped<Arc<dyn Device>> {
    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes()
    }
    fn unit_bytes(&self) -> u32 {
        self.0.unit_bytes()
    }
    fn segment_bytes(&self) -> u64 {
        self.0.segment_bytes()
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        around(|| self.0.read_at(offset, buf))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        around(|| self.0.write_at(offset, bytes))
    }
    fn sync(&self) -> Result<()> {
        around(|| self.0.sync())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        around(|| self.0.discard(offset, len))
    }
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        around(|| self.0.retain(live))
    }
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>> {
        self.0.segment(number)
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.0.mend(from)
    }
    fn note(&self) -> String {
        self.0.note()
    }
}

impl MetaDir for Stepped<Arc<dyn MetaDir>> {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        Ok(Box::new(Stepped(around(|| self.0.create_log(name, capacity))?)))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        Ok(Box::new(Stepped(self.0.open_log(name)?)))
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        around(|| self.0.write_file(name, bytes))
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        self.0.read_file(name)
    }
    fn list(&self) -> Result<Vec<String>> {
        self.0.list()
    }
    fn remove(&self, name: &str) -> Result<()> {
        around(|| self.0.remove(name))
    }
}

impl LogFile for Stepped<Box<dyn LogFile>> {
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        around(|| self.0.write(offset, bytes))
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.read(offset, buf)
    }
    fn sync(&self) -> Result<()> {
        around(|| self.0.sync())
    }
    fn data_from(&self, offset: u64) -> Option<u64> {
        self.0.data_from(offset)
    }
}

impl Control for Stepped<Arc<dyn Control>> {
    fn attach(&self, store: StoreId) -> Result<bool> {
        self.0.attach(store)
    }
    fn instance_raise(&self) -> u64 {
        self.0.instance_raise()
    }
    fn word(&self, hash: u64) -> u64 {
        self.0.word(hash)
    }
    fn word_raise(&self, hash: u64) -> u64 {
        around(|| self.0.word_raise(hash))
    }
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }
    fn epoch_raise(&self) -> u64 {
        self.0.epoch_raise()
    }
    fn slots_min(&self) -> u64 {
        self.0.slots_min()
    }
    fn client_counts(&self) -> Vec<cenote_device::control::ClientCounts> {
        self.0.client_counts()
    }
}
