//! A mapping of part of a file: its lifetime and its bounds, nothing else.
#![allow(unsafe_code, reason = "mmap, and copying through raw pointers to memory that other processes share")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_host::fork::CloseInChild;
use cenote_host::torn::Watch;
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Size of a huge page.
pub const HUGE_BYTES: usize = 2 << 20;

/// `len` bytes of a file in memory, shared with everyone who maps it.
///
/// Others may change the bytes at any time, so this module never makes a reference to them: it copies bytes in and out,
/// and callers of [`Mapping::as_ptr`] justify their own use.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
    writable: bool,
    /// Set after a refusal, to avoid repeated requests for huge pages.
    no_huge: AtomicBool,
    watch: Option<Watch>,
    /// Stays open while the mapping lives.
    companion: Option<Companion>,
}

/// A descriptor that lives as long as a mapping; forked children do not have it.
#[derive(Debug)]
struct Companion {
    _in_child: Option<CloseInChild>, // before the descriptor: fields drop in order
    _fd: OwnedFd,
}

// SAFETY: the mapping is plain shared memory; access is by raw copies whose races are the callers' protocol.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `[offset, offset + len)`. `offset` must be a multiple of the page size, `len` must not be 0, and the file
    /// must be that long.
    pub fn new(fd: impl AsFd, offset: u64, len: usize, writable: bool) -> Result<Self, Errno> {
        Self::with_flags(fd, offset, len, writable, MapFlags::SHARED)
    }
    /// Like [`Mapping::new`], for writing to persistent memory (`MAP_SYNC`): once a page has been written to, the file
    /// system's metadata for its bytes are durable; the bytes themselves need [`crate::write_back::persist`].
    /// `OPNOTSUPP` if the file is not on such memory.
    pub fn persistent(fd: impl AsFd, offset: u64, len: usize) -> Result<Self, Errno> {
        Self::with_flags(fd, offset, len, true, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
    }
    fn with_flags(fd: impl AsFd, offset: u64, len: usize, writable: bool, how: MapFlags) -> Result<Self, Errno> {
        if len == 0 || !offset.is_multiple_of(4096) {
            return Err(Errno::INVAL);
        }
        let end = offset.checked_add(len as u64).ok_or(Errno::INVAL)?;
        if rustix::fs::fstat(&fd)?.st_size < i64::try_from(end).map_err(|_| Errno::INVAL)? {
            return Err(Errno::INVAL); // touching pages past the end would raise SIGBUS
        }
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        let flags = how | MapFlags::NORESERVE;
        let base = if len >= HUGE_BYTES && offset.is_multiple_of(HUGE_BYTES as u64) {
            let room = Room::new(len)?;
            // SAFETY: replaces a part of the reservation just made, which nobody else knows.
            let base =
                unsafe { rustix::mm::mmap(room.aligned(), len, protection, flags | MapFlags::FIXED, fd, offset)? };
            room.keep(len);
            base
        } else {
            // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, fd, offset)? }
        };
        Ok(Self { base: base.cast(), len, writable, no_huge: AtomicBool::new(false), watch: None, companion: None })
    }
    /// Keeps a descriptor open until the mapping goes; a forked child's copy of the mapping does not keep it open.
    pub(crate) fn with_companion(mut self, fd: OwnedFd) -> Self {
        self.companion = Some(Companion { _in_child: CloseInChild::new(&fd), _fd: fd });
        self
    }
    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Always false: an empty mapping cannot be made.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// The first byte. Valid for `len` bytes while the mapping lives; writable if it was mapped so.
    pub fn as_ptr(&self) -> *mut u8 {
        self.base
    }
    /// A pointer to `len` bytes at `offset`; `None` if they are not all inside.
    #[inline]
    pub fn at(&self, offset: u64, len: usize) -> Option<*mut u8> {
        let offset = usize::try_from(offset).ok()?;
        if offset.checked_add(len)? > self.len {
            return None;
        }
        // SAFETY: offset <= self.len, checked above, so the result is in or just past the mapping.
        Some(unsafe { self.base.add(offset) })
    }
    /// A word at a multiple of 8, which every process uses as an atomic; `None` if it is not inside. Storing to a word
    /// of a read-only mapping faults: check [`Mapping::is_writable`].
    #[inline]
    #[allow(clippy::cast_ptr_alignment, reason = "the base is page-aligned and the offset checked")]
    pub fn word(&self, offset: u64) -> Option<&AtomicU64> {
        let at = self.at(offset, 8).filter(|_| offset.is_multiple_of(8))?;
        // SAFETY: in bounds, aligned, alive as long as `self`. A concurrent `copy_in` over the word destroys its
        // meaning, not memory safety.
        Some(unsafe { &*at.cast::<AtomicU64>() })
    }
    /// Copies bytes out; returns false if they are not all inside.
    #[inline]
    pub fn copy_out(&self, offset: u64, buf: &mut [u8]) -> bool {
        let Some(from) = self.at(offset, buf.len()) else { return false };
        // SAFETY: `at` checked the source's bounds; `buf` belongs to the caller alone and cannot overlap a mapping made
        // here.
        unsafe { crate::sums::copy_raw(buf.as_mut_ptr(), from, buf.len()) };
        true
    }
    /// Copies bytes in; returns false if they do not all fit or the mapping is read-only.
    #[inline]
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.at(offset, bytes.len()) else { return false };
        if !self.writable {
            return false;
        }
        // SAFETY: `at` checked the target's bounds and it is mapped writable. `bytes` may be another part of the same
        // memory (a view), hence `copy`, which allows overlap.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        true
    }
    /// Returns true if the mapping is writable.
    pub fn is_writable(&self) -> bool {
        self.writable
    }
    /// Faults in pages as writable without changing them, so that first writes do not fault one by one. Rounds outwards
    /// to pages. Errors (an old kernel, no memory) are returned and harmless.
    pub fn populate(&self, offset: u64, len: usize) -> Result<(), Errno> {
        let (from, len) = self.pages(offset, len)?;
        // SAFETY: in bounds; populating changes no bytes.
        unsafe { rustix::mm::madvise(from, len, Advice::LinuxPopulateWrite) }
    }
    /// Faults in pages by reading them: several times faster than [`Mapping::populate`] where they exist already. On
    /// tmpfs this creates missing pages; elsewhere a first write may still meet a full file system.
    pub fn populate_read(&self, offset: u64, len: usize) -> Result<(), Errno> {
        let (from, len) = self.pages(offset, len)?;
        // SAFETY: in bounds; populating changes no bytes.
        unsafe { rustix::mm::madvise(from, len, Advice::LinuxPopulateRead) }
    }
    /// Returns true if all pages are in memory, for any process; false if the kernel does not report it.
    pub fn is_resident(&self, offset: u64, len: usize) -> bool {
        let Ok((mut from, mut left)) = self.pages(offset, len) else { return false };
        let mut pages = [0u8; 1024];
        while left > 0 {
            let n = left.min(pages.len() * 4096);
            // SAFETY: `n` bytes from the page-aligned `from` are mapped, and `pages` has a byte for each page of them.
            if unsafe { libc::mincore(from, n, pages.as_mut_ptr()) } != 0 {
                return false;
            }
            if pages[..n.div_ceil(4096)].iter().any(|page| page & 1 == 0) {
                return false;
            }
            // SAFETY: at most one past the mapping's last page.
            from = unsafe { from.byte_add(n) };
            left -= n;
        }
        true
    }
    /// The same mapping, watched: if another process truncates the file, a process that asked to survive that
    /// ([`cenote_host::torn::survive`]) continues with zeros behind the cut. Not for data, which must never become zeros
    /// silently.
    #[must_use]
    pub fn watched(mut self) -> Self {
        self.watch = Watch::new(self.base, self.len);
        self
    }
    /// Returns true if this process survives that another one truncates the file.
    pub fn is_watched(&self) -> bool {
        self.watch.is_some()
    }
    /// Returns true if the mapping is watched and its file was truncated.
    #[inline]
    pub fn is_torn(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::is_torn)
    }
    /// Asks for huge pages, best effort: an error means that there will be none.
    pub fn advise_huge(&self) -> Result<(), Errno> {
        // SAFETY: the whole mapping; advice changes no bytes.
        unsafe { rustix::mm::madvise(self.base.cast(), self.len, Advice::LinuxHugepage) }
    }
    /// Makes huge pages of whole, aligned 2 MiB stretches, each of which must have at least one page present. Fewer
    /// address translations make random accesses a quarter faster, and the kernel hands out one huge page in two thirds
    /// of the time of 512 small ones, whatever its settings for huge pages say. Returns false if no huge page is
    /// available.
    pub fn collapse(&self, offset: u64, len: usize) -> bool {
        let is_whole = offset.is_multiple_of(HUGE_BYTES as u64) && len.is_multiple_of(HUGE_BYTES) && len > 0;
        let aligned = self.at(offset, len).filter(|at| is_whole && (*at as usize).is_multiple_of(HUGE_BYTES));
        let Some(from) = aligned.filter(|_| !self.no_huge.load(Ordering::Relaxed)) else { return false };
        // SAFETY: in bounds; collapsing changes no bytes and removes no page that is present.
        let done = unsafe { libc::madvise(from.cast(), len, libc::MADV_COLLAPSE) } == 0;
        if !done {
            self.no_huge.store(true, Ordering::Relaxed);
        }
        done
    }
    fn pages(&self, offset: u64, len: usize) -> Result<(*mut std::ffi::c_void, usize), Errno> {
        self.at(offset, len).ok_or(Errno::INVAL)?;
        let first = offset & !4095;
        let end = (offset + len as u64).next_multiple_of(4096).min(self.len as u64);
        let from = self.at(first, 0).ok_or(Errno::INVAL)?;
        Ok((from.cast(), (end - first) as usize))
    }
}

/// Address space for a mapping that begins at a huge page boundary.
struct Room {
    base: *mut u8,
    len: usize,
}

impl Room {
    fn new(len: usize) -> Result<Self, Errno> {
        let len = len.next_multiple_of(4096) + HUGE_BYTES;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                len,
                ProtFlags::empty(),
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )?
        };
        Ok(Self { base: base.cast(), len })
    }
    fn skip(&self) -> usize {
        self.base.align_offset(HUGE_BYTES)
    }
    fn aligned(&self) -> *mut std::ffi::c_void {
        // SAFETY: skips less than HUGE_BYTES, and the reservation is that much longer than the mapping.
        unsafe { self.base.add(self.skip()) }.cast()
    }
    /// Unmaps what surrounds the mapping, which stays.
    fn keep(self, len: usize) {
        let (skip, used) = (self.skip(), len.next_multiple_of(4096));
        let (base, end) = (self.base, self.len);
        std::mem::forget(self);
        for (from, len) in [(0, skip), (skip + used, end - skip - used)] {
            if len > 0 {
                // SAFETY: within the reservation and outside of the mapping; nobody uses it.
                let _ = unsafe { rustix::mm::munmap(base.add(from).cast(), len) };
            }
        }
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: reserved by `new` with this length; nothing was mapped there.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.watch.take()); // before the addresses are reused
        // SAFETY: mapped by `new` with this length, unmapped nowhere else. Failure would leak, not harm.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}
