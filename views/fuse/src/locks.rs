//! Locks. `cenote-posix` has them for all programs of the machine; here the kernel's numbers of owners become its own, and whoever waits gets a thread:
//! those that read requests must not all wait for one that is not read.

use std::collections::HashMap;
use std::sync::Arc;

use cenote_posix::{File, FsError, FsResult, Ino, LockKind, LockOwner, LockRange, LockWait};
use parking_lot::Mutex;

use crate::answer::errno;
use crate::kernel::abi::{self, op};
use crate::kernel::{Args, Fields};
use crate::serving::{Answer, Call, Serving};

/// The last byte that can be locked, by which the kernel means all that follow.
const END: u64 = i64::MAX as u64;
/// Programs that wait for a lock at the same time; more are `ENOLCK`.
const WAITING_MAX: usize = 4096;

/// Who has locks by this mount.
#[derive(Default)]
pub struct Owners(Mutex<HashMap<Ino, Vec<Owner>>>);

struct Owner {
    number: u64,
    /// What it was open as: the kernel does not say that the locks of an open file (`F_OFD_SETLK`) are over, but that the file is.
    handle: u64,
    pid: u32,
    first: u64,
    last: u64,
}

/// What a program asks for.
struct Wanted {
    handle: u64,
    owner: u64,
    pid: u32,
    kind: Option<LockKind>,
    first: u64,
    last: u64,
    is_whole: bool,
}

impl Owners {
    fn note(&self, ino: Ino, wanted: &Wanted) {
        if wanted.is_whole {
            // The kernel says when they are over, and nobody can ask for them.
            return;
        }
        let mut all = self.0.lock();
        let of_file = all.entry(ino).or_default();
        of_file.retain(|other| other.number != wanted.owner || other.first < wanted.first || other.last > wanted.last);
        if wanted.kind.is_some() {
            let (first, last) = (wanted.first, wanted.last);
            of_file.push(Owner { number: wanted.owner, handle: wanted.handle, pid: wanted.pid, first, last });
        }
        if of_file.is_empty() {
            all.remove(&ino);
        }
    }
    fn forget(&self, ino: Ino, owner: u64) {
        let mut all = self.0.lock();
        if let Some(of_file) = all.get_mut(&ino) {
            of_file.retain(|other| other.number != owner);
            if of_file.is_empty() {
                all.remove(&ino);
            }
        }
    }
    fn by_handle(&self, ino: Ino, handle: u64) -> Vec<u64> {
        let all = self.0.lock();
        let of_file = all.get(&ino).into_iter().flatten();
        of_file.filter(|owner| owner.handle == handle).map(|owner| owner.number).collect()
    }
    fn pid(&self, ino: Ino, asks: u64, first: u64, last: u64) -> Option<u32> {
        let all = self.0.lock();
        let meets = |other: &&Owner| other.number != asks && other.first <= last && other.last >= first;
        all.get(&ino)?.iter().find(meets).map(|owner| owner.pid)
    }
}

impl Wanted {
    fn of(args: &mut Args<'_>) -> FsResult<Self> {
        let (handle, owner) = (args.u64()?, args.u64()?);
        let (first, last, kind, pid) = (args.u64()?, args.u64()?, args.u32()?, args.u32()?);
        let is_whole = args.u32()? & abi::LOCK_WHOLE != 0;
        let kind = match kind.cast_signed() {
            libc::F_RDLCK => Some(LockKind::Shared),
            libc::F_WRLCK => Some(LockKind::Exclusive),
            libc::F_UNLCK => None,
            _ => return Err(FsError::new(libc::EINVAL)),
        };
        Ok(Self { handle, owner, pid, kind, first, last, is_whole })
    }
    fn range(&self) -> LockRange {
        LockRange { start: self.first, len: if self.last >= END { 0 } else { self.last - self.first + 1 } }
    }
    fn take(&self, file: &File, kind: Option<LockKind>, wait: LockWait<'_>) -> FsResult<()> {
        let owner = LockOwner::Number(self.owner);
        if self.is_whole { file.flock(owner, kind, wait) } else { file.lock(owner, kind, self.range(), wait) }
    }
}

impl Serving {
    pub fn answer_lock(self: &Arc<Self>, call: &mut Call<'_>, mut args: Args<'_>) -> FsResult<Answer> {
        let wanted = Wanted::of(&mut args)?;
        let file = self.file(wanted.handle)?;
        if call.request.op == op::GETLK {
            return self.lock_in_the_way(&file, &wanted);
        }
        match wanted.take(&file, wanted.kind, LockWait::No) {
            Err(error) if error.errno == libc::EAGAIN && call.request.op == op::SETLKW => {
                self.wait_for_lock(call, file, wanted)
            }
            done => {
                done?;
                self.owners.note(file.ino(), &wanted);
                Ok(Answer::done())
            }
        }
    }
    fn lock_in_the_way(&self, file: &File, wanted: &Wanted) -> FsResult<Answer> {
        let kind = wanted.kind.ok_or_else(|| FsError::new(libc::EINVAL))?;
        let fields = Fields::new();
        let Some(held) = file.lock_in_the_way(LockOwner::Number(wanted.owner), kind, wanted.range())? else {
            return Ok(Answer::fields(fields.zeros(16).u32(libc::F_UNLCK.cast_unsigned()).u32(0)));
        };
        let first = held.range.start;
        let last = if held.range.len == 0 { END } else { first + held.range.len - 1 };
        let pid = held.pid.or_else(|| self.owners.pid(file.ino(), wanted.owner, first, last)).unwrap_or(0);
        let kind = if held.kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
        Ok(Answer::fields(fields.u64(first).u64(last).u32(kind.cast_unsigned()).u32(pid)))
    }
    /// Waits in a thread of its own, until the lock is free or a signal comes.
    fn wait_for_lock(self: &Arc<Self>, call: &mut Call<'_>, file: Arc<File>, wanted: Wanted) -> FsResult<Answer> {
        let flights = call.way.flights.clone();
        if flights.handed_on() >= WAITING_MAX {
            return Err(FsError::new(libc::ENOLCK));
        }
        let (serving, reply, unique) = (self.clone(), call.way.reply.clone(), call.request.unique);
        let Some(flight) = flights.hand_on(call.way.flight) else { return Ok(Answer::silent()) };
        let (own, of_own) = (flight.clone(), flights.clone());
        let wait = move || {
            let goes_on = || own.goes_on(unique);
            let done = wanted.take(&file, wanted.kind, LockWait::While(&goes_on));
            if done.is_ok() {
                serving.owners.note(file.ino(), &wanted);
            }
            let is_told = reply.done(&own, done.as_ref().map_or_else(errno, |()| 0));
            if done.is_ok() && !is_told {
                // Whoever wanted it is dead, or will be: nobody would let go of it.
                let _ = wanted.take(&file, None, LockWait::No);
                serving.owners.forget(file.ino(), wanted.owner);
            }
            if let Err(error) = Serving::close(file) {
                tracing::debug!("a file was closed with an error: {error}");
            }
            of_own.forget(&own);
        };
        let thread = std::thread::Builder::new().name("cenote-lock".into()).stack_size(256 << 10);
        if thread.spawn(wait).is_err() {
            call.way.reply.done(&flight, libc::ENOLCK);
            flights.forget(&flight);
        }
        Ok(Answer::silent())
    }
    /// An owner has closed the file once: its locks go.
    pub fn closed_by(&self, file: &File, owner: u64) {
        file.closed_by(LockOwner::Number(owner));
        self.owners.forget(file.ino(), owner);
    }
    /// The last descriptor of an open file is closed: its locks go.
    pub fn closed_for_good(&self, file: &File, handle: u64) {
        for owner in self.owners.by_handle(file.ino(), handle) {
            self.closed_by(file, owner);
        }
    }
}
