//! System calls that bypass the hooks and preserve `errno`.

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;

/// Restores `errno` when dropped.
pub struct Errno(c_int);

impl Errno {
    /// Saves the current value.
    pub fn keep() -> Self {
        // SAFETY: the address is this thread's own.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the structure is ours; these clocks always exist.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The monotonic clock in nanoseconds; a call takes some 25 ns.
pub fn now_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// The same clock to within some milliseconds; a call takes some 5 ns.
pub fn coarse_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC_COARSE)
}

/// This process's id from the kernel: also correct in a child of `vfork`.
pub fn pid() -> i32 {
    // SAFETY: no arguments.
    unsafe { libc::syscall(libc::SYS_getpid) as i32 }
}

/// Status of a descriptor.
pub fn stat_of(fd: c_int) -> Option<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the kernel fills the structure if it returns 0.
    unsafe { (libc::syscall(libc::SYS_fstat, fd, stat.as_mut_ptr()) == 0).then(|| stat.assume_init()) }
}

/// Status of a path, without following a symbolic link.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn stat_at(dir: c_int, path: *const libc::c_char) -> Option<libc::stat> {
    let mut stat = MaybeUninit::uninit();
    // SAFETY: the kernel fills the structure if it returns 0; a bad path is an error to it.
    unsafe {
        let done = libc::syscall(libc::SYS_newfstatat, dir, path, stat.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW);
        (done == 0).then(|| stat.assume_init())
    }
}

/// Decimal digits of a number.
pub fn decimal(mut value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    while at == digits.len() || value > 0 {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
    }
    &digits[at..]
}

/// The path of an open descriptor, from the kernel.
pub fn path_of(fd: c_int, buffer: &mut [u8]) -> Option<&[u8]> {
    let mut link = [0; 40];
    let mut digits = [0; 20];
    let digits = decimal(u64::try_from(fd).ok()?, &mut digits);
    let dir = b"/proc/self/fd/";
    link[..dir.len()].copy_from_slice(dir);
    link[dir.len()..dir.len() + digits.len()].copy_from_slice(digits);
    // SAFETY: the path ends with a zero byte, the buffer has the given length.
    let len = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, link.as_ptr(), buffer.as_mut_ptr(), buffer.len())
    };
    buffer.get(..usize::try_from(len).ok()?)
}

/// The working directory, without the zero byte.
pub fn working_directory(buffer: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: the buffer has the given length.
    let len = unsafe { libc::syscall(libc::SYS_getcwd, buffer.as_mut_ptr(), buffer.len()) };
    buffer.get(..usize::try_from(len).ok()?.checked_sub(1)?)
}

/// Position of a descriptor.
pub fn position_of(fd: c_int) -> Option<u64> {
    // SAFETY: a query only.
    u64::try_from(unsafe { libc::syscall(libc::SYS_lseek, fd, 0_i64, libc::SEEK_CUR) }).ok()
}

/// Advises the kernel on the use of pages, which also keeps the mapping apart from its neighbours.
pub fn advise(address: usize, bytes: usize, advice: c_int) {
    // SAFETY: the advice changes how pages are read ahead, not their content.
    unsafe { libc::syscall(libc::SYS_madvise, address, bytes, advice) };
}

/// Creates a file of that size and maps it shared. All its space is allocated: no write can fail later.
pub fn mapped_file(path: &CStr, bytes: usize) -> Option<*mut c_void> {
    // SAFETY: plain calls; the descriptor is ours and is closed here, the path ends with a zero byte.
    unsafe {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC;
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600);
        if fd < 0 {
            return None;
        }
        let mut at = -1;
        if libc::syscall(libc::SYS_fallocate, fd, 0_i64, 0_i64, bytes) == 0 {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            // Pass whole words: a narrower value leaves the rest of the last argument, on the stack, undefined.
            at = libc::syscall(libc::SYS_mmap, 0_i64, bytes, i64::from(access), i64::from(libc::MAP_SHARED), fd, 0_i64);
        }
        libc::syscall(libc::SYS_close, fd);
        // The C library reports errors as -1.
        if at == -1 {
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, path.as_ptr(), 0);
            return None;
        }
        Some(std::ptr::with_exposed_provenance_mut(at as usize))
    }
}

/// Unmaps a mapping of ours.
pub fn unmap(at: *mut c_void, bytes: usize) {
    // SAFETY: only called on a result of `mapped_file` that is no longer used.
    unsafe { libc::syscall(libc::SYS_munmap, at, bytes) };
}
