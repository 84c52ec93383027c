//! Leased space, which a process fills without a request per write.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_model::{
    ContainerId, DeviceId, Durability, Error, ErrorKind, Lease, RUN_BYTES_MAX, Request, Response, Result, Run,
};

use super::channel::Channel;
use super::far::FarRuns;
use super::segments::Segment;
use super::space::Space;
use crate::sync::lock;

/// First lease of a class; each further one doubles…
const LEASE_BYTES_FIRST: u64 = 1 << 20;
/// …up to this, or to a sixteenth of the memory tier.
const LEASE_BYTES_MAX: u64 = 32 << 20;
/// A large write may be split into pieces of this size when space is fragmented.
const PIECE_BYTES: u64 = 64 << 10;
/// Largest number of free runs in an arena; the smallest ones above it are given back.
const RUNS_MAX: usize = 2048;
/// Time limit of a writer on full tiers that have yet to come to rest, while nothing drains…
const FULL_PATIENCE: Duration = Duration::from_secs(2);
/// …and while something drains.
const DRAIN_PATIENCE: Duration = Duration::from_mins(1);
/// Granularity of making memory present.
const POPULATE_BYTES: u64 = 2 << 20;
/// In untouched memory, writes of at least this size go through the file.
const UNTOUCHED_BYTES: u64 = 128 << 10;

/// How a chunk will be filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filling {
    /// Through its mapping: memory must be present.
    InPlace,
    /// By one copy, as [`Chunk::through_file`] says.
    Copied,
}

/// Containers whose data may share leased space: placement treats them alike, and one engine has them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Class {
    pub durability: Durability,
    pub policy: String,
    /// Number of the engine among those of the store.
    pub engine: u16,
}

/// A piece of leased space for a write, in one segment.
pub(crate) struct Chunk {
    pub device: DeviceId,
    /// Offset on the device.
    pub offset: u64,
    /// Requested bytes that fit here.
    pub len: u32,
    /// Bytes in use: `len` rounded up to the device's unit.
    pub padded: u64,
    pub io: Arc<Segment>,
    /// Offset in the segment.
    pub inside: u64,
    /// Untouched memory: write it with the segment's `write_at`, which may return `Full`.
    pub through_file: bool,
}

impl Chunk {
    /// The space in use.
    pub fn run(&self) -> Run {
        Run { device: self.device, offset: self.offset, len: self.padded }
    }
    /// Address, if it is memory.
    pub fn address(&self) -> Option<*mut u8> {
        self.io.map().and_then(|map| map.at(self.inside, self.len as usize))
    }
}

/// A range of leased space.
struct Free {
    device: DeviceId,
    offset: u64,
    len: u64,
    unit: u64,
    io: Arc<Segment>,
    inside: u64,
}

impl Free {
    fn take(&mut self, want: u64) -> Chunk {
        let len = want.min(self.len).min(u64::from(RUN_BYTES_MAX));
        let padded = len.next_multiple_of(self.unit).min(self.len);
        let chunk = Chunk {
            device: self.device,
            offset: self.offset,
            len: len as u32,
            padded,
            io: self.io.clone(),
            inside: self.inside,
            through_file: false,
        };
        self.offset += padded;
        self.inside += padded;
        self.len -= padded;
        chunk
    }
    /// Makes the first `want` bytes present, so that an access neither faults nor fails. Returns true if a write
    /// through the file is better.
    fn populate(&self, want: u64, filling: Filling) -> Result<bool> {
        let want = want.min(self.len);
        if self.io.is_present(self.inside, want) {
            return Ok(false);
        }
        if want < UNTOUCHED_BYTES {
            self.io.make_present(self.inside, want.max(POPULATE_BYTES).min(self.len))?;
            return Ok(false);
        }
        if filling == Filling::Copied && !self.io.is_resident(self.inside, want as usize) {
            return Ok(true);
        }
        self.io.make_present(self.inside, want)?;
        Ok(false)
    }
    fn run(&self) -> Run {
        Run { device: self.device, offset: self.offset, len: self.len }
    }
}

/// The space of one class.
#[derive(Default)]
pub(crate) struct Arena {
    /// The durability of the class.
    durability: Option<Durability>,
    state: Mutex<ArenaState>,
    /// Memory of another node.
    far: Mutex<FarRuns>,
}

#[derive(Default)]
struct ArenaState {
    free: Vec<Free>,
    lease_bytes: u64,
}

/// The arenas of a link.
#[derive(Default)]
pub(crate) struct Arenas(Mutex<HashMap<Class, Arc<Arena>>>);

impl Arenas {
    /// Returns the arena of a class.
    pub fn of(&self, class: &Class) -> Arc<Arena> {
        let fresh = || Arc::new(Arena { durability: Some(class.durability), ..Arena::default() });
        lock(&self.0).entry(class.clone()).or_insert_with(fresh).clone()
    }
    /// Removes and returns the free runs of all arenas on the selected devices.
    pub fn take(&self, is_of: impl Fn(DeviceId) -> bool) -> Vec<Run> {
        let arenas: Vec<_> = lock(&self.0).values().cloned().collect();
        let mut runs = Vec::new();
        for arena in arenas {
            let mut state = lock(&arena.state);
            runs.extend(state.free.extract_if(.., |free| is_of(free.device)).map(|free| free.run()));
            drop(state);
            runs.extend(lock(&arena.far).take_of(&is_of));
        }
        runs
    }
}

impl Arena {
    /// Returns the durability of the class.
    pub fn durability(&self) -> Option<Durability> {
        self.durability
    }
    /// Takes memory of another node for `want` bytes, or for as many as a run has at most. `None` if the home has no
    /// memory for them now.
    pub fn take_far(&self, space: &Space, container: ContainerId, want: u64) -> Result<Option<Run>> {
        lock(&self.far).take(space, (container, self.durability), want)
    }
    /// Adds space that this link has leased already.
    pub fn put(&self, space: &Space, lease: &Lease) -> Result<()> {
        lock(&self.state).add(space, lease)
    }
    /// Takes space for up to `want` bytes. Large requests may need several calls: each chunk has at least 1 MiB or all
    /// of the rest. `avoid`: devices without free memory.
    pub fn take(
        &self,
        space: &Space,
        container: ContainerId,
        want: u64,
        filling: Filling,
        avoid: &mut Vec<DeviceId>,
    ) -> Result<Chunk> {
        let want = want.clamp(1, u64::from(RUN_BYTES_MAX));
        let mut state = lock(&self.state);
        let mut has_asked = false;
        loop {
            if let Some(at) = state.fit(want, has_asked, avoid) {
                match state.free[at].populate(want, filling) {
                    Ok(through_file) => {
                        let free = &mut state.free[at];
                        let chunk = Chunk { through_file, ..free.take(want) };
                        if free.len == 0 {
                            state.free.remove(at);
                        }
                        return Ok(chunk);
                    }
                    // The machine has no memory left for this device: avoid it.
                    Err(error) if error.kind() == ErrorKind::Full => {
                        let run = state.free.remove(at).run();
                        if avoid.contains(&run.device) {
                            return Err(error);
                        }
                        avoid.push(run.device);
                        space.channel.unlease(vec![run]);
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            state.lease(space, (container, self.durability), want, avoid)?;
            has_asked = true; // whatever was given is taken: further requests would not help
        }
    }
}

impl ArenaState {
    /// Returns a run for `want` bytes, the latest first; or the longest, if all together are long enough, or if `any`
    /// will do.
    fn fit(&self, want: u64, any: bool, avoid: &[DeviceId]) -> Option<usize> {
        let usable = |free: &Free| avoid.is_empty() || !avoid.contains(&free.device);
        if let Some(at) = self.free.iter().rposition(|free| free.len >= want && usable(free)) {
            return Some(at);
        }
        let all = || self.free.iter().enumerate().filter(|(_, free)| usable(free));
        let (at, longest) = all().max_by_key(|(_, free)| free.len)?;
        let is_useful = longest.len >= PIECE_BYTES && all().map(|(_, free)| free.len).sum::<u64>() >= want;
        (is_useful || any).then_some(at)
    }
    fn put(&mut self, fresh: Free) {
        self.free.push(fresh);
    }
    /// Requests more space. Waits a bounded time while some may become free.
    fn lease(
        &mut self,
        space: &Space,
        (container, durability): (ContainerId, Option<Durability>),
        want: u64,
        avoid: &[DeviceId],
    ) -> Result<()> {
        let most = (space.segments.memory_bytes() / 16).clamp(LEASE_BYTES_FIRST, LEASE_BYTES_MAX);
        let mut bytes = self.lease_bytes.max(LEASE_BYTES_FIRST).min(most).max(want);
        self.lease_bytes = (bytes * 2).min(most);
        let mut patience = Patience::new();
        loop {
            let run_min = want.min(PIECE_BYTES) as u32;
            let request = Request::Lease { container, bytes, run_min, avoid: avoid.to_vec(), durability };
            match space.channel.ask(request) {
                Ok(Response::Lease(lease)) if !lease.runs.is_empty() => {
                    space.watch();
                    return self.add(space, &lease);
                }
                Ok(_) => return Err(Error::new(ErrorKind::Internal, "lease").because("an answer without space")),
                Err(error) if matches!(error.kind(), ErrorKind::Full | ErrorKind::Busy) => {
                    if bytes > want {
                        bytes = want; // little is left: request only the need of this write
                        self.lease_bytes = LEASE_BYTES_FIRST;
                        continue;
                    }
                    if error.kind() == ErrorKind::Full {
                        if self.free.is_empty() {
                            return Err(error); // nothing is being freed: waiting would not help
                        }
                        self.shrink(space);
                        continue;
                    }
                    patience.check(&space.channel, &error)?;
                    // The missing space may be that of other classes of this link.
                    self.shrink(space);
                    patience.pause();
                }
                Err(error) => return Err(error),
            }
        }
    }
    fn add(&mut self, space: &Space, lease: &Lease) -> Result<()> {
        self.shrink_to(space, RUNS_MAX);
        for run in &lease.runs {
            let shape = space.segments.shape(run.device)?;
            let mut run = *run;
            while run.len > 0 {
                let (io, inside) = space.segments.locate(run.device, run.offset)?;
                let len = run.len.min(shape.segment_bytes - inside);
                self.put(Free { device: run.device, offset: run.offset, len, unit: shape.unit_bytes, io, inside });
                run.offset += len;
                run.len -= len;
            }
        }
        Ok(())
    }
    fn shrink(&mut self, space: &Space) {
        self.shrink_to(space, 0);
    }
    /// Gives back runs, the smallest first, until `keep` are left.
    fn shrink_to(&mut self, space: &Space, keep: usize) {
        if self.free.len() <= keep {
            return;
        }
        self.free.sort_unstable_by_key(|free| free.len);
        let surplus = self.free.len() - keep;
        let runs = self.free.drain(..surplus).map(|free| free.run()).collect();
        space.channel.unlease(runs);
    }
}

/// A bounded wait for room on full tiers that have yet to come to rest.
pub(crate) struct Patience {
    begin: Instant,
    /// Bytes moved by the engine, and the time of their last increase.
    moved: (u64, Instant),
    pause: Duration,
}

impl Patience {
    pub fn new() -> Self {
        let begin = Instant::now();
        Self { begin, moved: (0, begin), pause: Duration::from_millis(1) }
    }
    /// Returns the error that there is no room, once the time limit is reached; the limit is longer while something
    /// drains.
    pub fn check(&mut self, channel: &Channel, busy: &Error) -> Result<()> {
        let now = moved_bytes(channel);
        if now != self.moved.0 {
            self.moved = (now, Instant::now());
        }
        let is_over = self.moved.1.elapsed() > FULL_PATIENCE || self.begin.elapsed() > DRAIN_PATIENCE;
        if is_over { Err(no_room(busy)) } else { Ok(()) }
    }
    /// Sleeps; each pause is longer than the one before.
    pub fn pause(&mut self) {
        std::thread::sleep(self.pause);
        self.pause = (self.pause * 2).min(Duration::from_millis(50));
    }
}

/// The error for space that did not become free in time.
pub(crate) fn no_room(busy: &Error) -> Error {
    Error::new(ErrorKind::Full, busy.subject()).because(busy.cause()).try_next(busy.next_step())
}

/// Bytes that the engine has moved between tiers; rises while they drain.
fn moved_bytes(channel: &Channel) -> u64 {
    match channel.ask(Request::Moved) {
        Ok(Response::Moved(bytes)) => bytes,
        _ => 0,
    }
}
