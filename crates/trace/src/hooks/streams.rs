//! C streams. The C library makes their system calls itself, past every hook: reads and writes are counted here, as
//! accesses of the size of their buffer. Bytes moved by formatted output and single characters are found when the
//! stream is closed.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};

use libc::{FILE, off_t, size_t};

use crate::{files, kernel, tracer};

fn descriptor(stream: *mut FILE) -> c_int {
    let _errno = kernel::Errno::keep();
    // SAFETY: the caller's stream, which is open.
    unsafe { libc::fileno(stream) }
}

/// Registers an opened stream, and returns it.
///
/// # Safety
/// `mode` ends with a zero byte.
unsafe fn opened(stream: *mut FILE, mode: *const c_char, begin: u64) -> *mut FILE {
    if stream.is_null() || tracer::tally().is_none() {
        return stream;
    }
    // SAFETY: the caller's promise; the C library has just read it.
    let mode = unsafe { CStr::from_ptr(mode) }.to_bytes();
    let flags = match mode.first() {
        Some(b'w') => libc::O_CREAT | libc::O_TRUNC,
        Some(b'a') => libc::O_CREAT | libc::O_APPEND,
        _ => 0,
    };
    let fd = descriptor(stream);
    files::opened(fd, flags, kernel::now_ns().saturating_sub(begin));
    if let Some((_, counted)) = tracer::descriptor(fd) {
        counted.set_streamed();
    }
    stream
}

/// Counts the bytes moved through a stream.
#[inline]
fn moved(stream: *mut FILE, is_write: bool, size: size_t, call: impl FnOnce() -> size_t) -> size_t {
    if tracer::descriptors().is_empty() || stream.is_null() {
        return call();
    }
    let fd = descriptor(stream);
    let Some((tally, counted)) = tracer::descriptor(fd) else { return call() };
    let weight = counted.weight(0);
    let begin = if weight == 0 { 0 } else { kernel::now_ns() };
    let done = call();
    let ns = if weight == 0 { 0 } else { kernel::now_ns().saturating_sub(begin) };
    if weight > 0 {
        counted.timed(ns);
    }
    files::buffered(tally, counted, is_write, (done * size) as u64, ns * weight);
    done
}

/// Records the new position of a stream.
fn sought(stream: *mut FILE, done: c_int) -> c_int {
    if done == 0 && !tracer::descriptors().is_empty() {
        let fd = descriptor(stream);
        if let Some((_, counted)) = tracer::descriptor(fd) {
            let _errno = kernel::Errno::keep();
            // SAFETY: the caller's stream, which is open.
            if let Ok(at) = u64::try_from(unsafe { libc::ftello(stream) }) {
                counted.seek(at);
            }
        }
    }
    done
}

hooks! {
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let begin = kernel::now_ns();
        let stream = real!(fopen: fn(path => *const c_char, mode => *const c_char) -> *mut FILE);
        // SAFETY: the caller's mode.
        unsafe { opened(stream, mode, begin) }
    }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        let begin = kernel::now_ns();
        let stream = real!(fopen64: fn(path => *const c_char, mode => *const c_char) -> *mut FILE);
        // SAFETY: the caller's mode.
        unsafe { opened(stream, mode, begin) }
    }
    fn freopen(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
        leave(old);
        let begin = kernel::now_ns();
        let stream = real!(freopen: fn(path => *const c_char, mode => *const c_char, old => *mut FILE) -> *mut FILE);
        // SAFETY: the caller's mode.
        unsafe { opened(stream, mode, begin) }
    }
    fn freopen64(path: *const c_char, mode: *const c_char, old: *mut FILE) -> *mut FILE {
        leave(old);
        let begin = kernel::now_ns();
        let stream = real!(freopen64: fn(path => *const c_char, mode => *const c_char, old => *mut FILE) -> *mut FILE);
        // SAFETY: the caller's mode.
        unsafe { opened(stream, mode, begin) }
    }
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        let stream = real!(fdopen: fn(fd => c_int, mode => *const c_char) -> *mut FILE);
        if !stream.is_null() && let Some((_, counted)) = tracer::descriptor(fd) {
            counted.set_streamed();
        }
        stream
    }
    fn tmpfile() -> *mut FILE {
        let begin = kernel::now_ns();
        let stream = real!(tmpfile: fn() -> *mut FILE);
        // SAFETY: a mode that ends with a zero byte.
        unsafe { opened(stream, c"w".as_ptr(), begin) }
    }
    fn tmpfile64() -> *mut FILE {
        let begin = kernel::now_ns();
        let stream = real!(tmpfile64: fn() -> *mut FILE);
        // SAFETY: a mode that ends with a zero byte.
        unsafe { opened(stream, c"w".as_ptr(), begin) }
    }
    fn fclose(stream: *mut FILE) -> c_int {
        let known = leave(stream);
        let begin = kernel::now_ns();
        let done = real!(fclose: fn(stream => *mut FILE) -> c_int);
        if let Some((tally, slot)) = known {
            tally.files[slot].took(kernel::now_ns().saturating_sub(begin));
        }
        done
    }
    fn fread(to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        moved(stream, false, size, || {
            real!(fread: fn(to => *mut c_void, size => size_t, count => size_t, stream => *mut FILE) -> size_t)
        })
    }
    fn fread_unlocked(to: *mut c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        moved(stream, false, size, || {
            real!(fread_unlocked: fn(to => *mut c_void, size => size_t, count => size_t, stream => *mut FILE) -> size_t)
        })
    }
    fn __fread_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        moved(stream, false, size, || {
            real!(__fread_chk: fn(to => *mut c_void, room => size_t, size => size_t, count => size_t,
                stream => *mut FILE) -> size_t)
        })
    }
    fn __fread_unlocked_chk(to: *mut c_void, room: size_t, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        moved(stream, false, size, || {
            real!(__fread_unlocked_chk: fn(to => *mut c_void, room => size_t, size => size_t, count => size_t,
                stream => *mut FILE) -> size_t)
        })
    }
    fn fwrite(from: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        moved(stream, true, size, || {
            real!(fwrite: fn(from => *const c_void, size => size_t, count => size_t, stream => *mut FILE) -> size_t)
        })
    }
    fn fwrite_unlocked(from: *const c_void, size: size_t, count: size_t, stream: *mut FILE) -> size_t {
        moved(stream, true, size, || {
            real!(fwrite_unlocked: fn(from => *const c_void, size => size_t, count => size_t, stream => *mut FILE)
                -> size_t)
        })
    }
    fn fseek(stream: *mut FILE, at: c_long, whence: c_int) -> c_int {
        sought(stream, real!(fseek: fn(stream => *mut FILE, at => c_long, whence => c_int) -> c_int))
    }
    fn fseeko(stream: *mut FILE, at: off_t, whence: c_int) -> c_int {
        sought(stream, real!(fseeko: fn(stream => *mut FILE, at => off_t, whence => c_int) -> c_int))
    }
    fn fseeko64(stream: *mut FILE, at: off_t, whence: c_int) -> c_int {
        sought(stream, real!(fseeko64: fn(stream => *mut FILE, at => off_t, whence => c_int) -> c_int))
    }
}

/// Handles a stream that is about to be closed: flushes it first, as closing would, to see how many bytes it held.
fn leave(stream: *mut FILE) -> Option<(&'static cenote_tally::Tally, usize)> {
    if stream.is_null() || tracer::descriptors().is_empty() {
        return None;
    }
    let fd = descriptor(stream);
    let counted = tracer::any_descriptor(fd)?;
    counted.slot()?;
    if counted.is_streamed() {
        let _errno = kernel::Errno::keep();
        // SAFETY: the caller's stream, which is open. Input streams are left as they are.
        unsafe {
            if __fwriting(stream) != 0 {
                libc::fflush(stream);
            }
        }
    }
    files::closing(fd)
}

unsafe extern "C" {
    fn __fwriting(stream: *mut FILE) -> c_int;
}
