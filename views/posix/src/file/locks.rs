//! Advisory locks, as `flock` and `fcntl` have them, among all processes of a machine.
//!
//! The kernel keeps them, on a file of its own for each node that is locked ([`cenote::MeetingFile`]): so they end with the process that has
//! them, wait fairly, find deadlocks, and mounts, preloaded programs and others see each other's. Nothing of them is in the store.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cenote::{ErrorKind, Holder, LockKind, MeetingFile, fork_generation};

use crate::file::{File, Live};
use crate::sync::Mutex;
use crate::{FsError, FsResult, fail, gate};

/// The sort of meeting files.
const SORT: &str = "locks";
/// The first pause of who waits and looks now and then whether he still should; and the longest.
const PAUSE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(10));

/// Who has a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockOwner {
    /// This process (`F_SETLK`): its threads share it, its children do not have it, and it goes when the process closes any descriptor of the file
    /// ([`File::closed_by`]).
    Process,
    /// Whoever has this [`File`], a forked child as well (`flock`, `F_OFD_SETLK`).
    File,
    /// Somebody whom the caller numbers, as the kernel does for a mount; its locks go with [`File::closed_by`].
    Number(u64),
}

/// Bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    /// The first.
    pub start: u64,
    /// How many; 0: all that follow, however long the file becomes.
    pub len: u64,
}

/// What to do while another has a lock.
#[derive(Clone, Copy)]
pub enum LockWait<'a> {
    /// `EAGAIN`.
    No,
    /// Wait in the kernel: `EINTR` when a signal comes, `EDEADLK` if owners that are processes would wait for each other.
    Yes,
    /// Wait, and look at this every some milliseconds: `EINTR` once it is false. For who is not the process that asked.
    While(&'a dyn Fn() -> bool),
}

/// A lock that is in the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// Its kind.
    pub kind: LockKind,
    /// Its bytes.
    pub range: LockRange,
    /// The process that has it, if it is one's and not an open file's.
    pub pid: Option<u32>,
}

/// Where a process meets others at a file that it has open.
#[derive(Debug, Default)]
pub struct Meetings {
    /// For locks of the process.
    process: Mutex<Option<Arc<MeetingFile>>>,
    /// Fork generation, plus one, of the process that took some.
    locked_by: AtomicU64,
    /// For locks of those who have numbers.
    numbers: Mutex<Vec<(u64, Arc<MeetingFile>)>>,
}

fn of_io(error: &io::Error) -> FsError {
    FsError::new(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Live {
    /// A file in shared memory where all meet who have this one open.
    fn meet(&self) -> FsResult<MeetingFile> {
        // Once a process, before it has locked anything.
        static IS_SWEPT: AtomicBool = AtomicBool::new(false);
        let options = &self.tree.common.options;
        // To open one under another number closes it under its first, and closing takes the process's locks away.
        let lowest = if self.has_process_locks() { 0 } else { options.descriptors_from };
        let name = format!("{:016x}", self.tree.whole(self.ino).0);
        let store = self.tree.container.store();
        if !IS_SWEPT.swap(true, Ordering::AcqRel) {
            let _ = store.sweep_meeting_files(SORT); // what cannot be removed now can be later
        }
        store.meeting_file(SORT, &name, lowest).map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EMFILE | libc::ENFILE) => of_io(&error),
            _ => FsError::because(
                libc::ENOLCK,
                ErrorKind::PermissionDenied,
                "advisory lock",
                format!("the store's directory in shared memory, where processes meet, cannot be used: {error}"),
            ),
        })
    }
    fn has_process_locks(&self) -> bool {
        self.meetings.locked_by.load(Ordering::Acquire) == fork_generation() + 1
    }
}

impl File {
    /// Locks a range, or unlocks it (`None`), as `fcntl` does. `EBADF` unless the file was opened for reading (shared), for writing (exclusive).
    pub fn lock(&self, owner: LockOwner, kind: Option<LockKind>, range: LockRange, wait: LockWait<'_>) -> FsResult<()> {
        match kind {
            Some(LockKind::Shared) => self.need_read()?,
            Some(LockKind::Exclusive) => self.need_write()?,
            None => {}
        }
        let holder = if owner == LockOwner::Process { Holder::Process } else { Holder::Description };
        if kind.is_some() && owner == LockOwner::Process {
            let me = fork_generation() + 1;
            self.meeting(owner, true)?; // under its last number before anything is locked
            self.live().meetings.locked_by.store(me, Ordering::Release);
        }
        self.attempt(owner, kind.is_some(), wait, |here, waits| here.lock(holder, kind, range.start, range.len, waits))
    }
    /// What keeps such a lock from being had, if anything does (`F_GETLK`).
    pub fn lock_in_the_way(&self, owner: LockOwner, kind: LockKind, range: LockRange) -> FsResult<Option<HeldLock>> {
        let holder = if owner == LockOwner::Process { Holder::Process } else { Holder::Description };
        let Some(here) = self.meeting(owner, true)? else { return Ok(None) };
        let found = here.blocking(holder, kind, range.start, range.len).map_err(|error| of_io(&error))?;
        Ok(found.map(|found| HeldLock {
            kind: found.kind,
            range: LockRange { start: found.start, len: found.len },
            pid: found.pid,
        }))
    }
    /// Locks the file as a whole, or unlocks it, as `flock` does: for [`LockOwner::File`] or [`LockOwner::Number`], whatever it was opened for. Such
    /// locks and those of ranges know nothing of each other.
    pub fn flock(&self, owner: LockOwner, kind: Option<LockKind>, wait: LockWait<'_>) -> FsResult<()> {
        if owner == LockOwner::Process {
            return fail(libc::EINVAL);
        }
        self.attempt(owner, kind.is_some(), wait, |here, waits| here.lock_whole(kind, waits))
    }
    /// `owner` closed a descriptor of the file: what it had locked is free ([`LockOwner::Process`] and [`LockOwner::Number`]). To be called at
    /// each `close` by a process, since POSIX takes the locks away whichever descriptor it is.
    pub fn closed_by(&self, owner: LockOwner) {
        let _in = gate::enter();
        let live = self.live();
        match owner {
            LockOwner::Process if live.has_process_locks() => {
                live.meetings.locked_by.store(0, Ordering::Release);
                if let Some(here) = &*live.meetings.process.lock() {
                    let _ = here.lock(Holder::Process, None, 0, 0, false); // to unlock cannot fail
                }
            }
            LockOwner::Number(number) => {
                let mut numbers = live.meetings.numbers.lock();
                if let Some(at) = numbers.iter().position(|(other, _)| *other == number) {
                    drop(numbers.swap_remove(at));
                }
            }
            LockOwner::Process | LockOwner::File => {}
        }
    }
    /// The descriptor that has the locks of an owner, if it has any: who goes on as another program (`exec`) hands it over, since the locks stay for as
    /// long as it is open. Closed at `exec` unless that is changed.
    pub fn lock_descriptor(&self, owner: LockOwner, with: &mut dyn FnMut(BorrowedFd<'_>)) {
        let _in = gate::enter();
        match owner {
            LockOwner::Process => self.live().meetings.process.lock().iter().for_each(|here| with(here.as_fd())),
            LockOwner::File => self.meeting.lock().iter().for_each(|here| with(here.as_fd())),
            LockOwner::Number(_) => {}
        }
    }
    /// Takes over what [`File::lock_descriptor`] of the program before gave.
    pub fn adopt_lock_descriptor(&self, owner: LockOwner, fd: OwnedFd) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.known();
        let path = live.tree.container.store().meeting_dir(SORT).map_err(|error| of_io(&error))?;
        let here = MeetingFile::adopt(fd, &path.join(format!("{:016x}", live.tree.whole(live.ino).0)));
        match owner {
            LockOwner::Process => {
                *live.meetings.process.lock() = Some(Arc::new(here));
                live.meetings.locked_by.store(fork_generation() + 1, Ordering::Release);
            }
            LockOwner::File => *self.meeting.lock() = Some(Arc::new(here)),
            LockOwner::Number(_) => return fail(libc::EINVAL),
        }
        Ok(())
    }
    /// What an owner's locks are on. None: it has none, and none is to be made.
    fn meeting(&self, owner: LockOwner, makes: bool) -> FsResult<Option<Arc<MeetingFile>>> {
        let _in = gate::enter();
        let live = self.known();
        match owner {
            LockOwner::Process | LockOwner::File => {
                let mut own =
                    if owner == LockOwner::Process { live.meetings.process.lock() } else { self.meeting.lock() };
                if own.is_none() && makes {
                    *own = Some(Arc::new(live.meet()?));
                }
                Ok(own.clone())
            }
            LockOwner::Number(number) => {
                let mut numbers = live.meetings.numbers.lock();
                if let Some((_, here)) = numbers.iter().find(|(other, _)| *other == number) {
                    return Ok(Some(here.clone()));
                }
                if !makes {
                    return Ok(None);
                }
                let here = Arc::new(live.meet()?);
                numbers.push((number, here.clone()));
                Ok(Some(here))
            }
        }
    }
    fn attempt(
        &self,
        owner: LockOwner,
        makes: bool,
        wait: LockWait<'_>,
        lock: impl Fn(&MeetingFile, bool) -> io::Result<()>,
    ) -> FsResult<()> {
        let Some(here) = self.meeting(owner, makes)? else { return Ok(()) };
        match (lock(&here, matches!(wait, LockWait::Yes)), wait) {
            (Err(error), LockWait::While(goes_on)) if error.raw_os_error() == Some(libc::EAGAIN) => {
                let mut pause = PAUSE.0;
                while goes_on() {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE.1);
                    match lock(&here, false) {
                        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {}
                        done => return done.map_err(|error| of_io(&error)),
                    }
                }
                fail(libc::EINTR)
            }
            (done, _) => done.map_err(|error| of_io(&error)),
        }
    }
}
