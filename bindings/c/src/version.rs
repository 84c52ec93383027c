//! Which version of the interface this is.

use std::ffi::c_char;

/// Version of this interface. Raised when a function, a type or its meaning changes; added functions do not raise it.
pub const CENOTE_ABI_VERSION: u32 = 1;

/// The version of the interface that the library was built with: compare it with `CENOTE_ABI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_abi_version() -> u32 {
    CENOTE_ABI_VERSION
}

/// The version of the library, for people, such as "0.1.0". Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
