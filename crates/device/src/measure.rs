//! Device profiles: latency and bandwidth by access size and by number of concurrent accesses.
//!
//! The measurement overwrites a free range of the device within a time budget: the most important points come first,
//! and a slow device gets fewer points. Memory is measured as clients use it, through its mapping; everything else
//! through the device. This room must not know where the range comes from or who uses the figures.

use std::sync::atomic::{AtomicBool, Ordering};

use cenote_model::{DeviceKind, Profile, ProfilePoint, Result};

use crate::aligned::AlignedBuf;
use crate::{Clock, Device, SegmentIo};

/// Sizes of accesses, in bytes.
pub const SIZES: [u32; 4] = [4 << 10, 64 << 10, 1 << 20, 4 << 20];
/// Numbers of concurrent accesses.
pub const PARALLEL: [u16; 4] = [1, 2, 4, 8];
/// Accesses that suffice for a percentile; more would only take time from others.
const ACCESSES_MAX: usize = 2000;

/// What to measure.
pub struct Probe<'a> {
    /// The device.
    pub device: &'a dyn Device,
    /// Kind of the device: memory is reached through its mapping.
    pub kind: DeviceKind,
    /// A range that nobody else uses, in one segment.
    pub offset: u64,
    /// Bytes of the range. Less than 4096 cannot be measured.
    pub len: u64,
    /// Approximate duration. An access that has begun is not interrupted.
    pub budget_ns: u64,
    /// The clock.
    pub clock: &'a dyn Clock,
    /// Makes written bytes durable; counts as part of a write on persistent devices.
    pub sync: &'a (dyn Fn() -> Result<()> + Sync),
    /// Returns true to stop the measurement.
    pub stop: &'a (dyn Fn() -> bool + Sync),
}

/// Reads and writes of the range, for several threads.
struct Accesses<'a> {
    probe: &'a Probe<'a>,
    io: Option<SegmentIo>,
    /// Start of the range in the segment.
    inside: u64,
    /// Bytes of the range that were written, so that a read really reads.
    filled: u64,
}

/// The smallest and middle accesses one at a time, for the latency and bandwidth line; then sizes, then parallelism.
fn order() -> Vec<(u32, u16)> {
    let mut order = vec![(SIZES[0], 1), (SIZES[2], 1), (SIZES[3], 1), (SIZES[1], 1), (SIZES[2], 4), (SIZES[0], 4)];
    for parallel in [4, 8, 2] {
        for size in [SIZES[2], SIZES[0], SIZES[3], SIZES[1]] {
            if !order.contains(&(size, parallel)) {
                order.push((size, parallel));
            }
        }
    }
    order
}

/// Measures. `None` if `stop` ended it or no point could be measured.
pub fn measure(probe: &Probe<'_>) -> Result<Option<Profile>> {
    let mut accesses = Accesses::new(probe)?;
    let begin = probe.clock.now_ns();
    let left = || probe.budget_ns.saturating_sub(probe.clock.now_ns().saturating_sub(begin));
    accesses.fill(probe.budget_ns / 5)?;
    let mut points: Vec<ProfilePoint> = Vec::new();
    let order = order();
    for (number, (size, parallel)) in order.iter().enumerate() {
        for is_write in [false, true] {
            if (probe.stop)() {
                return Ok(None);
            }
            // The first two sizes are measured in any case: without them nothing is known.
            let rest = 2 * (order.len() - number) as u64 - u64::from(is_write);
            if points.len() >= 4 && left() == 0 || accesses.filled / u64::from(*size) < u64::from(*parallel) {
                continue;
            }
            points.extend(accesses.point(is_write, *size, *parallel, left() / rest)?);
        }
    }
    points.sort_by_key(|point| (point.is_write, point.bytes, point.parallel));
    let stopped = (probe.stop)() || points.is_empty();
    Ok((!stopped).then(|| Profile { unix_ms: probe.clock.unix_ms(), points }))
}

impl<'a> Accesses<'a> {
    fn new(probe: &'a Probe<'a>) -> Result<Self> {
        let segment_bytes = probe.device.segment_bytes();
        let is_memory = matches!(probe.kind, DeviceKind::SharedMemory | DeviceKind::PersistentMemory);
        let segment = if is_memory { probe.device.segment(probe.offset / segment_bytes)? } else { None };
        let io = segment
            .filter(|segment| segment.mode.is_mapped())
            .map(|segment| SegmentIo::new(segment, true, "the range to be measured"))
            .transpose()?
            .map(SegmentIo::watched); // a client that truncates the file meanwhile must not kill a daemon
        Ok(Self { probe, io, inside: probe.offset % segment_bytes, filled: 0 })
    }
    fn write(&self, at: u64, bytes: &[u8]) -> Result<()> {
        match self.io.as_ref().and_then(|io| io.map().map(|map| (io, map))) {
            Some((io, map)) => {
                map.copy_in(self.inside + at, bytes);
                io.persist(self.inside + at, bytes.len());
                Ok(())
            }
            None => self.probe.device.write_at(self.probe.offset + at, bytes),
        }
    }
    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        match self.io.as_ref().and_then(SegmentIo::map) {
            Some(map) => {
                map.copy_out(self.inside + at, bytes);
                Ok(())
            }
            None => self.probe.device.read_at(self.probe.offset + at, bytes),
        }
    }
    /// Writes as much of the range as the time allows, and at least the accesses that the line is fitted to.
    fn fill(&mut self, budget_ns: u64) -> Result<()> {
        let begin = self.probe.clock.now_ns();
        let mut buffer = AlignedBuf::new(SIZES[2] as usize);
        buffer.iter_mut().zip((0..251).cycle()).for_each(|(byte, value)| *byte = value);
        loop {
            let piece = (self.probe.len - self.filled).min(u64::from(SIZES[2]));
            let piece = piece - piece % u64::from(SIZES[0]);
            if piece == 0 {
                return Ok(());
            }
            if let Some(io) = &self.io {
                io.populate(self.inside + self.filled, piece as usize)?;
            }
            self.write(self.filled, &buffer[..piece as usize])?;
            self.filled += piece;
            if (self.probe.stop)() || self.probe.clock.now_ns().saturating_sub(begin) >= budget_ns {
                return Ok(());
            }
        }
    }
    /// One point: accesses at random offsets until the time is over, at least one for each thread.
    fn point(&self, is_write: bool, size: u32, parallel: u16, budget_ns: u64) -> Result<Option<ProfilePoint>> {
        let clock = self.probe.clock;
        let begin = clock.now_ns();
        let failed = AtomicBool::new(false);
        let lane = |number: u16| -> Result<Vec<u64>> {
            let mut buffer = AlignedBuf::reused(size as usize);
            // Each thread has its own offsets: concurrent accesses never overlap.
            let places = self.filled / u64::from(size) / u64::from(parallel);
            let mut state = u64::from(number) + 1;
            let mut times = Vec::new();
            let mut now = clock.now_ns();
            loop {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let place = (state >> 33) % places * u64::from(parallel) + u64::from(number);
                let at = place * u64::from(size);
                let done = if is_write {
                    self.write(at, &buffer[..size as usize])
                } else {
                    self.read(at, &mut buffer[..size as usize])
                };
                done.inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
                let after = clock.now_ns();
                times.push(after.saturating_sub(now));
                now = after;
                let is_over = now.saturating_sub(begin) >= budget_ns || times.len() >= ACCESSES_MAX;
                if is_over || failed.load(Ordering::Relaxed) || (self.probe.stop)() {
                    return Ok(times);
                }
            }
        };
        let mut times = if parallel == 1 { lane(0)? } else { together(parallel, &lane)? };
        if is_write && self.probe.kind.is_persistent() {
            (self.probe.sync)()?;
        }
        let elapsed_ns = clock.now_ns().saturating_sub(begin);
        times.sort_unstable();
        let at = |permille: usize| times[((times.len() * permille) / 1000).min(times.len() - 1)];
        if times.is_empty() || elapsed_ns == 0 {
            return Ok(None);
        }
        let bandwidth = (times.len() as u64 * u64::from(size)) as f64 * 1e9 / elapsed_ns as f64;
        let point = ProfilePoint { is_write, bytes: size, parallel, p50_ns: at(500), p99_ns: at(990), bandwidth };
        Ok(Some(point))
    }
}

/// Runs `lane` on `parallel` threads; returns all times.
fn together(parallel: u16, lane: &(dyn Fn(u16) -> Result<Vec<u64>> + Sync)) -> Result<Vec<u64>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..parallel).map(|number| scope.spawn(move || lane(number))).collect();
        let mut all = Vec::new();
        for thread in threads {
            all.append(&mut thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(all)
    })
}
