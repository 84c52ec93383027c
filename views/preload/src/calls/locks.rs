//! Advisory locks: those of the kernel, on a file in memory that stands for the one in the store. So they end with their process, know
//! of deadlocks, and hold between all preloaded programs on this machine.

use std::collections::HashSet;
use std::ffi::CString;
use std::sync::atomic::{AtomicI32, Ordering};

use parking_lot::Mutex;

use super::{Answer, Result, put, value};
use crate::description::Description;
use crate::{inside, kernel, place, table};

/// Files that this process has locked ranges of: they are let go when any descriptor of them is closed.
static LOCKED: Mutex<Option<HashSet<u64>>> = Mutex::new(None);

/// The descriptor that locks of a description are taken through.
#[derive(Default)]
pub struct Through(AtomicI32);

impl Drop for Through {
    fn drop(&mut self) {
        let fd = self.0.load(Ordering::Relaxed) - 1;
        if fd >= 0 {
            inside::forget(fd);
            kernel::close(fd);
        }
    }
}

/// Opens the file that stands for the one of that number.
fn open(ino: u64) -> Result<i32> {
    let dir = format!("/dev/shm/cenote-locks-{:x}", place::device());
    let path = |path: String| CString::new(path).map_err(|_| libc::EINVAL);
    let (dir, file) = (path(dir.clone())?, path(format!("{dir}/{ino:x}"))?);
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    let arguments = [libc::AT_FDCWD as u64, file.as_ptr() as u64, flags as u64, 0o666];
    let mut fd = kernel::simple_or(libc::SYS_openat, &arguments);
    if fd == Err(libc::ENOENT) {
        kernel::simple(libc::SYS_mkdir, &[dir.as_ptr() as u64, 0o777]);
        kernel::simple(libc::SYS_chmod, &[dir.as_ptr() as u64, 0o1777]);
        fd = kernel::simple_or(libc::SYS_openat, &arguments);
    }
    let fd = fd? as i32;
    kernel::simple(libc::SYS_fchmod, &[fd as u64, 0o666]);
    Ok(inside::move_away(fd))
}

fn through(open_file: &Description) -> Result<i32> {
    let known = open_file.locks.0.load(Ordering::Acquire) - 1;
    if known >= 0 {
        return Ok(known);
    }
    let made = open(open_file.ino().0)?;
    match open_file.locks.0.compare_exchange(0, made + 1, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => Ok(made),
        Err(first) => {
            inside::forget(made);
            kernel::close(made);
            Ok(first - 1)
        }
    }
}

/// `flock`.
pub fn flock(fd: i32, operation: i32) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let wait = |fd| inside::Inside::outside(|| kernel::simple_or(libc::SYS_flock, &[fd as u64, operation as u64]));
    through(&open).and_then(wait).into()
}

/// Locks of ranges by `fcntl`.
pub fn fcntl(open: &Description, command: i32, argument: u64) -> Answer {
    let lock = || {
        let file = open.file_or(libc::EBADF)?;
        let mut lock: libc::flock = value(argument)?;
        let asks = matches!(command, libc::F_GETLK | libc::F_OFD_GETLK);
        let flags = file.flags();
        let may = match i32::from(lock.l_type) {
            libc::F_RDLCK => flags.read,
            libc::F_WRLCK => flags.write,
            _ => true,
        };
        if !asks && !may {
            return Err(libc::EBADF);
        }
        let from = match i32::from(lock.l_whence) {
            libc::SEEK_SET => 0,
            libc::SEEK_CUR => open.with_offset(|offset| *offset as i64),
            libc::SEEK_END => open.attr()?.size_bytes as i64,
            _ => return Err(libc::EINVAL),
        };
        lock.l_start = lock.l_start.checked_add(from).ok_or(libc::EOVERFLOW)?;
        lock.l_whence = libc::SEEK_SET as i16;
        let fd = through(open)?;
        let arguments = [fd as u64, command as u64, (&raw mut lock) as u64];
        // It may wait, and a signal may end that.
        let done = inside::Inside::outside(|| kernel::simple_or(libc::SYS_fcntl, &arguments))?;
        if asks {
            put(argument, lock)?;
        } else if matches!(command, libc::F_SETLK | libc::F_SETLKW) {
            LOCKED.lock().get_or_insert_default().insert(open.ino().0);
        }
        Ok(done)
    };
    lock().into()
}

/// A descriptor is about to be closed: the process's locks of ranges in that file go, as POSIX has it.
pub fn closing(open_file: &Description) {
    let mut locked = LOCKED.lock();
    let Some(locked) = locked.as_mut().filter(|locked| !locked.is_empty()) else { return };
    let ino = open_file.ino().0;
    if locked.remove(&ino)
        && let Ok(fd) = open(ino)
    {
        inside::forget(fd);
        kernel::close(fd);
    }
}

/// In a child of `fork`: locks of ranges stay with the parent.
pub fn forked() {
    *LOCKED.lock() = None;
}
