//! Locks. `cenote-posix` provides them for all programs of the machine; this module converts the kernel's owner
//! numbers, and gives each waiting request a thread: the threads that read requests must not all wait for one that is
//! not read.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;

use cenote_posix::{File, FsError, FsResult, Ino, LockKind, LockOwner, LockRange, LockWait};
use parking_lot::Mutex;

use crate::answer::errno;
use crate::kernel::abi::{self, op};
use crate::kernel::{Args, Fields};
use crate::serving::{Answer, Call, Serving};

/// The last byte that can be locked; the kernel uses it for all bytes that follow.
const END: u64 = i64::MAX as u64;
/// Upper bound of programs that wait for a lock at the same time; more get `ENOLCK`.
const WAITING_MAX: usize = 4096;

/// The owners of range locks by this mount, and the waiting requests.
#[derive(Default)]
pub struct Owners(Mutex<LockState>);

#[derive(Default)]
struct LockState {
    held: HashMap<Ino, Vec<Owner>>,
    waiting: Vec<(Ino, Range)>,
}

#[derive(Clone)]
struct Owner {
    range: Range,
    /// Handle that it was taken by: the kernel reports the end of the open file, but not of its locks (`F_OFD_SETLK`).
    handle: u64,
    pid: u32,
}

/// A range that somebody has or wants.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Range {
    owner: u64,
    kind: LockKind,
    first: u64,
    last: u64,
}

/// A lock request.
struct Wanted {
    handle: u64,
    owner: u64,
    pid: u32,
    kind: Option<LockKind>,
    first: u64,
    last: u64,
    is_whole: bool,
}

impl Range {
    fn meets(&self, first: u64, last: u64) -> bool {
        self.first <= last && self.last >= first
    }
    /// Returns true if this lock conflicts with another request.
    fn is_in_the_way_of(&self, other: &Self) -> bool {
        let excludes = self.kind == LockKind::Exclusive || other.kind == LockKind::Exclusive;
        excludes && self.owner != other.owner && self.meets(other.first, other.last)
    }
}

impl Owners {
    fn note(&self, ino: Ino, wanted: &Wanted) {
        if wanted.is_whole {
            // The kernel reports their end, and nobody can query them.
            return;
        }
        let mut state = self.0.lock();
        let of_file = state.held.entry(ino).or_default();
        let (first, last) = (wanted.first, wanted.last);
        // Cuts off the owner's previous locks in the range.
        let mut rest = Vec::new();
        of_file.retain(|other| {
            let is_cut = other.range.owner == wanted.owner && other.range.meets(first, last);
            if is_cut && other.range.first < first {
                rest.push(Owner { range: Range { last: first - 1, ..other.range }, ..other.clone() });
            }
            if is_cut && other.range.last > last {
                rest.push(Owner { range: Range { first: last + 1, ..other.range }, ..other.clone() });
            }
            !is_cut
        });
        of_file.append(&mut rest);
        if let Some(range) = wanted.wish() {
            of_file.push(Owner { range, handle: wanted.handle, pid: wanted.pid });
        }
        if of_file.is_empty() {
            state.held.remove(&ino);
        }
    }
    fn forget(&self, ino: Ino, owner: u64) {
        let mut state = self.0.lock();
        if let Some(of_file) = state.held.get_mut(&ino) {
            of_file.retain(|other| other.range.owner != owner);
            if of_file.is_empty() {
                state.held.remove(&ino);
            }
        }
    }
    fn by_handle(&self, ino: Ino, handle: u64) -> Vec<u64> {
        let state = self.0.lock();
        let of_file = state.held.get(&ino).into_iter().flatten();
        of_file.filter(|owner| owner.handle == handle).map(|owner| owner.range.owner).collect()
    }
    fn pid(&self, ino: Ino, asks: u64, first: u64, last: u64) -> Option<u32> {
        let state = self.0.lock();
        let meets = |other: &&Owner| other.range.owner != asks && other.range.meets(first, last);
        state.held.get(&ino)?.iter().find(meets).map(|owner| owner.pid)
    }
    fn begin_waiting(&self, ino: Ino, wish: Range) {
        self.0.lock().waiting.push((ino, wish));
    }
    fn end_waiting(&self, ino: Ino, wish: Range) {
        let mut state = self.0.lock();
        if let Some(at) = state.waiting.iter().position(|waiting| *waiting == (ino, wish)) {
            state.waiting.swap_remove(at);
        }
    }
    /// Returns true if the holder of the conflicting lock waits, directly or through others on this mount, for a lock
    /// of this owner.
    fn is_deadlock(&self, ino: Ino, wish: Range) -> bool {
        let state = self.0.lock();
        let (mut wishes, mut seen) = (vec![(ino, wish)], Vec::new());
        while let Some((ino, wanted)) = wishes.pop() {
            for owner in state.held.get(&ino).into_iter().flatten() {
                let number = owner.range.owner;
                if !owner.range.is_in_the_way_of(&wanted) || seen.contains(&number) {
                    continue;
                }
                if number == wish.owner {
                    return true;
                }
                seen.push(number);
                wishes.extend(state.waiting.iter().filter(|(_, wish)| wish.owner == number));
            }
        }
        false
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
    /// The requested range; `None` for an unlock.
    fn wish(&self) -> Option<Range> {
        self.kind.map(|kind| Range { owner: self.owner, kind, first: self.first, last: self.last })
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
        let here = held.pid.or_else(|| self.owners.pid(file.ino(), wanted.owner, first, last));
        // The kernel would take the number for that of a process of this machine.
        let pid = here.filter(|_| !held.is_elsewhere).unwrap_or(0);
        let kind = if held.kind == LockKind::Shared { libc::F_RDLCK } else { libc::F_WRLCK };
        Ok(Answer::fields(fields.u64(first).u64(last).u32(kind.cast_unsigned()).u32(pid)))
    }
    /// Waits on a thread of its own, until the lock is free or a signal comes.
    fn wait_for_lock(self: &Arc<Self>, call: &mut Call<'_>, file: Arc<File>, wanted: Wanted) -> FsResult<Answer> {
        let requests = call.context.requests.clone();
        if requests.handed_on() >= WAITING_MAX {
            return Err(FsError::new(libc::ENOLCK));
        }
        let (serving, reply, unique) = (self.clone(), call.context.reply.clone(), call.request.unique);
        let Some(in_flight) = requests.hand_on(call.context.in_flight) else { return Ok(Answer::silent()) };
        let (own, of_own) = (in_flight.clone(), requests.clone());
        let wait = move || {
            let done = serving.wait(&file, &wanted, || own.goes_on(unique));
            if done.is_ok() {
                serving.owners.note(file.ino(), &wanted);
            }
            let is_told = reply.done(&own, done.as_ref().map_or_else(errno, |()| 0));
            if done.is_ok() && !is_told {
                // The caller is dead or dying, and nobody else would release the lock.
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
            call.context.reply.done(&in_flight, libc::ENOLCK);
            requests.forget(&in_flight);
        }
        Ok(Answer::silent())
    }
    /// Waits for a lock until `goes_on` returns false or there is a deadlock.
    fn wait(&self, file: &File, wanted: &Wanted, goes_on: impl Fn() -> bool) -> FsResult<()> {
        let Some(wish) = wanted.wish().filter(|_| !wanted.is_whole) else {
            return wanted.take(file, wanted.kind, LockWait::While(&goes_on));
        };
        let (ino, times) = (file.ino(), Cell::new(0));
        self.owners.begin_waiting(ino, wish);
        let goes_on = || {
            // Owners are noted a moment later: the deadlock must be seen twice.
            times.set(if self.owners.is_deadlock(ino, wish) { times.get() + 1 } else { 0 });
            times.get() < 2 && goes_on()
        };
        let done = wanted.take(file, wanted.kind, LockWait::While(&goes_on));
        self.owners.end_waiting(ino, wish);
        match done {
            Err(error) if error.errno == libc::EINTR && times.get() >= 2 => Err(FsError::new(libc::EDEADLK)),
            done => done,
        }
    }
    /// Handles an owner's closing of the file: releases its locks.
    pub fn closed_by(&self, file: &File, owner: u64) {
        file.closed_by(LockOwner::Number(owner));
        self.owners.forget(file.ino(), owner);
    }
    /// Handles the closing of an open file's last descriptor: releases its locks.
    pub fn closed_for_good(&self, file: &File, handle: u64) {
        for owner in self.owners.by_handle(file.ino(), handle) {
            self.closed_by(file, owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(owner: u64, kind: Option<LockKind>, first: u64, last: u64) -> Wanted {
        Wanted { handle: owner, owner, pid: owner as u32, kind, first, last, is_whole: false }
    }

    #[test]
    fn ranges_are_cut_and_given_up() {
        let owners = Owners::default();
        owners.note(Ino(1), &wanted(7, Some(LockKind::Exclusive), 0, 99));
        owners.note(Ino(1), &wanted(7, None, 10, 19));
        assert_eq!(
            [0, 9, 10, 19, 20, 99].map(|at| owners.pid(Ino(1), 8, at, at).is_some()),
            [true, true, false, false, true, true]
        );
        owners.note(Ino(1), &wanted(7, None, 0, END));
        assert!(owners.0.lock().held.is_empty());
    }

    #[test]
    fn who_waits_for_itself_by_way_of_others_is_found() {
        let (owners, both) = (Owners::default(), Some(LockKind::Exclusive));
        for (owner, at) in [(1, 10), (2, 20), (3, 30)] {
            owners.note(Ino(1), &wanted(owner, both, at, at + 4));
        }
        let wish = |owner, at| wanted(owner, both, at, at).wish().unwrap();
        owners.begin_waiting(Ino(1), wish(1, 21));
        owners.begin_waiting(Ino(1), wish(2, 31));
        assert!(!owners.is_deadlock(Ino(1), wish(1, 21)) && !owners.is_deadlock(Ino(1), wish(3, 40)));
        assert!(owners.is_deadlock(Ino(1), wish(3, 14)));
        assert!(!owners.is_deadlock(Ino(2), wish(3, 14)), "another file");
        owners.end_waiting(Ino(1), wish(2, 31));
        assert!(!owners.is_deadlock(Ino(1), wish(3, 14)));
    }
}
