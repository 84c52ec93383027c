//! Requests in a row, each to its engine.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::time::Instant;

use cenote_device::control::is_counting;
use cenote_model::{Request, Response, Timed};
use cenote_store::{Engine, Outcome, REQUESTS_TIMED_IN, SessionId};

use crate::service::{Guarded, Reply, Service, Shared, closed, lock, nanos};

/// The engines, for many requests in a row: the one that had the last request is locked.
pub struct Handling<'a> {
    pub(crate) service: &'a Service,
    held: Option<Held<'a>>,
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
        Self { service, held }
    }
    /// Handles a request. `None`: the response comes later, through the reply that `later` creates.
    pub fn handle(
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
        match outcome {
            Outcome::Ready(response) => Some(response),
            Outcome::Wait(ticket) => {
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
