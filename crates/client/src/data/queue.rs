//! Launched updates: gathered into batches, sent in order, completed in any.
//!
//! Order is kept because later updates may overwrite earlier ones: a batch is sent when every batch before it was
//! sent and the file I/O of all its own updates is done.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use cenote_model::{DeviceId, Error, ErrorKind, IndexKey, KeyCode, ObjectKey, Request, Response, Result, Run, Update};

use super::building::Building;
use super::cache::ObjectCache;
use super::kept::Encoded;
use super::pieces::Place;
use crate::premise::Grounds;
use crate::records::RecordCache;
use crate::session::Session;
use crate::sync::lock;

/// Batches on their way at once. The engine remembers 4,096 outcomes of a session.
const IN_FLIGHT_MAX: usize = 128;
/// A batch waits so long for company.
pub(crate) const LINGER: Duration = Duration::from_millis(1);

/// What an update is about, until its batch is done.
pub(crate) enum Subject {
    /// A write, its place, and the space that returns if it fails.
    Write { object: Arc<ObjectCache>, offset: u64, len: u64, place: Place, run: Run },
    /// A new object.
    Create(Arc<ObjectCache>),
    /// A record.
    Put { index: IndexKey, bytes: u64 },
    /// A part of a transaction: the object that it writes, and the space that returns if it fails.
    Part { object: Option<Arc<ObjectCache>>, run: Option<Run>, bytes: u64 },
}

/// Whether updates are applied with others.
pub(crate) enum Together {
    /// Each by itself.
    Not,
    /// All of the call or none.
    Whole,
    /// Each by itself; safe from the death of this process when the call returns.
    Kept,
    /// All of the call, and those launched before and after on the same premise that travel with it, or none; as safe.
    Premise(Arc<Grounds>),
}

impl Together {
    pub fn premise(&self) -> Option<&Arc<Grounds>> {
        if let Self::Premise(premise) = self { Some(premise) } else { None }
    }
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Kept | Self::Premise(_))
    }
}

/// Who wants to know how far a session's messages have come, see [`Store::tell_settled`](crate::Store::tell_settled).
pub trait Settling: Send + Sync {
    /// Every message up to this number is done. Called from any thread, which may hold locks of the client's: it must do
    /// no more than note the number.
    fn settled(&self, number: u64);
}

/// Updates that travel together, and what became of them.
pub(crate) struct Batch {
    pub number: u64,
    opened: Instant,
    /// File I/O under way for its updates.
    pub(super) io_left: AtomicUsize,
    done: AtomicBool,
    pub(super) state: Mutex<BatchState>,
}

#[derive(Default)]
pub(super) struct BatchState {
    pub(super) subjects: Vec<Subject>,
    /// Failures by index of the update; taken by whoever reports them.
    errors: Vec<(usize, Error)>,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
    /// What was told of the batch's changes ahead of their outcome.
    caches: Vec<Arc<RecordCache>>,
}

/// Where an update went: its batch and its place there.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub batch: Arc<Batch>,
    /// First index.
    pub first: usize,
    /// Number of updates.
    pub count: usize,
}

/// All batches of a session.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// Held while sending, so that batches leave in order.
    sending: Mutex<()>,
    /// Number of the last batch that was begun.
    begun: AtomicU64,
    in_flight: AtomicUsize,
    /// Every batch up to this number was handed to the engine.
    sent: AtomicU64,
    /// Every batch up to this number is done.
    settled: AtomicU64,
    /// Some batch failed, and nobody may have been told.
    failed: AtomicBool,
}

#[derive(Default)]
struct State {
    open: Option<Building>,
    sealed: VecDeque<Building>,
    /// Done, though one before them is not.
    done_early: BTreeSet<u64>,
    failed: Vec<Arc<Batch>>,
    /// Told whenever `settled` rises.
    listeners: Vec<Weak<dyn Settling>>,
}

impl Batch {
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
    fn take_error(&self, first: usize, count: usize) -> Option<Error> {
        let mut state = lock(&self.state);
        let at = state.errors.iter().position(|(index, _)| (first..first + count).contains(index))?;
        let error = state.errors[at].1.clone();
        // All failures of this range are reported by this one.
        state.errors.retain(|(index, _)| !(first..first + count).contains(index));
        Some(error)
    }
    /// Changes of the batch were applied to `cache` already: should they fail, it is told to forget.
    pub fn told_ahead(&self, cache: &Arc<RecordCache>) {
        let mut state = lock(&self.state);
        if self.is_done() {
            if !state.errors.is_empty() {
                cache.unpin();
            }
        } else if !state.caches.iter().any(|known| Arc::ptr_eq(known, cache)) {
            state.caches.push(cache.clone());
        }
    }
    fn fail(&self, index: usize, error: Error) {
        lock(&self.state).errors.push((index, error));
    }
}

impl Ticket {
    /// The outcome, once the batch is done. Taken: a later `wait_all` does not report it again.
    pub fn outcome(&self) -> Result<()> {
        self.batch.take_error(self.first, self.count).map_or(Ok(()), Err)
    }
    /// Calls `call` when the batch is done; at once (from the callback thread) if it is.
    pub fn when_done(&self, session: &Session, call: Box<dyn FnOnce() + Send>) {
        let mut state = lock(&self.batch.state);
        if self.batch.is_done() {
            drop(state);
            session.callbacks.call(call);
        } else {
            state.callbacks.push(call);
        }
    }
}

impl Queue {
    /// Every batch up to this number is done.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }
    /// Tells `listener` now, and whenever the number rises, as long as it is there.
    pub fn tell(&self, listener: Weak<dyn Settling>) {
        let mut state = lock(&self.state);
        state.listeners.push(listener);
        state.tell(self.settled());
    }
    /// True if nothing is under way.
    pub fn is_idle(&self) -> bool {
        !self.has_unsent() && self.in_flight.load(Ordering::Acquire) == 0
    }
    /// True if batches wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.sent.load(Ordering::Acquire) < self.begun.load(Ordering::Acquire)
    }
    /// Appends updates that stay together. `io` of them wait for I/O.
    pub fn push(
        &self,
        session: &Session,
        updates: Vec<Update>,
        subjects: Vec<Subject>,
        io: usize,
        together: &Together,
    ) -> Ticket {
        self.make_room(session);
        let is_whole = matches!(together, Together::Whole);
        let (updates, encoded) = if together.is_kept() { encoded(updates, together) } else { (updates, None) };
        let (ticket, is_full, is_safe) = {
            let mut state = self.state_with_room(session, encoded.as_ref());
            if is_whole || state.open.as_ref().is_some_and(|open| !open.may_take(together, encoded.as_ref())) {
                self.seal(&mut state);
            }
            let open = state.open_batch(self);
            let head = open.head(together, &updates);
            let is_safe = !together.is_kept() || open.keep(session, &head, encoded.as_ref());
            let ticket = open.append(head, updates, subjects, io);
            open.atomic |= is_whole;
            let is_full = is_whole || open.is_full();
            if is_full {
                self.seal(&mut state);
            }
            (ticket, is_full, is_safe)
        };
        if is_full {
            self.pump(session);
        }
        if !is_safe {
            self.settle(session, ticket.batch.number);
        }
        ticket
    }
    /// Locks, when the log has room for updates that are to be kept.
    fn state_with_room(&self, session: &Session, encoded: Option<&Encoded>) -> MutexGuard<'_, State> {
        loop {
            let state = lock(&self.state);
            if encoded.is_none_or(|encoded| session.kept.has_room(encoded)) {
                return state;
            }
            drop(state);
            self.send_all(session);
        }
    }
    /// The I/O of one update is over.
    pub fn io_done(&self, session: &Session, ticket: &Ticket, index: usize, result: Result<()>) {
        if let Err(error) = result {
            ticket.batch.fail(ticket.first + index, error);
        }
        if ticket.batch.io_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pump(session);
        }
        session.arrivals.note();
    }
    /// Seals the open batch, so that it is sent as soon as it can be.
    pub fn seal_open(&self, session: &Session) {
        if self.has_unsent() {
            self.seal(&mut lock(&self.state));
            self.pump(session);
        }
    }
    /// Seals the open batch if it has waited for company long enough.
    pub fn seal_stale(&self, session: &Session) {
        let stale = lock(&self.state).open.as_ref().is_some_and(|open| open.batch.opened.elapsed() >= LINGER);
        if stale {
            self.seal_open(session);
        }
    }
    /// Returns when all that was launched is sent: requests after it find it done.
    pub fn send_all(&self, session: &Session) {
        if self.has_unsent() {
            let number = self.begun.load(Ordering::Acquire);
            self.seal_open(session);
            session.wait_until(|| self.sent.load(Ordering::Acquire) >= number);
        }
    }
    /// Returns when every batch up to `number` is done.
    pub fn settle(&self, session: &Session, number: u64) {
        if self.settled() < number {
            self.seal_open(session);
            session.wait_until(|| self.settled() >= number);
        }
    }
    /// Returns when everything launched is done, with the first failure that nobody was told of.
    pub fn settle_all(&self, session: &Session) -> Result<()> {
        self.settle(session, self.begun.load(Ordering::Acquire));
        if self.failed.swap(false, Ordering::AcqRel) {
            let failed = std::mem::take(&mut lock(&self.state).failed);
            // All of them are told of by the first.
            let mut errors = failed.iter().filter_map(|batch| batch.take_error(0, usize::MAX));
            if let Some(first) = errors.next() {
                errors.for_each(drop);
                return Err(first);
            }
        }
        Ok(())
    }
    /// Waits for one update.
    pub fn wait(&self, session: &Session, ticket: &Ticket) -> Result<()> {
        if !ticket.batch.is_done() {
            self.seal_open(session);
            session.wait_until(|| ticket.batch.is_done());
        }
        ticket.outcome()
    }
    fn make_room(&self, session: &Session) {
        if self.in_flight.load(Ordering::Acquire) >= IN_FLIGHT_MAX {
            session.wait_until(|| self.in_flight.load(Ordering::Acquire) < IN_FLIGHT_MAX);
        }
    }
    fn seal(&self, state: &mut State) {
        if let Some(open) = state.open.take() {
            self.in_flight.fetch_add(1, Ordering::AcqRel);
            state.sealed.push_back(open);
        }
    }
    /// Sends what can be sent.
    fn pump(&self, session: &Session) {
        let _order = lock(&self.sending);
        loop {
            let ready = {
                let mut state = lock(&self.state);
                let is_ready = |front: &Building| front.batch.io_left.load(Ordering::Acquire) == 0;
                if state.sealed.front().is_some_and(is_ready) { state.sealed.pop_front() } else { None }
            };
            let Some(building) = ready else { return };
            let number = building.batch.number;
            self.send(session, building);
            session.kept.sent(number);
            // Not before: who waits for it must not overtake a batch that another thread is just sending.
            self.sent.store(number, Ordering::Release);
            session.arrivals.note();
        }
    }
    fn send(&self, session: &Session, building: Building) {
        let Building { batch, mut updates, atomic, checks, .. } = building;
        // Which updates are in the message: those whose I/O failed are not.
        let lost: Vec<usize> = lock(&batch.state).errors.iter().map(|(index, _)| *index).collect();
        let mut sent: Option<Vec<usize>> = None;
        if !lost.is_empty() {
            if atomic {
                let error = lock(&batch.state).errors[0].1.clone();
                return self.complete(session, &batch, None, Response::Failed(error));
            }
            let kept: Vec<usize> = (0..updates.len()).filter(|index| !lost.contains(index)).collect();
            let mut index = 0;
            updates.retain(|_| {
                index += 1;
                !lost.contains(&(index - 1))
            });
            if updates.is_empty() {
                return self.complete(session, &batch, None, Response::Done);
            }
            sent = Some(kept);
        }
        let weak = session.myself();
        session.submit(
            Request::Apply { checks, updates, atomic },
            Box::new(move |response| {
                if let Some(session) = weak.upgrade() {
                    session.queue.complete(&session, &batch, sent.as_deref(), response);
                }
            }),
        );
    }
    /// Takes in the response to a batch. `sent`: indices of the updates in the message, if not all.
    fn complete(&self, session: &Session, batch: &Arc<Batch>, sent: Option<&[usize]>, response: Response) {
        let (callbacks, has_failed) = {
            let mut state = lock(&batch.state);
            let state = &mut *state;
            let index_of =
                |position: usize| sent.map_or(position, |sent| sent.get(position).copied().unwrap_or(usize::MAX));
            match response {
                Response::Applied { codes, words, .. } => {
                    for (position, code) in codes.iter().enumerate().filter(|(_, code)| **code != KeyCode::Ok) {
                        let index = index_of(position);
                        if let Some(subject) = state.subjects.get(index) {
                            state.errors.push((index, subject.refused(session, *code)));
                        }
                    }
                    session
                        .attachment()
                        .readers
                        .count_write(batch.number, batch.opened, || state.subjects.iter().find_map(Subject::device));
                    if state.errors.is_empty() {
                        apply_to_caches(&state.subjects, &words);
                    }
                }
                Response::Failed(error) => {
                    let told: BTreeSet<usize> = state.errors.iter().map(|(index, _)| *index).collect();
                    for index in (0..state.subjects.len()).filter(|index| !told.contains(index)) {
                        state.errors.push((index, error.clone()));
                    }
                }
                _ => {}
            }
            for (index, _) in &state.errors {
                if let Some(Subject::Write { run, .. } | Subject::Part { run: Some(run), .. }) =
                    state.subjects.get(*index)
                {
                    session.unlease_later(*run);
                }
            }
            let has_failed = !state.errors.is_empty();
            for cache in std::mem::take(&mut state.caches).iter().filter(|_| has_failed) {
                cache.unpin();
            }
            state.subjects = Vec::new();
            batch.done.store(true, Ordering::Release);
            (std::mem::take(&mut state.callbacks), has_failed)
        };
        {
            let mut state = lock(&self.state);
            if has_failed {
                state.failed.push(batch.clone());
                self.failed.store(true, Ordering::Release);
            }
            state.done_early.insert(batch.number);
            let mut settled = self.settled();
            while state.done_early.remove(&(settled + 1)) {
                settled += 1;
            }
            self.settled.store(settled, Ordering::Release);
            state.tell(settled);
        }
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
        for call in callbacks {
            session.callbacks.call(call);
        }
    }
}

impl State {
    fn tell(&mut self, settled: u64) {
        self.listeners.retain(|listener| listener.upgrade().map(|it| it.settled(settled)).is_some());
    }
    fn open_batch(&mut self, queue: &Queue) -> &mut Building {
        self.open.get_or_insert_with(|| {
            Building::of(Arc::new(Batch {
                number: queue.begun.fetch_add(1, Ordering::AcqRel) + 1,
                opened: Instant::now(),
                io_left: AtomicUsize::new(0),
                done: AtomicBool::new(false),
                state: Mutex::default(),
            }))
        })
    }
}

fn encoded(updates: Vec<Update>, together: &Together) -> (Vec<Update>, Option<Encoded>) {
    let (encoded, updates) = Encoded::new(updates, together.premise().is_some());
    (updates, encoded)
}

impl Subject {
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Write { len, .. } => *len,
            Self::Put { bytes, .. } | Self::Part { bytes, .. } => *bytes,
            Self::Create(_) => 0,
        }
    }
    fn device(&self) -> Option<DeviceId> {
        if let Self::Write { run, .. } = self { Some(run.device) } else { None }
    }
    fn name(&self, session: &Session) -> String {
        match self {
            Self::Write { object, offset, len, .. } => {
                format!("{}, bytes {offset} to {}", session.object_name(object.key), offset + len)
            }
            Self::Create(object) | Self::Part { object: Some(object), .. } => session.object_name(object.key),
            Self::Put { index, .. } => session.index_name(*index),
            Self::Part { object: None, .. } => format!("a transaction in {}", session.name()),
        }
    }
    fn refused(&self, session: &Session, code: KeyCode) -> Error {
        code_error(code, self.name(session))
    }
}

/// The error that stands for a code.
#[cold]
pub(crate) fn code_error(code: KeyCode, subject: String) -> Error {
    match code {
        KeyCode::Ok => Error::new(ErrorKind::Internal, subject).because("success taken for an error"),
        KeyCode::NotFound => Error::new(ErrorKind::NotFound, subject).because("it does not exist, or no longer"),
        KeyCode::Exists => Error::new(ErrorKind::Exists, subject),
        KeyCode::Invalid => Error::new(ErrorKind::InvalidInput, subject)
            .because("a key, value, range or block size is out of bounds")
            .try_next("docs/semantics.md has the limits"),
        KeyCode::Limit => Error::new(ErrorKind::LimitExceeded, subject)
            .because("the container's quota or a limit of the format would be passed")
            .try_next("raise the quota, or delete something"),
    }
}

/// Keeps cached maps of written objects current (creations raise no word), if the engine's answer shows that nobody else wrote meanwhile.
fn apply_to_caches(subjects: &[Subject], words: &[(u64, u64)]) {
    let mut objects: Vec<&Arc<ObjectCache>> = Vec::new();
    for subject in subjects {
        if let Subject::Write { object, .. } = subject
            && !objects.iter().rev().any(|known| Arc::ptr_eq(known, object))
        {
            objects.push(object);
        }
    }
    if objects.len() != words.len() {
        return;
    }
    // What a transaction of the batch did to an object is not known here: its map is to be looked up again.
    let in_parts: Vec<ObjectKey> = subjects
        .iter()
        .filter_map(
            |subject| if let Subject::Part { object: Some(part), .. } = subject { Some(part.key) } else { None },
        )
        .collect();
    for (object, (before, after)) in objects.into_iter().zip(words) {
        if !object.is_live() || in_parts.contains(&object.key) {
            continue;
        }
        let writes = subjects.iter().filter_map(|subject| match subject {
            Subject::Write { object: written, offset, len, place, .. } if Arc::ptr_eq(written, object) => {
                Some((*offset, *len, place.clone()))
            }
            _ => None,
        });
        object.apply(*before, *after, writes);
    }
}

#[cfg(test)]
mod tests;
