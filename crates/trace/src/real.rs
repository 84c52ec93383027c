//! The intercepted functions' originals.

use std::ffi::{CStr, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

/// Calls the next function of that name, which is looked up once.
macro_rules! real {
    ($name:ident: fn($($arg:expr => $kind:ty),*) -> $ret:ty) => {{
        static AT: std::sync::atomic::AtomicPtr<std::ffi::c_void> =
            std::sync::atomic::AtomicPtr::new(std::ptr::null_mut());
        const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(name) => name,
            Err(_) => panic!("a name without zeros"),
        };
        let at = $crate::real::next(&AT, NAME);
        // SAFETY: the C library's function of this name has this type; arguments are the caller's own.
        unsafe { std::mem::transmute::<*mut std::ffi::c_void, unsafe extern "C" fn($($kind),*) -> $ret>(at)($($arg),*) }
    }};
}

/// The address of the next function of that name.
#[inline]
pub fn next(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let known = at.load(Relaxed);
    if known.is_null() { look_up(at, name) } else { known }
}

#[cold]
fn look_up(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: a plain look-up by a name that ends with a zero byte.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // The program calls a function that its C library lacks: without this library it would not have started
        // either.
        // SAFETY: ends the process, as the run-time linker would have.
        unsafe { libc::abort() };
    }
    at.store(found, Relaxed);
    found
}
