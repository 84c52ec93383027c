//! Deleting and renaming.

use std::ffi::{c_char, c_int, c_uint};

use crate::files;

/// Deletes a name, and records it for the file that had it.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn deleted(dir: c_int, path: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let was = files::named(dir, path);
        let done = call();
        if done == 0
            && let Some(was) = was
        {
            files::lost(&was, dir, path, true);
        }
        done
    }
}

/// Renames a file.
///
/// # Safety
/// `to` ends with a zero byte.
unsafe fn renamed(dir: c_int, to: *const c_char, call: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let was = files::named(dir, to);
        let done = call();
        if done == 0 {
            if let Some(was) = was {
                files::lost(&was, dir, to, false);
            }
            files::renamed(dir, to);
        }
        done
    }
}

hooks! {
    fn unlink(path: *const c_char) -> c_int {
        // SAFETY: the caller's path.
        unsafe { deleted(libc::AT_FDCWD, path, || real!(unlink: fn(path => *const c_char) -> c_int)) }
    }
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        let call = || real!(unlinkat: fn(dir => c_int, path => *const c_char, flags => c_int) -> c_int);
        // SAFETY: the caller's path.
        if flags == 0 { unsafe { deleted(dir, path, call) } } else { call() }
    }
    fn remove(path: *const c_char) -> c_int {
        // SAFETY: the caller's path.
        unsafe { deleted(libc::AT_FDCWD, path, || real!(remove: fn(path => *const c_char) -> c_int)) }
    }
    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        // SAFETY: the caller's paths.
        unsafe { renamed(libc::AT_FDCWD, to, || real!(rename: fn(from => *const c_char, to => *const c_char) -> c_int)) }
    }
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
        // SAFETY: the caller's paths.
        unsafe {
            renamed(to_dir, to, || {
                real!(renameat: fn(from_dir => c_int, from => *const c_char, to_dir => c_int, to => *const c_char) -> c_int)
            })
        }
    }
    fn renameat2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int {
        let call = || {
            real!(renameat2: fn(from_dir => c_int, from => *const c_char, to_dir => c_int, to => *const c_char,
                flags => c_uint) -> c_int)
        };
        // SAFETY: the caller's paths. An exchange loses no file.
        if flags & libc::RENAME_EXCHANGE == 0 { unsafe { renamed(to_dir, to, call) } } else { call() }
    }
}
