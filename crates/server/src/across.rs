//! Transactions over several engines of one store: both phases, carried from engine to engine by whoever has the turn.
//!
//! Each engine but the last prepares its part, in their order, so that two transactions never wait for each other; the
//! last one decides. After a death the engines have what they need: a prepared part asks the engine that decides, and a
//! decision is told to the parts ([`Service::tend_transactions`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use cenote_device::control::{SharedControl, boot_ns};
use cenote_model::{Check, Decision, Error, HomeId, Request, Response, TransactionId, Update};
use cenote_store::{Engine, Errand, Outcome, SessionId};

use crate::bell::Bell;
use crate::service::{Reply, Service, Shared, lock};
use crate::words::{HELD_MAX, Words};

/// Interval at which engines are asked what they have to say to each other.
const TEND_EVERY: Duration = Duration::from_millis(250);
/// Queues of transactions that wait have numbers from here on, which no session has.
const QUEUES_FROM: u64 = 1 << 62;

/// The part of a transaction that is one engine's.
#[derive(Default, Debug)]
pub(crate) struct Share {
    pub home: usize,
    pub checks: Vec<Check>,
    pub updates: Vec<Update>,
}

/// A transaction under way; see the module.
pub(crate) struct Across {
    homes: Vec<Arc<Shared>>,
    words: Arc<Words>,
    session: SessionId,
    seq: u64,
    transaction: TransactionId,
    queue: SessionId,
    state: Mutex<Progress>,
}

struct Progress {
    /// Those that are still to be sent, the last one first.
    shares: Vec<Share>,
    /// The engines that have prepared their part.
    prepared: Vec<usize>,
    is_sync: bool,
    /// The answer, once it is decided or given up, and the engines that are to settle.
    decided: Option<(Response, bool)>,
    /// The error of the engine that was to decide.
    failure: Option<Error>,
    settling: Vec<usize>,
    /// The one that was just asked to.
    asked: Option<usize>,
    /// Whoever waits for the answer, or the answer.
    reply: Option<Reply>,
    answer: Option<Response>,
}

enum Step {
    Send(usize, Request),
    Settle(usize, bool),
    /// This engine has settled, so the one that has decided need not remember it for that.
    Forget(usize),
    /// Whether it is decided.
    Look,
    Finish(Response),
}

impl Across {
    /// Carries out a transaction. `shares`: in the order of their engines, two at least. `None`: the answer comes later.
    pub fn run(
        service: &Service,
        words: &Arc<Words>,
        (session, seq): (SessionId, u64),
        shares: Vec<Share>,
        later: impl FnOnce() -> Reply,
    ) -> Option<Response> {
        static DRAWN: AtomicU64 = AtomicU64::new(QUEUES_FROM);
        let drawn = DRAWN.fetch_add(1, Ordering::Relaxed);
        let last = shares.last().map_or(0, |share| share.home);
        let number = if seq == 0 { drawn } else { seq };
        let transaction = TransactionId { home: HomeId(last as u16), session: session.0, number };
        let mut state = Progress {
            shares: shares.into_iter().rev().collect(),
            prepared: Vec::new(),
            is_sync: false,
            decided: None,
            failure: None,
            settling: Vec::new(),
            asked: None,
            reply: None,
            answer: None,
        };
        let was_carried_out = |engine: &mut Engine| engine.was_carried_out(session, seq);
        if service.homes[last].with_engine(was_carried_out).unwrap_or_default() {
            state.shares.truncate(1); // its answer was lost, and is given again
        }
        let (homes, words, queue) = (service.homes.clone(), words.clone(), SessionId(drawn));
        let across = Arc::new(Self { homes, words, session, seq, transaction, queue, state: Mutex::new(state) });
        across.go(None);
        let mut state = lock(&across.state);
        let answer = state.answer.take();
        if answer.is_none() {
            state.reply = Some(later());
        }
        answer
    }
    /// Goes on with the answer to the step before.
    fn go(self: &Arc<Self>, mut answer: Option<Response>) {
        loop {
            let step = lock(&self.state).next(self.transaction, answer);
            answer = match step {
                Step::Send(home, request) => self.send(home, request),
                Step::Settle(home, commits) => self.settle(home, commits),
                Step::Forget(home) => Some(self.forget(home)),
                Step::Look => Some(self.look()),
                Step::Finish(response) => return self.finish(response),
            };
            if answer.is_none() {
                return; // it comes later, and this goes on then
            }
        }
    }
    fn later(self: &Arc<Self>) -> Reply {
        let across = self.clone();
        Box::new(move |response| across.go(Some(response)))
    }
    fn send(self: &Arc<Self>, home: usize, request: Request) -> Option<Response> {
        let mut held = self.homes[home].hold(home);
        let is_held = |engine: &mut Engine| engine.is_kept_waiting(self.session, self.seq, &request);
        if held.engine().is_some_and(is_held) {
            self.words.put_held(self.queue, (self.session, self.seq), request, self.later());
            return None;
        }
        held.handle(self.session, self.seq, request, || self.later())
    }
    fn settle(self: &Arc<Self>, home: usize, commits: bool) -> Option<Response> {
        let answer = {
            let mut held = self.homes[home].hold(home);
            let settle = |engine: &mut Engine| {
                if commits { engine.settle_part(self.transaction, true) } else { engine.take_back(self.transaction) }
            };
            let outcome = held.engine().map(settle);
            let outcome = outcome.unwrap_or_else(|| Outcome::Ready(Response::Failed(crate::service::closed())));
            held.answer(outcome, || self.later())
        };
        self.words.settled(self.transaction);
        answer
    }
    fn forget(&self, participant: usize) -> Response {
        let home = usize::from(self.transaction.home.0);
        let forget = |engine: &mut Engine| engine.forget(self.transaction, HomeId(participant as u16));
        let _ = self.homes[home].with_engine(forget); // if it fails, the engine asks again
        Response::Done
    }
    fn look(&self) -> Response {
        let home = usize::from(self.transaction.home.0);
        let is_decided = self.homes[home].with_engine(|engine| engine.is_decided(self.transaction));
        is_decided.map_or_else(Response::Failed, Response::Decided)
    }
    fn finish(&self, response: Response) {
        let reply = {
            let mut state = lock(&self.state);
            if state.reply.is_none() {
                state.answer = Some(response);
                return;
            }
            state.reply.take()
        };
        if let Some(reply) = reply {
            reply(response);
        }
    }
}

impl Progress {
    fn settle_all(&mut self, response: Response, commits: bool) {
        self.settling = std::mem::take(&mut self.prepared);
        self.shares.clear();
        self.decided = Some((response, commits));
    }
    fn next(&mut self, transaction: TransactionId, answer: Option<Response>) -> Step {
        match answer {
            None | Some(Response::Prepared { is_sync: false }) => {}
            Some(Response::Prepared { .. }) => self.is_sync = true,
            // Decided is decided: an engine that cannot settle now does so later.
            Some(answer) if self.decided.is_some() => {
                if let Some(home) = self.asked.take().filter(|_| answer == Response::Done) {
                    return Step::Forget(home);
                }
            }
            Some(Response::Decided(commits)) => {
                let failure = self.failure.take().unwrap_or_else(crate::service::closed);
                self.settle_all(Response::Failed(failure), commits);
            }
            Some(response @ Response::Applied { .. }) => self.settle_all(without_words(response), true),
            // What is decided may still fail to become durable.
            Some(Response::Failed(error)) if self.shares.is_empty() && self.failure.is_none() => {
                self.failure = Some(error);
                return Step::Look;
            }
            // Nobody can say: the engines do, once the store is open again.
            Some(response) if self.shares.is_empty() => return Step::Finish(response),
            Some(response) => self.settle_all(response, false),
        }
        if let Some((response, commits)) = &self.decided {
            return match self.settling.pop() {
                Some(home) => {
                    self.asked = Some(home).filter(|_| *commits);
                    Step::Settle(home, *commits)
                }
                None => Step::Finish(response.clone()),
            };
        }
        let Some(Share { home, checks, updates }) = self.shares.pop() else {
            return Step::Finish(Response::Failed(crate::service::closed()));
        };
        if self.shares.is_empty() {
            let participants = self.prepared.iter().map(|home| HomeId(*home as u16)).collect();
            let decision = Box::new(Decision { transaction, participants, is_sync: self.is_sync });
            return Step::Send(home, Request::Decide { decision, checks, updates });
        }
        // Noted before the answer: one that is refused has nothing to settle.
        self.prepared.push(home);
        Step::Send(home, Request::Prepare { transaction, checks, updates })
    }
}

/// The words of all parts are not known in the order of their objects.
fn without_words(response: Response) -> Response {
    match response {
        Response::Applied { epoch, codes, created, .. } => {
            Response::Applied { epoch, codes, words: Vec::new(), created }
        }
        other => other,
    }
}

impl Service {
    /// Lets requests wait for transactions over several engines, and has a thread settle those that somebody left behind.
    pub(crate) fn tend_transactions(self: &Arc<Self>, control: &Arc<SharedControl>) {
        let (bell, words) = (Arc::new(Bell::default()), Words::alone(control.clone(), Box::new(boot_ns)));
        let ring = bell.clone();
        words.on_work(Box::new(move || ring.ring()));
        let _ = self.words.set(Arc::new(words));
        let service = Arc::downgrade(self);
        let run = move || tend(&service, &bell);
        std::thread::Builder::new().name("cenote-across".into()).spawn(run).expect("the system starts a thread");
    }
    /// Has engines say to each other what they have to. Each asks or tells one at a time.
    fn run_errands(&self) {
        for (home, shared) in self.homes.iter().enumerate() {
            let errands = shared.with_engine(Engine::errands).unwrap_or_default();
            for errand in errands {
                self.run_errand(home, errand);
            }
        }
    }
    fn run_errand(&self, home: usize, errand: Errand) {
        let to = usize::from(errand.to().0);
        match errand {
            Errand::Ask(transaction) => {
                let answer = self.at_engine(to, |engine| engine.ask(transaction, &[]));
                if let Some(Response::Decided(commits)) = answer {
                    tracing::info!(%transaction, commits, "a transaction that its program left behind is settled");
                    self.at_engine(home, |engine| engine.settle_part(transaction, commits));
                    self.settled(transaction);
                }
            }
            Errand::Tell { transaction, participant, commits } => {
                let answer = self.at_engine(to, |engine| engine.settle_part(transaction, commits));
                self.settled(transaction);
                if answer == Some(Response::Done) {
                    self.at_engine(home, |engine| engine.forget(transaction, participant));
                }
            }
        }
    }
    fn settled(&self, transaction: TransactionId) {
        if let Some(words) = self.words.get() {
            words.settled(transaction);
        }
    }
    /// Has an engine do something, and waits for its answer.
    pub(crate) fn at_engine(&self, home: usize, ask: impl FnOnce(&mut Engine) -> Outcome) -> Option<Response> {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let ready = {
            let mut held = self.homes.get(home)?.hold(home);
            let outcome = held.engine().map(ask)?;
            held.answer(outcome, || Box::new(move |response| drop(send.send(response))))
        };
        ready.or_else(|| receive.recv_timeout(HELD_MAX).ok())
    }
}

fn tend(service: &Weak<Service>, bell: &Bell) {
    loop {
        let Some(service) = service.upgrade() else { return };
        if service.is_stopping() {
            service.words.get().iter().for_each(|words| words.end_waiting());
            return service.go_on();
        }
        service.go_on();
        service.run_errands();
        let due = service.words.get().and_then(|words| words.expire());
        drop(service);
        bell.wait(due.unwrap_or(TEND_EVERY).clamp(Duration::from_millis(1), TEND_EVERY));
    }
}
