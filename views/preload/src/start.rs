//! How it begins, before the program's first instruction.

use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::{dispatch, fork, handoff, inside, kernel, limit, place, signals, sites, table};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

static LIBRARY: OnceLock<Vec<u8>> = OnceLock::new();

/// This library's path, as `LD_PRELOAD` named it.
pub fn library() -> &'static [u8] {
    LIBRARY.get().map_or(b"libcenote_posix.so", |path| path)
}

fn find_library() {
    // SAFETY: zeros are valid; any address may be asked about.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(begin as *const libc::c_void, &raw mut info) != 0 && !info.dli_fname.is_null() {
            let _ = LIBRARY.set(CStr::from_ptr(info.dli_fname).to_bytes().to_vec());
        }
    }
}

extern "C" fn begin() {
    // A loader that runs constructors twice (`dlmopen`) has libraries of its own.
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::Relaxed) || !place::begin() {
        return;
    }
    find_library();
    inside::begin();
    limit::look();
    table::own();
    dispatch::choose();
    signals::begin();
    // SAFETY: this is before any thread of the program.
    if let Err(why) = unsafe { sites::patch() } {
        kernel::say(&format!("{} is not shown: {why}", String::from_utf8_lossy(&place::place().at)));
        return;
    }
    handoff::read();
    fork::begin();
}
