//! Maps descriptors and paths to the counted files.

use std::ffi::{c_char, c_int};

use cenote_tally::{Access, Descriptor, Tally, file_flag};

use crate::{kernel, tracer};

/// Buffer size of C streams.
const BUFFER_BYTES: u64 = 4096;
/// Longest path examined.
const PATH_BYTES: usize = 1024;

fn key_of(stat: &libc::stat) -> u64 {
    // Two numbers in one word: the rare result in 2^64 that is 0 or the mark of deleted files is moved.
    (stat.st_ino ^ stat.st_dev.rotate_left(40)).clamp(1, u64::MAX - 1)
}

fn is_regular(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// Counts the opening of a descriptor.
pub fn opened(fd: c_int, flags: c_int, ns: u64) {
    if fd < 0 || tracer::is_borrowed() {
        return;
    }
    let _errno = kernel::Errno::keep();
    let found = tracer::tally().and_then(|tally| {
        let stat = kernel::stat_of(fd).filter(is_regular)?;
        Some((tally, slot_of(tally, fd, &stat)?, stat))
    });
    let Some((tally, slot, stat)) = found else { return tracer::set_descriptor(fd, None) };
    let size_bytes = stat.st_size as u64;
    let marks = [
        (flags & libc::O_CREAT != 0 && size_bytes == 0, file_flag::CREATED),
        (flags & libc::O_TRUNC != 0, file_flag::TRUNCATED),
        (flags & libc::O_DIRECT != 0, file_flag::DIRECT),
        (flags & (libc::O_DSYNC | libc::O_SYNC) != 0, file_flag::SYNCED),
        // It never has a name.
        (flags & libc::O_TMPFILE == libc::O_TMPFILE, file_flag::CREATED | file_flag::DELETED),
    ];
    let marks = marks.iter().filter(|(is, _)| *is).fold(0, |all, (_, mark)| all | mark);
    tally.files[slot].opened(marks, size_bytes, ns);
    tracer::set_descriptor(fd, Some(slot));
    if flags & libc::O_APPEND != 0
        && let Some(descriptor) = tracer::any_descriptor(fd)
    {
        descriptor.begin_at(size_bytes);
    }
}

/// Registers a descriptor that existed before the program.
pub fn inherited(fd: c_int) {
    // SAFETY: a query only.
    let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) };
    if flags < 0 {
        return;
    }
    opened(fd, flags as c_int & libc::O_APPEND, 0);
    let (Some((tally, descriptor)), Some(position)) = (tracer::descriptor(fd), kernel::position_of(fd)) else { return };
    descriptor.begin_at(descriptor.position().max(position));
    let may_write = flags as c_int & libc::O_ACCMODE != libc::O_RDONLY;
    if may_write
        && let Some(slot) = descriptor.slot()
        && kernel::stat_of(fd).is_some_and(|stat| stat.st_size == 0)
    {
        // A shell has created it, or it is empty, so that nobody could miss its content.
        tally.files[slot].flag(file_flag::CREATED);
    }
}

/// The slot of an open file. A new file gets its path from the kernel; files of the kernel's own file systems are not
/// counted.
fn slot_of(tally: &Tally, fd: c_int, stat: &libc::stat) -> Option<usize> {
    let key = key_of(stat);
    if let Some(slot) = tally.known_file(key) {
        return Some(slot);
    }
    let mut buffer = [0; PATH_BYTES];
    let path = kernel::path_of(fd, &mut buffer)?;
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    new_slot(tally, key, path)
}

fn new_slot(tally: &Tally, key: u64, path: &[u8]) -> Option<usize> {
    let foreign: [&[u8]; 4] = [b"/proc/", b"/sys/", b"/dev/", b"/memfd:"];
    let shared = path.starts_with(b"/dev/shm/");
    if !path.starts_with(b"/") || (!shared && foreign.iter().any(|dir| path.starts_with(dir))) {
        return None;
    }
    if tally.is_crowded() {
        return group_slot(tally, path);
    }
    let (slot, is_new) = tally.file(key)?;
    if is_new {
        tally.files[slot].set_name(path);
    }
    Some(slot)
}

/// The slot of all files of the same directory with the same extension.
fn group_slot(tally: &Tally, path: &[u8]) -> Option<usize> {
    let name_at = path.iter().rposition(|byte| *byte == b'/')? + 1;
    let (dir, name) = path.split_at(name_at);
    let ending = name.iter().rposition(|byte| *byte == b'.').filter(|at| *at > 0).map_or(&b""[..], |at| &name[at..]);
    let mut buffer = [0; PATH_BYTES];
    let len = dir.len() + 1 + ending.len();
    let group = buffer.get_mut(..len)?;
    group[..dir.len()].copy_from_slice(dir);
    group[dir.len()] = b'*';
    group[dir.len() + 1..].copy_from_slice(ending);
    // FNV-1a.
    let hash = group
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let (slot, is_new) = tally.file(hash.clamp(1, u64::MAX - 1))?;
    if is_new {
        tally.files[slot].set_name(group);
        tally.files[slot].flag(file_flag::GROUP);
    }
    Some(slot)
}

/// Handles a descriptor that is about to be closed; returns where to count the duration.
pub fn closing(fd: c_int) -> Option<(&'static Tally, usize)> {
    let descriptor = tracer::any_descriptor(fd)?;
    let slot = descriptor.slot()?;
    if tracer::is_borrowed() {
        return None;
    }
    if descriptor.is_streamed() {
        stream_ends(fd, descriptor);
    }
    descriptor.set(None);
    // A child that only closes what it inherited needs no tally of its own.
    Some((tracer::own_tally()?, slot))
}

/// Handles the duplication of a descriptor.
pub fn duplicated(from: c_int, to: c_int) {
    if to >= 0 && from != to && !tracer::is_borrowed() {
        tracer::copy_descriptor(from, to);
    }
}

/// Counts bytes that went through the buffer of a C stream.
pub fn buffered(tally: &Tally, descriptor: &Descriptor, is_write: bool, bytes: u64, ns: u64) {
    descriptor.set_streamed();
    if let Some(slot) = descriptor.slot() {
        tally.files[slot].flag(file_flag::STREAMED);
        if ns > 0 {
            // It does not matter which of many small calls was timed: only the sum counts.
            tally.files[slot].access_time(is_write, ns);
        }
    }
    let due = descriptor.buffered(bytes, BUFFER_BYTES);
    if due > 0 {
        count(tally, descriptor, is_write, due, 1);
    }
}

fn count(tally: &Tally, descriptor: &Descriptor, is_write: bool, bytes: u64, accesses: u64) {
    let offset = descriptor.position();
    descriptor.seek(offset + bytes);
    let now_ns = kernel::coarse_ns();
    tally.access(descriptor, &Access { is_write, offset, bytes, ns: 0, now_ns, count: accesses }, tracer::is_alone());
}

/// Counts accesses of C streams that no hook saw (`fprintf`, `getc`, ...), from the descriptor's position.
pub fn stream_ends(fd: c_int, descriptor: &Descriptor) {
    let _errno = kernel::Errno::keep();
    let Some(tally) = tracer::tally() else { return };
    let Some(position) = kernel::position_of(fd) else { return };
    let unseen = position.saturating_sub(descriptor.position());
    if unseen > 0 {
        // SAFETY: a query only.
        let flags = unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) } as c_int;
        let is_write = flags & libc::O_ACCMODE == libc::O_WRONLY;
        count(tally, descriptor, is_write, unseen, unseen.div_ceil(BUFFER_BYTES));
    }
}

/// Handles the streams that are still open at the program's end.
pub fn all_streams_end() {
    if tracer::is_borrowed() || tracer::own_tally().is_none() {
        return;
    }
    for (fd, descriptor) in tracer::descriptors().iter().enumerate() {
        if descriptor.slot().is_some() && descriptor.is_streamed() {
            stream_ends(fd as c_int, descriptor);
        }
    }
}

/// The file that a path names, if it can be counted.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn named(dir: c_int, path: *const c_char) -> Option<libc::stat> {
    if tracer::is_borrowed() {
        return None;
    }
    let _errno = kernel::Errno::keep();
    tracer::tally()?;
    // SAFETY: the caller's promise.
    unsafe { kernel::stat_at(dir, path) }.filter(is_regular)
}

/// Handles a file that has lost a name: it was deleted, or another file replaced it.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn lost(stat: &libc::stat, dir: c_int, path: *const c_char, is_deleted: bool) {
    let Some(tally) = tracer::tally() else { return };
    if stat.st_nlink > 1 {
        return;
    }
    let _errno = kernel::Errno::keep();
    let key = key_of(stat);
    let slot = tally.known_file(key).or_else(|| {
        // Somebody else created it. Its deletion is worth a slot as long as there are some.
        let mut buffer = [0; PATH_BYTES];
        // SAFETY: the caller's promise.
        let path = unsafe { absolute(dir, path, &mut buffer)? };
        if is_deleted && !tally.is_crowded() { new_slot(tally, key, path) } else { None }
    });
    if let Some(slot) = slot {
        tally.files[slot].gone(is_deleted);
    }
}

/// Handles a file's new name.
///
/// # Safety
/// `path` ends with a zero byte.
pub unsafe fn renamed(dir: c_int, path: *const c_char) {
    // SAFETY: the caller's promise.
    unsafe {
        let Some(stat) = named(dir, path) else { return };
        let _errno = kernel::Errno::keep();
        let Some(tally) = tracer::tally() else { return };
        let Some(slot) = tally.known_file(key_of(&stat)) else { return };
        let mut buffer = [0; PATH_BYTES];
        if let Some(path) = absolute(dir, path, &mut buffer) {
            tally.files[slot].set_name(path);
        }
    }
}

/// Makes a path absolute.
///
/// # Safety
/// `path` ends with a zero byte.
unsafe fn absolute(dir: c_int, path: *const c_char, buffer: &mut [u8; PATH_BYTES]) -> Option<&[u8]> {
    // SAFETY: the caller's promise.
    let path = unsafe { std::ffi::CStr::from_ptr(path) }.to_bytes();
    let mut len = 0;
    if !path.starts_with(b"/") {
        let base =
            if dir == libc::AT_FDCWD { kernel::working_directory(buffer)? } else { kernel::path_of(dir, buffer)? };
        len = base.len();
        *buffer.get_mut(len)? = b'/';
        len += 1;
    }
    let path = path.strip_prefix(b"./").unwrap_or(path);
    buffer.get_mut(len..len + path.len())?.copy_from_slice(path);
    Some(&buffer[..len + path.len()])
}
