//! The version words of a home that clients on other nodes remember: a change of one waits until no other node trusts it.
//!
//! Reads of all nodes are linearisable by this: a node that was told a word lets its clients use what they know of it
//! without a message, until it is asked to let go, or its time is over (`interests`, and `told` on its side). A change
//! *begins* when its request arrives, and from then on nobody gains an interest in its words; it is applied when nobody
//! has one, and ends after that. Requests of a session are handled in their order, so that those behind a change that
//! waits do so too.

mod interests;
mod parked;
mod told;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use cenote_device::Control as _;
use cenote_device::control::{SharedControl, WORDS};
use cenote_model::{
    ContainerContent, ContainerId, DEVICES_WORD, IndexKey, ObjectKey, Request, Response, TransactionId,
};
use cenote_store::SessionId;
use cenote_wire::{Changed, WordsMessage};

use crate::service::{Reply, lock};
use interests::Interests;
pub use interests::{Holder, Word};
use parked::Queues;
pub use parked::{Item, Next, Parked, Waiting};
pub use told::{Table, Told};

/// A request waits so long for a prepared transaction; then it fails, and says for which one.
pub(crate) const HELD_MAX: Duration = Duration::from_secs(15);
/// Somebody is interested in a word; the other bits count the changes of it that have begun.
const WATCHED: u32 = 1 << 31;

/// See the module.
pub struct Words {
    control: Arc<SharedControl>,
    /// No other node looks at the home: requests wait for prepared transactions alone.
    is_alone: bool,
    clock: Clock,
    marks: Box<[AtomicU32]>,
    /// Changes of perhaps everything that have begun.
    everything: AtomicU32,
    state: Mutex<State>,
    /// Sessions with requests that wait.
    waiting: AtomicUsize,
    has_messages: AtomicBool,
    /// Calls the thread that sends messages and carries out what waited.
    wake: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Until when other nodes may trust what an earlier daemon told; 0 once that is over.
    grace_ns: AtomicU64,
    /// The nodes that may, as [`SharedControl::granted`] tells them, without those that have connected since.
    grace_nodes: AtomicU64,
    /// Counts the times that a prepared transaction let go of something.
    releases: AtomicU64,
    /// The store is being closed: nothing waits for prepared transactions any more.
    is_over: AtomicBool,
    /// Calls the thread that tells other homes what became of transactions.
    errands: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    interests: Interests,
    queues: Queues,
    /// The changes of prepared transactions: they have begun, and end when these are settled.
    prepared: BTreeMap<TransactionId, Change>,
}

/// See [`Words::of`].
pub type Clock = Box<dyn Fn() -> u64 + Send + Sync>;

/// A change that has begun.
#[derive(Default, Debug)]
pub struct Change {
    words: Vec<Word>,
    is_everything: bool,
    /// The node that makes it, and the words of it in which that node was interested.
    regained: Option<(Holder, Vec<Word>)>,
}

impl Change {
    fn is_nothing(&self) -> bool {
        self.words.is_empty() && !self.is_everything
    }
}

/// What clients remember of the answer to a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// Nothing.
    Nothing,
    /// What has a word of this hash.
    Word(u64),
    /// The first objects and indices of a container.
    Content(ContainerId),
}

impl Look {
    /// What is remembered of the answer to this one.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Lookup { key, .. } | Request::Read { key, .. } => Self::Word(key.word_hash()),
            Request::Get { index, .. } | Request::Next { index, .. } => Self::Word(index.word_hash()),
            Request::Lease { .. } => Self::Word(DEVICES_WORD),
            Request::ContainerContent { id, .. } => Self::Content(*id),
            _ => Self::Nothing,
        }
    }
}

fn words_in(container: ContainerId, content: &ContainerContent) -> Vec<Word> {
    let indices = content.indices.iter().map(|it| IndexKey { container, index: it.id }.word_hash());
    let objects = content.maps.iter().map(|(object, _)| ObjectKey { container, object: *object }.word_hash());
    indices.chain(objects).map(word_of).collect()
}

fn word_of(hash: u64) -> Word {
    (hash % WORDS) as Word
}

impl Words {
    /// The words of a home with this control table. The clock counts nanoseconds, also between daemons: [`cenote_device::control::boot_ns`].
    pub fn of(control: Arc<SharedControl>, clock: Clock) -> Self {
        Self::new(control, clock, WORDS as usize)
    }
    /// Those of a store of several engines, which is no part of a cluster.
    pub fn alone(control: Arc<SharedControl>, clock: Clock) -> Self {
        Self { is_alone: true, ..Self::new(control, clock, 0) }
    }
    fn new(control: Arc<SharedControl>, clock: Clock, words: usize) -> Self {
        let (until_ns, mut nodes) = control.granted();
        if until_ns <= clock() {
            control.forget_grants();
            nodes = 0;
        }
        Self {
            control,
            is_alone: false,
            clock,
            marks: (0..words).map(|_| AtomicU32::new(0)).collect(),
            everything: AtomicU32::new(0),
            state: Mutex::default(),
            waiting: AtomicUsize::new(0),
            has_messages: AtomicBool::new(false),
            wake: OnceLock::new(),
            grace_ns: AtomicU64::new(if nodes == 0 { 0 } else { until_ns }),
            grace_nodes: AtomicU64::new(nodes),
            releases: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            errands: OnceLock::new(),
        }
    }
    /// How long a node may go on trusting words after the home's host has fallen silent.
    pub fn trusted_for_ns() -> u64 {
        interests::TRUSTED_FOR_NS
    }
    /// Calls `wake` when there is something for [`Words::messages`] or [`Words::next`].
    pub fn on_work(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.wake.set(wake);
    }
    fn call(&self) {
        if let Some(wake) = self.wake.get() {
            wake();
        }
    }
    fn mark(&self, word: Word) -> &AtomicU32 {
        &self.marks[word as usize]
    }
    /// A request has arrived, from a client of the node behind a connection or of this one.
    pub fn begin(&self, from: Option<Holder>, request: &Request) -> Change {
        let mut change = Change::default();
        if self.is_alone {
            return change;
        }
        match Changed::by(request) {
            Changed::Nothing => {}
            Changed::Words(hashes) => change.words = hashes.into_iter().map(word_of).collect(),
            Changed::Everything => change.is_everything = true,
        }
        // All marks come first: from here on nobody gains an interest.
        let mut is_watched = change.is_everything;
        for word in &change.words {
            is_watched |= self.mark(*word).fetch_add(1, Ordering::SeqCst) & WATCHED != 0;
        }
        self.everything.fetch_add(u32::from(change.is_everything), Ordering::SeqCst);
        if from.is_some() || is_watched {
            self.revoke(from, request, &mut change);
        }
        change
    }
    #[cold]
    fn revoke(&self, from: Option<Holder>, request: &Request, change: &mut Change) {
        let state = &mut *lock(&self.state);
        let interests = &mut state.interests;
        if let Some(holder) = from {
            if !matches!(request, Request::Deposit { .. }) {
                interests.take(holder);
            }
            let regained = change.words.iter().filter(|word| interests.let_go(holder, **word)).copied();
            change.regained = Some((holder, regained.collect()));
            if change.is_everything {
                interests.let_go_of_all(holder);
            }
        }
        if change.is_everything {
            interests.revoke_all();
        } else {
            interests.revoke(change.words.iter().copied());
        }
        self.unwatch(interests, change.words.iter().copied());
        self.note_messages(interests);
        if from.is_none() {
            self.call(); // requests of other nodes are taken by the thread that sends
        }
    }
    /// Takes the marks from words in which nobody is interested now.
    fn unwatch(&self, interests: &Interests, words: impl IntoIterator<Item = Word>) {
        for word in words.into_iter().filter(|word| interests.is_free(*word)) {
            self.mark(word).fetch_and(!WATCHED, Ordering::SeqCst);
        }
    }
    /// Notes that there are messages, for the thread that sends them: it calls this, or is called.
    fn note_messages(&self, interests: &Interests) {
        if interests.has_messages() {
            self.has_messages.store(true, Ordering::SeqCst);
        }
    }
    /// Returns true if there may be something for [`Words::messages`].
    pub fn has_messages(&self) -> bool {
        self.has_messages.load(Ordering::SeqCst)
    }
    /// Returns true if a change may be applied now.
    fn is_free(&self, interests: &Interests, change: &Change, now_ns: impl Fn() -> u64) -> bool {
        let is_free = |word: &Word| interests.is_free(*word);
        let is_free = if change.is_everything { interests.is_empty() } else { change.words.iter().all(is_free) };
        is_free && (change.is_nothing() || !self.has_grace(now_ns))
    }
    /// Returns true while other nodes may trust what an earlier daemon told.
    fn has_grace(&self, now_ns: impl Fn() -> u64) -> bool {
        let until = self.grace_ns.load(Ordering::Relaxed);
        if until == 0 {
            return false;
        }
        let is_over = now_ns() >= until;
        if is_over {
            self.grace_ns.store(0, Ordering::Relaxed);
        }
        !is_over
    }
    /// Returns true if a request may be handled now; else it is to be put aside.
    pub fn may_go(&self, session: SessionId, change: &Change) -> bool {
        let is_first = self.waiting.load(Ordering::SeqCst) == 0 || !self.waits(session);
        if !is_first || change.is_nothing() {
            return is_first;
        }
        let is_watched = |word: &Word| self.mark(*word).load(Ordering::SeqCst) & WATCHED != 0;
        let is_plain =
            self.grace_ns.load(Ordering::Relaxed) == 0 && !change.is_everything && !change.words.iter().any(is_watched);
        is_plain || self.is_free(&lock(&self.state).interests, change, &self.clock)
    }
    /// Returns true if requests of the session wait.
    pub fn waits(&self, session: SessionId) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0 && lock(&self.state).queues.has(session)
    }
    /// Puts something aside, until what is before it in its session is done and its change may be applied.
    pub fn put_aside(&self, queue: SessionId, parked: Parked) {
        let mut state = lock(&self.state);
        state.queues.push(queue, parked);
        self.waiting.store(state.queues.len(), Ordering::SeqCst);
        drop(state);
        self.call(); // it may be free by now
    }
    /// The next request that was put aside and may be handled now. [`Words::went`] ends it.
    pub fn next(&self) -> Option<Next> {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let (now_ns, releases) = ((self.clock)(), self.releases());
        let State { interests, queues, .. } = &mut *lock(&self.state);
        let is_over = self.is_over.load(Ordering::SeqCst);
        let may_try = |waiting: &Waiting| is_over || waiting.releases != releases || waiting.until_ns <= now_ns;
        queues.next(|change, waiting| waiting.is_none_or(may_try) && self.is_free(interests, change, || now_ns))
    }
    /// What [`Words::next`] gave was handled. `prepared`: it has prepared this transaction.
    pub fn went(&self, queue: SessionId, prepared: Option<TransactionId>) {
        let change = {
            let mut state = lock(&self.state);
            let change = state.queues.went(queue);
            self.waiting.store(state.queues.len(), Ordering::SeqCst);
            change
        };
        if let Some(change) = change {
            self.end_or_hold(change, prepared);
        }
    }
    /// What [`Words::next`] gave has to wait on, for a prepared transaction.
    pub fn put_back(&self, next: Next, waiting: Waiting) {
        lock(&self.state).queues.put_back(next, waiting);
    }
    /// Puts a request to one of several engines aside, until the prepared transaction that keeps it waiting lets go.
    pub fn put_held(&self, queue: SessionId, of: (SessionId, u64), request: Request, reply: Reply) {
        let waiting = Some(self.wait_from_now(self.releases()));
        self.put_aside(queue, Parked::request(of, None, request, reply, Change::default(), waiting));
    }
    /// Has a request to one of several engines wait on, before all others of its queue but the one that is carried out, which
    /// it is or of which it is a part.
    pub fn hold_on(&self, queue: SessionId, waiting: Waiting, of: (SessionId, u64), request: Request, reply: Reply) {
        let parked = Parked::request(of, None, request, reply, Change::default(), Some(waiting));
        lock(&self.state).queues.push_next(queue, parked);
    }
    /// Until when a request waits for prepared transactions, from now on.
    pub fn wait_from_now(&self, releases: u64) -> Waiting {
        Waiting { until_ns: (self.clock)() + HELD_MAX.as_nanos() as u64, releases }
    }
    /// Returns true if a request has waited for long enough.
    pub fn is_late(&self, waiting: &Waiting) -> bool {
        waiting.until_ns <= (self.clock)() || self.is_over.load(Ordering::SeqCst)
    }
    /// Has nothing wait any more: the store is being closed.
    pub fn end_waiting(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
    /// How often something that was held was let go. A request that waits is tried again when that has changed.
    pub fn releases(&self) -> u64 {
        self.releases.load(Ordering::SeqCst)
    }
    /// A change was applied, or refused; or it was prepared, and does not end before that is settled.
    pub fn end_or_hold(&self, change: Change, prepared: Option<TransactionId>) {
        let Some(transaction) = prepared else { return self.end(change) };
        let change = Change { regained: None, ..change };
        let earlier = lock(&self.state).prepared.insert(transaction, change);
        if let Some(earlier) = earlier {
            self.end(earlier);
        }
    }
    /// A prepared transaction was settled: what waited for it may go on.
    pub fn settled(&self, transaction: TransactionId) {
        let change = lock(&self.state).prepared.remove(&transaction);
        if let Some(change) = change {
            self.end(change);
        }
        self.releases.fetch_add(1, Ordering::SeqCst);
        self.call();
    }
    /// Calls `wake` when there may be something to say to other homes.
    pub fn on_errands(&self, wake: Box<dyn Fn() + Send + Sync>) {
        let _ = self.errands.set(wake);
    }
    /// There may be something to say to other homes.
    pub fn has_errands(&self) {
        if let Some(wake) = self.errands.get() {
            wake();
        }
    }
    /// A change was applied, or refused. Its node is told the new values of what it knew.
    pub fn end(&self, change: Change) {
        for word in &change.words {
            self.mark(*word).fetch_sub(1, Ordering::SeqCst);
        }
        self.everything.fetch_sub(u32::from(change.is_everything), Ordering::SeqCst);
        if let Some((holder, words)) = change.regained.filter(|(_, words)| !words.is_empty()) {
            let interests = &mut lock(&self.state).interests;
            for word in words {
                self.watch(interests, holder, word);
            }
            self.note_messages(interests);
        }
    }
    /// A client of the node behind a connection has looked at something: the node is told the words of it.
    pub fn looked(&self, holder: Holder, look: Look, response: Option<&Response>) {
        let words = match (look, response) {
            (_, Some(Response::Failed(_))) | (Look::Nothing, _) => return,
            (Look::Word(hash), _) => vec![word_of(hash)],
            (Look::Content(container), Some(Response::Content(content))) => words_in(container, content),
            (Look::Content(_), _) => return,
        };
        let interests = &mut lock(&self.state).interests;
        for word in words {
            self.watch(interests, holder, word);
        }
        self.note_messages(interests);
    }
    /// Notes an interest, unless a change of the word has begun.
    fn watch(&self, interests: &mut Interests, holder: Holder, word: Word) {
        let before = self.mark(word).fetch_or(WATCHED, Ordering::SeqCst);
        if before & !WATCHED == 0 && self.everything.load(Ordering::SeqCst) == 0 {
            interests.look(holder, word, self.control.word(u64::from(word)));
        }
        self.unwatch(interests, [word]);
    }
    /// A node has connected.
    pub fn came(&self, holder: Holder, node: u16) {
        lock(&self.state).interests.came(holder, node);
    }
    /// A node trusts nothing that earlier daemons of this home have told it.
    fn begins(&self, node: u16) {
        let bit = SharedControl::grantee(node);
        if bit != SharedControl::OTHER_GRANTEES && self.grace_nodes.fetch_and(!bit, Ordering::Relaxed) == bit {
            self.grace_ns.store(0, Ordering::Relaxed);
        }
    }
    /// A connection has ended.
    pub fn left(&self, holder: Holder) {
        let interests = &mut lock(&self.state).interests;
        let freed = interests.left(holder, (self.clock)());
        self.unwatch(interests, freed);
    }
    /// A message of the node behind a connection, which may trust what it is told for `most_ns` at most. Returns false if a
    /// home takes none like it.
    pub fn take(&self, holder: Holder, message: &WordsMessage, most_ns: u64) -> bool {
        let interests = &mut lock(&self.state).interests;
        match message {
            WordsMessage::Trust { asked_ns } => {
                if let Some(node) = interests.is_new(holder) {
                    let freed = interests.begins(holder, node);
                    self.unwatch(interests, freed);
                    self.begins(node);
                }
                // Words stay words: what is changed without a request (a rule deletes objects) is told here.
                let value = |word| self.control.word(u64::from(word));
                interests.trust(holder, *asked_ns, most_ns, (self.clock)(), value);
                if let Some((node, until_ns)) = interests.trusted(holder) {
                    self.control.grant(node, until_ns);
                }
                self.note_messages(interests);
            }
            WordsMessage::LetGo { number } => {
                let freed = interests.acknowledged(holder, *number);
                self.unwatch(interests, freed);
            }
            WordsMessage::Trusted { .. } | WordsMessage::Told { .. } | WordsMessage::Revoke { .. } => return false,
        }
        true
    }
    /// The messages for the node behind a connection.
    pub fn messages(&self, holder: Holder) -> Vec<WordsMessage> {
        if !self.has_messages() {
            return Vec::new();
        }
        let interests = &mut lock(&self.state).interests;
        let messages = interests.messages(holder);
        self.has_messages.store(interests.has_messages(), Ordering::SeqCst);
        messages
    }
    /// Lets go for nodes whose time is over. Returns how long the next one has at most.
    pub fn expire(&self) -> Option<Duration> {
        let state = &mut *lock(&self.state);
        let now_ns = (self.clock)();
        let until = state.interests.expires_ns();
        if until.is_some_and(|until| until <= now_ns) {
            let freed = state.interests.expire(now_ns);
            self.unwatch(&state.interests, freed);
        }
        let grace_ns = self.grace_ns.load(Ordering::Relaxed);
        let grace = (state.queues.len() > 0 && grace_ns > now_ns).then_some(grace_ns);
        let waiting = state.queues.until_ns();
        let next = state.interests.expires_ns().into_iter().chain(grace).chain(waiting).min();
        next.map(|next| Duration::from_nanos(next.saturating_sub(now_ns)))
    }
}
