//! Small files in a store's directory in shared memory through which processes of one machine meet: to lock them, or to
//! map them.
//!
//! The first process that needs such a file creates it, and the last one removes it. Whoever has it open holds a lock
//! on its very last byte, which nobody else may lock: *presence*. The kernel releases it when the process dies, in
//! whatever way. A process that finds nobody present may remove the file. This room must not know what the files are
//! for.
#![allow(unsafe_code, reason = "locks of byte ranges are structures that fcntl takes by address")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Gid, Mode, OFlags, Uid};

/// The last byte that the kernel can lock, for presence. No file reaches it.
const PRESENCE: i64 = i64::MAX;
/// Pause between attempts to enter while a process that is alone works on the file.
const AGAIN: Duration = Duration::from_micros(200);
/// The last byte that can be locked for other purposes.
const LAST: i64 = i64::MAX - 1;

/// Owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// This process, with POSIX semantics: its children do not hold the lock, and all its locks go when it closes any
    /// descriptor of the file.
    Process,
    /// The open file description: whoever has the descriptor or a copy of it.
    Description,
}

/// What a lock excludes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LockKind {
    /// Excludes exclusive holders.
    Shared,
    /// Excludes all other holders.
    Exclusive,
}

/// A conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Blocking {
    /// Its kind.
    pub kind: LockKind,
    /// Its first byte.
    pub start: u64,
    /// Its length; 0 means to the end, at any offset.
    pub len: u64,
    /// The process, if a process owns the lock.
    pub pid: Option<u32>,
}

/// A lock that this process has by a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldHere {
    /// Of the whole file (`flock`).
    pub is_whole: bool,
    /// Its kind.
    pub kind: LockKind,
    /// Its first byte.
    pub first: u64,
    /// Its last byte, at most the last one that can be locked.
    pub last: u64,
}

impl HeldHere {
    /// As the system describes it: number, kind of lock, `ADVISORY`, mode, process, file, first and last byte.
    fn of(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, sort, _, mode, _, _, first, last] = words[..] else { return None };
        let kind = if mode == "READ" { LockKind::Shared } else { LockKind::Exclusive };
        let first = first.parse().ok().filter(|first| *first != PRESENCE as u64)?;
        let last = last.parse().map_or(LAST as u64, |last: u64| last.min(LAST as u64));
        Some(Self { is_whole: sort == "FLOCK", kind, first, last })
    }
}

/// An open file at which processes meet. Dropping it leaves the meeting, and removes the file if nobody is left.
#[derive(Debug)]
pub struct MeetingFile {
    path: PathBuf,
    fd: Option<OwnedFd>,
}

/// The directory of such files of one sort, created if absent with the store's owner.
pub fn meeting_dir(above: &Path, sort: &str) -> io::Result<PathBuf> {
    let path = above.join(sort);
    if path.is_dir() {
        return Ok(path);
    }
    match rustix::fs::mkdir(&path, Mode::RWXU) {
        Ok(()) => {
            let fd = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
            give(&fd, above)?;
        }
        Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    Ok(path)
}

/// If root creates the file, the directory's owner becomes its owner.
fn give(fd: &OwnedFd, dir: &Path) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let owner = std::fs::metadata(dir)?;
        if owner.uid() != 0 {
            rustix::fs::fchown(fd, Some(Uid::from_raw(owner.uid())), Some(Gid::from_raw(owner.gid())))?;
        }
    }
    Ok(())
}

impl MeetingFile {
    /// Opens the file, creating it if absent. Descriptors are at least `lowest` if possible.
    pub fn open(path: &Path, lowest: i32) -> io::Result<Self> {
        loop {
            if let Some(found) = Self::enter(path, OFlags::CREATE, lowest)? {
                return Ok(found);
            }
        }
    }
    /// Like [`MeetingFile::open`], but does not create the file.
    pub fn find(path: &Path, lowest: i32) -> io::Result<Option<Self>> {
        match Self::enter(path, OFlags::empty(), lowest) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            found => found,
        }
    }
    /// `None` if the file was just being removed.
    fn enter(path: &Path, create: OFlags, lowest: i32) -> io::Result<Option<Self>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) if create == OFlags::CREATE => {
                match rustix::fs::open(path, flags | create | OFlags::EXCL, Mode::RUSR | Mode::WUSR) {
                    Ok(fd) => {
                        give(&fd, path.parent().unwrap_or(path))?;
                        fd
                    }
                    Err(rustix::io::Errno::EXIST) => return Ok(None),
                    Err(errno) => return Err(errno.into()),
                }
            }
            Err(errno) => return Err(errno.into()),
        };
        let fd = raised(fd, lowest);
        if !set(&fd, Holder::Description, Some(LockKind::Shared), PRESENCE, PRESENCE, false)? {
            std::thread::sleep(AGAIN);
            return Ok(None); // another process is removing it
        }
        if rustix::fs::fstat(&fd)?.st_nlink == 0 {
            return Ok(None);
        }
        Ok(Some(Self { path: path.to_owned(), fd: Some(fd) }))
    }
    /// Takes over a descriptor that was open before this process executed another program ([`std::os::fd::AsFd`]);
    /// `path` is the file's path.
    pub fn adopt(fd: OwnedFd, path: &Path) -> Self {
        Self { path: path.to_owned(), fd: Some(fd) }
    }
    /// Locks bytes `[start, start + len)` (`len` 0: all from `start` on), or unlocks them (`None`). With `waits`,
    /// blocks until the lock is free or a signal arrives (`EINTR`); without, a lock that is not free returns `EAGAIN`.
    pub fn lock(&self, holder: Holder, kind: Option<LockKind>, start: u64, len: u64, waits: bool) -> io::Result<()> {
        let (first, last) = range(start, len)?;
        let is_had = set(self.as_fd(), holder, kind, first, last, waits)?;
        if is_had { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EAGAIN)) }
    }
    /// The lock that conflicts with the given one, if any.
    pub fn blocking(&self, holder: Holder, kind: LockKind, start: u64, len: u64) -> io::Result<Option<Blocking>> {
        let (first, last) = range(start, len)?;
        let mut lock = structure(Some(kind), first, last);
        let command = if holder == Holder::Process { libc::F_GETLK } else { libc::F_OFD_GETLK };
        // SAFETY: the descriptor is open, the structure is whole, and it outlives the call.
        if unsafe { libc::fcntl(self.as_fd().as_raw_fd(), command, &raw mut lock) } != 0 {
            return Err(io::Error::last_os_error());
        }
        if lock.l_type == libc::F_UNLCK as i16 {
            return Ok(None);
        }
        let is_to_end = lock.l_len == 0 || lock.l_start + (lock.l_len - 1) >= LAST;
        Ok(Some(Blocking {
            kind: if lock.l_type == libc::F_RDLCK as i16 { LockKind::Shared } else { LockKind::Exclusive },
            start: lock.l_start as u64,
            len: if is_to_end { 0 } else { lock.l_len as u64 },
            pid: u32::try_from(lock.l_pid).ok().filter(|pid| *pid != 0),
        }))
    }
    /// Locks the whole file, as `flock` does, or unlocks it.
    pub fn lock_whole(&self, kind: Option<LockKind>, waits: bool) -> io::Result<()> {
        let operation = match kind {
            None => libc::LOCK_UN,
            Some(LockKind::Shared) => libc::LOCK_SH,
            Some(LockKind::Exclusive) => libc::LOCK_EX,
        };
        let operation = operation | if waits { 0 } else { libc::LOCK_NB };
        // SAFETY: the descriptor is open; nothing else is passed.
        if unsafe { libc::flock(self.as_fd().as_raw_fd(), operation) } == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
    /// The locks by this descriptor, of its description and of this process; empty if the system does not say.
    #[must_use]
    pub fn held(&self) -> Vec<HeldHere> {
        let path = format!("/proc/self/fdinfo/{}", self.as_fd().as_raw_fd());
        let said = std::fs::read_to_string(path).unwrap_or_default();
        said.lines().filter_map(|line| HeldHere::of(line.strip_prefix("lock:")?)).collect()
    }
    /// Runs `done` if no other process is present, and keeps others out meanwhile; then removes the file if `done`
    /// returns true. Returns whether no other process was present.
    pub fn alone(&self, done: impl FnOnce() -> bool) -> io::Result<bool> {
        if !set(self.as_fd(), Holder::Description, Some(LockKind::Exclusive), PRESENCE, PRESENCE, false)? {
            return Ok(false);
        }
        if done() {
            let _ = std::fs::remove_file(&self.path); // whoever waits to enter sees that the file is gone
        }
        set(self.as_fd(), Holder::Description, Some(LockKind::Shared), PRESENCE, PRESENCE, false)?;
        Ok(true)
    }
    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// Leaves the meeting and keeps the file for later processes.
    pub fn leave(mut self) {
        drop(self.fd.take());
    }
}

impl AsFd for MeetingFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        #[allow(clippy::expect_used, reason = "it is taken only by what consumes the value")]
        self.fd.as_ref().expect("open until dropped").as_fd()
    }
}

impl Drop for MeetingFile {
    fn drop(&mut self) {
        // A forked child may hold this very description: only a newly opened one shows whether that child is present.
        if self.fd.take().is_some() {
            let _ = remove_if_unused(&self.path);
        }
    }
}

/// Removes such a file if nobody has it open.
pub fn remove_if_unused(path: &Path) -> io::Result<()> {
    if let Some(here) = MeetingFile::find(path, 0)? {
        here.alone(|| true)?;
        here.leave();
    }
    Ok(())
}

/// Like [`remove_if_unused`], for all files in a directory: those of dead processes.
pub fn remove_unused(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        remove_if_unused(&entry?.path())?;
    }
    Ok(())
}

/// First and last byte of a range.
fn range(start: u64, len: u64) -> io::Result<(i64, i64)> {
    let first = i64::try_from(start).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let last = match len {
        0 => Some(LAST),
        _ => start.checked_add(len - 1).and_then(|last| i64::try_from(last).ok()),
    };
    let last = last.ok_or_else(|| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    Ok((first.min(LAST), last.min(LAST)))
}

fn structure(kind: Option<LockKind>, first: i64, last: i64) -> libc::flock {
    let kind = match kind {
        None => libc::F_UNLCK,
        Some(LockKind::Shared) => libc::F_RDLCK,
        Some(LockKind::Exclusive) => libc::F_WRLCK,
    };
    // The length of a range to the kernel's last byte does not fit: 0 stands for it.
    let len = if last == i64::MAX { 0 } else { last - first + 1 };
    libc::flock { l_type: kind as i16, l_whence: libc::SEEK_SET as i16, l_start: first, l_len: len, l_pid: 0 }
}

/// Returns false if the lock is not free now.
fn set(fd: impl AsFd, holder: Holder, kind: Option<LockKind>, first: i64, last: i64, waits: bool) -> io::Result<bool> {
    let lock = structure(kind, first, last);
    let command = match (holder, waits) {
        (Holder::Process, false) => libc::F_SETLK,
        (Holder::Process, true) => libc::F_SETLKW,
        (Holder::Description, false) => libc::F_OFD_SETLK,
        (Holder::Description, true) => libc::F_OFD_SETLKW,
    };
    // SAFETY: the descriptor is open, the structure is whole, and it outlives the call.
    if unsafe { libc::fcntl(fd.as_fd().as_raw_fd(), command, &raw const lock) } == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) if !waits => Ok(false),
        _ => Err(error),
    }
}

/// Moves the file to a descriptor number that programs do not use; keeps its number if none is free.
fn raised(fd: OwnedFd, lowest: i32) -> OwnedFd {
    if lowest <= fd.as_raw_fd() {
        return fd;
    }
    // SAFETY: the descriptor is open; what comes back is a new one that nobody else has.
    match unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) } {
        // SAFETY: as above.
        high if high >= 0 => unsafe { OwnedFd::from_raw_fd(high) },
        _ => fd,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cenote-meeting-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn who_leaves_last_removes_the_file() {
        let _counting = crate::process::STARTING.write().unwrap();
        let dir = place("last");
        let path = dir.join("f");
        let (one, other) = (MeetingFile::open(&path, 0).unwrap(), MeetingFile::open(&path, 500).unwrap());
        assert!(other.as_fd().as_raw_fd() >= 500);
        assert!(!one.alone(|| true).unwrap());
        drop(one);
        assert!(path.exists());
        assert!(other.alone(|| false).unwrap() && path.exists());
        drop(other);
        assert!(!path.exists());
        assert!(MeetingFile::find(&path, 0).unwrap().is_none());
        // A dead process left it behind.
        MeetingFile::open(&path, 0).unwrap().leave();
        let stays = MeetingFile::open(&dir.join("g"), 0).unwrap();
        remove_unused(&dir).unwrap();
        assert!(!path.exists() && stays.path().exists());
        drop(stays);
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn ranges_are_held_by_descriptions() {
        let dir = place("ranges");
        let (one, other) =
            (MeetingFile::open(&dir.join("f"), 0).unwrap(), MeetingFile::open(&dir.join("f"), 0).unwrap());
        let held = Holder::Description;
        one.lock(held, Some(LockKind::Exclusive), 10, 0, false).unwrap();
        let refused = other.lock(held, Some(LockKind::Shared), 5, 6, false).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EAGAIN));
        let found = other.blocking(held, LockKind::Shared, 0, 0).unwrap().unwrap();
        assert_eq!(found, Blocking { kind: LockKind::Exclusive, start: 10, len: 0, pid: None });
        other.lock(held, Some(LockKind::Shared), 5, 5, false).unwrap();
        one.lock(held, None, 0, 0, false).unwrap();
        assert_eq!(
            one.blocking(held, LockKind::Exclusive, 0, 0).unwrap().map(|found| (found.start, found.len)),
            Some((5, 5))
        );
        assert!(one.held().is_empty());
        one.lock_whole(Some(LockKind::Exclusive), false).unwrap();
        other.lock(held, Some(LockKind::Exclusive), 70, 0, false).unwrap();
        let range = |kind, first, last| HeldHere { is_whole: false, kind, first, last };
        let whole = HeldHere { is_whole: true, kind: LockKind::Exclusive, first: 0, last: LAST as u64 };
        assert_eq!(one.held(), [whole]);
        let mut both = other.held();
        both.sort_by_key(|held| held.first);
        assert_eq!(both, [range(LockKind::Shared, 5, 9), range(LockKind::Exclusive, 70, LAST as u64)]);
        other.lock(held, None, 70, 0, false).unwrap();
        assert_eq!(other.lock_whole(Some(LockKind::Shared), false).unwrap_err().raw_os_error(), Some(libc::EAGAIN));
        // Nobody can lock the presence byte as part of a range; a range that goes too far is an example.
        other.lock(held, Some(LockKind::Exclusive), i64::MAX as u64, 0, false).unwrap();
        assert!(MeetingFile::open(one.path(), 0).is_ok());
        assert_eq!(one.lock(held, None, 2, u64::MAX, false).unwrap_err().raw_os_error(), Some(libc::EOVERFLOW));
        drop((one, other));
        std::fs::remove_dir(&dir).unwrap();
    }
}
