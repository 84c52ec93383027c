//! Faults of a simulated world's devices while the engine uses them: they vanish, fill up, slow down, fail for a
//! while or in places, or become shorter. This module must not know what the bytes mean, nor who reads them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cenote_device::mem::MemClock;
use cenote_model::{DeviceId, Error, ErrorKind, Result};

use crate::rng::Rng;
use crate::world::Io;

/// A fault of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceFault {
    /// Every access fails, and the device cannot be opened.
    Away,
    /// Writes find no space.
    Full,
    /// Each access takes this many nanoseconds.
    Slow(u64),
    /// This many of a thousand accesses fail.
    Flaky(u64),
    /// Reads that begin in `[from, to)` fail.
    Unreadable(u64, u64),
    /// The device ends here: accesses beyond it fail.
    Short(u64),
}

impl DeviceFault {
    /// A random fault for a device of that size.
    pub fn draw(rng: &mut Rng, capacity_bytes: u64) -> Self {
        match rng.below(8) {
            0..=2 => Self::Away,
            3 => Self::Full,
            4 => Self::Slow(*rng.pick(&[1_000_000, 20_000_000, 700_000_000])),
            5 => Self::Flaky(rng.between(50, 900)),
            6 => {
                let from = rng.below(capacity_bytes) / 4096 * 4096;
                Self::Unreadable(from, from + 4096 * rng.between(1, 32))
            }
            _ => Self::Short(rng.below(capacity_bytes) / 4096 * 4096),
        }
    }
}

/// The faults of all devices of a world. Cheap to share.
#[derive(Debug, Default)]
pub struct Weather {
    faulty: Mutex<BTreeMap<DeviceId, DeviceFault>>,
    rng: Mutex<Option<Rng>>,
    hits: AtomicU64,
    paused: AtomicBool,
    clock: Option<Arc<MemClock>>,
}

impl Weather {
    /// No faults; slow devices will advance this clock.
    pub fn new(clock: Arc<MemClock>) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }
    /// Sets the fault of a device.
    pub fn inject(&self, id: DeviceId, fault: DeviceFault, rng: Rng) {
        *lock(&self.rng) = Some(rng);
        lock(&self.faulty).insert(id, fault);
    }
    /// Ends the fault of a device.
    pub fn heal(&self, id: DeviceId) {
        lock(&self.faulty).remove(&id);
    }
    /// The fault of a device.
    pub fn of(&self, id: DeviceId) -> Option<DeviceFault> {
        lock(&self.faulty).get(&id).copied()
    }
    /// The devices with faults.
    pub fn faulty(&self) -> Vec<(DeviceId, DeviceFault)> {
        lock(&self.faulty).iter().map(|(id, fault)| (*id, *fault)).collect()
    }
    /// Number of accesses that failed because of faults.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
    /// Counts a device failure with another cause.
    pub(crate) fn note_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }
    /// While paused, accesses reach the media, whatever the faults.
    pub fn pause(&self, on: bool) {
        self.paused.store(on, Ordering::Relaxed);
    }
    /// The effect of the faults on an access.
    pub(crate) fn meet(&self, id: DeviceId, io: Io, subject: &str, offset: u64, len: u64) -> Result<()> {
        if self.paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(fault) = self.of(id) else { return Ok(()) };
        let why = match (fault, io) {
            (DeviceFault::Away, _) => (ErrorKind::Io, "it is away"),
            (DeviceFault::Full, Io::DeviceWrite) => (ErrorKind::Full, "no space left on it"),
            (DeviceFault::Slow(ns), _) => {
                if let Some(clock) = &self.clock {
                    clock.advance_ns(ns);
                }
                return Ok(());
            }
            (DeviceFault::Flaky(permille), _) if lock(&self.rng).as_mut().is_some_and(|rng| rng.chance(permille)) => {
                (ErrorKind::Io, "it fails now and then")
            }
            (DeviceFault::Unreadable(from, to), Io::DeviceRead) if offset < to && from < offset + len => {
                (ErrorKind::Io, "a bad place")
            }
            (DeviceFault::Short(end), Io::DeviceRead | Io::DeviceWrite) if offset + len > end => {
                (ErrorKind::Io, "it has become shorter")
            }
            (DeviceFault::Short(_), Io::DeviceOpen) => (ErrorKind::Corrupt, "it is shorter than it was made"),
            _ => return Ok(()),
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(why.0, subject).because(why.1))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
