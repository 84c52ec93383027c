//! Tests whether memory that a call names is accessible, and reports that like the kernel (`EFAULT`) instead of by a
//! crash.
//!
//! A dedicated instruction touches a byte of it. If that faults, this library's handler of `SIGSEGV` and `SIGBUS`
//! (`signals`) continues behind it. So the test costs no system call. A program that sets one of the two signals to
//! `SIG_DFL` itself, or blocks it, ends by it as without this library.

use std::arch::global_asm;

global_asm!(
    ".text",
    ".p2align 4",
    ".hidden cenote_probe_read",
    ".globl cenote_probe_read",
    ".type cenote_probe_read,@function",
    "cenote_probe_read:",
    "movzx eax, byte ptr [rdi]",
    "xor eax, eax",
    "ret",
    ".hidden cenote_probe_write",
    ".globl cenote_probe_write",
    ".type cenote_probe_write,@function",
    // Changes nothing, even if another thread writes there.
    "cenote_probe_write:",
    "lock or byte ptr [rdi], 0",
    "xor eax, eax",
    "ret",
    ".hidden cenote_probe_fault",
    ".globl cenote_probe_fault",
    ".type cenote_probe_fault,@function",
    "cenote_probe_fault:",
    "mov eax, 1",
    "ret",
);

unsafe extern "C" {
    fn cenote_probe_read(at: u64) -> i32;
    fn cenote_probe_write(at: u64) -> i32;
    fn cenote_probe_fault() -> i32;
}

/// Least size of a memory page.
const PAGE: u64 = 4096;
/// End of the programs' address space.
const END: u64 = 1 << 47;

/// Where to continue after a fault at `instruction`, if that was a probe.
pub fn behind(instruction: u64) -> Option<u64> {
    let is_probe =
        instruction == cenote_probe_read as *const () as u64 || instruction == cenote_probe_write as *const () as u64;
    is_probe.then_some(cenote_probe_fault as *const () as u64)
}

/// Checks that the byte at `at` can be read.
#[inline]
pub fn readable(at: u64) -> Result<(), i32> {
    // SAFETY: a fault is returned as a result.
    if at < END && unsafe { cenote_probe_read(at) } == 0 { Ok(()) } else { Err(libc::EFAULT) }
}

/// Checks that the first and last byte of a range can be read. The bytes in between are not touched, since that would
/// load all the range's pages.
#[inline]
pub fn readable_range(at: u64, len: usize) -> Result<(), i32> {
    let Some(last) = (len as u64).checked_sub(1) else { return Ok(()) };
    readable(at)?;
    if at % PAGE + last >= PAGE { readable(at.checked_add(last).ok_or(libc::EFAULT)?) } else { Ok(()) }
}

/// Like [`readable_range`], for writing.
#[inline]
pub fn writable_range(at: u64, len: usize) -> Result<(), i32> {
    let Some(last) = (len as u64).checked_sub(1) else { return Ok(()) };
    let writable = |at: u64| {
        // SAFETY: a fault is returned as a result; nothing is changed.
        if at < END && unsafe { cenote_probe_write(at) } == 0 { Ok(()) } else { Err(libc::EFAULT) }
    };
    writable(at)?;
    if at % PAGE + last >= PAGE { writable(at.checked_add(last).ok_or(libc::EFAULT)?) } else { Ok(()) }
}

/// The length of a string that ends in NUL before `most` bytes, else `ENAMETOOLONG`; reads nothing behind that.
pub fn text_len(at: u64, most: usize) -> Result<usize, i32> {
    let mut len = 0;
    loop {
        let here = at.checked_add(len).ok_or(libc::EFAULT)?;
        let room = (PAGE - here % PAGE).min(most as u64 - len);
        if room == 0 {
            return Err(libc::ENAMETOOLONG);
        }
        readable(here)?;
        // SAFETY: a byte of this page can be read, so all of them can.
        let inside = unsafe { libc::strnlen(here as *const libc::c_char, room as usize) } as u64;
        len += inside;
        if inside < room {
            return Ok(len as usize);
        }
    }
}
