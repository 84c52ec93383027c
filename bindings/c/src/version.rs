//! Version of the interface.

use std::ffi::c_char;

use cenote::{Error, ErrorKind};

use crate::abi::guard;
use crate::error::cenote_error_t;

/// Version of this interface. Raised when a function, a type or its meaning changes; added functions do not raise it.
pub const CENOTE_ABI_VERSION: u32 = 1;

/// Returns the version of the interface that the library was built with: compare it with `CENOTE_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_abi_version() -> u32 {
    CENOTE_ABI_VERSION
}

/// Fails with `CENOTE_VERSION_MISMATCH` unless the library has this version of the interface. A program calls it once
/// with `CENOTE_ABI_VERSION`, before anything else.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_abi_check(version: u32, error: *mut *mut cenote_error_t) -> i32 {
    guard(error, || {
        if version == CENOTE_ABI_VERSION {
            return Ok(());
        }
        Err(Error::new(ErrorKind::VersionMismatch, "libcenote")
            .because(format!("it has version {CENOTE_ABI_VERSION} of the interface, the program wants {version}"))
            .try_next("compile the program against the header of this library, or run it with its own"))
    })
}

/// Returns the version of the library, for people, such as "0.1.0". Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
