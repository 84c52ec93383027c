//! Advisory locks: those of `cenote-posix`, which hold between all preloaded programs, mounts and others on this
//! machine, and which the kernel keeps. So they end with their process, and deadlocks are detected.

use std::sync::atomic::{AtomicBool, Ordering};

use posix::{File, LockKind, LockOwner, LockRange, LockWait};

use super::{Answer, Result, put, value};
use crate::description::{Description, errno};
use crate::{inside, table};

/// This process took POSIX locks of its own, which it loses when it closes any descriptor of the locked file.
static HAS_OWN: AtomicBool = AtomicBool::new(false);

/// The program before `exec` left such locks.
pub fn note_own() {
    HAS_OWN.store(true, Ordering::Relaxed);
}

/// Keeps the number of the descriptor that is opened for an open file's first lock: moving it would close it, and lose
/// the locks.
fn without_moving(file: &File) -> Option<inside::Staying> {
    let mut is_there = !HAS_OWN.load(Ordering::Relaxed);
    file.lock_descriptor(LockOwner::File, &mut |_| is_there = true);
    (!is_there).then(inside::Staying::begin)
}

/// Runs a lock call that may wait in the kernel. Signal handlers that run meanwhile are the program's, so no operation
/// of this library is in progress then.
fn wait(lock: impl Fn(LockWait<'_>) -> posix::FsResult<()>, waits: bool) -> Result {
    let outside = |call: &mut dyn FnMut()| {
        let _locking = inside::Locking::begin();
        inside::Inside::outside(call);
    };
    let wait = if waits { LockWait::Within(&outside) } else { LockWait::No };
    lock(wait).map(|()| 0).map_err(errno)
}

/// `flock`.
pub fn flock(fd: i32, operation: i32) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let lock = || {
        let kind = match operation & !libc::LOCK_NB {
            libc::LOCK_SH => Some(LockKind::Shared),
            libc::LOCK_EX => Some(LockKind::Exclusive),
            libc::LOCK_UN => None,
            _ => return Err(libc::EINVAL),
        };
        let file = open.file_or(libc::ENOLCK)?;
        let _low = without_moving(file);
        wait(|wait| file.flock(LockOwner::File, kind, wait), operation & libc::LOCK_NB == 0)
    };
    lock().into()
}

/// Locks of ranges by `fcntl`.
pub fn fcntl(open: &Description, command: i32, argument: u64) -> Answer {
    let lock = || {
        let file = open.file_or(libc::EBADF)?;
        let asked: libc::flock = value(argument)?;
        let of_file = matches!(command, libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW);
        if of_file && asked.l_pid != 0 {
            return Err(libc::EINVAL);
        }
        let owner = if of_file { LockOwner::File } else { LockOwner::Process };
        let kind = match i32::from(asked.l_type) {
            libc::F_RDLCK => Some(LockKind::Shared),
            libc::F_WRLCK => Some(LockKind::Exclusive),
            libc::F_UNLCK => None,
            _ => return Err(libc::EINVAL),
        };
        let range = range(open, &asked)?;
        let _low = if of_file { without_moving(file) } else { None };
        HAS_OWN.fetch_or(!of_file, Ordering::Relaxed);
        if matches!(command, libc::F_GETLK | libc::F_OFD_GETLK) {
            return tell(file, owner, kind.ok_or(libc::EINVAL)?, range, (argument, asked));
        }
        let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW);
        wait(|wait| file.lock(owner, kind, range, wait), waits)
    };
    lock().into()
}

/// `F_GETLK`: returns the conflicting lock, or that there is none.
fn tell(file: &File, owner: LockOwner, kind: LockKind, range: LockRange, (at, mut told): (u64, libc::flock)) -> Result {
    match file.lock_in_the_way(owner, kind, range).map_err(errno)? {
        None => told.l_type = libc::F_UNLCK as i16,
        Some(held) => {
            told.l_type = if held.kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK } as i16;
            told.l_whence = libc::SEEK_SET as i16;
            (told.l_start, told.l_len) = (held.range.start as i64, held.range.len as i64);
            // As the kernel reports locks of processes of other machines: with a negative number.
            let sign = if held.is_elsewhere { -1 } else { 1 };
            told.l_pid = held.pid.map_or(-1, |pid| sign * pid as i32);
        }
    }
    put(at, told)?;
    Ok(0)
}

/// The byte range of a lock request.
fn range(open: &Description, asked: &libc::flock) -> Result<LockRange> {
    let from = match i32::from(asked.l_whence) {
        libc::SEEK_SET => 0,
        libc::SEEK_CUR => open.with_offset(|offset| *offset as i64),
        libc::SEEK_END => open.attr()?.size_bytes as i64,
        _ => return Err(libc::EINVAL),
    };
    let first = from.checked_add(asked.l_start).ok_or(libc::EOVERFLOW)?;
    // A negative length means the bytes before.
    let first = if asked.l_len < 0 { first.checked_add(asked.l_len).ok_or(libc::EINVAL)? } else { first };
    let start = u64::try_from(first).map_err(|_| libc::EINVAL)?;
    Ok(LockRange { start, len: asked.l_len.unsigned_abs() })
}

/// Handles a descriptor that is about to be closed: releases the process's range locks in that file, as POSIX requires.
pub fn closing(open: &Description) {
    // A child of `vfork` has its parent's memory, but none of its locks.
    if HAS_OWN.load(Ordering::Relaxed)
        && table::is_of_this_process()
        && let Some(file) = open.opened()
    {
        file.closed_by(LockOwner::Process);
    }
}
