//! Open descriptors: where the next access begins if it is sequential or strided.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64};

/// An open descriptor: its file and its position. It belongs to one process and lies in that process's own memory.
pub struct Descriptor {
    /// 1 + the slot of its file; 0: no counted file.
    slot: AtomicU32,
    /// Number of timed accesses; of accesses to skip before the next timed one; of accesses skipped since the last one.
    known: AtomicU32,
    skips: AtomicU32,
    skipped: AtomicU32,
    position: AtomicU64,
    /// Offset of the next access if it is sequential.
    pub(crate) expected: AtomicU64,
    pub(crate) last_offset: AtomicU64,
    pub(crate) stride: AtomicI64,
    /// Bytes that went through the buffer of a C stream and are not counted yet.
    pending: AtomicU64,
    is_streamed: AtomicBool,
}

impl Descriptor {
    /// A descriptor without a file.
    pub const fn new() -> Self {
        Self {
            slot: AtomicU32::new(0),
            known: AtomicU32::new(0),
            skips: AtomicU32::new(0),
            skipped: AtomicU32::new(0),
            position: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            last_offset: AtomicU64::new(0),
            stride: AtomicI64::new(0),
            pending: AtomicU64::new(0),
            is_streamed: AtomicBool::new(false),
        }
    }
    /// The slot of its file.
    pub fn slot(&self) -> Option<usize> {
        (self.slot.load(Relaxed) as usize).checked_sub(1)
    }
    /// Starts over with a file, or none.
    pub fn set(&self, slot: Option<usize>) {
        self.slot.store(slot.map_or(0, |slot| slot as u32 + 1), Relaxed);
        for word in [&self.known, &self.skips, &self.skipped] {
            word.store(0, Relaxed);
        }
        self.stride.store(0, Relaxed);
        self.is_streamed.store(false, Relaxed);
        for word in [&self.position, &self.expected, &self.last_offset, &self.pending] {
            word.store(0, Relaxed);
        }
    }
    /// Copies another descriptor's state: the descriptor was duplicated.
    pub fn copy_from(&self, other: &Self) {
        self.slot.store(other.slot.load(Relaxed), Relaxed);
        self.stride.store(other.stride.load(Relaxed), Relaxed);
        self.skipped.store(0, Relaxed);
        self.position.store(other.position.load(Relaxed), Relaxed);
        self.expected.store(other.expected.load(Relaxed), Relaxed);
        self.last_offset.store(other.last_offset.load(Relaxed), Relaxed);
    }
    /// Records that its file has moved to another slot.
    pub fn move_to(&self, slot: Option<usize>) {
        self.slot.store(slot.map_or(0, |slot| slot as u32 + 1), Relaxed);
    }
    /// Its position.
    pub fn position(&self) -> u64 {
        self.position.load(Relaxed)
    }
    /// Sets its position.
    pub fn seek(&self, position: u64) {
        self.position.store(position, Relaxed);
    }
    /// Marks it as used through a C stream.
    pub fn set_streamed(&self) {
        self.is_streamed.store(true, Relaxed);
    }
    /// Returns true if it is used through a C stream.
    pub fn is_streamed(&self) -> bool {
        self.is_streamed.load(Relaxed)
    }
    /// Adds bytes that went through the buffer of a C stream; returns how many to count as one access now, once the
    /// buffer of `buffer` bytes must have been filled or emptied.
    pub fn buffered(&self, bytes: u64, buffer: u64) -> u64 {
        let all = self.pending.load(Relaxed).saturating_add(bytes);
        let due = if all >= buffer { all } else { 0 };
        self.pending.store(all - due, Relaxed);
        due
    }
    /// Sets its position, from which the next access is sequential.
    pub fn begin_at(&self, position: u64) {
        self.position.store(position, Relaxed);
        self.expected.store(position, Relaxed);
    }
    /// The number of accesses that the time of the next one stands for: itself and the untimed ones before it; 0 if it
    /// need not be timed. Long accesses are always timed.
    pub fn weight(&self, bytes: usize) -> u64 {
        const LONG_BYTES: usize = 1 << 16;
        if bytes >= LONG_BYTES {
            return 1;
        }
        let skipped = self.skipped.load(Relaxed);
        if skipped < self.skips.load(Relaxed) {
            self.skipped.store(skipped + 1, Relaxed);
            return 0;
        }
        self.skipped.store(0, Relaxed);
        u64::from(skipped) + 1
    }
    /// Records the duration of an access. The number of skipped accesses depends on that alone, so the estimate has no
    /// bias: after the first 64, seven if it was fast, none if timing costs little in comparison.
    pub fn timed(&self, ns: u64) {
        const QUICK_NS: u64 = 4000;
        let known = self.known.load(Relaxed);
        self.known.store(known.saturating_add(1), Relaxed);
        self.skips.store(if known >= 64 && ns < QUICK_NS { 7 } else { 0 }, Relaxed);
    }
}

impl Default for Descriptor {
    fn default() -> Self {
        Self::new()
    }
}
