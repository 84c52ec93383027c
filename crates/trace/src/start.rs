//! Starts counting with the program, and ends it.

use std::ffi::CStr;
use std::sync::atomic::Ordering::Relaxed;

use crate::{files, hooks, kernel, tracer};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;

/// Environment variable with the directory for tallies: without it, nothing is counted.
const DIR: &CStr = c"CENOTE_TRACE_DIR";
/// Environment variable with the size from which memory objects are counted; 0: none.
const MEMORY: &CStr = c"CENOTE_TRACE_MEMORY";

fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: called before the program's first instruction, when nobody changes the environment.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value))
    }
}

extern "C" fn begin() {
    let _errno = kernel::Errno::keep();
    let Some(dir) = variable(DIR) else { return };
    tracer::begin(dir);
    if tracer::tally().is_none() {
        return;
    }
    // SAFETY: the handler only changes words of ours.
    unsafe { libc::pthread_atfork(None, None, Some(tracer::forked)) };
    let digits = variable(MEMORY).map_or(&b""[..], CStr::to_bytes);
    let bytes = digits.iter().take_while(|digit| digit.is_ascii_digit());
    let bytes = bytes.fold(0, |value: usize, digit| value.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
    if bytes > 0 {
        hooks::memory::LEAST_BYTES.store(bytes.max(4 * hooks::memory::PAGE), Relaxed);
    }
    // A shell may have opened files for the program before its start.
    for fd in 0..3 {
        files::inherited(fd);
    }
}

extern "C" fn end() {
    let _errno = kernel::Errno::keep();
    files::all_streams_end();
    tracer::ended();
}
