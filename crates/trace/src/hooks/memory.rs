//! Allocation and release of memory. Objects below the threshold cost one comparison; a release costs a look-up in a
//! small table of possible large objects.

use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU16, AtomicUsize};

use cenote_tally::memory_kind as kind;
use libc::{off_t, size_t};

use crate::{kernel, place, tracer};

/// Size from which an object is counted.
pub static LEAST_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes of a page.
pub const PAGE: usize = 4096;
/// Objects that live for less are not kept apart from their neighbours: no sample would catch them.
const SHORT_NS: u64 = 50_000_000;

/// Number of large objects whose address has this hash: with none, an address belongs to no large object.
static MAYBE: [AtomicU16; 1 << 16] = [const { AtomicU16::new(0) }; 1 << 16];

#[inline]
fn maybe(address: usize) -> &'static AtomicU16 {
    &MAYBE[((address >> 4) ^ (address >> 20)) & 0xffff]
}

#[inline]
fn is_large(bytes: usize) -> bool {
    bytes >= LEAST_BYTES.load(Relaxed)
}

/// The first and the last page of the object that it does not share with its neighbours.
fn edges(address: usize, bytes: usize) -> [usize; 2] {
    [address.next_multiple_of(PAGE), ((address + bytes) & !(PAGE - 1)) - PAGE]
}

/// Returns true if the C library gave the object its own mapping.
fn is_own_mapping(address: usize) -> bool {
    address % PAGE == 16
}

/// Keeps an object in its own mapping. The kernel merges adjacent mappings and reports touched pages only for whole
/// mappings; an edge page that is advised as randomly used prevents the merge.
fn keep_apart(address: usize, bytes: usize) {
    let [first, last] = edges(address, bytes);
    kernel::advise(last, PAGE, libc::MADV_RANDOM);
    if !is_own_mapping(address) {
        kernel::advise(first, PAGE, libc::MADV_RANDOM);
    }
}

/// Undoes [`keep_apart`] before an operation on the mapping that could fail because of it.
fn let_join(address: usize, bytes: usize) {
    for page in edges(address, bytes) {
        kernel::advise(page, PAGE, libc::MADV_NORMAL);
    }
}

#[cold]
fn made(address: *mut c_void, bytes: usize, how: u64) {
    let Some(tally) = tracer::tally() else { return };
    let _errno = kernel::Errno::keep();
    let Some(site) = place::here(tally) else { return };
    let address = address.addr();
    maybe(address).fetch_add(1, Relaxed);
    tally.memory_made(site, how, address as u64, bytes as u64, kernel::now_ns());
    if !tally.sites[site].is_short_lived(SHORT_NS) {
        keep_apart(address, bytes);
    }
}

/// Handles an object that may be released. `stays`: its mapping will be used further.
#[cold]
fn gone(address: *mut c_void, stays: bool) {
    let Some(tally) = tracer::tally() else { return };
    let _errno = kernel::Errno::keep();
    let address = address.addr();
    if let Some((bytes, site)) = tally.memory_gone(address as u64, kernel::now_ns()) {
        maybe(address).fetch_sub(1, Relaxed);
        if (stays || !is_own_mapping(address)) && !tally.sites[site].is_short_lived(SHORT_NS) {
            let_join(address, bytes as usize);
        }
    }
}

#[inline]
fn is_maybe_large(address: *mut c_void) -> bool {
    maybe(address.addr()).load(Relaxed) != 0
}

#[inline]
fn given(address: *mut c_void, bytes: usize, how: u64) -> *mut c_void {
    if is_large(bytes) && !address.is_null() {
        made(address, bytes, how);
    }
    address
}

/// Memory for allocations during the look-up of the next allocator: in old C libraries the look-up itself allocates.
mod early {
    use std::cell::UnsafeCell;
    use std::ffi::c_void;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    const BYTES: usize = 1 << 15;
    #[repr(align(64))]
    struct Arena(UnsafeCell<[u8; BYTES]>);
    // SAFETY: each byte is given out once, to one caller.
    unsafe impl Sync for Arena {}
    static ARENA: Arena = Arena(UnsafeCell::new([0; BYTES]));
    static TAKEN: AtomicUsize = AtomicUsize::new(0);
    pub static IS_LOOKING: AtomicBool = AtomicBool::new(false);

    /// Zeroed memory, aligned to 16 bytes.
    pub fn take(bytes: usize) -> *mut c_void {
        let at = TAKEN.fetch_add(bytes.next_multiple_of(16), Relaxed);
        if at.saturating_add(bytes) > BYTES {
            return std::ptr::null_mut();
        }
        // SAFETY: within the arena.
        unsafe { ARENA.0.get().cast::<u8>().add(at).cast() }
    }
    /// Number of bytes from the address to the end of the arena, if the address is in it.
    pub fn holds(address: *const c_void) -> Option<usize> {
        let begin = ARENA.0.get().addr();
        (begin..begin + BYTES).contains(&address.addr()).then(|| begin + BYTES - address.addr())
    }
}

/// Looks up all functions of the next allocator, once.
fn is_ready() -> bool {
    static IS_READY: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
    if IS_READY.load(Relaxed) {
        return true;
    }
    if early::IS_LOOKING.swap(true, Relaxed) {
        return false;
    }
    // SAFETY: allocates minimal objects and frees them at once.
    unsafe {
        let some = real!(malloc: fn(1 => size_t) -> *mut c_void);
        let more = real!(realloc: fn(some => *mut c_void, 2 => size_t) -> *mut c_void);
        real_free(more);
        real_free(real!(calloc: fn(1 => size_t, 1 => size_t) -> *mut c_void));
    }
    IS_READY.store(true, Relaxed);
    early::IS_LOOKING.store(false, Relaxed);
    true
}

unsafe fn real_free(address: *mut c_void) {
    real!(free: fn(address => *mut c_void) -> ());
}

hooks! {
    fn malloc(bytes: size_t) -> *mut c_void {
        if !is_ready() {
            return early::take(bytes);
        }
        given(real!(malloc: fn(bytes => size_t) -> *mut c_void), bytes, kind::MALLOC)
    }
    fn calloc(count: size_t, size: size_t) -> *mut c_void {
        if !is_ready() {
            return early::take(count.saturating_mul(size));
        }
        let address = real!(calloc: fn(count => size_t, size => size_t) -> *mut c_void);
        given(address, count.saturating_mul(size), kind::CALLOC)
    }
    fn realloc(old: *mut c_void, bytes: size_t) -> *mut c_void {
        if let Some(room) = early::holds(old) {
            // SAFETY: the caller's own hook above.
            let new = unsafe { malloc(bytes) };
            if !new.is_null() {
                // SAFETY: both have that length and do not overlap.
                unsafe { new.cast::<u8>().copy_from(old.cast(), bytes.min(room)) };
            }
            return new;
        }
        if !is_ready() {
            return early::take(bytes);
        }
        if !old.is_null() && is_maybe_large(old) {
            gone(old, true);
        }
        let new = real!(realloc: fn(old => *mut c_void, bytes => size_t) -> *mut c_void);
        given(new, bytes, kind::REALLOC)
    }
    fn reallocarray(old: *mut c_void, count: size_t, size: size_t) -> *mut c_void {
        if !old.is_null() && is_maybe_large(old) {
            gone(old, true);
        }
        let new = real!(reallocarray: fn(old => *mut c_void, count => size_t, size => size_t) -> *mut c_void);
        given(new, count.saturating_mul(size), kind::REALLOC)
    }
    fn free(address: *mut c_void) -> () {
        if is_maybe_large(address) && !address.is_null() {
            gone(address, false);
        }
        if early::holds(address).is_none() {
            // SAFETY: the caller's object.
            unsafe { real_free(address) };
        }
    }
    fn posix_memalign(to: *mut *mut c_void, alignment: size_t, bytes: size_t) -> c_int {
        let done = real!(posix_memalign: fn(to => *mut *mut c_void, alignment => size_t, bytes => size_t) -> c_int);
        if done == 0 {
            // SAFETY: the call has just written it.
            given(unsafe { *to }, bytes, kind::ALIGNED);
        }
        done
    }
    fn aligned_alloc(alignment: size_t, bytes: size_t) -> *mut c_void {
        given(real!(aligned_alloc: fn(alignment => size_t, bytes => size_t) -> *mut c_void), bytes, kind::ALIGNED)
    }
    fn memalign(alignment: size_t, bytes: size_t) -> *mut c_void {
        given(real!(memalign: fn(alignment => size_t, bytes => size_t) -> *mut c_void), bytes, kind::ALIGNED)
    }
    fn mmap(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void {
        let address = real!(mmap: fn(at => *mut c_void, len => size_t, access => c_int, flags => c_int, fd => c_int,
            from => off_t) -> *mut c_void);
        mapped(address, len, access, flags, fd)
    }
    fn mmap64(at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, from: off_t) -> *mut c_void {
        let address = real!(mmap64: fn(at => *mut c_void, len => size_t, access => c_int, flags => c_int, fd => c_int,
            from => off_t) -> *mut c_void);
        mapped(address, len, access, flags, fd)
    }
    fn munmap(address: *mut c_void, len: size_t) -> c_int {
        if is_maybe_large(address) {
            gone(address, false);
        }
        real!(munmap: fn(address => *mut c_void, len => size_t) -> c_int)
    }
    fn mremap(old: *mut c_void, old_len: size_t, len: size_t, flags: c_int, to: *mut c_void) -> *mut c_void {
        let was = is_maybe_large(old);
        if was {
            gone(old, true);
        }
        let new = real!(mremap: fn(old => *mut c_void, old_len => size_t, len => size_t, flags => c_int,
            to => *mut c_void) -> *mut c_void);
        if was && new != libc::MAP_FAILED {
            given(new, len, kind::MMAP);
        }
        new
    }
}

/// Handles a new mapping of memory or of a file.
fn mapped(address: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int) -> *mut c_void {
    if address == libc::MAP_FAILED || access & (libc::PROT_READ | libc::PROT_WRITE) == 0 {
        return address;
    }
    if flags & libc::MAP_ANONYMOUS != 0 {
        return if flags & libc::MAP_STACK == 0 { given(address, len, kind::MMAP) } else { address };
    }
    if access & libc::PROT_EXEC == 0
        && let Some((tally, stream)) = tracer::descriptor(fd)
        && let Some(slot) = stream.slot()
    {
        tally.add_header(cenote_tally::HeaderField::FilesMapped, 1);
        tally.files[slot].mapped(len as u64, flags & libc::MAP_SHARED != 0 && access & libc::PROT_WRITE != 0);
    }
    address
}
