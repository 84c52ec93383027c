//! The start of the library, before the program's first instruction.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{context, dispatch, fork, handoff, inside, kernel, limit, signals, sites, table, threads, users};

#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

/// This library's path, as `LD_PRELOAD` named it.
pub fn library() -> &'static [u8] {
    threads::library().unwrap_or(b"libcenote_posix.so")
}

extern "C" fn begin() {
    // A loader that runs constructors twice (`dlmopen`) loads separate libraries.
    static BEGUN: AtomicBool = AtomicBool::new(false);
    if BEGUN.swap(true, Ordering::Relaxed) {
        return;
    }
    // Interception of C library functions applies in any case.
    users::begin();
    if !context::begin() {
        return;
    }
    threads::begin();
    inside::begin();
    limit::look();
    table::own();
    dispatch::choose();
    signals::begin();
    // SAFETY: this is before any thread of the program.
    if let Err(why) = unsafe { sites::patch() } {
        kernel::say(&format!(
            "{}: the store is not visible to this program: {why}",
            String::from_utf8_lossy(&context::settings().at)
        ));
        return;
    }
    handoff::read();
    fork::begin();
}
