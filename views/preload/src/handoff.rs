//! The state that the next program in this process needs after `exec`: descriptors that stay open, and the working
//! directory.
//!
//! It lies in a memory file, whose descriptor an environment variable names; offsets lie in another file (`shared`).

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_codec::{Decoder, Encode as _};
use posix::{File, Ino, LockOwner};

use crate::context::{self, Cwd};
use crate::description::{Description, What};
use crate::shared::{self, Shared};
use crate::{calls, inside, kernel, table};

/// The environment variable.
pub const VARIABLE: &str = "CENOTE_HANDOFF";
const MAGIC: u64 = 0x3274_6f6e_6563;

/// The state written for the next program, and its descriptors, which are closed if the execution fails.
pub struct Handoff {
    /// Descriptor of the written state.
    pub fd: i32,
    offsets: i32,
    /// Descriptors of locks, which stay open from here on.
    locks: Vec<i32>,
}

impl Drop for Handoff {
    fn drop(&mut self) {
        if self.fd >= 0 {
            kernel::close(self.fd);
        }
        if self.offsets >= 0 {
            kernel::close(self.offsets);
        }
        for fd in &self.locks {
            kernel::simple(libc::SYS_fcntl, &[*fd as u64, libc::F_SETFD as u64, libc::FD_CLOEXEC as u64]);
        }
    }
}

/// A duplicate of a descriptor for the next program, out of that program's way.
fn inherited(fd: i32) -> Result<i32, i32> {
    let floor = inside::floor() as u64;
    kernel::simple_or(libc::SYS_fcntl, &[fd as u64, libc::F_DUPFD as u64, floor]).map(|fd| fd as i32)
}

/// Keeps the descriptor with an owner's locks open in the next program. It must be that very descriptor, since a
/// process's locks go when it closes any.
fn leave(file: &File, owner: LockOwner, left: &mut Vec<i32>) -> i32 {
    let mut found = -1;
    file.lock_descriptor(owner, &mut |fd| {
        found = fd.as_raw_fd();
        kernel::simple(libc::SYS_fcntl, &[found as u64, libc::F_SETFD as u64, 0]);
        left.push(found);
    });
    found
}

fn put(all: &mut Vec<u8>, numbers: &[u64], text: &[u8]) {
    for number in numbers.iter().chain([&(text.len() as u64)]) {
        all.put_u64(*number);
    }
    all.extend_from_slice(text);
}

/// Writes the state for the next program; `None` if there is none.
pub fn write() -> Result<Option<Handoff>, i32> {
    let stays = |fd: i32| {
        kernel::simple(libc::SYS_fcntl, &[fd as u64, libc::F_GETFD as u64]) & i64::from(libc::FD_CLOEXEC) == 0
    };
    let all = table::all();
    let open: Vec<&(i32, Arc<Description>)> = all.iter().filter(|(fd, _)| stays(*fd)).collect();
    let cwd = context::cwd();
    if open.is_empty() && cwd.is_none() {
        return Ok(None);
    }
    let mut handoff = Handoff { fd: -1, offsets: -1, locks: Vec::new() };
    let mut entries = Vec::new();
    for (fd, open) in &open {
        let kind = match &open.what {
            What::File(_) => 0_u64,
            What::Directory(_) => 1,
            What::Path => 2,
        };
        let flags = open.flags.load(Ordering::Relaxed);
        let offset = open.share().ok_or(libc::ENOMEM)?.index();
        let locks = open.opened().map_or([-1; 2], |file| {
            // The process loses its locks when it closes any descriptor of the file.
            let closes = all.iter().any(|(fd, other)| other.ino() == open.ino() && !stays(*fd));
            let process = if closes { None } else { Some(LockOwner::Process) };
            [Some(LockOwner::File), process]
                .map(|owner| owner.map_or(-1, |owner| leave(file, owner, &mut handoff.locks)))
        });
        let locks = locks.map(|fd| i64::from(fd) as u64);
        let eras =
            open.opened().map_or([0; 2], |file| [LockOwner::File, LockOwner::Process].map(|it| file.lock_era(it)));
        let from = [*fd as u64, kind, flags as u64, open.ino().0, u64::from(offset)];
        let numbers = [from.as_slice(), &locks, &eras].concat();
        put(&mut entries, &numbers, &open.path);
    }
    if !open.is_empty() {
        handoff.offsets = inherited(shared::fd())?;
    }
    let mut all = Vec::new();
    put(&mut all, &[MAGIC, i64::from(handoff.offsets) as u64], b"");
    let (ino, path) = cwd.as_ref().map_or((0, &b""[..]), |cwd| (cwd.ino.0, &cwd.path[..]));
    put(&mut all, &[ino], path);
    all.extend_from_slice(&entries);
    let made = kernel::simple_or(libc::SYS_memfd_create, &[c"cenote handoff".as_ptr() as u64, 0])? as i32;
    kernel::simple(libc::SYS_write, &[made as u64, all.as_ptr() as u64, all.len() as u64]);
    let fd = inherited(made);
    kernel::close(made);
    handoff.fd = fd?;
    Ok(Some(handoff))
}

/// Takes from the front of what was written.
struct Reader<'a>(Decoder<'a>);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        self.0.u64().ok()
    }
    fn text(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.0.take(len).ok()
    }
}

/// Takes over the state of the previous program, if there is any.
pub fn read() {
    let Some(fd) = std::env::var_os(VARIABLE) else { return };
    // SAFETY: called before the program's first instruction, when nobody else reads the environment.
    unsafe { std::env::remove_var(VARIABLE) };
    let Some(fd) = std::str::from_utf8(fd.as_bytes()).ok().and_then(|fd| fd.parse::<i32>().ok()) else { return };
    kernel::simple(libc::SYS_lseek, &[fd as u64, 0, libc::SEEK_SET as u64]);
    let all = kernel::read_fd(fd);
    let mut reader = Reader(Decoder::new(&all));
    if reader.number() != Some(MAGIC) {
        return; // another file, which is not ours to close
    }
    kernel::close(fd);
    let _ = take(&mut reader);
}

fn take(reader: &mut Reader<'_>) -> Option<()> {
    let offsets = reader.number()? as i32;
    reader.text()?;
    if offsets >= 0 {
        shared::adopt(offsets);
    }
    let (ino, path) = (Ino(reader.number()?), reader.text()?);
    if !path.is_empty() {
        context::set_cwd(Some(Arc::new(Cwd { ino, path: path.to_vec() })));
    }
    let mut adopted = HashSet::new();
    while !reader.0.is_empty() {
        let [fd, kind, flags, ino, offset, file_locks, process_locks, file_era, process_era] =
            [(); 9].map(|()| reader.number());
        let (fd, flags, ino) = (fd? as i32, flags? as i32, Ino(ino?));
        let path = reader.text()?.to_vec();
        let what = match kind? {
            0 => {
                let of_file = (LockOwner::File, file_locks? as i32, file_era?);
                let left = [of_file, (LockOwner::Process, process_locks? as i32, process_era?)];
                // Several descriptors of one file name the same descriptor of the process's locks: the first one takes
                // it.
                let new = left.into_iter().filter(|(_, fd, _)| *fd >= 0 && adopted.insert(*fd));
                if left[1].1 >= 0 {
                    calls::locks::note_own();
                }
                What::File(crate::description::Later::of(ino, flags, &path, new.collect()))
            }
            1 => What::Directory(parking_lot::Mutex::new(None)),
            _ => What::Path,
        };
        let open = Description::new(what, ino, path, flags);
        if let Some(shared) = Shared::at(offset? as u32) {
            open.adopt(shared);
        }
        table::put(fd, Arc::new(open));
    }
    Some(())
}
