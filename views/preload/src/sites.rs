//! Finds the sites where the C library enters the kernel, and redirects them here.
//!
//! A jump takes five bytes and `syscall` has two. In front of most is `mov eax, NUMBER` (five bytes), behind the others `cmp rax, -4095`
//! or the like (five or six):
//! these are carried out beside, and the jump goes where they were. Other forms stay as they are. A place that something jumps into the
//! middle of would break: each is looked at for that. Places whose number is none of ours are left alone.

use std::ffi::c_void;

use crate::entry::{self, KERNEL, NUMBERS};
use crate::kernel;

/// A part of a library's code.
struct Text {
    start: usize,
    len: usize,
}

/// A site to patch.
struct Site {
    /// Address of the jump.
    at: usize,
    /// Bytes that it replaces.
    len: usize,
    /// Bytes before and behind `syscall` among them.
    before: usize,
    behind: usize,
}

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// Upper bound of a stub's bytes.
const STUB: usize = 48;
/// Distance within which jumps into a site are searched.
const NEAR: usize = 4096;

fn texts() -> Vec<Text> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> i32 {
        // SAFETY: the loader passes valid records, and `found` is ours.
        unsafe {
            let (info, found) = (&*info, &mut *found.cast::<Vec<Text>>());
            let name = if info.dlpi_name.is_null() { c"" } else { std::ffi::CStr::from_ptr(info.dlpi_name) };
            let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
            let ours = [&b"libc.so"[..], b"libc-2", b"libpthread", b"ld-linux"];
            if ours.iter().any(|begin| file.starts_with(begin)) {
                for header in std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) {
                    if header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0 {
                        let start = info.dlpi_addr as usize + header.p_vaddr as usize;
                        found.push(Text { start, len: header.p_memsz as usize });
                    }
                }
            }
        }
        0
    }
    let mut found: Vec<Text> = Vec::new();
    // SAFETY: the callback keeps to its signature, and `found` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    found
}

/// Returns true if calls of this number are intercepted.
fn is_ours(number: u32) -> bool {
    // SAFETY: written once, before this.
    (number as usize) < NUMBERS && unsafe { entry::CENOTE_WAYS[number as usize] } != KERNEL
}

/// The bytes of a movable comparison behind `syscall`; `None` if it is not one of the usual forms.
fn comparison(code: &[u8]) -> Option<usize> {
    match code {
        [0x48, 0x3d, _, _, 0xff, 0xff, ..] => Some(6),
        [0x3d, _, _, 0xff, 0xff, ..] => Some(5),
        _ => None,
    }
}

/// Returns true if a jump nearby leads to the instruction at `inner`, the only one that begins in the middle of a site.
fn is_target(code: &[u8], inner: usize) -> bool {
    let from = inner.saturating_sub(NEAR);
    let to = (inner + NEAR).min(code.len().saturating_sub(6));
    (from..to).any(|at| {
        let leads = |len: usize, distance: i64| at as i64 + len as i64 + distance == inner as i64;
        let far = |at: usize| i64::from(i32::from_le_bytes([code[at], code[at + 1], code[at + 2], code[at + 3]]));
        match code[at] {
            0x70..=0x7f | 0xeb => leads(2, i64::from(code[at + 1] as i8)),
            0xe8 | 0xe9 => leads(5, far(at + 1)),
            0x0f if code[at + 1] & 0xf0 == 0x80 => leads(6, far(at + 2)),
            _ => false,
        }
    })
}

fn find(code: &[u8], base: usize, found: &mut Vec<Site>) {
    let mut at = 8;
    while let Some(next) = code[at..code.len().saturating_sub(16)].iter().position(|byte| *byte == SYSCALL[0]) {
        at += next;
        if code[at + 1] != SYSCALL[1] {
            at += 1;
            continue;
        }
        let number = (code[at - 5] == 0xb8 && code[at - 2..at] == [0, 0])
            .then(|| u32::from_le_bytes([code[at - 4], code[at - 3], code[at - 2], code[at - 1]]));
        if number.is_none_or(is_ours) {
            if number.is_some() && !is_target(code, at) {
                found.push(Site { at: base + at - 5, len: 7, before: 5, behind: 0 });
            } else if let Some(behind) = comparison(&code[at + 2..])
                && !is_target(code, at + 2)
            {
                found.push(Site { at: base + at, len: 2 + behind, before: 0, behind });
            }
        }
        at += 2;
    }
}

/// Memory for `len` bytes of code, within reach of a 2 GiB jump from `text`.
fn room(text: &Text, len: usize) -> Option<usize> {
    const STEP: usize = 1 << 20;
    (1..1500).find_map(|step| {
        let at = (text.start & !(STEP - 1)).checked_sub(step * STEP)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        let got = kernel::simple(libc::SYS_mmap, &[at as u64, len as u64, protection, flags as u64, u64::MAX, 0]);
        if got == at as i64 {
            return Some(at);
        }
        if got > 0 {
            kernel::simple(libc::SYS_munmap, &[got as u64, len as u64]); // a kernel that does not know the flag
        }
        None
    })
}

fn protect(start: usize, len: usize, protection: i32) -> bool {
    let (from, to) = (start & !4095, (start + len + 4095) & !4095);
    kernel::simple(libc::SYS_mprotect, &[from as u64, (to - from) as u64, protection as u64]) == 0
}

/// A jump from `from` to `to`.
fn jump(from: usize, to: usize) -> [u8; 5] {
    let distance = ((to as i64 - (from as i64 + 5)) as i32).to_le_bytes();
    [0xe9, distance[0], distance[1], distance[2], distance[3]]
}

/// The stub of a site: the instructions before the call, the entry, the call, the instructions behind it, and the
/// return.
fn stub(site: &Site, code: &[u8], at: usize) -> Vec<u8> {
    let mut stub = Vec::with_capacity(STUB);
    stub.extend_from_slice(&code[..site.before]);
    // lea r11, [rip + 14]: the `syscall` below; jmp [rip]
    stub.extend_from_slice(&[0x4c, 0x8d, 0x1d, 14, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0]);
    stub.extend_from_slice(&entry::address().to_le_bytes());
    stub.extend_from_slice(&SYSCALL);
    stub.extend_from_slice(&code[site.before + 2..site.before + 2 + site.behind]);
    let end = jump(at + stub.len(), site.at + site.len);
    stub.extend_from_slice(&end);
    stub
}

/// Redirects the C library's system calls here. Returns the number of sites; fails if the system does not permit the
/// change.
///
/// # Safety
/// No other thread may run.
pub unsafe fn patch() -> Result<usize, &'static str> {
    let mut count = 0;
    for text in texts() {
        // SAFETY: a loaded library's text is readable.
        let code = unsafe { std::slice::from_raw_parts(text.start as *const u8, text.len) };
        let mut sites = Vec::new();
        find(code, text.start, &mut sites);
        if sites.is_empty() {
            continue;
        }
        let len = (sites.len() * STUB + 4095) & !4095;
        let stubs = room(&text, len).ok_or("there is no free address space near the C library")?;
        // SAFETY: the pages are writable meanwhile, nobody else runs, and the stubs lie in memory of our own.
        unsafe {
            for (index, site) in sites.iter().enumerate() {
                let old = std::slice::from_raw_parts(site.at as *const u8, site.len);
                let at = stubs + index * STUB;
                let stub = stub(site, old, at);
                std::ptr::copy_nonoverlapping(stub.as_ptr(), at as *mut u8, stub.len());
            }
            let executable = libc::PROT_READ | libc::PROT_EXEC;
            if !protect(stubs, len, executable)
                || !protect(text.start, text.len, libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)
            {
                return Err("the system does not permit changes to the C library's code");
            }
            for (index, site) in sites.iter().enumerate() {
                let mut new = [0x90; 8];
                new[..5].copy_from_slice(&jump(site.at, stubs + index * STUB));
                std::ptr::copy_nonoverlapping(new.as_ptr(), site.at as *mut u8, site.len);
            }
            protect(text.start, text.len, executable);
        }
        count += sites.len();
    }
    if count == 0 { Err("its C library is not glibc") } else { Ok(count) }
}
