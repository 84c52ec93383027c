//! Calls that move bytes from one descriptor to another.

use std::sync::Arc;

use super::bytes::FilePosition;
use super::{Answer, Maybe, Result, answer, put, value};
use crate::description::{Description, errno};
use crate::{fork, inside, kernel, table};

/// Bytes that are copied at a time where the store cannot share them.
const PIECE: usize = 1 << 20;

/// Runs `with` on the offset of a call: the one at address `at`, or the description's.
fn with_position<T>(at: u64, open: &Description, with: impl FnOnce(&mut u64) -> T) -> Result<T> {
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
            _ => return Err(libc::EXDEV), // the caller then reads and writes
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
                (Some(source), None) => source.read(&mut buf[..piece], FilePosition::Offset)? as i64,
                (Some(source), Some(position)) => source.read(&mut buf[..piece], FilePosition::At(position))? as i64,
                (None, None) => read_kernel(from, &mut buf[..piece], None)?,
                (None, Some(position)) => read_kernel(from, &mut buf[..piece], Some(position))?,
            };
            if read == 0 {
                break;
            }
            let written = match &target {
                Some(target) => target.write(&buf[..read as usize], FilePosition::Offset)? as i64,
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

/// `tee`: fails, since neither descriptor is a pipe.
pub fn tee(one: i32, other: i32) -> Answer {
    if table::get(one).is_none() && table::get(other).is_none() {
        return Answer::Kernel;
    }
    Answer::Done(-i64::from(libc::EINVAL))
}

/// `splice`: from a pipe to a file, or from a file to a pipe. May wait.
pub fn splice(from: (i32, u64), to: (i32, u64), len: u64, flags: u32) -> Answer {
    let splice = || -> Maybe {
        let [source, target] = [from.0, to.0].map(|fd| table::get(fd).map(|held| Arc::clone(&held)));
        let (pipe, at, events) = match (&source, &target) {
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err(libc::EINVAL), // one of the two must be a pipe
            (None, Some(target)) => {
                if !target.file_or(libc::EBADF)?.flags().write {
                    return Err(libc::EBADF);
                }
                if target.appends() {
                    return Err(libc::EINVAL);
                }
                (from, to.1, libc::POLLIN)
            }
            (Some(source), None) => {
                if !source.file_or(libc::EINVAL)?.flags().read {
                    return Err(libc::EBADF);
                }
                (to, from.1, libc::POLLOUT)
            }
        };
        let open = kernel::simple_or(libc::SYS_fcntl, &[pipe.0 as u64, libc::F_GETFL as u64])? as i32;
        let refuses = if events == libc::POLLIN { libc::O_WRONLY } else { libc::O_RDONLY };
        if open & libc::O_ACCMODE == refuses || open & libc::O_PATH != 0 {
            return Err(libc::EBADF);
        }
        if kernel::simple_or(libc::SYS_fcntl, &[pipe.0 as u64, libc::F_GETPIPE_SZ as u64]).is_err()
            || flags & !SPLICE_FLAGS != 0
        {
            return Err(libc::EINVAL);
        }
        if pipe.1 != 0 {
            return Err(libc::ESPIPE);
        }
        if len == 0 {
            return Ok(Some(0));
        }
        let waits = flags & libc::SPLICE_F_NONBLOCK == 0 && open & libc::O_NONBLOCK == 0;
        let len = PIECE.min(len as usize);
        loop {
            if waits {
                is_ready(pipe.0, events, -1)?;
            }
            let _at_work = fork::at_work();
            let done = match (&source, &target) {
                (Some(source), _) => with_place(at, |at| into_pipe(source, at, pipe.0, len)),
                (None, Some(target)) => with_place(at, |at| out_of_pipe(pipe.0, target, at, len)),
                (None, None) => return Ok(None),
            };
            match done {
                Err(libc::EAGAIN) if waits => {} // another thread was faster
                done => return done.map(Some),
            }
        }
    };
    answer(splice())
}

const SPLICE_FLAGS: u32 = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | libc::SPLICE_F_GIFT;
/// The number of bytes that a pipe takes without waiting if it takes any.
const PIPE_TAKES: usize = libc::PIPE_BUF;

/// Returns whether a pipe is ready for `events`, waiting at most this many milliseconds (-1: any time).
fn is_ready(pipe: i32, events: i16, within_ms: i32) -> Result<bool> {
    let mut wanted = libc::pollfd { fd: pipe, events, revents: 0 };
    let arguments = [(&raw mut wanted) as u64, 1, within_ms as u64];
    Ok(kernel::simple_or(libc::SYS_poll, &arguments)? > 0)
}

/// Runs `with` on the position of a call, and advances it by the result.
fn with_place(at: u64, with: impl FnOnce(FilePosition) -> Result<usize>) -> Result {
    if at == 0 {
        return with(FilePosition::Offset).map(|done| done as i64);
    }
    let place: i64 = value(at)?;
    let done = with(FilePosition::At(place))? as i64;
    put(at, place + done)?;
    Ok(done)
}

/// Copies as much to the pipe as it has room for.
fn into_pipe(source: &Description, at: FilePosition, pipe: i32, len: usize) -> Result<usize> {
    let mut buf = [0; PIPE_TAKES];
    let mut done = 0;
    while done < len {
        if !is_ready(pipe, libc::POLLOUT, 0)? {
            break;
        }
        let place = if let FilePosition::At(at) = at { FilePosition::At(at + done as i64) } else { at };
        let read = source.read(&mut buf[..PIPE_TAKES.min(len - done)], place)?;
        if read == 0 {
            return Ok(done);
        }
        match kernel::simple_or(libc::SYS_write, &[pipe as u64, buf.as_ptr() as u64, read as u64]) {
            Ok(written) => done += written as usize,
            Err(errno) => {
                if let FilePosition::Offset = at {
                    source.with_offset(|offset| *offset -= read as u64);
                }
                return if done > 0 { Ok(done) } else { Err(errno) };
            }
        }
    }
    if done == 0 { Err(libc::EAGAIN) } else { Ok(done) }
}

/// Copies the pipe's content to the file; the pipe loses only what was written.
fn out_of_pipe(pipe: i32, target: &Description, at: FilePosition, len: usize) -> Result<usize> {
    let aside = Aside::make()?;
    let arguments = [pipe as u64, aside.0[1] as u64, len as u64, u64::from(libc::SPLICE_F_NONBLOCK)];
    let there = kernel::simple_or(libc::SYS_tee, &arguments)? as usize;
    let mut buf = vec![0; there];
    take(aside.0[0], &mut buf)?;
    let written = target.write(&buf, at)?;
    take(pipe, &mut buf[..written])?;
    Ok(written)
}

/// Fills `buf`, whose bytes must be in the pipe.
fn take(pipe: i32, buf: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < buf.len() {
        match read_kernel(pipe, &mut buf[done..], None)? {
            0 => return Err(libc::EIO), // another thread took it
            read => done += read as usize,
        }
    }
    Ok(())
}

/// A pipe of this library, to which another pipe's bytes are copied before they are taken out of that one.
struct Aside([i32; 2]);

impl Aside {
    fn make() -> Result<Self> {
        let mut ends = [0; 2];
        kernel::simple_or(libc::SYS_pipe2, &[(&raw mut ends) as u64, libc::O_CLOEXEC as u64])?;
        Ok(Self(ends.map(inside::move_away)))
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        for end in self.0 {
            inside::forget(end);
            kernel::close(end);
        }
    }
}
