//! What befalls devices of a simulated world while the engine uses them: they go away, fill up, slow down, fail for a
//! while or in places, or become shorter. It must not know what the bytes mean, nor who reads them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cenote_device::mem::MemClock;
use cenote_model::{DeviceId, Error, ErrorKind, Result};

use crate::rng::Rng;
use crate::world::Io;

/// What is the matter with a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ill {
    /// Every access fails, and it cannot be opened.
    Away,
    /// Writes find no space.
    Full,
    /// Each access takes so many nanoseconds.
    Slow(u64),
    /// So many of a thousand accesses fail.
    Flaky(u64),
    /// What begins in `[from, to)` cannot be read.
    Unreadable(u64, u64),
    /// It ends here: what reaches farther fails.
    Short(u64),
}

impl Ill {
    /// Something for a device of that size.
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

/// The weather over all devices of a world. Cheap to share.
#[derive(Debug, Default)]
pub struct Weather {
    ills: Mutex<BTreeMap<DeviceId, Ill>>,
    rng: Mutex<Option<Rng>>,
    hits: AtomicU64,
    paused: AtomicBool,
    clock: Option<Arc<MemClock>>,
}

impl Weather {
    /// Fine weather; slow devices move this clock.
    pub fn new(clock: Arc<MemClock>) -> Self {
        Self { clock: Some(clock), ..Self::default() }
    }
    /// From now on this is the matter with a device.
    pub fn befall(&self, id: DeviceId, ill: Ill, rng: Rng) {
        *lock(&self.rng) = Some(rng);
        lock(&self.ills).insert(id, ill);
    }
    /// A device is well again.
    pub fn heal(&self, id: DeviceId) {
        lock(&self.ills).remove(&id);
    }
    /// What is the matter with a device.
    pub fn of(&self, id: DeviceId) -> Option<Ill> {
        lock(&self.ills).get(&id).copied()
    }
    /// The devices that something is the matter with.
    pub fn ills(&self) -> Vec<(DeviceId, Ill)> {
        lock(&self.ills).iter().map(|(id, ill)| (*id, *ill)).collect()
    }
    /// Accesses that failed because of it.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }
    /// A device failed for a reason of its own.
    pub(crate) fn note_hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }
    /// While paused, accesses find what is on the media, whatever the weather.
    pub fn pause(&self, on: bool) {
        self.paused.store(on, Ordering::Relaxed);
    }
    /// What an access meets.
    pub(crate) fn meet(&self, id: DeviceId, io: Io, subject: &str, offset: u64, len: u64) -> Result<()> {
        if self.paused.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some(ill) = self.of(id) else { return Ok(()) };
        let why = match (ill, io) {
            (Ill::Away, _) => (ErrorKind::Io, "it is away"),
            (Ill::Full, Io::DeviceWrite) => (ErrorKind::Full, "no space left on it"),
            (Ill::Slow(ns), _) => {
                if let Some(clock) = &self.clock {
                    clock.advance_ns(ns);
                }
                return Ok(());
            }
            (Ill::Flaky(permille), _) if lock(&self.rng).as_mut().is_some_and(|rng| rng.chance(permille)) => {
                (ErrorKind::Io, "it fails now and then")
            }
            (Ill::Unreadable(from, to), Io::DeviceRead) if offset < to && from < offset + len => {
                (ErrorKind::Io, "a bad place")
            }
            (Ill::Short(end), Io::DeviceRead | Io::DeviceWrite) if offset + len > end => {
                (ErrorKind::Io, "it has become shorter")
            }
            (Ill::Short(_), Io::DeviceOpen) => (ErrorKind::Corrupt, "it is shorter than it was made"),
            _ => return Ok(()),
        };
        self.hits.fetch_add(1, Ordering::Relaxed);
        Err(Error::new(why.0, subject).because(why.1))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
