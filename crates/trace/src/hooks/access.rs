//! Reading, writing, seeking, syncing.

use std::ffi::{c_int, c_void};

use cenote_tally::{Access, Descriptor, Tally};
use libc::{iovec, off_t, size_t, ssize_t};

use crate::{kernel, tracer};

/// Makes an access and counts it.
#[inline]
fn seen(fd: c_int, is_write: bool, bytes: usize, at: Option<off_t>, call: impl FnOnce() -> ssize_t) -> ssize_t {
    match tracer::descriptor(fd) {
        None => call(),
        Some((tally, descriptor)) => counted(tally, descriptor, is_write, bytes, at, call),
    }
}

#[inline]
fn counted(
    tally: &Tally,
    descriptor: &Descriptor,
    is_write: bool,
    bytes: usize,
    at: Option<off_t>,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let weight = descriptor.weight(bytes);
    let begin = if weight == 0 { 0 } else { kernel::now_ns() };
    let done = call();
    if done > 0 {
        let now_ns = if weight == 0 { 0 } else { kernel::now_ns() };
        let ns = if weight == 0 { 0 } else { now_ns.saturating_sub(begin) };
        if weight > 0 {
            descriptor.timed(ns);
        }
        let ns = ns * weight;
        let bytes = done as u64;
        let offset = at.map_or_else(|| descriptor.position(), |at| at as u64);
        if at.is_none() {
            descriptor.seek(offset.wrapping_add(bytes));
        }
        tally.access(descriptor, &Access { is_write, offset, bytes, ns, now_ns, count: 1 }, tracer::is_alone());
    }
    done
}

/// Sum of the pieces' lengths.
///
/// # Safety
/// If `count` is plausible, that many pieces exist; otherwise nothing is read.
unsafe fn sum(pieces: *const iovec, count: c_int) -> usize {
    if pieces.is_null() || !(0..=1024).contains(&count) {
        return 0;
    }
    // SAFETY: the caller's promise; the call itself reads them too.
    unsafe { std::slice::from_raw_parts(pieces, count as usize) }.iter().map(|piece| piece.iov_len).sum()
}

/// The offset, unless it is -1, which stands for the descriptor's own position.
fn explicit(at: off_t) -> Option<off_t> {
    (at != -1).then_some(at)
}

hooks! {
    fn read(fd: c_int, to: *mut c_void, len: size_t) -> ssize_t {
        seen(fd, false, len, None, || real!(read: fn(fd => c_int, to => *mut c_void, len => size_t) -> ssize_t))
    }
    fn __read_chk(fd: c_int, to: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        seen(fd, false, len, None, || {
            real!(__read_chk: fn(fd => c_int, to => *mut c_void, len => size_t, room => size_t) -> ssize_t)
        })
    }
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
        seen(fd, true, len, None, || real!(write: fn(fd => c_int, from => *const c_void, len => size_t) -> ssize_t))
    }
    fn pread(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        seen(fd, false, len, Some(at), || {
            real!(pread: fn(fd => c_int, to => *mut c_void, len => size_t, at => off_t) -> ssize_t)
        })
    }
    fn pread64(fd: c_int, to: *mut c_void, len: size_t, at: off_t) -> ssize_t {
        seen(fd, false, len, Some(at), || {
            real!(pread64: fn(fd => c_int, to => *mut c_void, len => size_t, at => off_t) -> ssize_t)
        })
    }
    fn __pread_chk(fd: c_int, to: *mut c_void, len: size_t, at: off_t, room: size_t) -> ssize_t {
        seen(fd, false, len, Some(at), || {
            real!(__pread_chk: fn(fd => c_int, to => *mut c_void, len => size_t, at => off_t, room => size_t) -> ssize_t)
        })
    }
    fn __pread64_chk(fd: c_int, to: *mut c_void, len: size_t, at: off_t, room: size_t) -> ssize_t {
        seen(fd, false, len, Some(at), || {
            real!(__pread64_chk: fn(fd => c_int, to => *mut c_void, len => size_t, at => off_t, room => size_t) -> ssize_t)
        })
    }
    fn pwrite(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
        seen(fd, true, len, Some(at), || {
            real!(pwrite: fn(fd => c_int, from => *const c_void, len => size_t, at => off_t) -> ssize_t)
        })
    }
    fn pwrite64(fd: c_int, from: *const c_void, len: size_t, at: off_t) -> ssize_t {
        seen(fd, true, len, Some(at), || {
            real!(pwrite64: fn(fd => c_int, from => *const c_void, len => size_t, at => off_t) -> ssize_t)
        })
    }
    fn readv(fd: c_int, to: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, false, unsafe { sum(to, count) }, None, || {
            real!(readv: fn(fd => c_int, to => *const iovec, count => c_int) -> ssize_t)
        })
    }
    fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, true, unsafe { sum(from, count) }, None, || {
            real!(writev: fn(fd => c_int, from => *const iovec, count => c_int) -> ssize_t)
        })
    }
    fn preadv(fd: c_int, to: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, false, unsafe { sum(to, count) }, Some(at), || {
            real!(preadv: fn(fd => c_int, to => *const iovec, count => c_int, at => off_t) -> ssize_t)
        })
    }
    fn preadv64(fd: c_int, to: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, false, unsafe { sum(to, count) }, Some(at), || {
            real!(preadv64: fn(fd => c_int, to => *const iovec, count => c_int, at => off_t) -> ssize_t)
        })
    }
    fn pwritev(fd: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, true, unsafe { sum(from, count) }, Some(at), || {
            real!(pwritev: fn(fd => c_int, from => *const iovec, count => c_int, at => off_t) -> ssize_t)
        })
    }
    fn pwritev64(fd: c_int, from: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, true, unsafe { sum(from, count) }, Some(at), || {
            real!(pwritev64: fn(fd => c_int, from => *const iovec, count => c_int, at => off_t) -> ssize_t)
        })
    }
    fn preadv2(fd: c_int, to: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, false, unsafe { sum(to, count) }, explicit(at), || {
            real!(preadv2: fn(fd => c_int, to => *const iovec, count => c_int, at => off_t, flags => c_int) -> ssize_t)
        })
    }
    fn preadv64v2(fd: c_int, to: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, false, unsafe { sum(to, count) }, explicit(at), || {
            real!(preadv64v2: fn(fd => c_int, to => *const iovec, count => c_int, at => off_t, flags => c_int) -> ssize_t)
        })
    }
    fn pwritev2(fd: c_int, from: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, true, unsafe { sum(from, count) }, explicit(at), || {
            real!(pwritev2: fn(fd => c_int, from => *const iovec, count => c_int, at => off_t, flags => c_int) -> ssize_t)
        })
    }
    fn pwritev64v2(fd: c_int, from: *const iovec, count: c_int, at: off_t, flags: c_int) -> ssize_t {
        // SAFETY: the caller's pieces.
        seen(fd, true, unsafe { sum(from, count) }, explicit(at), || {
            real!(pwritev64v2: fn(fd => c_int, from => *const iovec, count => c_int, at => off_t, flags => c_int) -> ssize_t)
        })
    }
    fn copy_file_range(from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: u32) -> ssize_t {
        // SAFETY: the caller's own offsets, read before the call changes them.
        let (reads_at, writes_at) = unsafe { (from_at.as_ref().copied(), to_at.as_ref().copied()) };
        both(from, reads_at, to, writes_at, || {
            real!(copy_file_range: fn(from => c_int, from_at => *mut off_t, to => c_int, to_at => *mut off_t,
                len => size_t, flags => u32) -> ssize_t)
        })
    }
    fn sendfile(to: c_int, from: c_int, from_at: *mut off_t, len: size_t) -> ssize_t {
        // SAFETY: as above.
        let reads_at = unsafe { from_at.as_ref().copied() };
        both(from, reads_at, to, None, || {
            real!(sendfile: fn(to => c_int, from => c_int, from_at => *mut off_t, len => size_t) -> ssize_t)
        })
    }
    fn sendfile64(to: c_int, from: c_int, from_at: *mut off_t, len: size_t) -> ssize_t {
        // SAFETY: as above.
        let reads_at = unsafe { from_at.as_ref().copied() };
        both(from, reads_at, to, None, || {
            real!(sendfile64: fn(to => c_int, from => c_int, from_at => *mut off_t, len => size_t) -> ssize_t)
        })
    }
    fn lseek(fd: c_int, at: off_t, whence: c_int) -> off_t {
        sought(fd, real!(lseek: fn(fd => c_int, at => off_t, whence => c_int) -> off_t))
    }
    fn lseek64(fd: c_int, at: off_t, whence: c_int) -> off_t {
        sought(fd, real!(lseek64: fn(fd => c_int, at => off_t, whence => c_int) -> off_t))
    }
    fn fsync(fd: c_int) -> c_int {
        synced(fd, || real!(fsync: fn(fd => c_int) -> c_int))
    }
    fn fdatasync(fd: c_int) -> c_int {
        synced(fd, || real!(fdatasync: fn(fd => c_int) -> c_int))
    }
    fn ftruncate(fd: c_int, len: off_t) -> c_int {
        took(fd, || real!(ftruncate: fn(fd => c_int, len => off_t) -> c_int))
    }
    fn ftruncate64(fd: c_int, len: off_t) -> c_int {
        took(fd, || real!(ftruncate64: fn(fd => c_int, len => off_t) -> c_int))
    }
}

/// Counts a copy inside the kernel: half of the time as reading, half as writing.
fn both(
    from: c_int,
    from_at: Option<off_t>,
    to: c_int,
    to_at: Option<off_t>,
    call: impl FnOnce() -> ssize_t,
) -> ssize_t {
    let (reader, writer) = (tracer::descriptor(from), tracer::descriptor(to));
    if reader.is_none() && writer.is_none() {
        return call();
    }
    let begin = kernel::now_ns();
    let done = call();
    let now_ns = kernel::now_ns();
    if done > 0 {
        for (side, at, is_write) in [(reader, from_at, false), (writer, to_at, true)] {
            let Some((tally, descriptor)) = side else { continue };
            let offset = at.map_or_else(|| descriptor.position(), |at| at as u64);
            if at.is_none() {
                descriptor.seek(offset.wrapping_add(done as u64));
            }
            let ns = now_ns.saturating_sub(begin) / 2;
            tally.access(
                descriptor,
                &Access { is_write, offset, bytes: done as u64, ns, now_ns, count: 1 },
                tracer::is_alone(),
            );
        }
    }
    done
}

fn sought(fd: c_int, at: off_t) -> off_t {
    if at >= 0
        && let Some((_, descriptor)) = tracer::descriptor(fd)
    {
        descriptor.seek(at as u64);
    }
    at
}

fn synced(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some((tally, descriptor)) = tracer::descriptor(fd) else { return call() };
    let begin = kernel::now_ns();
    let done = call();
    if let Some(slot) = descriptor.slot() {
        tally.files[slot].synced(kernel::now_ns().saturating_sub(begin));
    }
    done
}

fn took(fd: c_int, call: impl FnOnce() -> c_int) -> c_int {
    let Some((tally, descriptor)) = tracer::descriptor(fd) else { return call() };
    let begin = kernel::now_ns();
    let done = call();
    if let Some(slot) = descriptor.slot() {
        tally.files[slot].took(kernel::now_ns().saturating_sub(begin));
    }
    done
}
