//! Wrappers that inject scheduled faults into the I/O of any device or store directory.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId};
use parking_lot::Mutex;

use crate::mem::SplitMix;
use crate::{Device, Devices, LogFile, MetaDir, OpenedDevice, SegmentFile};

/// A fault to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Does nothing and returns an error of this kind.
    Fail(ErrorKind),
    /// Does the call, and still returns an error of this kind.
    FailAfter(ErrorKind),
    /// Does only the first half of a write and returns an `Io` error; another call fails.
    Torn,
    /// Skips a write and returns success; another call is unaffected.
    Lost,
    /// Flips one bit of what is read or written and returns success; a call without bytes is unaffected.
    FlipBit,
}

#[derive(Default)]
struct Inner {
    count: AtomicU64,
    at: Mutex<BTreeMap<u64, Fault>>,
    from: Mutex<Option<(u64, Fault)>>,
    rate: Mutex<Option<Rate>>,
    hit: AtomicU64,
}

struct Rate {
    rng: SplitMix,
    permille: u64,
    faults: Vec<Fault>,
}

/// A schedule of faults, shared by all wrappers made with it. Calls are counted from 0. Cheap to clone.
#[derive(Clone, Default)]
pub struct Faults {
    inner: Arc<Inner>,
}

impl Faults {
    /// Injects this fault into call number `n` (from 0, counted over all wrappers).
    pub fn at(&self, n: u64, fault: Fault) -> &Self {
        self.inner.at.lock().insert(n, fault);
        self
    }
    /// Injects this fault into every call from number `n` on.
    pub fn from(&self, n: u64, fault: Fault) -> &Self {
        *self.inner.from.lock() = Some((n, fault));
        self
    }
    /// Injects one of these faults into `permille` of a thousand calls, drawn from the seed.
    pub fn at_random(&self, seed: u64, permille: u64, faults: &[Fault]) -> &Self {
        let rate = Rate { rng: SplitMix::new(seed), permille, faults: faults.to_vec() };
        *self.inner.rate.lock() = (!faults.is_empty()).then_some(rate);
        self
    }
    /// Stops injecting faults; counting goes on.
    pub fn heal(&self) {
        self.inner.at.lock().clear();
        *self.inner.from.lock() = None;
        *self.inner.rate.lock() = None;
    }
    /// Number of calls so far.
    pub fn count(&self) -> u64 {
        self.inner.count.load(Ordering::SeqCst)
    }
    /// Number of injected faults so far.
    pub fn hits(&self) -> u64 {
        self.inner.hit.load(Ordering::SeqCst)
    }
    fn next(&self) -> Option<(u64, Fault)> {
        let n = self.inner.count.fetch_add(1, Ordering::SeqCst);
        let planned = self.inner.at.lock().get(&n).copied();
        let lasting = || self.inner.from.lock().filter(|(first, _)| n >= *first).map(|(_, fault)| fault);
        let random = || {
            let mut rate = self.inner.rate.lock();
            let rate = rate.as_mut()?;
            let hit = rate.rng.below(1000) < rate.permille;
            hit.then(|| rate.faults[rate.rng.below(rate.faults.len() as u64) as usize])
        };
        let fault = planned.or_else(lasting).or_else(random)?;
        self.inner.hit.fetch_add(1, Ordering::SeqCst);
        Some((n, fault))
    }
    /// A call that moves no bytes.
    fn plain<T>(&self, what: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        match self.next() {
            Some((n, Fault::Fail(kind))) => Err(injected(what, n, kind)),
            Some((n, Fault::Torn)) => Err(injected(what, n, ErrorKind::Io)),
            Some((n, Fault::FailAfter(kind))) => act().and_then(|_| Err(injected(what, n, kind))),
            Some((_, Fault::Lost | Fault::FlipBit)) | None => act(),
        }
    }
    fn read(&self, what: &str, buf: &mut [u8], act: impl FnOnce(&mut [u8]) -> Result<()>) -> Result<()> {
        match self.next() {
            Some((n, Fault::Fail(kind))) => Err(injected(what, n, kind)),
            Some((n, Fault::Torn)) => Err(injected(what, n, ErrorKind::Io)),
            Some((n, Fault::FailAfter(kind))) => act(buf).and_then(|()| Err(injected(what, n, kind))),
            Some((n, Fault::FlipBit)) => {
                act(buf)?;
                flip(buf, n);
                Ok(())
            }
            Some((_, Fault::Lost)) | None => act(buf),
        }
    }
    fn write(&self, what: &str, bytes: &[u8], act: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
        match self.next() {
            Some((n, Fault::Fail(kind))) => Err(injected(what, n, kind)),
            Some((n, Fault::FailAfter(kind))) => act(bytes).and_then(|()| Err(injected(what, n, kind))),
            Some((n, Fault::Torn)) => {
                act(&bytes[..bytes.len() / 2]).and_then(|()| Err(injected(what, n, ErrorKind::Io)))
            }
            Some((n, Fault::FlipBit)) => {
                let mut bytes = bytes.to_vec();
                flip(&mut bytes, n);
                act(&bytes)
            }
            Some((_, Fault::Lost)) => Ok(()),
            None => act(bytes),
        }
    }
}

fn flip(bytes: &mut [u8], n: u64) {
    if !bytes.is_empty() {
        let bit = SplitMix::new(n).below(bytes.len() as u64 * 8);
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
}

#[cold]
fn injected(what: &str, n: u64, kind: ErrorKind) -> Error {
    Error::new(kind, what).because(format!("injected fault at call {n}"))
}

/// A device, or a factory of devices, with faults. Counts calls of `read_at`, `write_at`, `sync`, `discard`,
/// `segment`; of a factory also `open` and `remove`. I/O through a segment's descriptor gets no faults.
pub struct Faulty<T> {
    inner: T,
    faults: Faults,
}

impl<T> Faulty<T> {
    /// Wraps `inner`.
    pub fn new(inner: T, faults: &Faults) -> Self {
        Self { inner, faults: faults.clone() }
    }
    /// The wrapped value.
    pub fn inner(&self) -> &T {
        &self.inner
    }
}

impl Device for Faulty<Arc<dyn Device>> {
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
        self.faults.read("device read", buf, |buf| self.inner.read_at(offset, buf))
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.faults.write("device write", bytes, |bytes| self.inner.write_at(offset, bytes))
    }
    fn sync(&self) -> Result<()> {
        self.faults.plain("device sync", || self.inner.sync())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.faults.plain("device discard", || self.inner.discard(offset, len))
    }
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        self.faults.plain("device retain", || self.inner.retain(live))
    }
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>> {
        self.faults.plain("device segment", || self.inner.segment(number))
    }
    fn committed(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.committed(offset, len)
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.inner.mend(from)
    }
    fn note(&self) -> String {
        self.inner.note()
    }
}

impl<T: Devices> Devices for Faulty<T> {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        let opened = self.faults.plain("device open", || self.inner.open(store, id, spec, create))?;
        Ok(OpenedDevice { device: Arc::new(Faulty::new(opened.device, &self.faults)), survived: opened.survived })
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        self.faults.plain("device remove", || self.inner.remove(store, id, spec))
    }
}

impl<T: MetaDir> MetaDir for Faulty<T> {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        let log = self.faults.plain("create log", || self.inner.create_log(name, capacity))?;
        Ok(Box::new(Faulty::new(log, &self.faults)))
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        let log = self.faults.plain("open log", || self.inner.open_log(name))?;
        Ok(Box::new(Faulty::new(log, &self.faults)))
    }
    /// Atomic in every case: a torn write is not done.
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        match self.faults.next() {
            Some((n, Fault::Fail(kind))) => Err(injected("write file", n, kind)),
            Some((n, Fault::Torn)) => Err(injected("write file", n, ErrorKind::Io)),
            Some((n, Fault::FailAfter(kind))) => {
                self.inner.write_file(name, bytes).and_then(|()| Err(injected("write file", n, kind)))
            }
            Some((n, Fault::FlipBit)) => {
                let mut bytes = bytes.to_vec();
                flip(&mut bytes, n);
                self.inner.write_file(name, &bytes)
            }
            Some((_, Fault::Lost)) | None => self.inner.write_file(name, bytes),
        }
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        match self.faults.next() {
            Some((n, Fault::Fail(kind))) => Err(injected("read file", n, kind)),
            Some((n, Fault::Torn)) => Err(injected("read file", n, ErrorKind::Io)),
            Some((n, Fault::FailAfter(kind))) => {
                self.inner.read_file(name).and_then(|_| Err(injected("read file", n, kind)))
            }
            Some((n, Fault::FlipBit)) => self.inner.read_file(name).map(|mut bytes| {
                flip(&mut bytes, n);
                bytes
            }),
            Some((_, Fault::Lost)) | None => self.inner.read_file(name),
        }
    }
    fn list(&self) -> Result<Vec<String>> {
        self.faults.plain("list", || self.inner.list())
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.faults.plain("remove", || self.inner.remove(name))
    }
}

impl LogFile for Faulty<Box<dyn LogFile>> {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.faults.write("log write", bytes, |bytes| self.inner.write(offset, bytes))
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.faults.read("log read", buf, |buf| self.inner.read(offset, buf))
    }
    fn sync(&self) -> Result<()> {
        self.faults.plain("log sync", || self.inner.sync())
    }
    fn data_from(&self, offset: u64) -> Option<u64> {
        self.inner.data_from(offset)
    }
}
