//! A byte ring in shared memory: one producer, one consumer, frames of any length.
//!
//! Layout of the memory (all little-endian, every word in a cache line of its own):
//!
//! | offset | what |
//! |---|---|
//! | 0 | tail (u64): bytes published so far; written by the producer |
//! | 64 | head (u64): bytes consumed so far; written by the consumer |
//! | 128 | consumer waits (u32): 1 while the consumer sleeps or is about to |
//! | 192 | producer waits (u32): 1 while the producer sleeps for room |
//! | 256 | closed (u32): 1 once either side has closed the ring |
//! | 320 | announced (u32): 1 when the producer announces a frame; either side clears it |
//! | 384 | crowded (u32): 1 while the consumer wants no announcements: all cores have work |
//! | 512 | data: the largest power of two of bytes that fits |
//!
//! A frame is its length (u32), four bytes of padding, its bytes, and padding to a multiple of 8. It never wraps: a
//! length of `u32::MAX` marks the rest up to the end of the data as unused.
//!
//! No frame is slept through: the consumer sets its flag, fences, then loads the tail once more; the producer stores
//! the tail, fences, then loads the flag. Whichever fence comes first, one of the two sees the other's store.
#![allow(unsafe_code, reason = "memory shared with another process")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, Result};
use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;

use crate::{Doorbell, Spin};

/// Bytes of a ring's memory before its data.
pub const RING_HEADER_BYTES: usize = 512;
const TAIL_AT: usize = 0;
pub(crate) const HEAD_AT: usize = 64;
const CONSUMER_WAITS_AT: usize = 128;
const PRODUCER_WAITS_AT: usize = 192;
const CLOSED_AT: usize = 256;
const ANNOUNCED_AT: usize = 320;
const CROWDED_AT: usize = 384;
const SKIP: u32 = u32::MAX;
const FRAME_HEADER_BYTES: usize = 8;
/// Bytes of a frame within which [`Consumer::take_cut`] cuts.
const CUT_WITHIN: usize = 64;

/// Bytes of memory for a ring that holds `data_bytes` (rounded up to a power of two), in whole pages.
pub fn ring_bytes_for(data_bytes: usize) -> usize {
    (RING_HEADER_BYTES + data_bytes.max(4096).next_power_of_two()).next_multiple_of(4096)
}

/// The memory of a ring, and its owner, which keeps it mapped. All zero is a new, empty ring. Cheap to clone.
#[derive(Clone)]
pub struct RingMemory {
    base: *mut u8,
    capacity: u64,
    _owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: shared memory used only through atomics and raw copies; the protocol above assigns each word to one side.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Wraps memory. Fails if it is too small or not aligned to 64 bytes.
    ///
    /// # Safety
    /// `base` must be valid for reads and writes of `len` bytes while `owner` lives, and no references to it may exist.
    pub unsafe fn new(base: *mut u8, len: usize, owner: Arc<dyn Any + Send + Sync>) -> Result<Self> {
        if len < RING_HEADER_BYTES + 4096 || !(base as usize).is_multiple_of(64) {
            return Err(
                Error::new(ErrorKind::InvalidInput, "ring").because(format!("{len} bytes of memory at {base:p}"))
            );
        }
        let data = len - RING_HEADER_BYTES;
        Ok(Self { base, capacity: 1 << data.ilog2(), _owner: owner })
    }
    pub(crate) fn u64_at(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: a constant offset within the header, whose presence and alignment `new` checked.
        #[allow(clippy::cast_ptr_alignment, reason = "offsets are multiples of 64")]
        unsafe {
            &*self.base.add(offset).cast::<AtomicU64>()
        }
    }
    fn u32_at(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: as above.
        #[allow(clippy::cast_ptr_alignment, reason = "offsets are multiples of 64")]
        unsafe {
            &*self.base.add(offset).cast::<AtomicU32>()
        }
    }
    /// The data at a position; `len` bytes from there must not exceed the end of the data.
    fn data(&self, position: u64, len: usize) -> *mut u8 {
        let offset = (position & (self.capacity - 1)) as usize;
        assert!(offset + len <= self.capacity as usize, "a frame never wraps");
        // SAFETY: in bounds: just asserted.
        unsafe { self.base.add(RING_HEADER_BYTES + offset) }
    }
    /// Bytes from a position to the end of the data.
    fn to_end(&self, position: u64) -> u64 {
        self.capacity - (position & (self.capacity - 1))
    }
    /// Longest frame that always fits an empty ring.
    fn frame_max(&self) -> usize {
        self.capacity as usize / 2 - FRAME_HEADER_BYTES
    }
    fn close(&self) {
        self.u32_at(CLOSED_AT).store(1, Ordering::SeqCst);
        for flag in [CONSUMER_WAITS_AT, PRODUCER_WAITS_AT] {
            self.u32_at(flag).store(0, Ordering::SeqCst);
            wake(self.u32_at(flag));
        }
    }
    fn is_closed(&self) -> bool {
        self.u32_at(CLOSED_AT).load(Ordering::Acquire) != 0
    }
    #[cold]
    fn damaged(&self, what: &str) -> Error {
        self.close();
        Error::new(ErrorKind::Corrupt, "shared-memory ring").because(format!("the peer damaged it: {what}"))
    }
}

#[cold]
fn gone() -> Error {
    Error::new(ErrorKind::Disconnected, "shared-memory ring").because("the peer closed it")
}

#[cold]
fn wake(word: &AtomicU32) {
    let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
}

/// Sleeps while the word is 1, at most this long.
fn sleep(word: &AtomicU32, timeout: Duration) {
    let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: i64::from(timeout.subsec_nanos()) };
    match futex::wait(word, futex::Flags::empty(), 1, Some(&timeout)) {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => {}
        // Impossible with valid memory; avoid a busy loop.
        Err(_) => std::thread::sleep(Duration::from_millis(1)),
    }
}

/// How the producer wakes a sleeping consumer.
#[derive(Clone, Debug)]
pub enum Waker {
    /// The consumer sleeps in [`Consumer::wait`] on this ring alone.
    Futex,
    /// The consumer watches many rings and sleeps on a doorbell.
    Doorbell(Doorbell),
}

/// The writing end.
pub struct Producer {
    memory: RingMemory,
    waker: Waker,
    tail: u64,
    published: u64,
    head: u64,
    has_announced: bool,
}

impl Producer {
    /// Takes the writing end; there must be only one in all processes.
    pub fn new(memory: RingMemory, waker: Waker) -> Result<Self> {
        let tail = memory.u64_at(TAIL_AT).load(Ordering::Acquire);
        let mut this = Self { memory, waker, tail, published: tail, head: tail, has_announced: false };
        this.refresh()?;
        Ok(this)
    }
    /// Longest frame that it accepts.
    pub fn frame_max(&self) -> usize {
        self.memory.frame_max()
    }
    fn refresh(&mut self) -> Result<()> {
        let head = self.memory.u64_at(HEAD_AT).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) > self.memory.capacity || !(head | self.tail).is_multiple_of(8) {
            return Err(self.memory.damaged("its head is not where it can be"));
        }
        self.head = head;
        Ok(())
    }
    fn room(&self) -> u64 {
        self.memory.capacity - self.tail.wrapping_sub(self.head)
    }
    /// Appends a frame made of the parts; the consumer sees it only after [`Producer::publish`]. Returns false if there
    /// is no room now.
    #[inline]
    pub fn try_push(&mut self, parts: &[&[u8]]) -> Result<bool> {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        if len > self.frame_max() {
            return Err(Error::new(ErrorKind::LimitExceeded, "shared-memory ring")
                .because(format!("a frame of {len} bytes, at most {} fit", self.frame_max())));
        }
        let span = (FRAME_HEADER_BYTES + len).next_multiple_of(8) as u64;
        let to_end = self.memory.to_end(self.tail);
        let skipped = if to_end < span { to_end } else { 0 };
        if self.room() < skipped + span {
            self.refresh()?;
            if self.room() < skipped + span {
                return Ok(false);
            }
        }
        if skipped > 0 {
            self.put_u32(self.tail, SKIP);
            self.tail = self.tail.wrapping_add(skipped);
        }
        self.put_u32(self.tail, len as u32);
        let mut to = self.memory.data(self.tail, FRAME_HEADER_BYTES + len).wrapping_add(FRAME_HEADER_BYTES);
        for part in parts {
            // SAFETY: `data` checked that header and all parts are in bounds; the consumer does not read there before
            // the tail is published.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                to = to.add(part.len());
            }
        }
        self.tail = self.tail.wrapping_add(span);
        Ok(true)
    }
    fn put_u32(&self, position: u64, value: u32) {
        let to = self.memory.data(position, FRAME_HEADER_BYTES);
        // SAFETY: in bounds (checked by `data`) and not published yet.
        unsafe { to.cast::<[u8; 4]>().write_unaligned(value.to_le_bytes()) };
    }
    /// Makes the pushed frames visible, and wakes the consumer if it sleeps.
    #[inline]
    pub fn publish(&mut self) {
        if self.published == self.tail {
            return;
        }
        self.published = self.tail;
        self.memory.u64_at(TAIL_AT).store(self.tail, Ordering::Release);
        if std::mem::take(&mut self.has_announced) {
            self.memory.u32_at(ANNOUNCED_AT).store(0, Ordering::Release);
        }
        self.wake_consumer();
    }
    /// Announces a frame within some 100 µs, so that a sleeping consumer wakes meanwhile instead of afterwards. If no
    /// frame comes, the consumer has spun in vain for a moment. Does nothing while the consumer reports that it is
    /// crowded.
    pub fn announce(&mut self) {
        if self.memory.u32_at(CROWDED_AT).load(Ordering::Relaxed) != 0 {
            return;
        }
        self.has_announced = true;
        self.memory.u32_at(ANNOUNCED_AT).store(1, Ordering::Release);
        self.wake_consumer();
    }
    #[inline]
    fn wake_consumer(&self) {
        fence(Ordering::SeqCst);
        let waits = self.memory.u32_at(CONSUMER_WAITS_AT);
        if waits.load(Ordering::Relaxed) != 0 && waits.swap(0, Ordering::SeqCst) != 0 {
            match &self.waker {
                Waker::Futex => wake(waits),
                Waker::Doorbell(bell) => bell.ring(),
            }
        }
    }
    /// Publishes, then waits for room after [`Producer::try_push`] found none. Returns false on timeout. Only the
    /// consumer's progress ends the wait, so check now and then that the peer lives.
    pub fn wait_room(&mut self, timeout: Duration) -> Result<bool> {
        self.publish();
        let before = self.head;
        let deadline = Instant::now() + timeout;
        let mut spin = Spin::default();
        loop {
            if self.memory.is_closed() {
                return Err(gone());
            }
            let head = self.memory.u64_at(HEAD_AT);
            if spin.until(|| head.load(Ordering::Acquire) != before) {
                return self.refresh().map(|()| true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let waits = self.memory.u32_at(PRODUCER_WAITS_AT);
            waits.store(1, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            if head.load(Ordering::Acquire) == before && !self.memory.is_closed() {
                sleep(waits, left);
            }
            waits.store(0, Ordering::SeqCst);
        }
    }
    /// Bytes that are free now.
    pub(crate) fn free(&mut self) -> Result<u64> {
        self.refresh()?;
        Ok(self.room())
    }
    /// Bytes published and pushed so far.
    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }
    /// Takes back what the consumer has not taken. Only for use when the consumer is gone and its requests went another
    /// way.
    pub fn take_back(&mut self) {
        self.memory.u64_at(HEAD_AT).store(self.published, Ordering::Release);
    }
    /// Returns true if the consumer has taken all pushed bytes, as far as known.
    pub fn is_drained(&mut self) -> Result<bool> {
        self.refresh()?;
        Ok(self.head == self.tail)
    }
    /// Closes the ring: calls of both sides fail with `Disconnected` from now on (published frames can still be read).
    pub fn close(&self) {
        self.memory.close();
        if let Waker::Doorbell(bell) = &self.waker {
            bell.ring();
        }
    }
}

/// Appends bytes of a ring: plain data, whatever the peer does meanwhile. `from` must be valid for reads of `len` bytes.
#[inline]
unsafe fn copy_out(from: *const u8, len: usize, to: &mut Vec<u8>) {
    to.reserve(len);
    // SAFETY: the source is the caller's promise; the target was just reserved.
    unsafe {
        std::ptr::copy_nonoverlapping(from, to.as_mut_ptr().add(to.len()), len);
        to.set_len(to.len() + len);
    }
}

/// The beginning of a frame, and the rest of it if that was cut off.
pub type CutFrame<'a> = (&'a [u8], Option<Vec<u8>>);

/// The reading end.
pub struct Consumer {
    memory: RingMemory,
    head: u64,
    released: u64,
    tail: u64,
    frame: Vec<u8>,
    spin: Spin,
}

impl Consumer {
    /// Takes the reading end; there must be only one in all processes.
    pub fn new(memory: RingMemory) -> Result<Self> {
        let head = memory.u64_at(HEAD_AT).load(Ordering::Acquire);
        let mut this = Self { memory, head, released: head, tail: head, frame: Vec::new(), spin: Spin::default() };
        this.refresh()?;
        Ok(this)
    }
    fn refresh(&mut self) -> Result<()> {
        let tail = self.memory.u64_at(TAIL_AT).load(Ordering::Acquire);
        if tail.wrapping_sub(self.head) > self.memory.capacity || !(tail | self.head).is_multiple_of(8) {
            return Err(self.memory.damaged("its tail is not where it can be"));
        }
        self.tail = tail;
        Ok(())
    }
    /// Returns true if a frame can be taken. A damaged ring counts as ready: taking from it returns the error.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.tail != self.head || self.memory.u64_at(TAIL_AT).load(Ordering::Acquire) != self.head
    }
    /// Takes the next frame as a copy, since the peer could change the ring during decoding. `None` if there is none
    /// now; `Disconnected` if there is none and the ring is closed. [`Consumer::release`] frees the room.
    #[inline]
    pub fn take(&mut self) -> Result<Option<&[u8]>> {
        let Some((from, len)) = self.next_frame()? else { return Ok(None) };
        self.frame.clear();
        // SAFETY: `next_frame` checked the bounds.
        unsafe { copy_out(from, len, &mut self.frame) };
        Ok(Some(&self.frame))
    }
    /// The same; `cut` is shown the beginning of the frame, and says where the part begins that the caller wants to own.
    pub fn take_cut(&mut self, cut: impl Fn(&[u8]) -> Option<usize>) -> Result<Option<CutFrame<'_>>> {
        self.frame.clear();
        let Some((from, len)) = self.next_frame()? else { return Ok(None) };
        let (shown, mut rest) = (len.min(CUT_WITHIN), None);
        // SAFETY: `next_frame` checked the bounds.
        unsafe { copy_out(from, shown, &mut self.frame) };
        let (at, to) = match cut(&self.frame).filter(|at| *at <= shown) {
            Some(at) => {
                self.frame.truncate(at);
                (at, rest.insert(Vec::new()))
            }
            None => (shown, &mut self.frame),
        };
        unsafe { copy_out(from.wrapping_add(at), len - at, to) }; // SAFETY: as above
        Ok(Some((&self.frame, rest)))
    }
    /// Steps over the next frame. Returns where it lies, within the memory, and its length.
    #[inline]
    fn next_frame(&mut self) -> Result<Option<(*const u8, usize)>> {
        loop {
            if self.tail == self.head {
                self.refresh()?;
                if self.tail == self.head {
                    return if self.memory.is_closed() && !self.is_ready() { Err(gone()) } else { Ok(None) };
                }
            }
            let available = self.tail.wrapping_sub(self.head);
            let to_end = self.memory.to_end(self.head);
            // Positions are multiples of 8 and so is the capacity: a header is always whole.
            let from = self.memory.data(self.head, FRAME_HEADER_BYTES);
            // SAFETY: in bounds; read once, so that a later change by the peer has no effect here.
            let len = u32::from_le_bytes(unsafe { from.cast::<[u8; 4]>().read_volatile() });
            if len == SKIP {
                if to_end > available {
                    return Err(self.memory.damaged("it skips past its tail"));
                }
                self.head = self.head.wrapping_add(to_end);
                continue;
            }
            let len = len as usize;
            let span = (FRAME_HEADER_BYTES + len).next_multiple_of(8) as u64;
            if len > self.memory.frame_max() || span > available || span > to_end {
                return Err(self.memory.damaged("a frame's length is out of bounds"));
            }
            self.head = self.head.wrapping_add(span);
            return Ok(Some((from.wrapping_add(FRAME_HEADER_BYTES).cast_const(), len)));
        }
    }
    /// The same; the frame is the caller's.
    pub fn take_owned(&mut self) -> Result<Option<Vec<u8>>> {
        Ok(if self.take()?.is_some() { Some(std::mem::take(&mut self.frame)) } else { None })
    }
    /// Returns the room of all frames taken so far to the producer. Once per batch is enough.
    #[inline]
    pub fn release(&mut self) {
        if self.released == self.head {
            return;
        }
        self.released = self.head;
        self.memory.u64_at(HEAD_AT).store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        let waits = self.memory.u32_at(PRODUCER_WAITS_AT);
        if waits.load(Ordering::Relaxed) != 0 {
            waits.store(0, Ordering::SeqCst);
            wake(waits);
        }
    }
    /// Spins, then sleeps until there is a frame (true) or the time is over (false). For rings with [`Waker::Futex`]. A
    /// dead peer wakes nobody: wait in slices and check that it lives.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool> {
        self.release();
        let deadline = Instant::now() + timeout;
        loop {
            let (tail, seen, head) = (self.memory.u64_at(TAIL_AT), self.tail, self.head);
            let ready = self.spin.until(|| seen != head || tail.load(Ordering::Acquire) != head);
            if ready {
                return Ok(true);
            }
            if self.memory.is_closed() {
                return if self.is_ready() { Ok(true) } else { Err(gone()) };
            }
            let begin = Instant::now();
            let left = deadline.saturating_duration_since(begin);
            if left.is_zero() {
                return Ok(false);
            }
            if self.arm() {
                sleep(self.memory.u32_at(CONSUMER_WAITS_AT), left);
                self.spin.slept(begin.elapsed());
            }
            self.disarm();
        }
    }
    /// Reports whether all cores have work: then staying awake for an announced frame would take a core from somebody.
    pub fn set_crowded(&self, is_crowded: bool) {
        let (word, value) = (self.memory.u32_at(CROWDED_AT), u32::from(is_crowded));
        if word.load(Ordering::Relaxed) != value {
            word.store(value, Ordering::Relaxed); // seldom: the producer reads this cache line
        }
    }
    /// Returns true if the producer announced a frame since the last call.
    pub fn take_announcement(&self) -> bool {
        let word = self.memory.u32_at(ANNOUNCED_AT);
        word.load(Ordering::Acquire) != 0 && word.swap(0, Ordering::AcqRel) != 0
    }
    /// Announces that the consumer is about to sleep, so that the producer wakes it. Returns false if there is a frame
    /// (or the end) already.
    pub fn arm(&self) -> bool {
        self.memory.u32_at(CONSUMER_WAITS_AT).store(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        !self.is_ready() && !self.memory.is_closed()
    }
    /// Ends the announcement of [`Consumer::arm`].
    pub fn disarm(&self) {
        self.memory.u32_at(CONSUMER_WAITS_AT).store(0, Ordering::SeqCst);
    }
    /// Returns true if either side closed the ring. Frames may still be in it.
    pub fn is_closed(&self) -> bool {
        self.memory.is_closed()
    }
    /// Closes the ring.
    pub fn close(&self) {
        self.memory.close();
    }
}
