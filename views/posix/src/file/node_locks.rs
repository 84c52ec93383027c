//! Locks of a file among the nodes of a cluster.
//!
//! The kernel has the locks of this node's processes, as on one node. What this node may lock at all is in a small file that its daemon writes: a process
//! locks in the kernel, then reads that file, and undoes the lock if the node does not have it (any more). What the node does not have, the daemon gets. A
//! file whose home is on this node needs neither: one word of shared memory says that no other node is interested in any.
//!
//! A lock is gone if the node got it under another number than the one under which it has the file's locks now (`era`): then calls fail with `EIO`.

use std::io;
use std::time::{Duration, Instant};

use cenote::model::{LOCK_END, LockAnswer, LockHow, LockMap, LockMode, LockSet, LockSpace, LockWish};
use cenote::{ErrorKind, HomeId, LOCK_GRACE, LockPatience, LockPromise, LockTokens, LockWords, Store};
use cenote_host::meeting::{Holder, LockKind, MeetingFile};

use super::locks::{HeldLock, LockRange, LockWait, of_io};
use crate::file::Live;
use crate::sync::Mutex;
use crate::{FsError, FsResult, fail};

/// First and longest pause of a waiter that checks now and then whether to go on waiting.
const PAUSE: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(10));
/// Pause while the daemon changes what this node has.
const CHANGING: Duration = Duration::from_micros(200);
/// How long a call goes on although what it finds changes all the time, or nothing can be known.
const PATIENCE: Duration = Duration::from_mins(1);

/// A meeting file, with the locks that its owner has by it.
#[derive(Debug)]
pub struct Meeting {
    file: MeetingFile,
    record: Mutex<Record>,
}

/// What an owner has, as far as this process knows: to undo a lock, and to notice that locks are gone.
#[derive(Debug, Default)]
struct Record {
    locks: LockSet,
    /// 0: nothing is locked, or the store is no part of a cluster.
    era: u64,
}

/// A call that locks or unlocks.
pub struct LockCall {
    pub holder: Holder,
    pub is_whole: bool,
    /// `None`: it unlocks.
    pub kind: Option<LockKind>,
    pub range: LockRange,
}

fn mode_of(kind: LockKind) -> LockMode {
    if kind == LockKind::Shared { LockMode::Shared } else { LockMode::Exclusive }
}

fn kind_of(mode: LockMode) -> LockKind {
    if mode == LockMode::Shared { LockKind::Shared } else { LockKind::Exclusive }
}

/// Length of a range as the kernel takes it.
fn len_of(first: u64, last: u64) -> u64 {
    if last >= LOCK_END { 0 } else { last - first + 1 }
}

impl LockCall {
    fn space(&self) -> LockSpace {
        if self.is_whole { LockSpace::Whole } else { LockSpace::Ranges }
    }
    /// First and last byte.
    fn bytes(&self) -> FsResult<(u64, u64)> {
        let LockRange { start, len } = self.range;
        if self.is_whole {
            return Ok((0, 0));
        }
        if i64::try_from(start).is_err() {
            return fail(libc::EINVAL);
        }
        let last = if len == 0 { Some(LOCK_END) } else { start.checked_add(len - 1) };
        let last = last.filter(|last| i64::try_from(*last).is_ok()).ok_or_else(|| FsError::new(libc::EOVERFLOW))?;
        Ok((start.min(LOCK_END), last.min(LOCK_END)))
    }
    fn wish(&self) -> FsResult<LockWish> {
        let (first, last) = self.bytes()?;
        Ok(LockWish { space: self.space(), first, last, mode: self.kind.map_or(LockMode::Shared, mode_of) })
    }
    fn once(&self, file: &MeetingFile, waits: bool) -> io::Result<()> {
        if self.is_whole {
            return file.lock_whole(self.kind, waits);
        }
        file.lock(self.holder, self.kind, self.range.start, self.range.len, waits)
    }
}

fn is_refusal(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

impl Meeting {
    /// One by which nothing is locked yet.
    pub fn of(file: MeetingFile) -> Self {
        Self { file, record: Mutex::default() }
    }
    /// One that a program had before this one, with the locks that the kernel tells of.
    pub fn adopted(file: MeetingFile, era: u64) -> Self {
        let mut locks = LockSet::default();
        if era != 0 {
            for held in file.held() {
                let space = if held.is_whole { LockSpace::Whole } else { LockSpace::Ranges };
                let last = if held.is_whole { 0 } else { held.last };
                locks.raise(&LockWish { space, first: held.first, last, mode: mode_of(held.kind) });
            }
        }
        let meeting = Self::of(file);
        *meeting.record.lock() = Record { locks, era };
        meeting
    }
    pub fn file(&self) -> &MeetingFile {
        &self.file
    }
    /// The number under which the node got what is locked; 0: nothing is.
    pub fn era(&self) -> u64 {
        self.record.lock().era
    }
    /// The owner has nothing any more.
    pub fn forget(&self) {
        *self.record.lock() = Record::default();
    }
    /// Locks or unlocks in the kernel.
    pub fn in_kernel(&self, call: &LockCall, wait: LockWait<'_>) -> io::Result<()> {
        let done = call.once(&self.file, matches!(wait, LockWait::Yes));
        match (done, wait) {
            (Err(error), LockWait::Within(run)) if is_refusal(&error) => {
                let mut done = Ok(());
                run(&mut || done = call.once(&self.file, true));
                done
            }
            (Err(error), LockWait::While(goes_on)) if is_refusal(&error) => {
                let mut pause = PAUSE.0;
                while goes_on() {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(PAUSE.1);
                    match call.once(&self.file, false) {
                        Err(error) if is_refusal(&error) => {}
                        done => return done,
                    }
                }
                Err(io::Error::from_raw_os_error(libc::EINTR))
            }
            (done, _) => done,
        }
    }
    /// Records what the kernel has done.
    fn note(&self, call: &LockCall, wish: &LockWish, era: u64) {
        let mut record = self.record.lock();
        record.locks.of_mut(wish.space).set(wish.first, wish.last, call.kind.map(mode_of));
        record.era = if record.locks.is_empty() { 0 } else { era };
    }
    /// A conversion of a lock of the whole file that fails takes the lock with it, as everywhere.
    fn note_refused(&self, call: &LockCall) {
        if call.is_whole {
            let mut record = self.record.lock();
            record.locks.whole = LockMap::default();
            if record.locks.is_empty() {
                record.era = 0;
            }
        }
    }
    /// Puts back what was locked before a call.
    fn undo(&self, call: &LockCall, wish: &LockWish) {
        let record = self.record.lock();
        let before: Vec<_> = record.locks.of(wish.space).within(wish.first, wish.last).collect();
        // None of these can wait: they lock no more than the owner has at the moment.
        if call.is_whole {
            let kind = before.first().map(|(_, _, mode)| kind_of(*mode));
            let _ = self.file.lock_whole(kind, false);
            return;
        }
        let set = |first: u64, last: u64, kind| {
            let _ = self.file.lock(call.holder, kind, first, len_of(first, last), false);
        };
        let mut next = Some(wish.first);
        for (first, last, mode) in before {
            if let Some(from) = next.filter(|from| *from < first) {
                set(from, first - 1, None);
            }
            set(first, last, Some(kind_of(mode)));
            next = last.checked_add(1).filter(|next| *next <= wish.last);
        }
        if let Some(from) = next {
            set(from, wish.last, None);
        }
    }
    /// Returns true unless the owner has locks that the node got under another number. `is_unlocked`: this call has just released some, so the kernel does
    /// not tell.
    fn stands(&self, era: u64, is_unlocked: bool) -> bool {
        let record = self.record.lock();
        // A child or a parent may have released what they share.
        record.locks.is_empty() || record.era == era || !is_unlocked && self.file.held().is_empty()
    }
    fn has_any(&self) -> bool {
        !self.record.lock().locks.is_empty()
    }
    /// The owner's locks are gone: another node may have them. Whoever looks at what the kernel says must not find them either.
    fn lost<T>(&self, holder: Holder) -> FsResult<T> {
        let _ = self.file.lock(holder, None, 0, 0, false);
        let _ = self.file.lock_whole(None, false);
        self.forget();
        Err(FsError::because(
            libc::EIO,
            ErrorKind::Disconnected,
            "locks of a file",
            "this node was cut off from its cluster, or the file's home lost what it knew: another process may have had the locks since",
        ))
    }
}

/// Where a file's home is, and what this node's daemon says of the file's locks.
struct Standing<'a> {
    store: &'a Store,
    home: HomeId,
    file: u64,
    is_own: bool,
    /// See [`crate::Options::descriptors_from`].
    lowest: i32,
}

/// What may be locked at a moment.
#[derive(PartialEq, Eq)]
struct Moment {
    tokens: Option<LockTokens>,
    term: u64,
    is_in_grace: bool,
    is_over: bool,
}

/// Returns true if no other node is interested in files of this home, and this node may act.
fn is_quiet(words: &LockWords) -> bool {
    words.interest == 0 && !Store::is_lock_lease_over(words)
}

impl Standing<'_> {
    fn moment(&self) -> FsResult<Moment> {
        let words = self.store.lock_words();
        Ok(Moment {
            tokens: self.store.lock_tokens(self.file).map_err(|error| of_io(&error))?,
            term: words.term,
            is_in_grace: self.is_own && words.interest & LOCK_GRACE != 0,
            is_over: Store::is_lock_lease_over(&words),
        })
    }
    fn ask(&self, wish: LockWish, how: LockHow, wait: LockWait<'_>) -> FsResult<LockPromise> {
        let plainly = |call: &mut dyn FnMut()| call();
        let patience = match wait {
            LockWait::Yes => LockPatience::Call(&plainly),
            LockWait::Within(run) => LockPatience::Call(run),
            LockWait::While(goes_on) => LockPatience::While(PAUSE.1, goes_on),
            LockWait::No => LockPatience::While(PAUSE.1, &|| true),
        };
        let asked = self.store.ask_lock((self.home, self.file, wish, how), self.lowest, &patience);
        match asked {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => fail(libc::EINTR),
            Err(error) => Err(of_io(&error)),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => match error.kind() {
                ErrorKind::PermissionDenied | ErrorKind::LimitExceeded => {
                    Err(FsError::from(error).with_errno(libc::ENOLCK))
                }
                ErrorKind::Disconnected => Err(FsError::from(error).with_errno(libc::EIO)),
                _ => Err(error.into()),
            },
        }
    }
    /// The number under which the node has the file's locks.
    fn era(&self, moment: &Moment) -> u64 {
        if self.is_own { moment.term } else { moment.tokens.as_ref().map_or(0, |tokens| tokens.era) }
    }
    /// Returns true if the node has a lock.
    fn covers(&self, moment: &Moment, wish: &LockWish) -> bool {
        match &moment.tokens {
            _ if moment.is_in_grace => false,
            Some(tokens) => tokens.has.covers(wish),
            None => self.is_own,
        }
    }
}

impl Moment {
    /// Returns true if what this node has is about to change, or nobody knows what it has.
    fn is_unclear(&self) -> bool {
        self.is_over || self.tokens.as_ref().is_some_and(|tokens| tokens.is_changing)
    }
}

impl Live {
    /// Returns true if the file may be locked by other nodes.
    pub fn is_of_cluster(&self) -> bool {
        self.tree.container.store().home() != HomeId(0)
    }
    fn standing(&self) -> Standing<'_> {
        let (store, home) = (self.tree.container.store(), self.tree.container.home());
        let lowest = self.tree.common.options.descriptors_from;
        Standing { store, home, file: self.tree.whole(self.ino).0, is_own: home == store.home(), lowest }
    }
    /// Locks or unlocks, among all processes of the cluster.
    pub fn lock_between_nodes(&self, here: &Meeting, call: &LockCall, wait: LockWait<'_>) -> FsResult<()> {
        let (standing, wish) = (self.standing(), call.wish()?);
        let mut is_unlocked = false;
        if standing.is_own {
            match quickly(&standing, here, call, &wish, wait) {
                Quick::Done(done) => return done,
                Quick::Nothing => {}
                Quick::Unlocked => is_unlocked = true,
            }
        }
        let (begin, mut promise) = (Instant::now(), None);
        while begin.elapsed() < PATIENCE || !matches!(wait, LockWait::No) {
            let moment = standing.moment()?;
            if moment.is_over {
                settle(&standing, here, call.holder, &wish, wait)?;
                continue;
            }
            if moment.is_unclear() {
                std::thread::sleep(CHANGING);
                continue;
            }
            let era = standing.era(&moment);
            if !here.stands(era, is_unlocked) {
                return here.lost(call.holder);
            }
            if call.kind.is_none() {
                here.in_kernel(call, LockWait::No).map_err(|error| of_io(&error))?;
                here.note(call, &wish, era);
                return Ok(());
            }
            if !standing.covers(&moment, &wish) {
                promise = get(&standing, here, call, &wish, wait)?;
                continue;
            }
            if take(&standing, here, call, &wish, (wait, &moment, promise.take()))? {
                here.note(call, &wish, era);
                return Ok(());
            }
        }
        fail(libc::EIO)
    }
    /// Returns a lock of another node that conflicts.
    pub fn lock_elsewhere(&self, call: &LockCall) -> FsResult<Option<HeldLock>> {
        if !self.is_of_cluster() {
            return Ok(None);
        }
        let (standing, wish) = (self.standing(), call.wish()?);
        if standing.is_own && is_quiet(&standing.store.lock_words()) {
            return Ok(None);
        }
        let moment = standing.moment()?;
        if !moment.is_unclear() && standing.covers(&moment, &wish) {
            return Ok(None);
        }
        let said = standing.ask(wish, LockHow::Test, LockWait::No)?.answer;
        let LockAnswer::Busy(Some(holder)) = said else { return Ok(None) };
        let LockWish { first, last, mode, .. } = holder.lock;
        Ok(Some(HeldLock {
            kind: kind_of(mode),
            range: LockRange { start: first, len: len_of(first, last) },
            pid: Some(holder.pid).filter(|pid| *pid != 0),
            is_elsewhere: true,
        }))
    }
}

/// What became of a call that took the way of one node.
enum Quick {
    Done(FsResult<()>),
    /// Another node is interested in some file, and nothing is done.
    Nothing,
    /// Another node has become interested, or the node was cut off, while the kernel unlocked.
    Unlocked,
}

/// Locks or unlocks a file of this node's home, as on one node.
fn quickly(standing: &Standing<'_>, here: &Meeting, call: &LockCall, wish: &LockWish, wait: LockWait<'_>) -> Quick {
    let words = standing.store.lock_words();
    if !is_quiet(&words) || !here.stands(words.term, false) {
        return Quick::Nothing;
    }
    let done = here.in_kernel(call, wait);
    // A daemon that gives something away raises the interest before it looks at what the kernel has.
    let after = standing.store.lock_words();
    let is_same = is_quiet(&after) && after.term == words.term;
    match done {
        Ok(()) if is_same => {
            here.note(call, wish, words.term);
            Quick::Done(Ok(()))
        }
        Ok(()) if call.kind.is_none() => Quick::Unlocked,
        Ok(()) => {
            here.undo(call, wish);
            Quick::Nothing
        }
        Err(error) if is_refusal(&error) => {
            here.note_refused(call);
            if is_same { Quick::Done(fail(libc::EAGAIN)) } else { Quick::Nothing }
        }
        Err(error) => Quick::Done(Err(of_io(&error))),
    }
}

/// Waits until it is known whether this node takes part.
fn settle(
    standing: &Standing<'_>,
    here: &Meeting,
    holder: Holder,
    wish: &LockWish,
    wait: LockWait<'_>,
) -> FsResult<()> {
    match standing.ask(*wish, LockHow::Settle, wait)?.answer {
        LockAnswer::Lost if here.has_any() => here.lost(holder),
        // This process sees the table of a home that another node has had since.
        LockAnswer::Lost => Ok(standing.store.meet_daemon()?),
        _ => Ok(()),
    }
}

/// Gets what the node does not have.
fn get(
    standing: &Standing<'_>,
    here: &Meeting,
    call: &LockCall,
    wish: &LockWish,
    wait: LockWait<'_>,
) -> FsResult<Option<LockPromise>> {
    let is_patient = !matches!(wait, LockWait::No);
    // Who wants another mode for the whole file gives the old one up first, or two would wait for each other.
    let is_conversion = call.is_whole && here.has_any();
    let how = if is_patient && !is_conversion { LockHow::Wait } else { LockHow::Try };
    let promise = standing.ask(*wish, how, wait)?;
    match promise.answer {
        LockAnswer::Granted => Ok(Some(promise)),
        LockAnswer::Lost => here.lost(call.holder),
        LockAnswer::Busy(_) => {
            if call.is_whole {
                let _ = here.file.lock_whole(None, false);
                here.note_refused(call);
            }
            if is_patient { Ok(None) } else { fail(libc::EAGAIN) }
        }
    }
}

/// Locks in the kernel what the node has. Returns false if the node did not have it all the time, and nothing is locked.
fn take(
    standing: &Standing<'_>,
    here: &Meeting,
    call: &LockCall,
    wish: &LockWish,
    (wait, moment, promise): (LockWait<'_>, &Moment, Option<LockPromise>),
) -> FsResult<bool> {
    let mut done = here.in_kernel(call, LockWait::No);
    drop(promise);
    if done.as_ref().is_err_and(is_refusal) {
        here.note_refused(call);
        if standing.moment()? != *moment {
            return Ok(false); // it may have been the daemon
        }
        if !matches!(wait, LockWait::No) {
            done = here.in_kernel(call, wait);
        }
    }
    done.map_err(|error| of_io(&error))?;
    let after = standing.moment()?;
    let still = !after.is_unclear() && standing.covers(&after, wish) && standing.era(&after) == standing.era(moment);
    if !still {
        here.undo(call, wish);
    }
    Ok(still)
}
