//! The allocation site: the functions on the stack, innermost first.

use std::ffi::{CStr, c_int, c_void};

use cenote_tally::Tally;

/// Number of frames examined.
const FRAMES: usize = 12;
/// Number of functions named.
const NAMED: usize = 6;
/// Bytes of all names.
const TEXT_BYTES: usize = 880;

unsafe extern "C" {
    fn _Unwind_Backtrace(step: extern "C" fn(*mut c_void, *mut c_void) -> c_int, data: *mut c_void) -> c_int;
    fn _Unwind_GetIP(context: *mut c_void) -> usize;
}

struct Stack {
    frames: [usize; FRAMES],
    len: usize,
}

extern "C" fn step(context: *mut c_void, data: *mut c_void) -> c_int {
    const GO_ON: c_int = 0;
    const ENOUGH: c_int = 4;
    // SAFETY: `data` is the `Stack` of the call below; the context is the unwinder's.
    let (stack, at) = unsafe { (&mut *data.cast::<Stack>(), _Unwind_GetIP(context)) };
    stack.frames[stack.len] = at;
    stack.len += 1;
    if stack.len == FRAMES { ENOUGH } else { GO_ON }
}

/// The slot of the current allocation site.
pub fn here(tally: &Tally) -> Option<usize> {
    let mut stack = Stack { frames: [0; FRAMES], len: 0 };
    // SAFETY: the callback writes into the stack passed to it, within its bounds.
    unsafe { _Unwind_Backtrace(step, (&raw mut stack).cast()) };
    let frames = &stack.frames[..stack.len];
    let key = frames.iter().fold(0x9e37_79b9_7f4a_7c15, |key: u64, frame| {
        (key.rotate_left(9) ^ *frame as u64).wrapping_mul(0x517c_c1b7_2722_0a95)
    });
    let (slot, is_new) = tally.site(key.max(1))?;
    if is_new {
        let mut text = Text { bytes: [0; TEXT_BYTES], len: 0 };
        describe(frames, &mut text);
        tally.sites[slot].set_text(&text.bytes[..text.len]);
    }
    Some(slot)
}

struct Text {
    bytes: [u8; TEXT_BYTES],
    len: usize,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        let len = bytes.len().min(TEXT_BYTES - self.len);
        self.bytes[self.len..self.len + len].copy_from_slice(&bytes[..len]);
        self.len += len;
    }
    fn push_hex(&mut self, value: usize) {
        let mut is_begun = false;
        for shift in (0..16).rev() {
            let digit = (value >> (shift * 4)) & 15;
            is_begun |= digit != 0 || shift == 0;
            if is_begun {
                self.push(&[b"0123456789abcdef"[digit]]);
            }
        }
    }
}

fn info(at: usize) -> Option<libc::Dl_info> {
    // SAFETY: all zeros is a valid value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be queried.
    let found = unsafe { libc::dladdr(std::ptr::with_exposed_provenance(at), &raw mut info) };
    (found != 0 && !info.dli_fname.is_null()).then_some(info)
}

/// Describes one function a line: `name+0x12 in library`, without those of this library.
fn describe(frames: &[usize], text: &mut Text) {
    let own = info(here as fn(&Tally) -> Option<usize> as usize).map(|info| info.dli_fbase);
    let mut named = 0;
    for frame in frames {
        // The return address may belong to the next function.
        let at = frame.saturating_sub(1);
        let Some(found) = info(at) else { continue };
        if Some(found.dli_fbase) == own {
            continue;
        }
        if named > 0 {
            text.push(b"\n");
        }
        // SAFETY: names of the run-time linker end with a zero byte and stay while the library is
        // loaded.
        let library = unsafe { CStr::from_ptr(found.dli_fname) }.to_bytes();
        let library = library.rsplit(|byte| *byte == b'/').next().unwrap_or(library);
        if found.dli_sname.is_null() {
            text.push(library);
            text.push(b"+0x");
            text.push_hex(at - found.dli_fbase.addr());
        } else {
            // SAFETY: as above.
            text.push(unsafe { CStr::from_ptr(found.dli_sname) }.to_bytes());
            text.push(b"+0x");
            text.push_hex(at - found.dli_saddr.addr());
            text.push(b" in ");
            text.push(library);
        }
        named += 1;
        if named == NAMED {
            return;
        }
    }
    if named == 0 {
        text.push(b"code of no library");
    }
}
