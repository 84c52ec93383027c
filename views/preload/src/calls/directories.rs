//! Reading directories, and the working directory.

use std::sync::Arc;

use parking_lot::Mutex;
use posix::{DirCursor, Follow, Kind};

use super::{Answer, Maybe, Result, Target, answer, memory, on_path};
use crate::context::{self, Cwd};
use crate::description::{Description, What, errno};
use crate::{kernel, table};

/// Bytes of a `getdents64` record before its name.
const HEAD: usize = 19;
/// The same for `getdents`, whose records hold the kind in the last byte.
const OLD_HEAD: usize = 18;

fn kind(kind: Kind) -> u8 {
    match kind {
        Kind::File => libc::DT_REG,
        Kind::Directory => libc::DT_DIR,
        Kind::Symlink => libc::DT_LNK,
        Kind::Fifo => libc::DT_FIFO,
        Kind::Socket => libc::DT_SOCK,
        Kind::CharDevice => libc::DT_CHR,
        Kind::BlockDevice => libc::DT_BLK,
    }
}

/// `getdents64`, and `getdents` if `is_old`.
pub fn getdents(fd: i32, buf: u64, len: u64, is_old: bool) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let read = || {
        let What::Directory(cursor) = &open.what else {
            return Err(if matches!(open.what, What::Path) { libc::EBADF } else { libc::ENOTDIR });
        };
        // SAFETY: the program declares the memory its own.
        let buf = unsafe { memory(buf, len as u32 as usize) }?;
        let mut cursor = cursor.lock();
        let cursor = begun(&mut cursor, &open)?;
        open.with_offset(|position| entries(cursor, position, buf, is_old)).map(|filled| filled as i64)
    };
    read().into()
}

/// The cursor, which a program before `exec` may have advanced.
fn begun<'a>(cursor: &'a mut Option<DirCursor>, open: &Description) -> Result<&'a mut DirCursor> {
    if cursor.is_none() {
        *cursor = Some(context::system()?.read_dir(&context::checked_caller(), open.ino).map_err(errno)?);
    }
    cursor.as_mut().ok_or(libc::EIO)
}

fn entries(cursor: &mut DirCursor, position: &mut u64, buf: &mut [u8], is_old: bool) -> Result<usize> {
    let (mut filled, head) = (0, if is_old { OLD_HEAD } else { HEAD });
    cursor.seek(*position);
    while let Some(entry) = cursor.next().map_err(errno)? {
        let len = (head + entry.name.len() + if is_old { 2 } else { 1 }).next_multiple_of(8);
        let Some(record) = buf.get_mut(filled..filled + len) else {
            cursor.seek(*position);
            return if filled == 0 { Err(libc::EINVAL) } else { Ok(filled) };
        };
        record.fill(0);
        record[..8].copy_from_slice(&entry.ino.0.to_ne_bytes());
        record[8..16].copy_from_slice(&entry.next.to_ne_bytes());
        record[16..18].copy_from_slice(&(len as u16).to_ne_bytes());
        record[if is_old { len - 1 } else { HEAD - 1 }] = kind(entry.kind);
        record[head..head + entry.name.len()].copy_from_slice(&entry.name);
        filled += len;
        *position = entry.next;
    }
    Ok(filled)
}

/// `lseek` on a directory: positions are those that `getdents` returned.
pub fn seek(cursor: &Mutex<Option<DirCursor>>, open: &Description, to: i64, whence: i32) -> Result {
    let mut cursor = cursor.lock();
    open.with_offset(|position| {
        let to = match whence {
            libc::SEEK_SET => to,
            libc::SEEK_CUR => *position as i64 + to,
            _ => return Err(libc::EINVAL),
        };
        *position = u64::try_from(to).map_err(|_| libc::EINVAL)?;
        if let Some(cursor) = cursor.as_mut() {
            if to == 0 {
                // The beginning means a fresh start.
                cursor.seek(u64::MAX);
            }
            cursor.seek(*position);
        }
        Ok(to)
    })
}

/// `chdir`.
pub fn chdir(path: u64) -> Answer {
    let enter = |target: Target<'_>| {
        let cwd = match target {
            Target::Spot(spot, trail) => {
                if spot.kind() != Kind::Directory {
                    return Err(libc::ENOTDIR);
                }
                Cwd { ino: spot.ino(), path: trail.to_vec() }
            }
            Target::Open(open) => cwd_of(open)?,
        };
        context::system()?.access(&context::caller(), cwd.ino, libc::X_OK).map_err(errno)?;
        context::set_cwd(Some(Arc::new(cwd)));
        Ok(0)
    };
    let leave = |path| {
        let result = kernel::simple(libc::SYS_chdir, &[path]);
        if result == 0 {
            context::set_cwd(None);
        }
        result
    };
    match on_path(libc::AT_FDCWD, path, Follow::Yes, enter, leave) {
        Ok(None) => Answer::Done(leave(path)),
        result => answer(result),
    }
}

fn cwd_of(open: &Description) -> Result<Cwd> {
    let kind = open.attr()?.kind;
    if kind == Kind::Directory { Ok(Cwd { ino: open.ino, path: open.path.clone() }) } else { Err(libc::ENOTDIR) }
}

/// `fchdir`.
pub fn fchdir(fd: i32) -> Answer {
    let Some(open) = table::get(fd) else {
        let result = kernel::simple(libc::SYS_fchdir, &[fd as u64]);
        if result == 0 {
            context::set_cwd(None);
        }
        return Answer::Done(result);
    };
    let enter = || {
        let cwd = cwd_of(&open)?;
        context::system()?.access(&context::caller(), cwd.ino, libc::X_OK).map_err(errno)?;
        context::set_cwd(Some(Arc::new(cwd)));
        Ok(0)
    };
    enter().into()
}

/// `getcwd`.
pub fn getcwd(buf: u64, len: u64) -> Answer {
    let Some(cwd) = context::cwd() else { return Answer::Kernel };
    let tell = || -> Maybe {
        // A removed directory gives the kernel's error.
        let there = context::system()?.attr(cwd.ino).map_err(|_| libc::ENOENT)?;
        if there.links == 0 {
            return Err(libc::ENOENT);
        }
        let room = cwd.path.len() + 1;
        if (len as usize) < room {
            return Err(libc::ERANGE);
        }
        // SAFETY: the program declares the memory its own.
        let buf = unsafe { memory(buf, room) }?;
        buf[..room - 1].copy_from_slice(&cwd.path);
        buf[room - 1] = 0;
        Ok(Some(room as i64))
    };
    answer(tell())
}
