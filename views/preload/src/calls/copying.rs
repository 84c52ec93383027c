//! Calls that move bytes from one descriptor to another.

use super::bytes::Place;
use super::{Answer, Maybe, Result, answer, put, value};
use crate::description::errno;
use crate::{kernel, table};

/// Bytes that are moved at a time where the store cannot share them.
const PIECE: usize = 1 << 20;

/// Runs `with` on the offset that a call means, which is `at` if that is given.
fn with_position<T>(at: u64, open: &crate::description::Description, with: impl FnOnce(&mut u64) -> T) -> Result<T> {
    if at == 0 {
        return Ok(open.with_offset(with));
    }
    let mut position = u64::try_from(value::<i64>(at)?).map_err(|_| libc::EINVAL)?;
    let result = with(&mut position);
    put(at, position as i64)?;
    Ok(result)
}

/// `copy_file_range`.
pub fn copy_file_range(from: (i32, u64), to: (i32, u64), len: u64, flags: u32) -> Answer {
    let copy = || -> Maybe {
        let (source, target) = match (table::get(from.0), table::get(to.0)) {
            (None, None) => return Ok(None),
            (Some(source), Some(target)) => (source, target),
            _ => return Err(libc::EXDEV), // whoever asks reads and writes then
        };
        if flags != 0 {
            return Err(libc::EINVAL);
        }
        let (source_file, target_file) = (source.file_or(libc::EISDIR)?, target.file_or(libc::EISDIR)?);
        if target.appends() {
            return Err(libc::EBADF);
        }
        let read_at = if from.1 == 0 { source.with_offset(|offset| *offset) } else { value::<i64>(from.1)? as u64 };
        let copied = with_position(to.1, &target, |position| {
            if source.ino() == target.ino() && read_at < *position + len && *position < read_at.saturating_add(len) {
                return Err(libc::EINVAL);
            }
            let copied = target_file.copy_from(source_file, read_at, *position, len).map_err(errno)?;
            *position += copied;
            Ok(copied)
        })??;
        if from.1 == 0 {
            source.with_offset(|offset| *offset = read_at + copied);
        } else {
            put(from.1, (read_at + copied) as i64)?;
        }
        Ok(Some(copied as i64))
    };
    answer(copy())
}

/// `sendfile`.
pub fn sendfile(to: i32, from: i32, at: u64, count: u64) -> Answer {
    let send = || -> Maybe {
        let (source, target) = (table::get(from), table::get(to));
        if source.is_none() && target.is_none() {
            return Ok(None);
        }
        if let Some(target) = &target {
            if !target.file_or(libc::EBADF)?.flags().write {
                return Err(libc::EBADF);
            }
        } else {
            let flags = kernel::simple_or(libc::SYS_fcntl, &[to as u64, libc::F_GETFL as u64])? as i32;
            if flags & libc::O_ACCMODE == libc::O_RDONLY {
                return Err(libc::EBADF);
            }
        }
        let mut position = if at == 0 { None } else { Some(value::<i64>(at)?) };
        let mut buf = vec![0; PIECE.min(count as usize)];
        let mut done = 0;
        while done < count {
            let piece = PIECE.min((count - done) as usize);
            let read = match (&source, position) {
                (Some(source), None) => source.read(&mut buf[..piece], Place::Offset)? as i64,
                (Some(source), Some(position)) => source.read(&mut buf[..piece], Place::At(position))? as i64,
                (None, None) => read_kernel(from, &mut buf[..piece], None)?,
                (None, Some(position)) => read_kernel(from, &mut buf[..piece], Some(position))?,
            };
            if read == 0 {
                break;
            }
            let written = match &target {
                Some(target) => target.write(&buf[..read as usize], Place::Offset)? as i64,
                None => kernel::simple_or(libc::SYS_write, &[to as u64, buf.as_ptr() as u64, read as u64])?,
            };
            position = position.map(|position| position + written);
            done += written as u64;
            if written < read {
                if let (Some(source), None) = (&source, position) {
                    source.with_offset(|offset| *offset -= (read - written) as u64);
                }
                break;
            }
        }
        if let Some(position) = position {
            put(at, position)?;
        }
        Ok(Some(done as i64))
    };
    answer(send())
}

fn read_kernel(fd: i32, buf: &mut [u8], at: Option<i64>) -> Result {
    let (buf, len) = (buf.as_mut_ptr() as u64, buf.len() as u64);
    match at {
        None => kernel::simple_or(libc::SYS_read, &[fd as u64, buf, len]),
        Some(at) => kernel::simple_or(libc::SYS_pread64, &[fd as u64, buf, len, at as u64]),
    }
}

/// `splice`, `tee`, `vmsplice`: programs read and write then.
pub fn splice(one: i32, other: i32) -> Answer {
    if table::get(one).is_none() && table::get(other).is_none() {
        return Answer::Kernel;
    }
    Answer::Done(-i64::from(libc::EINVAL))
}
