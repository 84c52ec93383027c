//! The changes of a home, in order, on their way to its mirrors.

use std::collections::{BTreeMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_model::{DeviceId, Error, ErrorKind, NodeId, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::change::Change;

/// A chunk is closed when it has so many bytes, and when it is taken.
const CHUNK_BYTES: usize = 256 << 10;
/// Beyond so many bytes that a mirror has not confirmed, no more requests should be taken.
const QUEUED_MANY: usize = 32 << 20;
/// Beyond so many, the mirror is given up: it has to begin anew.
const QUEUED_MAX: usize = 512 << 20;
/// A copy of everything pauses while so many bytes wait.
const COPIED_AHEAD: usize = 8 << 20;

/// Changes in a row, as a mirror gets them.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its number on the way to this mirror, from 1.
    pub number: u64,
    /// Encoded changes.
    pub bytes: Bytes,
    /// Number of changes of the home up to its end.
    end: u64,
}

/// Called without arguments, from any thread; must not block.
pub type Waker = Box<dyn Fn() + Send + Sync>;

/// What is on its way to one mirror.
struct Tap {
    open: Vec<u8>,
    chunks: VecDeque<Chunk>,
    /// How many of `chunks` were sent and are not confirmed.
    sent: usize,
    last_number: u64,
    /// The chunk with which the mirror has everything, once it is known. Before that nothing counts as confirmed.
    complete_at: Option<u64>,
    queued_bytes: usize,
    /// Called when there is something to take after there was nothing.
    wake: Waker,
    is_idle: bool,
}

impl Tap {
    fn seal(&mut self, end: u64) {
        if !self.open.is_empty() {
            self.last_number += 1;
            let bytes = Bytes::from(std::mem::take(&mut self.open));
            self.chunks.push_back(Chunk { number: self.last_number, bytes, end });
        }
    }
    fn wake_taker(&mut self) {
        if std::mem::take(&mut self.is_idle) {
            (self.wake)();
        }
    }
}

#[derive(Default)]
struct Inner {
    end: u64,
    taps: BTreeMap<NodeId, Tap>,
    /// How many changes of the home each mirror has confirmed.
    confirmed: BTreeMap<NodeId, u64>,
    /// The mirrors without which nothing is acknowledged.
    required: Vec<NodeId>,
    /// Copies that wait until less is on the way.
    waiting: usize,
}

/// See the module.
pub struct Stream {
    inner: Mutex<Inner>,
    changed: Condvar,
    end: AtomicU64,
    /// Changes that all required mirrors have; `u64::MAX` if none is required.
    kept: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
    twins: OnceLock<Box<dyn Twins>>,
}

/// Reads what mirrors have.
pub trait Twins: Send + Sync {
    /// Fills `buf` with what a mirror has at `offset` of a device. Called by jobs; may take seconds.
    fn read(&self, device: DeviceId, offset: u64, buf: &mut [u8]) -> Result<()>;
}

impl Default for Stream {
    fn default() -> Self {
        Self {
            inner: Mutex::default(),
            changed: Condvar::new(),
            end: AtomicU64::new(0),
            kept: AtomicU64::new(u64::MAX),
            wakers: Mutex::default(),
            twins: OnceLock::new(),
        }
    }
}

impl Stream {
    /// Number of changes so far: an answer that was given now may be told once all required mirrors have so many.
    pub fn end(&self) -> u64 {
        self.end.load(Ordering::Acquire)
    }
    /// Number of changes that all required mirrors have; `u64::MAX` if none is required.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Acquire)
    }
    /// Number of changes that a mirror with everything has confirmed.
    pub fn confirmed(&self, node: NodeId) -> u64 {
        self.inner.lock().confirmed.get(&node).copied().unwrap_or(0)
    }
    /// Returns true if a required mirror is so far behind that no more requests should be taken.
    pub fn is_full(&self) -> bool {
        if self.kept() == u64::MAX {
            return false;
        }
        let inner = self.inner.lock();
        inner.required.iter().any(|node| inner.taps.get(node).is_some_and(|tap| tap.queued_bytes > QUEUED_MANY))
    }
    /// Calls this whenever [`Stream::kept`] rises.
    pub fn on_kept(&self, wake: Waker) {
        self.wakers.lock().push(wake);
    }
    /// Sets how bytes are read from mirrors; the first call counts.
    pub fn read_twins_by(&self, twins: Box<dyn Twins>) {
        let _ = self.twins.set(twins);
    }
    /// Returns true if a mirror counts, and can be read.
    pub(super) fn has_twin(&self) -> bool {
        self.twins.get().is_some() && self.required() > 0
    }
    /// Reads from a mirror. Returns false if none can be.
    pub(super) fn read_twin(&self, device: DeviceId, offset: u64, buf: &mut [u8]) -> Result<bool> {
        let Some(twins) = self.twins.get().filter(|_| self.required() > 0) else { return Ok(false) };
        twins.read(device, offset, buf).map(|()| true)
    }
    /// Sets the mirrors without which nothing is acknowledged.
    pub fn require(&self, nodes: &[NodeId]) {
        let mut inner = self.inner.lock();
        inner.required = nodes.to_vec();
        self.count_kept(inner);
    }
    /// Number of mirrors without which nothing is acknowledged.
    pub fn required(&self) -> usize {
        self.inner.lock().required.len()
    }
    /// Notes a change.
    pub(super) fn put(&self, change: &Change<'_>) {
        self.put_with(|out| {
            change.encode(out);
            Ok(())
        })
        .unwrap_or_default(); // encoding a change cannot fail
    }
    /// Notes a change that `encode` appends. If it fails, no mirror has the change: all have to begin anew.
    pub(super) fn put_with(&self, mut encode: impl FnMut(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let mut inner = self.inner.lock();
        inner.end += 1;
        let end = inner.end;
        self.end.store(end, Ordering::Release);
        let mut outcome = Ok(());
        inner.taps.retain(|_, tap| {
            let before = tap.open.len();
            let done = encode(&mut tap.open);
            tap.queued_bytes += tap.open.len().saturating_sub(before);
            if tap.open.len() >= CHUNK_BYTES {
                tap.seal(end);
            }
            tap.wake_taker();
            let keep = done.is_ok() && tap.queued_bytes <= QUEUED_MAX;
            if done.is_err() {
                outcome = done;
            }
            keep
        });
        outcome
    }
    /// Queues a change for one mirror alone. Waits while much is on its way to it. `Disconnected` if it is no mirror any
    /// more.
    pub(super) fn put_to(&self, node: NodeId, encode: impl FnOnce(&mut Vec<u8>) -> Result<()>) -> Result<()> {
        let mut inner = self.inner.lock();
        loop {
            let end = inner.end;
            let tap = inner.taps.get_mut(&node).ok_or_else(|| given_up(node))?;
            if tap.queued_bytes <= COPIED_AHEAD {
                let before = tap.open.len();
                encode(&mut tap.open)?;
                tap.queued_bytes += tap.open.len().saturating_sub(before);
                if tap.open.len() >= CHUNK_BYTES {
                    tap.seal(end);
                }
                tap.wake_taker();
                return Ok(());
            }
            inner.waiting += 1;
            self.changed.wait_for(&mut inner, Duration::from_millis(100));
            inner.waiting -= 1;
        }
    }
    /// Begins a queue for a mirror, which has nothing yet. All changes from now on are in it. `wake` is called when
    /// there is something to take after [`Stream::take`] found nothing.
    pub fn attach(&self, node: NodeId, wake: Waker) {
        let (open, chunks) = (Vec::new(), VecDeque::new());
        let (sent, last_number, queued_bytes, complete_at) = (0, 0, 0, None);
        let tap = Tap { open, chunks, sent, last_number, complete_at, queued_bytes, wake, is_idle: true };
        self.inner.lock().taps.insert(node, tap);
    }
    /// Drops the queue of a mirror: it has to begin anew.
    pub fn detach(&self, node: NodeId) {
        self.inner.lock().taps.remove(&node);
        self.changed.notify_all();
    }
    /// Returns true if there is a queue for this mirror.
    pub fn is_attached(&self, node: NodeId) -> bool {
        self.inner.lock().taps.contains_key(&node)
    }
    /// Goes on after a new connection to a mirror, which has all chunks up to a number. Returns false if what it lacks is
    /// not kept: it has to begin anew.
    pub fn resume(&self, node: NodeId, has: u64, wake: Waker) -> bool {
        let mut inner = self.inner.lock();
        let Some(tap) = inner.taps.get_mut(&node) else { return false };
        let first = tap.chunks.front().map_or(tap.last_number + 1, |chunk| chunk.number);
        if has + 1 < first || has > tap.last_number {
            return false;
        }
        (tap.sent, tap.wake, tap.is_idle) = (0, wake, false);
        drop(inner);
        self.confirm(node, has);
        true
    }
    /// The next chunks for a mirror, some `limit` bytes. `None` if it is no mirror any more.
    pub fn take(&self, node: NodeId, limit: usize) -> Option<Vec<Chunk>> {
        let mut inner = self.inner.lock();
        let end = inner.end;
        let tap = inner.taps.get_mut(&node)?;
        if tap.sent == tap.chunks.len() {
            tap.seal(end);
        }
        let mut taken = 0;
        let fresh = tap.chunks.iter().skip(tap.sent);
        let chunks: Vec<Chunk> = fresh
            .take_while(|chunk| {
                let fits = taken < limit;
                taken += chunk.bytes.len();
                fits
            })
            .cloned()
            .collect();
        tap.sent += chunks.len();
        tap.is_idle = chunks.is_empty();
        Some(chunks)
    }
    /// Returns true if a mirror has confirmed everything so far.
    pub fn is_confirmed(&self, node: NodeId) -> bool {
        let inner = self.inner.lock();
        inner.taps.get(&node).is_some_and(|tap| tap.open.is_empty() && tap.chunks.is_empty())
    }
    /// The copy of everything for a mirror is queued. Returns the number of the chunk with its end.
    pub fn complete(&self, node: NodeId) -> u64 {
        let mut inner = self.inner.lock();
        let end = inner.end;
        inner.taps.get_mut(&node).map_or(0, |tap| {
            tap.seal(end);
            tap.complete_at = Some(tap.last_number);
            tap.last_number
        })
    }
    /// A mirror has all chunks up to this number.
    pub fn confirm(&self, node: NodeId, number: u64) {
        let mut inner = self.inner.lock();
        let Some(tap) = inner.taps.get_mut(&node) else { return };
        let mut end = None;
        while tap.chunks.front().is_some_and(|chunk| chunk.number <= number) {
            let Some(chunk) = tap.chunks.pop_front() else { break };
            tap.sent = tap.sent.saturating_sub(1);
            tap.queued_bytes = tap.queued_bytes.saturating_sub(chunk.bytes.len());
            end = Some(chunk.end);
        }
        let is_complete = tap.complete_at.is_some_and(|at| number >= at);
        if let Some(end) = end.filter(|_| is_complete) {
            inner.confirmed.insert(node, end);
        }
        if inner.waiting > 0 {
            self.changed.notify_all();
        }
        self.count_kept(inner);
    }
    fn count_kept(&self, inner: MutexGuard<'_, Inner>) {
        let of = |node: &NodeId| inner.confirmed.get(node).copied().unwrap_or(0);
        let kept = inner.required.iter().map(of).min().unwrap_or(u64::MAX);
        let before = self.kept.swap(kept, Ordering::AcqRel);
        drop(inner);
        if kept > before {
            self.wakers.lock().iter().for_each(|wake| wake());
        }
    }
}

#[cold]
fn given_up(node: NodeId) -> Error {
    Error::new(ErrorKind::Disconnected, format!("the copy on node {}", node.0)).because("it was given up meanwhile")
}
