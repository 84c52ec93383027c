//! Reading and writing.

use std::sync::atomic::Ordering;

use posix::Allocate;

use super::{Answer, Result, input, memory, value};
use crate::description::{Description, What, errno};
use crate::{limit, table};

/// Upper bound of the bytes in one call, as in the kernel.
const MOST: usize = 0x7fff_f000;
/// Upper bound of the pieces in one call.
const PIECES_MAX: u64 = 1024;

/// A position in a file.
#[derive(Clone, Copy)]
pub enum FilePosition {
    /// The description's offset, which advances.
    Offset,
    /// This offset.
    At(i64),
}

/// The position of a call like `preadv2`: -1 stands for the description's offset.
fn place_or_offset(at: u64) -> FilePosition {
    if at as i64 == -1 { FilePosition::Offset } else { FilePosition::At(at as i64) }
}

fn checked(at: FilePosition) -> Result<FilePosition> {
    match at {
        FilePosition::At(at) if at < 0 => Err(libc::EINVAL),
        at => Ok(at),
    }
}

impl Description {
    /// Reads into `buf`.
    pub fn read(&self, buf: &mut [u8], at: FilePosition) -> Result<usize> {
        let file = self.file()?;
        match checked(at)? {
            FilePosition::At(at) => file.read_at(buf, at as u64).map_err(errno),
            FilePosition::Offset => self.with_offset(|offset| {
                let read = file.read_at(buf, *offset).map_err(errno)?;
                *offset += read as u64;
                Ok(read)
            }),
        }
    }
    /// Writes `bytes`, as many of them as the process may.
    pub fn write(&self, bytes: &[u8], at: FilePosition) -> Result<usize> {
        let file = self.file_or(libc::EBADF)?;
        if !file.flags().write {
            return Err(libc::EBADF);
        }
        let at = checked(at)?;
        let begin = || match at {
            _ if self.appends() => file.attr().map(|attr| attr.size_bytes).map_err(errno),
            FilePosition::At(at) => Ok(at as u64),
            FilePosition::Offset => Ok(self.with_offset(|offset| *offset)),
        };
        let len = limit::room(begin, bytes.len())?;
        let bytes = &bytes[..len];
        // As in Linux, also for calls with an explicit offset.
        if self.appends() {
            return match at {
                FilePosition::At(_) => file.append(bytes).map_err(errno).map(|_| len),
                FilePosition::Offset => self.with_offset(|offset| {
                    *offset = file.append(bytes).map_err(errno)? + len as u64;
                    Ok(len)
                }),
            };
        }
        match at {
            FilePosition::At(at) => file.write_at(bytes, at as u64).map_err(errno)?,
            FilePosition::Offset => self.with_offset(|offset| {
                file.write_at(bytes, *offset).map_err(errno)?;
                *offset += len as u64;
                Result::Ok(())
            })?,
        }
        Ok(len)
    }
}

/// `read`, `pread64`.
pub fn read(fd: i32, buf: u64, len: u64, at: FilePosition) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let read = || {
        // SAFETY: the program declares the memory its own.
        let buf = unsafe { memory(buf, (len as usize).min(MOST)) }?;
        open.read(buf, at).map(|read| read as i64)
    };
    read().into()
}

/// `write`, `pwrite64`.
pub fn write(fd: i32, buf: u64, len: u64, at: FilePosition) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let write = || {
        // SAFETY: as above.
        let buf = unsafe { input(buf, (len as usize).min(MOST)) }?;
        open.write(buf, at).map(|written| written as i64)
    };
    write().into()
}

/// The pieces of a call, with their sum.
fn pieces(list: u64, count: u64) -> Result<(Vec<libc::iovec>, usize)> {
    if count > PIECES_MAX {
        return Err(libc::EINVAL);
    }
    let mut pieces = Vec::with_capacity(count as usize);
    let mut sum = 0_usize;
    for index in 0..count {
        let piece: libc::iovec = value(list + index * size_of::<libc::iovec>() as u64)?;
        sum = sum.checked_add(piece.iov_len).filter(|sum| isize::try_from(*sum).is_ok()).ok_or(libc::EINVAL)?;
        pieces.push(piece);
    }
    Ok((pieces, sum))
}

/// The position of the bytes after the first `done`.
fn at_offset(at: FilePosition, done: usize) -> FilePosition {
    match at {
        FilePosition::Offset => FilePosition::Offset,
        FilePosition::At(at) => FilePosition::At(at + done as i64),
    }
}

/// `preadv2`: accepts the flags that only concern speed for a file in the store.
pub fn preadv2(fd: i32, list: u64, count: u64, at: u64, flags: i32) -> Answer {
    if flags & !(libc::RWF_HIPRI | libc::RWF_NOWAIT) != 0 && table::get(fd).is_some() {
        return Err(libc::EOPNOTSUPP).into();
    }
    readv(fd, list, count, place_or_offset(at))
}

/// `pwritev2`.
pub fn pwritev2(fd: i32, list: u64, count: u64, at: u64, flags: i32) -> Answer {
    const SYNC: i32 = libc::RWF_SYNC | libc::RWF_DSYNC;
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    // `RWF_APPEND` is only supported on descriptions that append anyway.
    let appends = if open.appends() { libc::RWF_APPEND } else { 0 };
    if flags & !(libc::RWF_HIPRI | libc::RWF_NOWAIT | SYNC | appends) != 0 {
        return Err(libc::EOPNOTSUPP).into();
    }
    let written = writev(fd, list, count, place_or_offset(at));
    if let Answer::Done(1..) = written
        && flags & SYNC != 0
        && let Answer::Done(error @ ..0) = sync(fd, flags & libc::RWF_SYNC == 0)
    {
        return Answer::Done(error);
    }
    written
}

/// `readv`, `preadv`.
pub fn readv(fd: i32, list: u64, count: u64, at: FilePosition) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let read = || {
        let (pieces, _) = pieces(list, count)?;
        let mut done = 0;
        for piece in pieces {
            // SAFETY: as above.
            let buf = match unsafe { memory(piece.iov_base as u64, piece.iov_len.min(MOST - done)) } {
                Ok(buf) => buf,
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            };
            let len = buf.len();
            match open.read(buf, at_offset(at, done)) {
                Ok(read) => {
                    done += read;
                    if read < len {
                        break;
                    }
                }
                Err(errno) if done == 0 => return Err(errno),
                Err(_) => break,
            }
        }
        Ok(done as i64)
    };
    read().into()
}

/// `writev`, `pwritev`. All pieces are one write, so that appended pieces stay together.
pub fn writev(fd: i32, list: u64, count: u64, at: FilePosition) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let write = || {
        let (pieces, sum) = pieces(list, count)?;
        if let [piece] = &pieces[..] {
            // SAFETY: as above.
            let bytes = unsafe { input(piece.iov_base as u64, piece.iov_len.min(MOST)) }?;
            return open.write(bytes, at).map(|written| written as i64);
        }
        let mut all = Vec::with_capacity(sum.min(MOST));
        for piece in pieces {
            // SAFETY: as above.
            match unsafe { input(piece.iov_base as u64, piece.iov_len.min(MOST - all.len())) } {
                Ok(bytes) => all.extend_from_slice(bytes),
                Err(errno) if all.is_empty() => return Err(errno),
                Err(_) => break,
            }
        }
        open.write(&all, at).map(|written| written as i64)
    };
    write().into()
}

/// `lseek`.
pub fn lseek(fd: i32, distance: i64, whence: i32) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let seek = || {
        if let What::Directory(cursor) = &open.what {
            return super::directories::seek(cursor, &open, distance, whence);
        }
        let file = open.file()?;
        open.with_offset(|offset| {
            let from = match whence {
                libc::SEEK_SET => 0,
                libc::SEEK_CUR => *offset as i64,
                libc::SEEK_END => file.attr().map_err(errno)?.size_bytes as i64,
                libc::SEEK_DATA | libc::SEEK_HOLE => {
                    let at = u64::try_from(distance).map_err(|_| libc::ENXIO)?;
                    let found = if whence == libc::SEEK_DATA { file.next_data(at) } else { file.next_hole(at) };
                    *offset = found.map_err(errno)?;
                    return Ok(*offset as i64);
                }
                _ => return Err(libc::EINVAL),
            };
            let to = from.checked_add(distance).ok_or(libc::EOVERFLOW)?;
            *offset = u64::try_from(to).map_err(|_| libc::EINVAL)?;
            Ok(to)
        })
    };
    seek().into()
}

/// `sync_file_range`: syncs the whole file.
pub fn sync_range(fd: i32, at: i64, len: i64, flags: u64) -> Answer {
    if table::get(fd).is_some() && (at < 0 || len < 0 || at.checked_add(len).is_none() || flags > 7) {
        return Err(libc::EINVAL).into();
    }
    sync(fd, true)
}

/// `readahead`.
pub fn readahead(fd: i32) -> Answer {
    match table::get(fd) {
        Some(open) if matches!(open.what, What::Directory(_)) => Err(libc::EINVAL).into(),
        _ => advise(fd, 0),
    }
}

/// `fsync`, `fdatasync`.
pub fn sync(fd: i32, data_only: bool) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let sync = || match &open.what {
        What::File(file) => file.get()?.sync(data_only).map_err(errno).map(|()| 0),
        What::Directory(_) => crate::context::system()?.sync_dir(open.ino).map_err(errno).map(|()| 0),
        What::Path => Err(libc::EBADF),
    };
    sync().into()
}

/// `fallocate`.
pub fn fallocate(fd: i32, mode: i32, offset: i64, len: i64) -> Answer {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let allocate = || {
        let file = open.file_or(libc::EBADF)?;
        if offset < 0 || len <= 0 {
            return Err(libc::EINVAL);
        }
        let what = match mode {
            0 => Allocate::Extend,
            libc::FALLOC_FL_KEEP_SIZE => Allocate::KeepSize,
            PUNCH => Allocate::Punch,
            ZERO => Allocate::Zero { keep_size: false },
            ZERO_KEEP => Allocate::Zero { keep_size: true },
            libc::FALLOC_FL_COLLAPSE_RANGE => Allocate::Collapse,
            libc::FALLOC_FL_INSERT_RANGE => Allocate::Insert,
            _ => return Err(libc::EOPNOTSUPP),
        };
        if !matches!(what, Allocate::KeepSize | Allocate::Punch | Allocate::Zero { keep_size: true }) {
            limit::size((offset as u64).saturating_add(len as u64))?;
        }
        file.allocate(what, offset as u64, len as u64).map_err(errno).map(|()| 0)
    };
    allocate().into()
}

/// `posix_fadvise`: ignores the advice.
pub fn advise(fd: i32, advice: i32) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    let known = (0..=5).contains(&advice) && open.flags.load(Ordering::Relaxed) & libc::O_PATH == 0;
    Answer::Done(if known { 0 } else { -i64::from(libc::EINVAL) })
}
