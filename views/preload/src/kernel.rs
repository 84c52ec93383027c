//! System calls made directly, past all interception.

use std::arch::asm;

/// Makes a system call; returns its result, or minus the error number.
///
/// # Safety
/// As the system call requires.
#[inline]
pub unsafe fn call(number: i64, a: [u64; 6]) -> i64 {
    let result;
    // SAFETY: the kernel changes rax, rcx and r11, and memory as the caller allowed.
    unsafe {
        asm!("syscall", inlateout("rax") number => result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
             in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

/// A system call whose arguments are only numbers.
#[inline]
pub fn simple(number: i64, a: &[u64]) -> i64 {
    let mut all = [0; 6];
    all[..a.len()].copy_from_slice(a);
    // SAFETY: used with calls that take no addresses, or addresses of what lives in the caller.
    unsafe { call(number, all) }
}

/// Like [`simple`], as a result.
#[inline]
pub fn simple_or(number: i64, a: &[u64]) -> Result<i64, i32> {
    checked(simple(number, a))
}

/// Converts a return value of the kernel into a result.
#[inline]
pub fn checked(result: i64) -> Result<i64, i32> {
    if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result) }
}

/// Id of this process.
#[inline]
pub fn pid() -> i32 {
    simple(libc::SYS_getpid, &[]) as i32
}

/// Closes a descriptor of this library.
pub fn close(fd: i32) {
    simple(libc::SYS_close, &[fd as u64]);
}

/// Opens a path that ends in NUL.
pub fn open(path: &std::ffi::CStr, flags: i32) -> Result<i32, i32> {
    simple_or(libc::SYS_openat, &[libc::AT_FDCWD as u64, path.as_ptr() as u64, flags as u64, 0]).map(|fd| fd as i32)
}

/// All bytes that can be read from a path; empty on an error.
pub fn read_all(path: &std::ffi::CStr) -> Vec<u8> {
    let Ok(fd) = open(path, libc::O_RDONLY | libc::O_CLOEXEC) else { return Vec::new() };
    let all = read_fd(fd);
    close(fd);
    all
}

/// All bytes that can be read from a descriptor.
pub fn read_fd(fd: i32) -> Vec<u8> {
    let (mut all, mut buf) = (Vec::new(), [0_u8; 4096]);
    loop {
        let read = simple(libc::SYS_read, &[fd as u64, buf.as_mut_ptr() as u64, buf.len() as u64]);
        if read <= 0 {
            return all;
        }
        all.extend_from_slice(&buf[..read as usize]);
    }
}

/// Writes a message to standard error.
pub fn say(text: &str) {
    let text = format!("cenote: {text}\n");
    simple(libc::SYS_write, &[2, text.as_ptr() as u64, text.len() as u64]);
}
