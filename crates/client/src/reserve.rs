//! Space reserved for future writes.

use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use cenote_host::fork::generation as fork_generation;
use cenote_model::{DeviceId, Durability, ErrorKind, Lease, Request, Response, Result, Run};

use crate::answer::surprise;
use crate::link::Link;
use crate::link::arena::no_room;
use crate::link::leaving::KeepsSpace;
use crate::object::Object;
use crate::session::Session;
use crate::sync::lock;
use crate::tiers::devices;

/// Largest lease in bytes.
const LEASE_BYTES_MAX: u64 = 256 << 20;
/// Shortest run of a reserve: shorter ones would split larger writes into too many pieces.
const RUN_BYTES_MIN: u64 = 64 << 10;
/// Granularity of reserves: the largest allocation unit of tiers that programs write to.
const UNIT_BYTES: u64 = 4096;
/// Time limit for space that is about to become free.
const PATIENCE: Duration = Duration::from_secs(2);

/// Leased space that is reserved for an object, on the tier where its bytes end. It lasts until the drop, or the end of
/// the session.
///
/// It changes nothing for writes that find other space. For one that finds none, [`Reserve::open`] makes a part
/// available to the session.
///
/// When that tier is being emptied, the reserve moves to another one. If none has room, the reserve is lost:
/// [`Reserve::bytes`] returns the rest.
pub struct Reserve(Arc<KeptSpace>);

/// The space, which the session also knows.
pub(crate) struct KeptSpace {
    session: Arc<Session>,
    object: Object,
    runs: Mutex<Vec<Run>>,
}

impl std::fmt::Debug for Reserve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reserve").field("object", &self.0.object).field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Reserve {
    /// Returns `None` if a reserve is impossible here, even if there is room.
    pub(crate) fn make(object: &Object, bytes: u64) -> Result<Option<Self>> {
        let session = object.container().store().session()?.clone();
        object.home(&session).channel.check_writable()?;
        if object.home(&session).channel.is_bound() {
            return Ok(None); // the daemon allocates its space together with the bytes
        }
        let kept = KeptSpace { session: session.clone(), object: object.clone(), runs: Mutex::default() };
        match kept.grow_low(bytes) {
            Ok(()) => {
                let kept = Arc::new(kept);
                let kept_by: Weak<dyn KeepsSpace> = Arc::<KeptSpace>::downgrade(&kept);
                object.home(&session).space.leaving.note(kept_by);
                object.home(&session).space.watch();
                Ok(Some(Self(kept)))
            }
            Err(error) if error.kind() == ErrorKind::Full && kept.drains_to_a_service()? => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// Returns false in a forked child: the space is its parent's.
    pub fn is_mine(&self) -> bool {
        self.0.is_mine()
    }
    /// Reserves more bytes.
    pub fn add(&self, bytes: u64) -> Result<()> {
        let before = self.bytes();
        let grown = self.0.grow(bytes, None);
        if grown.is_err() {
            self.release(self.bytes().saturating_sub(before));
        }
        grown
    }
    /// Returns the reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    /// Makes space available to the session for a write of this many bytes; returns false if the reserve has less.
    pub fn open(&self, bytes: u64) -> Result<bool> {
        let runs = self.0.take(bytes.next_multiple_of(UNIT_BYTES), true);
        if runs.is_empty() || !self.is_mine() {
            return Ok(false);
        }
        let KeptSpace { session, object, .. } = &*self.0;
        object.arena(session).put(&object.home(session).space, &Lease { runs })?;
        Ok(true)
    }
    /// Gives back up to this many bytes.
    pub fn release(&self, bytes: u64) {
        self.0.release(bytes);
    }
}

impl KeptSpace {
    /// The link to the engine that gave the space.
    fn link(&self) -> &Link {
        self.object.home(&self.session)
    }
    fn is_mine(&self) -> bool {
        self.session.generation == fork_generation()
    }
    fn bytes(&self) -> u64 {
        lock(&self.runs).iter().map(|run| run.len).sum()
    }
    fn release(&self, bytes: u64) {
        let runs = self.take(bytes - bytes % UNIT_BYTES, false);
        if self.is_mine() {
            self.link().channel.unlease(runs);
        }
    }
    fn take(&self, mut bytes: u64, all_or_nothing: bool) -> Vec<Run> {
        let mut kept = lock(&self.runs);
        if all_or_nothing && kept.iter().map(|run| run.len).sum::<u64>() < bytes {
            return Vec::new();
        }
        let mut taken = Vec::new();
        // Prefers one run for the whole, so that the write is not split.
        let mut at = kept.iter().rposition(|run| run.len >= bytes);
        while bytes > 0
            && let Some(run) = at.take().or(kept.len().checked_sub(1))
        {
            let len = kept[run].len.min(bytes);
            taken.push(Run { len, ..kept[run] });
            bytes -= len;
            kept[run].offset += len;
            kept[run].len -= len;
            if kept[run].len == 0 {
                kept.swap_remove(run);
            }
        }
        taken
    }
    /// Reserves more on the lowest tier, which has most room and leaves the fast ones to others; if it is full, on any
    /// tier.
    fn grow_low(&self, bytes: u64) -> Result<()> {
        let own = self.object.container().inner.class.durability;
        let low = Some(Durability::Bypass).filter(|low| low.may_be_in(own) && *low != own);
        let before = self.bytes();
        match self.grow(bytes, low) {
            Err(error) if low.is_some() && error.kind() == ErrorKind::Full => {
                let got = self.bytes().saturating_sub(before);
                self.grow(bytes.saturating_sub(got), None)
            }
            grown => grown,
        }
    }
    fn grow(&self, bytes: u64, durability: Option<Durability>) -> Result<()> {
        let mut left = bytes.next_multiple_of(UNIT_BYTES);
        while left > 0 {
            let leased = self.lease(left.min(LEASE_BYTES_MAX), durability)?;
            left = left.saturating_sub(leased.iter().map(|run| run.len).sum());
            lock(&self.runs).extend(leased);
        }
        Ok(())
    }
    fn lease(&self, bytes: u64, durability: Option<Durability>) -> Result<Vec<Run>> {
        let run_min = bytes.min(RUN_BYTES_MIN) as u32;
        let container = self.object.container().id();
        let begin = Instant::now();
        loop {
            match self.link().channel.ask(Request::Lease { container, bytes, run_min, avoid: Vec::new(), durability }) {
                Ok(Response::Lease(lease)) if !lease.runs.is_empty() => return Ok(lease.runs),
                Ok(other) => return Err(surprise("space", &other)),
                Err(error) if error.kind() == ErrorKind::Busy && begin.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(error) if error.kind() == ErrorKind::Busy => return Err(no_room(&error)),
                Err(error) => return Err(error),
            }
        }
    }
    /// Returns true if bytes end on a tier that programs do not write to themselves: they cannot reserve its room.
    fn drains_to_a_service(&self) -> Result<bool> {
        let devices = devices(self.object.home(&self.session))?;
        Ok(devices.iter().any(|device| device.spec.kind.is_persistent() && !device.spec.kind.is_shareable()))
    }
}

impl KeepsSpace for KeptSpace {
    fn leave(&self, devices: &[DeviceId]) {
        let left: Vec<Run> = lock(&self.runs).extract_if(.., |run| devices.contains(&run.device)).collect();
        let bytes: u64 = left.iter().map(|run| run.len).sum();
        if bytes == 0 || !self.is_mine() {
            return;
        }
        let before = self.bytes();
        if let Err(error) = self.grow_low(bytes) {
            let lost = bytes.saturating_sub(self.bytes().saturating_sub(before));
            let object = self.link().channel.object_name(self.object.key());
            tracing::warn!(%error, object, lost, "space kept for an object is kept no more: its tier is being emptied");
        }
        self.link().channel.unlease(left);
    }
}

impl Drop for KeptSpace {
    fn drop(&mut self) {
        self.release(u64::MAX);
    }
}
