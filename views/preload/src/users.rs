//! Programs that change their user or groups.
//!
//! The C library tells all threads of such a change, by a call whose number stands in memory: it cannot be found in its code
//! ([`crate::sites`]). So its functions are stood
//! before.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use libc::{gid_t, uid_t};

use crate::inside::Inside;
use crate::{context, threads};

/// Connects to the store before the process changes its user. It must connect as its former user: a forked child makes
/// its own connection, which the new user might not be permitted.
pub fn before() {
    let _inside = Inside::enter();
    if let Some(system) = context::known_system() {
        let _ = system.attr(system.root()); // an error here will recur when it matters
    }
}

/// Defines functions that forward their arguments. The C library's functions are looked up at the start, since the
/// look-up waits for the loader.
macro_rules! passed_on {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {
        $(
        #[doc = concat!("As the C library's `", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As that function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> i32 {
            let mut real = real::$name.load(Relaxed);
            if real.is_null() {
                real = find(concat!(stringify!($name), "\0")); // a constructor that runs before this library's
                if real.is_null() {
                    return -1;
                }
            }
            before();
            // SAFETY: the C library's function of that name has this type, and the caller promises what it requires.
            let result = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($kind),*) -> i32>(real)($($argument),*)
            };
            context::forget_caller();
            result
        }
        )*

        /// Addresses of the C library's functions.
        #[allow(non_upper_case_globals, reason = "each has its function's name")]
        mod real {
            use super::{AtomicPtr, c_void};
            $(pub static $name: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());)*
        }

        /// Looks up the C library's functions.
        pub fn begin() {
            $(real::$name.store(find(concat!(stringify!($name), "\0")), Relaxed);)*
        }
    };
}

/// The C library's function of that name, which ends in NUL.
fn find(name: &str) -> *mut c_void {
    CStr::from_bytes_with_nul(name.as_bytes()).map_or(std::ptr::null_mut(), threads::next)
}

passed_on! {
    setuid(uid: uid_t);
    seteuid(uid: uid_t);
    setreuid(real: uid_t, effective: uid_t);
    setresuid(real: uid_t, effective: uid_t, saved: uid_t);
    setgid(gid: gid_t);
    setegid(gid: gid_t);
    setregid(real: gid_t, effective: gid_t);
    setresgid(real: gid_t, effective: gid_t, saved: gid_t);
    setgroups(count: usize, groups: *const gid_t);
    initgroups(user: *const c_char, group: gid_t);
}
