//! Buffers for direct I/O, kept for reuse.
#![allow(unsafe_code, reason = "aligned allocation")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

use parking_lot::Mutex;

use crate::map::HUGE_BYTES;

/// Alignment that direct I/O needs of addresses, offsets and lengths.
pub const ALIGN_BYTES: usize = 4096;
/// The largest single transfer through a bounce buffer.
pub const BOUNCE_BYTES: usize = 1 << 20;
/// Buffers of at least this size lie in huge pages.
const HUGE_FROM_BYTES: usize = 1 << 20;
/// Upper bound of the bytes in freed buffers kept for reuse. Fresh memory costs a page fault every 4096 bytes, which is
/// more than the copy into it.
const POOLED_BYTES_MAX: usize = 32 << 20;

static POOL: Mutex<Pool> = Mutex::new(Pool { buffers: Vec::new(), bytes: 0 });

struct Pool {
    buffers: Vec<Block>,
    bytes: usize,
}

/// Memory of a buffer, aligned, initialised, owned by whoever holds the value.
///
/// From [`HUGE_FROM_BYTES`] on it lies in huge pages where the machine has them: the device then gets one stretch
/// instead of one for each 4096 bytes, which made direct I/O of 1 MiB a quarter faster on a virtio disk.
#[derive(Debug)]
struct Block {
    base: *mut u8,
    len: usize,
    /// The mapping that holds the block; without one, the block comes from the allocator.
    mapping: Option<(*mut u8, usize)>,
}

// SAFETY: the block is the only owner of its bytes, like a `Box<[u8]>`.
unsafe impl Send for Block {}
// SAFETY: as above; `&self` only reads.
unsafe impl Sync for Block {}

impl Block {
    fn layout(len: usize) -> Layout {
        Layout::from_size_align(len, ALIGN_BYTES).expect("a buffer's size is sane")
    }
    fn new(len: usize) -> Self {
        if len >= HUGE_FROM_BYTES
            && let Some(block) = Self::huge(len)
        {
            return block;
        }
        // SAFETY: callers round up to at least one page, so the layout's size is not 0.
        let base = unsafe { alloc_zeroed(Self::layout(len)) };
        if base.is_null() {
            handle_alloc_error(Self::layout(len));
        }
        Self { base, len, mapping: None }
    }
    fn huge(len: usize) -> Option<Self> {
        use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
        let len = len.next_multiple_of(HUGE_BYTES);
        let whole = len + HUGE_BYTES; // holds an aligned stretch of `len` bytes; the rest is never touched
        // SAFETY: a new private mapping that nobody else knows; unmapped in `drop`.
        let at = unsafe {
            mmap_anonymous(std::ptr::null_mut(), whole, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let at = at.ok()?.cast::<u8>();
        // SAFETY: the offset is below `HUGE_BYTES`, and `len` bytes follow it.
        let base = unsafe { at.add(at.align_offset(HUGE_BYTES)) };
        // SAFETY: within the mapping; the advice changes no byte.
        let _ = unsafe { madvise(base.cast(), len, Advice::LinuxHugepage) }; // best effort
        Some(Self { base, len, mapping: Some((at, whole)) })
    }
    /// A pooled block that is large enough and at most twice as large.
    fn reused(len: usize) -> Option<Self> {
        // `try_lock`, since a forked child may find the pool locked for ever.
        let mut pool = POOL.try_lock()?;
        let found = pool.buffers.iter().rposition(|block| (len..=2 * len).contains(&block.len))?;
        let block = pool.buffers.swap_remove(found);
        pool.bytes -= block.len;
        Some(block)
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        match self.mapping {
            // SAFETY: mapped by `huge` with this length, and nobody refers to it any more.
            Some((at, whole)) => drop(unsafe { rustix::mm::munmap(at.cast(), whole) }),
            // SAFETY: allocated by `new` with the same layout.
            None => unsafe { dealloc(self.base, Self::layout(self.len)) },
        }
    }
}

/// Bytes at an address that is a multiple of 4096.
#[derive(Debug)]
pub struct AlignedBuf {
    block: Option<Block>,
    len: usize,
}

impl AlignedBuf {
    /// A buffer of at least `len` bytes, rounded up to a multiple of 4096, all zero.
    pub fn new(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN_BYTES);
        Self { block: Some(Block::new(len)), len }
    }
    /// Like [`AlignedBuf::new`], but with the bytes of its last use in this process: faster for callers that overwrite
    /// them.
    pub fn reused(len: usize) -> Self {
        let len = len.max(1).next_multiple_of(ALIGN_BYTES);
        Self { block: Some(Block::reused(len).unwrap_or_else(|| Block::new(len))), len }
    }
    fn base(&self) -> *mut u8 {
        self.block.as_ref().expect("there until dropped").base
    }
}

/// Gives the freed buffers that are kept for reuse back to the system, at a time when none will be wanted soon.
pub fn release_kept() {
    let kept = POOL.try_lock().map(|mut pool| std::mem::replace(&mut *pool, Pool { buffers: Vec::new(), bytes: 0 }));
    drop(kept); // without the lock: unmapping takes long
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if let Some(mut pool) = POOL.try_lock()
            && let Some(block) = self.block.take()
            && pool.bytes + block.len <= POOLED_BYTES_MAX
        {
            pool.bytes += block.len;
            pool.buffers.push(block);
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the block has at least `len` bytes, initialised, owned.
        unsafe { std::slice::from_raw_parts(self.base(), self.len) }
    }
}
impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base(), self.len) }
    }
}

/// Returns true if direct I/O accepts the address, offset and length without a bounce buffer.
pub fn is_aligned(bytes: &[u8], offset: u64) -> bool {
    (bytes.as_ptr() as usize).is_multiple_of(ALIGN_BYTES)
        && bytes.len().is_multiple_of(ALIGN_BYTES)
        && offset.is_multiple_of(ALIGN_BYTES as u64)
}
