//! The library's own memory, separate from the program's: a call may come from a signal handler that interrupted the
//! program's own `malloc`.
//!
//! Small blocks that a thread frees are kept for that thread, without a lock. Nothing interrupts a thread here: signals
//! wait while an operation of this library is in progress ([`crate::signals`]).

use std::alloc::{GlobalAlloc, Layout};
use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use dlmalloc::GlobalDlmalloc;

use crate::{kernel, table};

/// Sizes are multiples of this.
const GRAIN: usize = 16;
/// Number of sizes that are kept.
const SIZES: usize = 64;
/// Upper bound of the bytes of one size that a thread keeps: of the smallest sizes enough for the names that are
/// published together.
const fn kept_bytes(piece: usize) -> usize {
    if piece <= 128 { 64 << 10 } else { 16 << 10 }
}
/// Upper bound of the blocks of each size.
const KEPT: [usize; SIZES] = {
    let mut all = [0; SIZES];
    let mut size = 0;
    while size < SIZES {
        let piece = (size + 1) * GRAIN;
        all[size] = kept_bytes(piece) / piece;
        size += 1;
    }
    all
};
/// Upper bound of the threads that keep blocks.
const SHELVES: usize = 64;
/// Marks a thread without a shelf.
const NONE: usize = usize::MAX;

/// The allocator; see the module documentation.
pub struct Memory;

/// Blocks that one thread freed, by size; each begins with a pointer to the next one.
struct Shelf {
    /// The thread; 0: free.
    owner: AtomicI32,
    pieces: UnsafeCell<[(*mut u8, usize); SIZES]>,
}

// SAFETY: only its owner reads it.
unsafe impl Sync for Shelf {}

static ALL: [Shelf; SHELVES] =
    [const { Shelf { owner: AtomicI32::new(0), pieces: UnsafeCell::new([(ptr::null_mut(), 0); SIZES]) } }; SHELVES];

thread_local! {
    /// Index of this thread's shelf, plus one; 0: not looked up yet.
    static MINE: Cell<usize> = const { Cell::new(0) };
}

/// This thread's blocks.
#[inline]
fn mine() -> Option<*mut [(*mut u8, usize); SIZES]> {
    let shelf = match MINE.get() {
        0 => choose()?,
        NONE => return None,
        mine => mine - 1,
    };
    Some(ALL[shelf].pieces.get())
}

#[cold]
fn choose() -> Option<usize> {
    // Not in a child of `vfork`: its state would be taken for its parent's.
    if !table::is_of_this_process() {
        return None;
    }
    let thread = kernel::simple(libc::SYS_gettid, &[]) as i32;
    let is_free = |owner: i32| {
        owner == 0 || owner == thread || {
            let arguments = [kernel::pid() as u64, owner as u64, 0];
            kernel::simple(libc::SYS_tgkill, &arguments) == -i64::from(libc::ESRCH)
        }
    };
    let taken = ALL.iter().position(|shelf| {
        let owner = shelf.owner.load(Ordering::Acquire);
        is_free(owner) && shelf.owner.compare_exchange(owner, thread, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    });
    MINE.set(taken.map_or(NONE, |shelf| shelf + 1));
    taken
}

/// In a forked child, abandons the blocks of other threads, since these may have been changing them just then.
pub fn own() {
    let mine = MINE.get();
    for (index, shelf) in ALL.iter().enumerate() {
        if index + 1 == mine {
            shelf.owner.store(kernel::simple(libc::SYS_gettid, &[]) as i32, Ordering::Relaxed);
        } else if shelf.owner.load(Ordering::Relaxed) != 0 {
            // SAFETY: this is the only thread.
            unsafe { *shelf.pieces.get() = [(ptr::null_mut(), 0); SIZES] };
            shelf.owner.store(0, Ordering::Relaxed);
        }
    }
}

/// Index of the requested size among the kept sizes.
#[inline]
fn size_of(layout: Layout) -> Option<usize> {
    let size = layout.size().max(1).div_ceil(GRAIN) - 1;
    (size < SIZES && layout.align() <= GRAIN).then_some(size)
}

/// The layout of a block of that size.
#[inline]
fn whole(size: usize) -> Layout {
    // SAFETY: a power of two, and small.
    unsafe { Layout::from_size_align_unchecked((size + 1) * GRAIN, GRAIN) }
}

#[allow(clippy::cast_ptr_alignment, reason = "pieces that are kept are aligned to a grain")]
// SAFETY: blocks come from `GlobalDlmalloc`, always by the same layout for the same use, and have one user at a time.
unsafe impl GlobalAlloc for Memory {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as the caller promises; a kept block begins with a pointer to the next one.
        unsafe {
            let Some(size) = size_of(layout) else { return GlobalDlmalloc.alloc(layout) };
            if let Some(pieces) = mine() {
                let (first, count) = &mut (*pieces)[size];
                if !first.is_null() {
                    let piece = *first;
                    *first = piece.cast::<*mut u8>().read();
                    *count -= 1;
                    return piece;
                }
            }
            GlobalDlmalloc.alloc(whole(size))
        }
    }
    #[inline]
    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe {
            let Some(size) = size_of(layout) else { return GlobalDlmalloc.dealloc(piece, layout) };
            if let Some(pieces) = mine() {
                let (first, count) = &mut (*pieces)[size];
                if *count < KEPT[size] {
                    piece.cast::<*mut u8>().write(*first);
                    *first = piece;
                    *count += 1;
                    return;
                }
            }
            GlobalDlmalloc.dealloc(piece, whole(size));
        }
    }
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if size_of(layout).is_none() {
                return GlobalDlmalloc.alloc_zeroed(layout);
            }
            let piece = self.alloc(layout);
            if !piece.is_null() {
                ptr::write_bytes(piece, 0, layout.size());
            }
            piece
        }
    }
    #[inline]
    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above; the caller promises that the layout is valid.
        unsafe {
            let new = Layout::from_size_align_unchecked(size, layout.align());
            match (size_of(layout), size_of(new)) {
                (None, None) => GlobalDlmalloc.realloc(piece, layout, size),
                (Some(before), Some(after)) if before == after => piece,
                _ => {
                    let other = self.alloc(new);
                    if !other.is_null() {
                        ptr::copy_nonoverlapping(piece, other, layout.size().min(size));
                        self.dealloc(piece, layout);
                    }
                    other
                }
            }
        }
    }
}
