//! Counters of the engine's work. They are plain numbers, since only one thread at a time has the engine.

use cenote_model::{Counts, DeviceId, FlowWhy, HISTOGRAM_BUCKETS, Histogram, Request, Timed, histogram_bucket};

use super::hot::Hot;
use crate::map::DeviceIndex;
use crate::session::Session;

/// The engine's caller times one request in this many.
pub const REQUESTS_TIMED_IN: u32 = 16;
/// A lookup counts as a use of this many bytes of its object.
const LOOKUP_BYTES: u64 = 64 << 10;

/// Counters of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SessionCounts {
    pub written_bytes: u64,
    pub writes: u64,
    pub requests: u64,
}

/// Bytes and operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    pub bytes: u64,
    pub operations: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64, operations: u64) {
        self.bytes += bytes;
        self.operations += operations;
    }
}

/// The counters.
pub struct Counting {
    pub enabled: bool,
    pub counts: Counts,
    /// Writes by the number of the device's id.
    pub written: Vec<Sum>,
    /// Writes of the request that is being applied.
    writing: Vec<Sum>,
    /// The last object that the request writes.
    writing_to: Option<cenote_model::ObjectKey>,
    /// Bytes moved between device slots, by reason.
    pub moved: Vec<((DeviceIndex, DeviceIndex, FlowWhy), Sum)>,
    /// Bytes read for verification, by device slot.
    pub verified: Vec<Sum>,
    histograms: Vec<Timings>,
    pub hot: Hot,
    /// Bytes that were copied, moved or spilled.
    pub moved_bytes: u64,
}

#[derive(Clone)]
struct Timings {
    counts: [u64; HISTOGRAM_BUCKETS],
    sum_ns: u64,
}

impl Default for Counting {
    fn default() -> Self {
        Self {
            enabled: true,
            counts: Counts::default(),
            written: Vec::new(),
            writing: Vec::new(),
            writing_to: None,
            moved: Vec::new(),
            verified: Vec::new(),
            histograms: vec![Timings { counts: [0; HISTOGRAM_BUCKETS], sum_ns: 0 }; Timed::ALL.len()],
            hot: Hot::default(),
            moved_bytes: 0,
        }
    }
}

impl Counting {
    /// Counts a request.
    #[inline]
    pub fn asked(&mut self, session: &mut Session, request: &Request, now_s: u32) {
        if !self.enabled {
            return;
        }
        self.counts.requests += 1;
        session.counts.requests += 1;
        match request {
            Request::Lookup { key, .. } => self.hot.note(*key, LOOKUP_BYTES, now_s),
            Request::Touched { reads } => {
                for read in reads {
                    self.hot.note(read.key, read.bytes, now_s);
                }
            }
            _ => {}
        }
    }
    /// Begins a request's updates; forgets a refused one.
    #[inline]
    pub fn begin_writes(&mut self) {
        if self.writing_to.take().is_some() {
            self.writing.clear();
        }
    }
    /// Counts a write of the request.
    #[inline]
    pub fn write(&mut self, key: cenote_model::ObjectKey, device: DeviceId, bytes: u32) {
        if !self.enabled {
            return;
        }
        at(&mut self.writing, device.0 as usize).add(u64::from(bytes), 1);
        self.writing_to = Some(key);
    }
    /// Adds the request's writes to the totals, once they were applied.
    #[inline]
    pub fn end_writes(&mut self, session: &mut Session, now_s: u32) {
        let Some(key) = self.writing_to.take() else { return };
        let mut all = Sum::default();
        for (device, sum) in self.writing.iter().enumerate().filter(|(_, sum)| sum.operations > 0) {
            at(&mut self.written, device).add(sum.bytes, sum.operations);
            all.add(sum.bytes, sum.operations);
        }
        self.writing.clear();
        session.counts.written_bytes += all.bytes;
        session.counts.writes += all.operations;
        // One object stands for the request: each is the last one in proportion to its share of the writes.
        self.hot.note(key, all.bytes, now_s);
    }
    /// Counters kept elsewhere in the engine.
    pub fn counts_mut(&mut self) -> &mut Counts {
        &mut self.counts
    }
    /// Bytes that clients wrote to a device.
    pub fn written_to(&self, device: DeviceId) -> u64 {
        self.written.get(device.0 as usize).map_or(0, |sum| sum.bytes)
    }
    /// Counts bytes moved between device slots.
    pub fn moved(&mut self, from: DeviceIndex, to: DeviceIndex, why: FlowWhy, bytes: u64) {
        if !self.enabled {
            return;
        }
        let way = (from, to, why);
        let found = self.moved.iter().position(|(known, _)| *known == way).unwrap_or_else(|| {
            self.moved.push((way, Sum::default()));
            self.moved.len() - 1
        });
        self.moved[found].1.add(bytes, 1);
    }
    /// Counts bytes read for verification.
    pub fn verified(&mut self, from: DeviceIndex, bytes: u64) {
        if self.enabled {
            at(&mut self.verified, from as usize).add(bytes, 1);
        }
    }
    /// Counts a batch of copies or moves, if it failed.
    pub fn failed(&mut self, failed: bool) {
        self.counts.moves_failed += u64::from(failed);
    }
    /// Adds a duration to its histogram.
    pub fn took(&mut self, what: Timed, ns: u64) {
        let timings = &mut self.histograms[what as usize];
        timings.counts[histogram_bucket(ns)] += 1;
        timings.sum_ns = timings.sum_ns.saturating_add(ns);
    }
    /// Returns the histogram of an operation.
    pub fn histogram(&self, what: Timed) -> Histogram {
        let timings = &self.histograms[what as usize];
        Histogram::from_counts(timings.counts, timings.sum_ns)
    }
}

#[inline]
fn at(sums: &mut Vec<Sum>, index: usize) -> &mut Sum {
    if index >= sums.len() {
        sums.resize(index + 1, Sum::default());
    }
    &mut sums[index]
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ObjectId, ObjectKey};

    use super::*;

    #[test]
    fn writes_count_when_they_were_applied() {
        let mut counting = Counting::default();
        let mut session = Session::default();
        let key = ObjectKey { container: ContainerId(1), object: ObjectId(2) };
        counting.begin_writes();
        counting.write(key, DeviceId(1), 100);
        counting.begin_writes(); // the one before was refused
        counting.write(key, DeviceId(3), 7);
        counting.write(key, DeviceId(3), 8);
        counting.end_writes(&mut session, 0);
        counting.end_writes(&mut session, 0);
        assert_eq!(session.counts, SessionCounts { written_bytes: 15, writes: 2, requests: 0 });
        assert_eq!(counting.written[1], Sum::default());
        assert_eq!(counting.written[3], Sum { bytes: 15, operations: 2 });
        counting.enabled = false;
        counting.write(key, DeviceId(3), 8);
        counting.end_writes(&mut session, 0);
        assert_eq!(counting.written[3].bytes, 15);
    }
}
