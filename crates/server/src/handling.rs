//! Requests in a row, each to its engine.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cenote_device::control::is_counting;
use cenote_model::{ObjectKey, Request, Response, Timed, TransactionId};
use cenote_store::{Engine, InPlace, Outcome, REQUESTS_TIMED_IN, SessionId};

use crate::service::{Guarded, Reply, Service, Shared, closed, lock, nanos};
use crate::words::{Holder, Item, Look, Next, Parked, Waiting, Words};

/// Longest wait for other nodes to let go of something before it is changed, and for transactions that hold it.
const ASIDE_MAX: Duration = Duration::from_secs(20);

/// The engines, for many requests in a row: the one that had the last request is locked.
pub struct Handling<'a> {
    pub(crate) service: &'a Service,
    held: Option<Held<'a>>,
    /// The request was put aside before.
    put_aside: Option<PutAside>,
}

/// How a request goes on that was put aside.
#[derive(Clone, Copy)]
enum PutAside {
    /// It has waited for prepared transactions for long enough.
    Late,
    /// It waits on in its queue if a transaction was prepared since it was looked at.
    Waits(SessionId, Waiting),
}

impl Service {
    /// Ends a session whose process left or died, after its requests that wait.
    pub fn session_close(&self, session: SessionId) {
        match self.words.get().filter(|words| words.waits(session)) {
            Some(words) => words.put_aside(session, Parked::close(session)),
            None => self.session_end(session),
        }
    }
    /// Handles a request whose late answer has no receiver. Returns when what it reports is in the journal.
    pub(crate) fn handle_or_wait(&self, session: SessionId, seq: u64, request: Request) -> Option<Response> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let answer = self.lock().handle(session, seq, request, || Box::new(move |answer| drop(send.send(answer))));
        if answer.is_none() && self.words.get().is_some_and(|words| words.waits(session)) {
            return receive.recv_timeout(ASIDE_MAX).ok(); // it is not in the journal before other nodes have let go
        }
        answer
    }
    /// Carries out what was put aside and may be handled now.
    pub(crate) fn go_on(&self) {
        let Some(words) = self.words.get() else { return };
        while let Some(Next { queue, item, waiting }) = words.next() {
            let mut prepared = None;
            match item {
                Item::Close(session) => self.session_end(session),
                Item::Request(parked) => {
                    let mut engines = self.lock();
                    let releases = words.releases();
                    let is_late = waiting.as_ref().is_some_and(|waiting| words.is_late(waiting));
                    let waiting = Waiting { releases, ..waiting.unwrap_or_else(|| words.wait_from_now(releases)) };
                    if !is_late && engines.is_kept_waiting(parked.0, parked.1, &parked.3) {
                        words.put_back(Next { queue, item: Item::Request(parked), waiting: None }, waiting);
                        continue;
                    }
                    engines.put_aside = Some(if is_late { PutAside::Late } else { PutAside::Waits(queue, waiting) });
                    let (session, seq, from, request, reply) = *parked;
                    let (look, about) = (Look::of(&request), About::of(&request));
                    let mut reply = Some(reply);
                    let later = || reply.take().unwrap_or_else(|| Box::new(drop));
                    let response = engines.handle_now(session, seq, request, later);
                    prepared = engines.after(words, about);
                    drop(engines);
                    if let Some(holder) = from {
                        words.looked(holder, look, response.as_ref());
                    }
                    if let (Some(reply), Some(response)) = (reply, response) {
                        reply(response);
                    }
                }
            }
            words.went(queue, prepared);
        }
    }
}

/// What a request is about, if that is a transaction over several homes.
#[derive(Clone, Copy)]
enum About {
    Nothing,
    /// A part that is prepared or settled.
    Part(TransactionId),
    /// What other homes are to be told.
    Decision,
}

impl About {
    fn of(request: &Request) -> Self {
        match request {
            Request::Prepare { transaction, .. } | Request::Settle { transaction, .. } => Self::Part(*transaction),
            Request::Decide { .. } | Request::Ask { .. } => Self::Decision,
            _ => Self::Nothing,
        }
    }
}

/// A locked engine.
pub(crate) struct Held<'a> {
    home: usize,
    guard: Option<MutexGuard<'a, Guarded>>,
    shared: &'a Shared,
    waits: bool,
}

impl<'a> Handling<'a> {
    /// Locks the engine, if the store has one.
    pub(crate) fn of(service: &'a Service) -> Self {
        let held = if let [only] = service.homes.as_slice() { Some(only.hold(0)) } else { None };
        Self { service, held, put_aside: None }
    }
    /// Handles a request. `None`: the response comes later, through the reply that `later` creates.
    pub fn handle(
        &mut self,
        session: SessionId,
        seq: u64,
        request: Request,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        match self.service.words.get() {
            None => self.handle_now(session, seq, request, later),
            Some(words) => self.handle_from(words, None, (session, seq, request), later),
        }
    }
    /// Handles a request of a client of another node, or of this one, once nobody trusts what it changes.
    pub(crate) fn handle_from(
        &mut self,
        words: &Words,
        from: Option<Holder>,
        (session, seq, request): (SessionId, u64, Request),
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        let change = words.begin(from, &request);
        let may_go = words.may_go(session, &change);
        // Of several engines, the one that has the request decides whether it waits.
        if !may_go || (self.service.homes.len() == 1 && self.is_kept_waiting(session, seq, &request)) {
            let waiting = may_go.then(|| words.wait_from_now(words.releases()));
            words.put_aside(session, Parked::request((session, seq), from, request, later(), change, waiting));
            return None;
        }
        let (look, about) = (Look::of(&request), About::of(&request));
        let response = self.handle_now(session, seq, request, later);
        let prepared = self.after(words, about);
        words.end_or_hold(change, prepared);
        if let Some(holder) = from {
            words.looked(holder, look, response.as_ref());
        }
        response
    }
    /// The bytes of a range of an object where they lie in memory. `None`: ask for them by [`Handling::handle`], since they are
    /// elsewhere, or the request has to wait, or fails.
    pub(crate) fn lend(&mut self, session: SessionId, key: ObjectKey, offset: u64, len: u32) -> Option<InPlace> {
        if self.service.homes.len() != 1 || self.service.words.get().is_some_and(|words| words.waits(session)) {
            return None;
        }
        let held = self.at(0);
        if held.shared.gone.load(Ordering::Relaxed) {
            return None;
        }
        held.engine()?.lend(session, key, offset, len)
    }
    fn handle_now(
        &mut self,
        session: SessionId,
        seq: u64,
        request: Request,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        if self.service.homes.len() == 1 {
            return self.at(0).handle(session, seq, request, later);
        }
        self.route(session, seq, request, later)
    }
    /// Returns true if a prepared transaction keeps a request waiting, at any engine.
    fn is_kept_waiting(&mut self, session: SessionId, seq: u64, request: &Request) -> bool {
        let is_held = |engine: &mut Engine| engine.is_kept_waiting(session, seq, request);
        (0..self.service.homes.len()).any(|home| self.at(home).engine().is_some_and(is_held))
    }
    /// What follows from a request about a transaction. Returns the transaction, if it has just been prepared.
    fn after(&mut self, words: &Words, about: About) -> Option<TransactionId> {
        match about {
            About::Nothing => return None,
            About::Decision => words.has_errands(),
            About::Part(_) if self.service.homes.len() > 1 => {} // the engines' own transactions say so themselves
            About::Part(transaction) => {
                if self.at(0).engine().is_some_and(|engine| engine.is_prepared(transaction)) {
                    return Some(transaction);
                }
                words.settled(transaction);
            }
        }
        None
    }
    /// Handles a request at one of several engines, unless it has to wait for a prepared transaction there.
    pub(crate) fn handle_at(
        &mut self,
        home: usize,
        (session, seq): (SessionId, u64),
        request: Request,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        let (words, put_aside) = (self.service.words.get(), self.put_aside);
        let held = self.at(home);
        let is_held = |engine: &mut Engine| engine.is_kept_waiting(session, seq, &request);
        let Some(words) = words.filter(|_| held.engine().is_some_and(is_held)) else {
            return held.handle(session, seq, request, later);
        };
        match put_aside {
            None => words.put_held(session, (session, seq), request, later()),
            Some(PutAside::Waits(queue, waiting)) => words.hold_on(queue, waiting, (session, seq), request, later()),
            Some(PutAside::Late) => return held.handle(session, seq, request, later),
        }
        None
    }
    /// The engine of a home, locked.
    pub(crate) fn at(&mut self, home: usize) -> &mut Held<'a> {
        if self.held.as_ref().is_some_and(|held| held.home != home) {
            self.release();
        }
        self.held.get_or_insert_with(|| self.service.homes[home].hold(home))
    }
    /// Unlocks the engine.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}

impl Held<'_> {
    pub(crate) fn handle(
        &mut self,
        session: SessionId,
        seq: u64,
        request: Request,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        if self.shared.gone.load(Ordering::Relaxed) {
            return Some(Response::Failed(self.shared.gone_error()));
        }
        let guard = self.guard.as_mut().expect("locked until dropped");
        guard.handled = guard.handled.wrapping_add(1);
        let is_timed = guard.handled.is_multiple_of(REQUESTS_TIMED_IN) && is_counting();
        let Some(engine) = guard.engine.as_mut() else { return Some(Response::Failed(closed())) };
        let timed = is_timed.then(|| (request.timed(), Instant::now()));
        let outcome = engine.handle(session, seq, request);
        if let Some((what, begin)) = timed.filter(|(what, _)| *what != Timed::Flush) {
            engine.note_took(what, nanos(begin));
        }
        self.answer(outcome, later)
    }
    /// The answer of an outcome of this engine. `None`: it comes later, through the reply that `later` creates.
    pub(crate) fn answer(&mut self, outcome: Outcome, later: impl FnOnce() -> Reply) -> Option<Response> {
        match outcome {
            Outcome::Ready(response) => Some(response),
            Outcome::Wait(ticket) => {
                let guard = self.guard.as_mut().expect("locked until dropped");
                guard.waiters.insert(ticket, (later(), Instant::now()));
                self.waits = true;
                None
            }
        }
    }
    /// The engine, if it is not closed.
    pub(crate) fn engine(&mut self) -> Option<&mut Engine> {
        self.guard.as_mut()?.engine.as_mut()
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        drop(self.guard.take());
        self.shared.requests.fetch_add(1, Ordering::SeqCst);
        if self.waits || self.shared.idle.load(Ordering::SeqCst) {
            self.shared.kick();
        }
    }
}

impl Shared {
    /// Locks the engine of this home.
    pub(crate) fn hold(&self, home: usize) -> Held<'_> {
        if self.turns_due.load(Ordering::Relaxed) > 0 {
            self.let_turns_go_first();
        }
        Held { home, guard: Some(lock(&self.engine)), shared: self, waits: false }
    }
}
