//! Opening, closing and duplicating descriptors, mapping files. Where a C function takes a mode only sometimes, the
//! hook always passes it on: a missing argument is a stale register value, which the function then ignores.

use std::ffi::{c_char, c_int, c_uint};

use libc::mode_t;

use crate::{files, kernel, tracer};

fn timed(flags: c_int, call: impl FnOnce() -> c_int) -> c_int {
    if tracer::tally().is_none() {
        return call();
    }
    let begin = kernel::now_ns();
    let fd = call();
    files::opened(fd, flags, kernel::now_ns().saturating_sub(begin));
    fd
}

const CREAT: c_int = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC;

hooks! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        timed(flags, || real!(open: fn(path => *const c_char, flags => c_int, mode => mode_t) -> c_int))
    }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        timed(flags, || real!(open64: fn(path => *const c_char, flags => c_int, mode => mode_t) -> c_int))
    }
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        timed(flags, || real!(openat: fn(dir => c_int, path => *const c_char, flags => c_int, mode => mode_t) -> c_int))
    }
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        timed(flags, || real!(openat64: fn(dir => c_int, path => *const c_char, flags => c_int, mode => mode_t) -> c_int))
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        timed(flags, || real!(__open_2: fn(path => *const c_char, flags => c_int) -> c_int))
    }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        timed(flags, || real!(__open64_2: fn(path => *const c_char, flags => c_int) -> c_int))
    }
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        timed(flags, || real!(__openat_2: fn(dir => c_int, path => *const c_char, flags => c_int) -> c_int))
    }
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        timed(flags, || real!(__openat64_2: fn(dir => c_int, path => *const c_char, flags => c_int) -> c_int))
    }
    fn creat(path: *const c_char, mode: mode_t) -> c_int {
        timed(CREAT, || real!(creat: fn(path => *const c_char, mode => mode_t) -> c_int))
    }
    fn creat64(path: *const c_char, mode: mode_t) -> c_int {
        timed(CREAT, || real!(creat64: fn(path => *const c_char, mode => mode_t) -> c_int))
    }
    fn mkstemp(template: *mut c_char) -> c_int {
        timed(libc::O_RDWR | libc::O_CREAT, || real!(mkstemp: fn(template => *mut c_char) -> c_int))
    }
    fn mkstemp64(template: *mut c_char) -> c_int {
        timed(libc::O_RDWR | libc::O_CREAT, || real!(mkstemp64: fn(template => *mut c_char) -> c_int))
    }
    fn mkostemp(template: *mut c_char, flags: c_int) -> c_int {
        timed(libc::O_RDWR | libc::O_CREAT, || real!(mkostemp: fn(template => *mut c_char, flags => c_int) -> c_int))
    }
    fn mkostemp64(template: *mut c_char, flags: c_int) -> c_int {
        timed(libc::O_RDWR | libc::O_CREAT, || real!(mkostemp64: fn(template => *mut c_char, flags => c_int) -> c_int))
    }
    fn close(fd: c_int) -> c_int {
        let Some((tally, slot)) = files::closing(fd) else { return real!(close: fn(fd => c_int) -> c_int) };
        let begin = kernel::now_ns();
        let done = real!(close: fn(fd => c_int) -> c_int);
        tally.files[slot].took(kernel::now_ns().saturating_sub(begin));
        done
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        const CLOEXEC: c_int = 4;
        if flags & CLOEXEC == 0 && !tracer::is_borrowed() {
            for fd in first as usize..tracer::descriptors().len().min((last as usize).saturating_add(1)) {
                tracer::set_descriptor(fd as c_int, None);
            }
        }
        real!(close_range: fn(first => c_uint, last => c_uint, flags => c_int) -> c_int)
    }
    fn dup(fd: c_int) -> c_int {
        let new = real!(dup: fn(fd => c_int) -> c_int);
        files::duplicated(fd, new);
        new
    }
    fn dup2(fd: c_int, to: c_int) -> c_int {
        let new = real!(dup2: fn(fd => c_int, to => c_int) -> c_int);
        files::duplicated(fd, new);
        new
    }
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        let new = real!(dup3: fn(fd => c_int, to => c_int, flags => c_int) -> c_int);
        files::duplicated(fd, new);
        new
    }
    fn fcntl(fd: c_int, command: c_int, more: usize) -> c_int {
        let done = real!(fcntl: fn(fd => c_int, command => c_int, more => usize) -> c_int);
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            files::duplicated(fd, done);
        }
        done
    }
    fn fcntl64(fd: c_int, command: c_int, more: usize) -> c_int {
        let done = real!(fcntl64: fn(fd => c_int, command => c_int, more => usize) -> c_int);
        if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) {
            files::duplicated(fd, done);
        }
        done
    }
}
