//! Pipelined updates: gathered into batches, sent in order, completed in any order.
//!
//! The order matters because later updates may overwrite earlier ones: a batch is sent after every batch before it, and
//! after the file I/O of all its own updates.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use cenote_model::{Error, KeyCode, Request, Response, Result, Update};

use super::building::Building;
use super::callbacks::Callbacks;
use super::channel::Channel;
use super::precondition::PreconditionCheck;
use super::redo_log::Encoded;
use super::subject::{Subject, apply_to_caches};
use crate::labels::plain;
use crate::records::RecordCache;
use crate::sync::lock;

/// Largest number of batches in flight. The engine remembers 4,096 outcomes of a session.
const IN_FLIGHT_MAX: usize = 128;
/// The same where batches carry their bytes: what is asked for after them comes after so many.
const CARRIED_IN_FLIGHT_MAX: usize = 32;
/// Time that a batch waits for further updates.
pub(crate) const LINGER: Duration = Duration::from_millis(1);

/// Atomicity and safety of updates.
pub(crate) enum Together {
    /// Each by itself.
    Not,
    /// All of the call or none.
    Whole,
    /// Each by itself; safe from the death of this process when the call returns.
    Logged,
    /// All of the call or none, together with other updates on the same precondition in the same message; as safe as
    /// `Logged`.
    Precondition(Arc<PreconditionCheck>),
}

impl Together {
    pub fn precondition(&self) -> Option<&Arc<PreconditionCheck>> {
        if let Self::Precondition(precondition) = self { Some(precondition) } else { None }
    }
    pub fn is_logged(&self) -> bool {
        matches!(self, Self::Logged | Self::Precondition(_))
    }
}

/// A listener for the progress of pipelined updates, see [`Store::tell_settled`](crate::Store::tell_settled).
pub trait Settling: Send + Sync {
    /// Every message up to this number is done. Called from any thread, which may hold locks of the client: the
    /// listener must do no more than note the number.
    fn settled(&self, number: u64);
}

/// Updates of one message, and their outcome.
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
    /// Failures by index of the update; the thread that reports them takes them.
    errors: Vec<(usize, Error)>,
    callbacks: Vec<Box<dyn FnOnce() + Send>>,
    /// Caches that applied the batch's changes ahead of their outcome.
    caches: Vec<Arc<RecordCache>>,
}

/// The place of updates: their batch and range there.
#[derive(Clone)]
pub(crate) struct Ticket {
    pub batch: Arc<Batch>,
    /// First index.
    pub first: usize,
    /// Number of updates.
    pub count: usize,
}

/// The pipelined updates of a link.
pub(crate) struct Queue {
    myself: Weak<Queue>,
    channel: Arc<Channel>,
    state: Mutex<QueueState>,
    /// Held while sending, so that batches leave in order.
    sending: Mutex<()>,
    /// Number of the last batch begun.
    begun: AtomicU64,
    in_flight: AtomicUsize,
    /// Every batch up to this number was handed to the engine.
    sent: AtomicU64,
    /// Every batch up to this number is done.
    settled: AtomicU64,
    /// A batch has failed, perhaps without a report.
    failed: AtomicBool,
}

#[derive(Default)]
struct QueueState {
    open: Option<Building>,
    sealed: VecDeque<Building>,
    /// Batches that were done before one of their predecessors.
    done_early: BTreeSet<u64>,
    failed: Vec<Arc<Batch>>,
    /// Notified whenever `settled` rises.
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
        // This error reports all failures of the range.
        state.errors.retain(|(index, _)| !(first..first + count).contains(index));
        Some(error)
    }
    /// Notes that `cache` has applied the changes of the batch already: if they fail, it is emptied.
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
    /// Returns the outcome, once the batch is done. A later `wait_all` does not report it again.
    pub fn outcome(&self) -> Result<()> {
        self.batch.take_error(self.first, self.count).map_or(Ok(()), Err)
    }
    /// Calls `call` when the batch is done; at once (from the callback thread) if it is done already.
    pub fn when_done(&self, callbacks: &Callbacks, call: Box<dyn FnOnce() + Send>) {
        let mut state = lock(&self.batch.state);
        if self.batch.is_done() {
            drop(state);
            callbacks.call(call);
        } else {
            state.callbacks.push(call);
        }
    }
}

impl Queue {
    pub(super) fn new(channel: &Arc<Channel>) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            myself: myself.clone(),
            channel: channel.clone(),
            state: Mutex::default(),
            sending: Mutex::default(),
            begun: AtomicU64::new(0),
            in_flight: AtomicUsize::new(0),
            sent: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            failed: AtomicBool::new(false),
        })
    }
    /// Returns a weak handle for I/O that may outlive the queue.
    pub fn myself(&self) -> Weak<Self> {
        self.myself.clone()
    }
    /// Returns the number up to which every batch is done.
    pub fn settled(&self) -> u64 {
        self.settled.load(Ordering::Acquire)
    }
    /// Notifies `listener` now, and whenever the number rises, until its drop.
    pub fn tell(&self, listener: Weak<dyn Settling>) {
        let mut state = lock(&self.state);
        state.listeners.push(listener);
        state.tell(self.settled());
    }
    /// Returns true if nothing is under way.
    pub fn is_idle(&self) -> bool {
        !self.has_unsent() && self.in_flight.load(Ordering::Acquire) == 0
    }
    /// Returns true if batches wait to be sent.
    pub fn has_unsent(&self) -> bool {
        self.sent.load(Ordering::Acquire) < self.begun.load(Ordering::Acquire)
    }
    /// Appends updates that stay together. `io` of them wait for I/O.
    pub fn push(&self, updates: Vec<Update>, subjects: Vec<Subject>, io: usize, together: &Together) -> Ticket {
        self.push_with(&[], updates, subjects, io, together)
    }
    /// The same with the bytes of updates that bring some, in order.
    pub fn push_with(
        &self,
        pieces: &[&[u8]],
        mut updates: Vec<Update>,
        subjects: Vec<Subject>,
        io: usize,
        together: &Together,
    ) -> Ticket {
        self.make_room();
        let pieces = if together.is_logged() { own(&mut updates, pieces) } else { pieces };
        let is_whole = matches!(together, Together::Whole);
        let (updates, encoded) = if together.is_logged() { encoded(updates, together) } else { (updates, None) };
        let (ticket, is_full, is_safe) = {
            let mut state = self.state_with_room(encoded.as_ref());
            if is_whole || state.open.as_ref().is_some_and(|open| !open.may_take(together, encoded.as_ref())) {
                self.seal(&mut state);
            }
            let open = state.open_batch(self);
            let head = open.head(together, &updates);
            let is_safe = !together.is_logged() || open.log(&self.channel.redo_log, &head, encoded.as_ref());
            let ticket = open.append(head, (updates, subjects), pieces, io);
            open.atomic |= is_whole;
            let is_full = is_whole || open.is_full();
            if is_full {
                self.seal(&mut state);
            }
            (ticket, is_full, is_safe)
        };
        if is_full {
            self.pump();
        }
        if !is_safe {
            self.settle(ticket.batch.number);
        }
        ticket
    }
    /// Locks the state once the redo log has room for the updates.
    fn state_with_room(&self, encoded: Option<&Encoded>) -> MutexGuard<'_, QueueState> {
        loop {
            let state = lock(&self.state);
            if encoded.is_none_or(|encoded| self.channel.redo_log.has_room(encoded)) {
                return state;
            }
            drop(state);
            self.send_all();
        }
    }
    /// Notes the end of the I/O of one update.
    pub fn io_done(&self, ticket: &Ticket, index: usize, result: Result<()>) {
        if let Err(error) = result {
            ticket.batch.fail(ticket.first + index, error);
        }
        if ticket.batch.io_left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.pump();
        }
        self.channel.note_arrival();
    }
    /// Seals the open batch, so that it is sent as soon as possible.
    pub fn seal_open(&self) {
        if self.has_unsent() {
            self.seal(&mut lock(&self.state));
            self.pump();
        }
    }
    /// Seals the open batch if it has waited long enough.
    pub fn seal_stale(&self) {
        let stale = lock(&self.state).open.as_ref().is_some_and(|open| open.batch.opened.elapsed() >= LINGER);
        if stale {
            self.seal_open();
        }
    }
    /// Returns when all pipelined updates are sent, so that later requests see their effect.
    pub fn send_all(&self) {
        if self.has_unsent() {
            let number = self.begun.load(Ordering::Acquire);
            self.seal_open();
            self.channel.wait_until(|| self.sent.load(Ordering::Acquire) >= number);
        }
    }
    /// Returns when every batch up to `number` is done.
    pub fn settle(&self, number: u64) {
        if self.settled() < number {
            self.seal_open();
            self.channel.wait_until(|| self.settled() >= number);
        }
    }
    /// Returns when all pipelined updates are done, with the first unreported failure.
    pub fn settle_all(&self) -> Result<()> {
        self.settle(self.begun.load(Ordering::Acquire));
        if self.failed.swap(false, Ordering::AcqRel) {
            let failed = std::mem::take(&mut lock(&self.state).failed);
            // The first error reports all of them.
            let mut errors = failed.iter().filter_map(|batch| batch.take_error(0, usize::MAX));
            if let Some(first) = errors.next() {
                errors.for_each(drop);
                return Err(first);
            }
        }
        Ok(())
    }
    /// Waits for one update.
    pub fn wait(&self, ticket: &Ticket) -> Result<()> {
        if !ticket.batch.is_done() {
            self.seal_open();
            self.channel.wait_until(|| ticket.batch.is_done());
        }
        ticket.outcome()
    }
    fn make_room(&self) {
        let is_full = || {
            let count = self.in_flight.load(Ordering::Acquire);
            count >= IN_FLIGHT_MAX || count >= CARRIED_IN_FLIGHT_MAX && self.channel.is_bound()
        };
        if is_full() {
            self.channel.wait_until(|| !is_full());
        }
    }
    fn seal(&self, state: &mut QueueState) {
        if let Some(open) = state.open.take() {
            self.in_flight.fetch_add(1, Ordering::AcqRel);
            state.sealed.push_back(open);
        }
    }
    /// Sends the batches that are ready.
    fn pump(&self) {
        let _order = lock(&self.sending);
        loop {
            let ready = {
                let mut state = lock(&self.state);
                let is_ready = |front: &Building| front.batch.io_left.load(Ordering::Acquire) == 0;
                if state.sealed.front().is_some_and(is_ready) { state.sealed.pop_front() } else { None }
            };
            let Some(building) = ready else { return };
            let number = building.batch.number;
            self.send(building);
            self.channel.redo_log.sent(number);
            // After the sending: a thread that waits for this number must not overtake a batch that another thread is
            // just sending.
            self.sent.store(number, Ordering::Release);
            self.channel.note_arrival();
        }
    }
    fn send(&self, building: Building) {
        let Building { batch, mut updates, atomic, checks, .. } = building;
        // The message omits updates whose I/O has failed.
        let lost: Vec<usize> = lock(&batch.state).errors.iter().map(|(index, _)| *index).collect();
        let mut sent: Option<Vec<usize>> = None;
        if !lost.is_empty() {
            if atomic {
                let error = lock(&batch.state).errors[0].1.clone();
                return self.complete(&batch, None, Response::Failed(error));
            }
            let left: Vec<usize> = (0..updates.len()).filter(|index| !lost.contains(index)).collect();
            let mut index = 0;
            updates.retain(|_| {
                index += 1;
                !lost.contains(&(index - 1))
            });
            if updates.is_empty() {
                return self.complete(&batch, None, Response::Done);
            }
            sent = Some(left);
        }
        let weak = self.myself.clone();
        self.channel.submit(
            Request::Apply { checks, updates, atomic },
            Box::new(move |response| {
                if let Some(queue) = weak.upgrade() {
                    queue.complete(&batch, sent.as_deref(), response);
                }
            }),
        );
    }
    /// Takes in the response to a batch. `sent`: indices of the updates in the message, if not all.
    fn complete(&self, batch: &Arc<Batch>, sent: Option<&[usize]>, response: Response) {
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
                            state.errors.push((index, subject.refused(&self.channel.shared.names, *code)));
                        }
                    }
                    self.channel
                        .attachment()
                        .readers
                        .count_write(batch.number, batch.opened, || state.subjects.iter().find_map(Subject::device));
                    if state.errors.is_empty() {
                        apply_to_caches(&state.subjects, &words);
                    }
                }
                Response::Failed(error) => {
                    let error = plain(error);
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
                    self.channel.unlease_later(*run);
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
            self.channel.shared.callbacks.call(call);
        }
    }
}

impl QueueState {
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

/// Gives updates their bytes, which go into the redo log with them. None are left.
fn own<'a>(updates: &mut [Update], pieces: &[&[u8]]) -> &'a [&'a [u8]] {
    let fills =
        updates.iter_mut().filter_map(|it| if let Update::Fill { bytes, .. } = it { Some(bytes) } else { None });
    for (bytes, piece) in fills.zip(pieces) {
        bytes.extend_from_slice(piece);
    }
    &[]
}

fn encoded(updates: Vec<Update>, together: &Together) -> (Vec<Update>, Option<Encoded>) {
    let (encoded, updates) = Encoded::new(updates, together.precondition().is_some());
    (updates, encoded)
}

#[cfg(test)]
mod tests;
