//! Advisory locks, as `flock` and `fcntl` define them, among all processes of a machine, and of a cluster.
//!
//! The kernel keeps them on a separate file for each locked node ([`cenote_host::meeting::MeetingFile`]). So locks end with their process, waiting is fair, the
//! kernel finds deadlocks, and mounts, preloaded programs and others see each other's locks. The store records none of them.
//! Between the nodes of a cluster, each node's kernel has the locks of its processes, and `node_locks` takes care that no other node's has a conflicting one.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote::ErrorKind;
use cenote_host::fork::generation as fork_generation;
use cenote_host::meeting::{Holder, LockKind, MeetingFile};

use super::node_locks::{LockCall, Meeting};
use crate::file::{File, Live};
use crate::sync::Mutex;
use crate::{FsError, FsResult, fail, gate};

/// Name of this kind of meeting files.
const SORT: &str = "locks";

/// Owner of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockOwner {
    /// This process (`F_SETLK`): its threads share the lock, its children do not inherit it, and it ends when the process closes any descriptor of the
    /// file ([`File::closed_by`]).
    Process,
    /// Every holder of this [`File`], including a forked child (`flock`, `F_OFD_SETLK`).
    File,
    /// An owner numbered by the caller, as the kernel does for a mount; [`File::closed_by`] releases its locks.
    Number(u64),
}

/// A byte range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LockRange {
    /// First byte.
    pub start: u64,
    /// Length in bytes; 0: to the end, however long the file becomes.
    pub len: u64,
}

/// What to do while another owner has a conflicting lock.
#[derive(Clone, Copy)]
pub enum LockWait<'a> {
    /// Return `EAGAIN`.
    No,
    /// Wait in the kernel: `EINTR` when a signal arrives, `EDEADLK` if owners that are processes would wait for each other.
    Yes,
    /// Like `Yes`; each system call that waits is made by this function, which is given the call. For callers who must know when they wait.
    Within(&'a dyn Fn(&mut dyn FnMut())),
    /// Wait, and call this every few milliseconds: `EINTR` once it returns false. For callers other than the process that asked.
    While(&'a dyn Fn() -> bool),
}

/// A conflicting lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldLock {
    /// Shared or exclusive.
    pub kind: LockKind,
    /// Its byte range.
    pub range: LockRange,
    /// The owning process, unless an open file owns the lock.
    pub pid: Option<u32>,
    /// It is a process of another node of the cluster.
    pub is_elsewhere: bool,
}

/// Meeting files of an open file.
#[derive(Debug, Default)]
pub struct Meetings {
    /// For locks of the process.
    process: Mutex<Option<Arc<Meeting>>>,
    /// Fork generation, plus one, of the process that took locks.
    locked_by: AtomicU64,
    /// For locks of numbered owners.
    numbers: Mutex<Vec<(u64, Arc<Meeting>)>>,
}

pub fn of_io(error: &io::Error) -> FsError {
    FsError::new(error.raw_os_error().unwrap_or(libc::EIO))
}

impl Live {
    /// Opens a file in shared memory that is common to all who have this one open.
    fn meet(&self) -> FsResult<Meeting> {
        // Once per process, before it locks anything.
        static IS_SWEPT: AtomicBool = AtomicBool::new(false);
        let options = &self.tree.common.options;
        // Moving a descriptor to a higher number closes the first number, and that close releases the process's locks.
        let lowest = if self.has_process_locks() { 0 } else { options.descriptors_from };
        let name = format!("{:016x}", self.tree.whole(self.ino).0);
        let store = self.tree.container.store();
        if !IS_SWEPT.swap(true, Ordering::AcqRel) {
            let _ = store.sweep_meeting_files(SORT); // a later sweep removes what cannot be removed now
        }
        store.meeting_file(SORT, &name, lowest).map(Meeting::of).map_err(|error| match error.raw_os_error() {
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
    /// Locks a range, or unlocks it (`None`), as `fcntl` does. `EBADF` unless the file was opened for reading (shared) or writing (exclusive).
    pub fn lock(&self, owner: LockOwner, kind: Option<LockKind>, range: LockRange, wait: LockWait<'_>) -> FsResult<()> {
        match kind {
            Some(LockKind::Shared) => self.need_read()?,
            Some(LockKind::Exclusive) => self.need_write()?,
            None => {}
        }
        let holder = if owner == LockOwner::Process { Holder::Process } else { Holder::Description };
        if owner == LockOwner::Process && !self.live().has_process_locks() {
            // What a parent had is not this process's.
            self.live().meetings.process.lock().iter().for_each(|here| here.forget());
        }
        if kind.is_some() && owner == LockOwner::Process {
            let me = fork_generation() + 1;
            self.meeting(owner, true)?; // gets its final descriptor before anything is locked
            self.live().meetings.locked_by.store(me, Ordering::Release);
        }
        self.attempt(owner, &LockCall { holder, is_whole: false, kind, range }, wait)
    }
    /// Returns a lock that conflicts with this one, if any (`F_GETLK`).
    pub fn lock_in_the_way(&self, owner: LockOwner, kind: LockKind, range: LockRange) -> FsResult<Option<HeldLock>> {
        let holder = if owner == LockOwner::Process { Holder::Process } else { Holder::Description };
        let Some(here) = self.meeting(owner, true)? else { return Ok(None) };
        let found = here.file().blocking(holder, kind, range.start, range.len).map_err(|error| of_io(&error))?;
        match found {
            Some(found) => Ok(Some(HeldLock {
                kind: found.kind,
                range: LockRange { start: found.start, len: found.len },
                pid: found.pid,
                is_elsewhere: false,
            })),
            None => self.live().lock_elsewhere(&LockCall { holder, is_whole: false, kind: Some(kind), range }),
        }
    }
    /// Locks the whole file, or unlocks it, as `flock` does: for [`LockOwner::File`] or [`LockOwner::Number`], whatever the open mode. Such locks and
    /// range locks ignore each other.
    pub fn flock(&self, owner: LockOwner, kind: Option<LockKind>, wait: LockWait<'_>) -> FsResult<()> {
        if owner == LockOwner::Process {
            return fail(libc::EINVAL);
        }
        let range = LockRange { start: 0, len: 0 };
        self.attempt(owner, &LockCall { holder: Holder::Description, is_whole: true, kind, range }, wait)
    }
    /// Releases the locks of an owner that closed a descriptor of the file ([`LockOwner::Process`] and [`LockOwner::Number`]). A process must call this
    /// at every `close`, since POSIX releases its locks whichever descriptor is closed.
    pub fn closed_by(&self, owner: LockOwner) {
        let _in = gate::enter();
        let live = self.live();
        match owner {
            LockOwner::Process if live.has_process_locks() => {
                live.meetings.locked_by.store(0, Ordering::Release);
                if let Some(here) = &*live.meetings.process.lock() {
                    let _ = here.file().lock(Holder::Process, None, 0, 0, false); // unlocking cannot fail
                    here.forget();
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
    /// Calls `with` with the descriptor that has an owner's locks, if there is one: a process that executes another program (`exec`) hands it over,
    /// since the locks last as long as it is open. It is closed at `exec` unless the caller changes that.
    pub fn lock_descriptor(&self, owner: LockOwner, with: &mut dyn FnMut(BorrowedFd<'_>)) {
        let _in = gate::enter();
        match owner {
            LockOwner::Process => self.live().meetings.process.lock().iter().for_each(|here| with(here.file().as_fd())),
            LockOwner::File => self.meeting.lock().iter().for_each(|here| with(here.file().as_fd())),
            LockOwner::Number(_) => {}
        }
    }
    /// Under which number an owner got its locks from the node; 0: there are none. The next program needs it, too.
    pub fn lock_era(&self, owner: LockOwner) -> u64 {
        self.meeting(owner, false).ok().flatten().map_or(0, |here| here.era())
    }
    /// Adopts the descriptor that [`File::lock_descriptor`] gave to the previous program, and the number of [`File::lock_era`].
    pub fn adopt_lock_descriptor(&self, owner: LockOwner, fd: OwnedFd, era: u64) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.known();
        let path = live.tree.container.store().meeting_dir(SORT).map_err(|error| of_io(&error))?;
        let here = MeetingFile::adopt(fd, &path.join(format!("{:016x}", live.tree.whole(live.ino).0)));
        let here = Meeting::adopted(here, era);
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
    /// Returns the meeting file of an owner's locks. `None`: the owner has none, and `makes` is false.
    fn meeting(&self, owner: LockOwner, makes: bool) -> FsResult<Option<Arc<Meeting>>> {
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
    fn attempt(&self, owner: LockOwner, call: &LockCall, wait: LockWait<'_>) -> FsResult<()> {
        let Some(here) = self.meeting(owner, call.kind.is_some())? else { return Ok(()) };
        if self.live().is_of_cluster() {
            return self.live().lock_between_nodes(&here, call, wait);
        }
        here.in_kernel(call, wait).map_err(|error| of_io(&error))
    }
}
