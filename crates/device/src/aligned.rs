//! Buffers for direct I/O, kept for reuse.
#![allow(unsafe_code, reason = "aligned allocation")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

/// What direct I/O wants of addresses, offsets and lengths.
pub const ALIGN_BYTES: usize = 4096;
/// Size of a pooled buffer, and the largest single direct transfer through one.
pub const BOUNCE_BYTES: usize = 1 << 20;
const POOLED_MAX: usize = 16;

static POOL: Mutex<Vec<AlignedBuf>> = Mutex::new(Vec::new());

/// Bytes at an address that is a multiple of 4096. Begins as zeros.
#[derive(Debug)]
pub struct AlignedBuf {
    base: *mut u8,
    len: usize,
}

// SAFETY: it owns its bytes alone, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; `&self` only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN_BYTES).expect("a buffer's size is sane")
    }
    /// A buffer of at least `len` bytes, rounded up to a multiple of 4096.
    pub fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN_BYTES);
        // SAFETY: the layout's size is not 0.
        let base = unsafe { alloc_zeroed(Self::layout(len)) };
        if base.is_null() {
            handle_alloc_error(Self::layout(len));
        }
        Self { base, len }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with the same layout.
        unsafe { dealloc(self.base, Self::layout(self.len)) };
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes, initialised, owned.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }
}
impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }
}

/// A buffer of [`BOUNCE_BYTES`] from the pool; goes back when dropped. Its content is whatever it was.
#[derive(Debug)]
pub struct Bounce(Option<AlignedBuf>);

impl Bounce {
    /// Takes one, made anew if none is free.
    pub fn take() -> Self {
        Self(Some(POOL.lock().pop().unwrap_or_else(|| AlignedBuf::new(BOUNCE_BYTES))))
    }
}
impl Drop for Bounce {
    fn drop(&mut self) {
        let mut pool = POOL.lock();
        if pool.len() < POOLED_MAX {
            pool.extend(self.0.take());
        }
    }
}
impl Deref for Bounce {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_deref().expect("there until dropped")
    }
}
impl DerefMut for Bounce {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().expect("there until dropped")
    }
}

/// True if direct I/O takes the address, offset and length as they are.
pub fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(ALIGN_BYTES)
        && bytes.len().is_multiple_of(ALIGN_BYTES)
        && offset.is_multiple_of(ALIGN_BYTES as u64)
}
