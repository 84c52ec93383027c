//! Descriptors: duplicates, flags, closing.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Answer, Result, locks};
use crate::description::{Description, O_LARGEFILE};
use crate::{inside, kernel, table};

/// Flags that `F_SETFL` can change.
const SETTABLE: i32 = libc::O_APPEND | libc::O_NONBLOCK | libc::O_ASYNC | libc::O_DIRECT | libc::O_NOATIME;
/// `F_LINUX_SPECIFIC_BASE + 4` (Linux 6.12), which the C library still lacks.
const F_CREATED_QUERY: i32 = 1028;
const EBADF: Answer = Answer::Done(-(libc::EBADF as i64));

/// `close`.
pub fn close(fd: i32) -> Answer {
    if inside::is_ours(fd) {
        return EBADF;
    }
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let open = Arc::clone(&open);
    locks::closing(&open);
    drop_one(fd, open)
}

fn drop_one(fd: i32, open: Arc<Description>) -> Answer {
    drop(open);
    table::close(fd).into()
}

/// `close_range`.
pub fn close_range(first: u32, last: u32, flags: i32) -> Answer {
    if first > last {
        return Answer::Done(-i64::from(libc::EINVAL));
    }
    let (low, high) = (first as i32, last.min(table::FDS as u32 - 1) as i32);
    if flags & libc::CLOSE_RANGE_UNSHARE as i32 != 0 {
        let result = kernel::simple(libc::SYS_unshare, &[libc::CLONE_FILES as u64]);
        if result < 0 {
            return Answer::Done(result);
        }
    }
    let just = flags & libc::CLOSE_RANGE_CLOEXEC as i32;
    if just == 0 {
        for (fd, open) in table::all() {
            if (low..=high).contains(&fd) {
                locks::closing(&open);
                drop_one(fd, open);
            }
        }
    }
    // Leaves out this library's own descriptors.
    let mut from = first;
    let ours = (inside::floor()..=high).filter(|fd| *fd >= low && inside::is_ours(*fd)).map(|fd| fd as u32);
    for stop in ours.chain([u32::MAX]) {
        let to = if stop == u32::MAX { last } else { stop.saturating_sub(1) };
        if from <= to && from != stop {
            let result = kernel::simple(libc::SYS_close_range, &[u64::from(from), u64::from(to), just as u64]);
            if result < 0 {
                return Answer::Done(result);
            }
        }
        from = stop.saturating_add(1);
    }
    Answer::Done(0)
}

/// `dup`.
pub fn dup(fd: i32) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    copy(&open, 0, 0)
}

fn copy(open: &Arc<Description>, flags: i32, least: i32) -> Answer {
    let made: Result = table::add(Arc::clone(open), flags, least).map(i64::from);
    made.into()
}

/// `dup2` and `dup3`; `dup2` does nothing if both numbers are the same.
pub fn dup3(from: i32, to: i32, flags: Option<i32>) -> Answer {
    if inside::is_ours(to) || inside::is_ours(from) {
        return EBADF;
    }
    let (old, new) = (table::get(from).map(|held| Arc::clone(&held)), table::get(to).map(|held| Arc::clone(&held)));
    if old.is_none() && new.is_none() {
        return Answer::Kernel;
    }
    if from == to {
        return Answer::Done(if flags.is_some() { -i64::from(libc::EINVAL) } else { i64::from(to) });
    }
    if to as u32 as usize >= table::FDS {
        return EBADF;
    }
    if let Some(new) = &new {
        locks::closing(new);
    }
    let done = kernel::simple(libc::SYS_dup3, &[from as u64, to as u64, flags.unwrap_or(0) as u64]);
    if done < 0 {
        return Answer::Done(done);
    }
    match old {
        Some(old) => table::put(to, old),
        None => drop(table::set(to, None)),
    }
    if let Some(new) = new {
        // There is nobody to report an error to.
        let _ = new.closed(Arc::strong_count(&new) == 1);
    }
    Answer::Done(done)
}

/// `fcntl`.
pub fn fcntl(fd: i32, command: i32, argument: u64) -> Answer {
    if inside::is_ours(fd) {
        let waits = matches!(command, libc::F_SETLKW | libc::F_OFD_SETLKW) && inside::Locking::is_under_way();
        return if waits { Answer::Kernel } else { EBADF };
    }
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    match command {
        libc::F_DUPFD => copy(&open, 0, argument as i32),
        libc::F_DUPFD_CLOEXEC => copy(&open, libc::O_CLOEXEC, argument as i32),
        // Flags of the descriptor itself, which the kernel keeps.
        libc::F_GETFD | libc::F_SETFD => Answer::Kernel,
        libc::F_GETFL => Answer::Done(i64::from(open.flags.load(Ordering::Relaxed))),
        libc::F_SETFL => {
            if open.flags.load(Ordering::Relaxed) & libc::O_PATH != 0 {
                return EBADF;
            }
            let keep = open.flags.load(Ordering::Relaxed) & !SETTABLE;
            open.flags.store(keep | (argument as i32 & SETTABLE) | O_LARGEFILE, Ordering::Relaxed);
            Answer::Done(0)
        }
        libc::F_GETLK | libc::F_SETLK | libc::F_SETLKW | libc::F_OFD_GETLK | libc::F_OFD_SETLK | libc::F_OFD_SETLKW => {
            locks::fcntl(&open, command, argument)
        }
        F_CREATED_QUERY => Answer::Done(i64::from(open.is_new)),
        libc::F_GETOWN | libc::F_SETOWN => Answer::Done(0),
        _ => Answer::Done(-i64::from(libc::EINVAL)),
    }
}

/// `ioctl`: for a file, only close-on-exec and the number of readable bytes.
pub fn ioctl(fd: i32, request: u64, argument: u64) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let answer = || match request {
        _ if open.flags.load(Ordering::Relaxed) & libc::O_PATH != 0 => Err(libc::EBADF),
        libc::FIOCLEX | libc::FIONCLEX => {
            let set = if request == libc::FIOCLEX { libc::FD_CLOEXEC } else { 0 };
            kernel::simple_or(libc::SYS_fcntl, &[fd as u64, libc::F_SETFD as u64, set as u64])
        }
        libc::FIONREAD => {
            let size = open.attr()?.size_bytes;
            let left = open.with_offset(|offset| size.saturating_sub(*offset));
            super::put(argument, left.min(i32::MAX as u64) as i32).map(|()| 0)
        }
        libc::FIONBIO => Ok(0),
        _ => Err(libc::ENOTTY),
    };
    answer().into()
}
