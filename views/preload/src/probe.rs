//! Whether memory that a call names is there, told as the kernel tells it (`EFAULT`) and not by the end of the program.
//!
//! A byte of it is touched by an instruction of its own. If that faults, our handler of `SIGSEGV` and `SIGBUS` (`signals`) goes on behind it. So it costs no
//! system call. A program that sets one of the two to `SIG_DFL` by itself, or blocks it, ends by it as without this.

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
    // Changes nothing, also if another thread writes there.
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

/// Pages of memory are at least so large.
const PAGE: u64 = 4096;
/// Addresses of programs end here.
const END: u64 = 1 << 47;

/// Where to go on after a fault at `instruction`, if that was a probe.
pub fn behind(instruction: u64) -> Option<u64> {
    let is_probe =
        instruction == cenote_probe_read as *const () as u64 || instruction == cenote_probe_write as *const () as u64;
    is_probe.then_some(cenote_probe_fault as *const () as u64)
}

/// The byte at `at` can be read.
#[inline]
pub fn readable(at: u64) -> Result<(), i32> {
    // SAFETY: a fault comes back as a result.
    if at < END && unsafe { cenote_probe_read(at) } == 0 { Ok(()) } else { Err(libc::EFAULT) }
}

/// The first and last byte of a range can be read: a range that has neither hole is not looked at in between, which would take all its pages into memory.
#[inline]
pub fn readable_range(at: u64, len: usize) -> Result<(), i32> {
    let Some(last) = (len as u64).checked_sub(1) else { return Ok(()) };
    readable(at)?;
    if at % PAGE + last >= PAGE { readable(at.checked_add(last).ok_or(libc::EFAULT)?) } else { Ok(()) }
}

/// The same for writing.
#[inline]
pub fn writable_range(at: u64, len: usize) -> Result<(), i32> {
    let Some(last) = (len as u64).checked_sub(1) else { return Ok(()) };
    let writable = |at: u64| {
        // SAFETY: a fault comes back as a result; nothing is changed.
        if at < END && unsafe { cenote_probe_write(at) } == 0 { Ok(()) } else { Err(libc::EFAULT) }
    };
    writable(at)?;
    if at % PAGE + last >= PAGE { writable(at.checked_add(last).ok_or(libc::EFAULT)?) } else { Ok(()) }
}

/// The length of a string that ends in NUL before `most` bytes, else `ENAMETOOLONG`: it is not looked at behind that.
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
