//! A home on another node, as the threads of this daemon see it: whether it can be reached, its clients here, and their
//! sessions there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use cenote_cluster::Member;
use cenote_device::{Control, SharedControl};
use cenote_host::process::started_of;
use cenote_model::{Error, ErrorKind, HomeId, Request, Response, Result, StoreId};
use cenote_rpc::net::{Class, ClusterKey, Introduction, TcpConnection};
use cenote_store::{SessionId, SessionInfo};
use cenote_wire::{
    NodeLock, NodeMessage, RemoteSession, WordsMessage, decode_response, encode_between, encode_forwarded,
    encode_request, is_deposit,
};

use super::super::peer::Peer;
use super::foreign::Outgoing;
use super::locks::Locks;
use super::outbox::{ConnectionId, Order, Outbox};
use super::talk::say;
use super::trust::{self, Trust};
use crate::clients::{Clients, Served};
use crate::service::lock;

/// Time limit for a connection to another node, and for each attempt.
const CONNECT: Duration = Duration::from_secs(3);
const ATTEMPT: Duration = Duration::from_millis(700);
/// Time limit for an answer about a session.
const ANSWER: Duration = Duration::from_secs(10);
/// After a failed connection, others fail at once for this long.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// A home on another node; see the module.
pub(crate) struct Gateway {
    home: HomeId,
    /// The node that is its host: name and address.
    host: Mutex<(String, SocketAddr)>,
    who: Introduction,
    key: ClusterKey,
    /// Where the memory of this node's store is.
    memory: PathBuf,
    outbox: Arc<Outbox>,
    clients: OnceLock<(StoreId, Clients)>,
    state: Mutex<State>,
    changed: Condvar,
    trust: Trust,
    locks: Arc<Locks>,
    /// Another node opens the home from where all reach it, without what was in memory.
    is_shared: bool,
}

#[derive(Default)]
struct State {
    way: Way,
    /// Sessions of processes of this node.
    sessions: BTreeMap<SessionId, SessionInfo>,
    /// Clients of this node whose sessions the home does not know any more, by nonce.
    forgotten: HashSet<u128>,
    /// Answers to requests for sessions, by nonce.
    opened: HashMap<u128, Result<SessionId>>,
    /// Threads that wait for the answer to a request, by session and number.
    calls: HashMap<(u64, u64), SyncSender<Response>>,
}

/// The way to the home.
#[derive(Default)]
enum Way {
    /// There was none yet.
    #[default]
    Never,
    Connecting,
    /// It is there; the other node has not told yet which sessions it has.
    Greeted(ConnectionId),
    Up(ConnectionId),
    Down(Error, Instant),
}

impl Gateway {
    pub(super) fn new(
        member: Member,
        who: Introduction,
        key: ClusterKey,
        memory: &Path,
        outbox: Arc<Outbox>,
        locks: Arc<Locks>,
        is_shared: bool,
    ) -> Self {
        Self {
            home: member.home,
            host: Mutex::new((member.name, member.address)),
            who,
            key,
            memory: memory.to_path_buf(),
            outbox,
            clients: OnceLock::new(),
            state: Mutex::default(),
            changed: Condvar::new(),
            trust: Trust::default(),
            locks,
            is_shared,
        }
    }
    /// The home.
    pub fn home(&self) -> HomeId {
        self.home
    }
    /// The doorbell of the thread that serves its clients.
    pub fn bell(&self) -> &cenote_rpc::Doorbell {
        self.outbox.bell()
    }
    /// Has the thread serve an admitted client.
    pub fn serve(&self, peer: Peer) {
        self.outbox.put(Order::Serve(self.home(), Box::new(peer)));
    }
    fn subject(&self) -> String {
        let (name, address) = lock(&self.host).clone();
        format!("home {} on node `{name}` ({address})", self.home)
    }
    #[cold]
    fn late(&self) -> Error {
        Error::new(ErrorKind::Disconnected, self.subject())
            .because("it did not answer in time")
            .try_next("`cenote cluster status` shows which nodes are alive")
    }
    /// A client that has changed something believes in what is gone; it would not be told so by anything that comes.
    #[cold]
    fn went_on(&self) -> Error {
        Error::new(ErrorKind::Conflict, self.subject())
            .because("another node went on with it, without what was in the memory of its node alone: what this program changed since it last flushed may be lost")
            .try_next("open the store anew")
    }
    /// The clients of the home on this node, with the home's store; connects first. `Disconnected` if the home cannot
    /// be reached.
    pub fn reach(&self) -> Result<&(StoreId, Clients)> {
        let begin = Instant::now();
        let mut state = lock(&self.state);
        loop {
            match &state.way {
                Way::Up(_) => break,
                Way::Down(error, at) if at.elapsed() < AGAIN_AFTER => return Err(error.clone()),
                Way::Never | Way::Down(..) => {
                    state.way = Way::Connecting;
                    drop(state);
                    self.connect();
                    state = lock(&self.state);
                }
                Way::Connecting | Way::Greeted(_) => {
                    if begin.elapsed() >= CONNECT + ANSWER {
                        return Err(self.late());
                    }
                    state = self.wait(state, Duration::from_millis(100));
                }
            }
        }
        drop(state);
        self.clients.get().ok_or_else(|| self.late())
    }
    fn wait<'a>(&self, state: MutexGuard<'a, State>, patience: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, patience);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
    /// Notes which node is the host. Returns true if it was another one.
    pub(super) fn lies_on(&self, name: &str, address: SocketAddr) -> bool {
        let is_new = {
            let mut host = lock(&self.host);
            let before = std::mem::replace(&mut *host, (name.to_owned(), address));
            before.1 != address
        };
        // That the former host could not be reached says nothing of this one.
        if let Way::Down(_, since) = &mut lock(&self.state).way
            && is_new
        {
            *since = since.checked_sub(AGAIN_AFTER).unwrap_or(*since);
        }
        is_new
    }
    /// Where the host of the home listens.
    pub(super) fn address(&self) -> SocketAddr {
        lock(&self.host).1
    }
    /// Returns true if the host of the home listens there.
    pub(super) fn is_at(&self, address: SocketAddr) -> bool {
        self.address() == address
    }
    fn connect(&self) {
        let begin = Instant::now();
        let connected = loop {
            let (address, since) = (self.address(), Instant::now());
            let connected = TcpConnection::connect(address, self.who, &self.key, ATTEMPT).and_then(|mut connection| {
                say(&mut connection, &NodeMessage::Visit { home: self.home })?;
                Ok(connection)
            });
            // A host that hangs takes connections, and another one may be named meanwhile.
            let hangs = connected.is_err() && since.elapsed() >= ATTEMPT;
            if begin.elapsed() >= CONNECT || self.is_at(address) && !hangs {
                break connected;
            }
        };
        match connected {
            Ok(connection) => {
                let number = self.outbox.number();
                lock(&self.state).way = Way::Greeted(number);
                self.outbox.put(Order::Connected(self.home(), number, Box::new(connection)));
            }
            Err(error) => {
                let cause = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
                let error = Error::new(error.kind(), self.subject()).because(cause).try_next(error.next_step());
                lock(&self.state).way = Way::Down(error, Instant::now());
                self.changed.notify_all();
            }
        }
    }
    /// The other node has told which store the home is, and which sessions it has. Fails if it is another store than
    /// before.
    pub(super) fn told(
        &self,
        connection: ConnectionId,
        store: StoreId,
        sessions: Vec<(u64, RemoteSession)>,
    ) -> Result<()> {
        if self.clients.get().is_none() {
            let control = SharedControl::new(&self.memory);
            control.attach(store)?;
            control.trust_until(0);
            control.tell_nothing(); // of an earlier daemon
            let _ = self.clients.set((store, Clients::of(Arc::new(control))));
        }
        let Some((known, clients)) = self.clients.get() else { return Err(self.late()) };
        if *known != store {
            return Err(Error::new(ErrorKind::VersionMismatch, self.subject())
                .because(format!("it is store {store} now, and was {known}"))
                .try_next("restart the daemon of this node, if the home was made anew on purpose"));
        }
        // What clients know from an earlier connection may have changed since.
        self.trust.forget(&clients.control);
        clients.control.instance_raise();
        let mut state = lock(&self.state);
        let is_up = matches!(state.way, Way::Greeted(known) if known == connection);
        if is_up {
            state.way = Way::Up(connection);
            if self.is_shared {
                let is_known = |nonce| sessions.iter().any(|(_, who)| who.nonce == nonce);
                let gone = state.sessions.values().filter(|who| who.write && !is_known(who.nonce));
                let gone: Vec<u128> = gone.map(|who| who.nonce).collect();
                state.forgotten.extend(gone);
            }
            state.sessions = sessions.into_iter().map(|(id, who)| (SessionId(id), local(who))).collect();
        }
        drop(state);
        self.changed.notify_all();
        if is_up {
            self.locks.up(self.home);
        }
        Ok(())
    }
    /// The connection to this address has ended.
    pub(super) fn ended(&self, connection: ConnectionId, address: SocketAddr, error: &Error) {
        let mut state = lock(&self.state);
        if !matches!(state.way, Way::Up(known) | Way::Greeted(known) if known == connection) {
            return;
        }
        tracing::warn!(home = %self.home(), %error, "the connection to another node ended");
        // A home that has moved may be connected to at once.
        let now = Instant::now();
        let since = now.checked_sub(AGAIN_AFTER).filter(|_| !self.is_at(address)).unwrap_or(now);
        state.way = Way::Down(error.clone(), since);
        state.opened.clear();
        state.calls.clear(); // their threads see that nobody answers
        drop(state);
        self.locks.down(self.home);
        if let Some((_, clients)) = self.clients.get() {
            self.trust.forget(&clients.control);
            clients.control.instance_raise();
        }
        self.changed.notify_all();
    }
    /// The answer about a session has come.
    pub fn opened(&self, nonce: u128, session: Result<SessionId>) {
        lock(&self.state).opened.insert(nonce, session);
        self.changed.notify_all();
    }
    /// Gives an answer to the thread that waits for it. Returns false if none does: it is a client's.
    pub fn answer(&self, session: u64, message: &[u8]) -> Result<bool> {
        let mut state = lock(&self.state);
        if state.calls.is_empty() {
            return Ok(false);
        }
        let (seq, response) = decode_response(message)?;
        let Some(call) = state.calls.remove(&(session, seq)) else { return Ok(false) };
        let _ = call.send(response); // it may have given up
        Ok(true)
    }
    fn table(&self) -> Option<&SharedControl> {
        self.clients.get().map(|(_, clients)| &*clients.control)
    }
    /// A request is about to be sent: what it changes must not be trusted from here on.
    pub fn sending(&self, message: &[u8]) {
        self.trust.sending(message, self.table());
    }
    /// Takes a message about version words. Returns the answer.
    pub(super) fn take_words(&self, message: &WordsMessage) -> Option<Outgoing> {
        self.trust.take(message, self.table()?).as_ref().map(trust::outgoing)
    }
    /// Takes a message about locks of files.
    pub(super) fn take_lock(&self, message: NodeLock) {
        self.locks.take_from_home(self.home, message);
    }
    /// Asks, if it is time, whether the words that are known may be trusted on.
    pub(super) fn ask_trust(&self, now: Instant) -> Option<Outgoing> {
        self.table()?;
        self.trust.ask_again(now).as_ref().map(trust::outgoing)
    }
    fn tell(&self, message: &NodeMessage) {
        let mut bytes = Vec::new();
        encode_between(message, &mut bytes);
        self.outbox.put(Order::ToHome(self.home(), Class::Control, bytes));
    }
    fn is_up(&self) -> bool {
        matches!(lock(&self.state).way, Way::Up(_))
    }
    /// Carries out what dead processes of this node left for the home. Does nothing while it cannot be reached.
    pub fn reap(&self) {
        if let Some((_, clients)) = self.clients.get().filter(|_| self.is_up()) {
            clients.reap(self, || !self.is_up());
        }
    }
}

impl Served for Gateway {
    fn session_open(&self, who: &SessionInfo) -> Result<SessionId> {
        // What a dead process left to be done is done all the same.
        let is_alive = started_of(who.pid) == Some(who.started);
        if is_alive && lock(&self.state).forgotten.contains(&who.nonce) {
            return Err(self.went_on());
        }
        let begin = Instant::now();
        self.tell(&NodeMessage::Open { who: remote(who) });
        let mut state = lock(&self.state);
        loop {
            if let Some(answer) = state.opened.remove(&who.nonce) {
                let session = answer?;
                state.sessions.insert(session, who.clone());
                return Ok(session);
            }
            if let Way::Down(error, _) = &state.way {
                return Err(error.clone());
            }
            if begin.elapsed() >= ANSWER {
                return Err(self.late());
            }
            state = self.wait(state, ANSWER);
        }
    }
    fn session_close(&self, session: SessionId) {
        let mut state = lock(&self.state);
        // If it cannot be told, the session stays, to be closed later.
        if matches!(state.way, Way::Up(_)) && state.sessions.remove(&session).is_some() {
            drop(state);
            self.tell(&NodeMessage::Close { session: session.0 });
        }
    }
    fn sessions(&self) -> Vec<(SessionId, SessionInfo)> {
        lock(&self.state).sessions.iter().map(|(id, who)| (*id, who.clone())).collect()
    }
    fn carry_out(&self, session: SessionId, seq: u64, request: Request) -> Result<Option<Response>> {
        let (send, receive) = sync_channel(1);
        {
            let mut state = lock(&self.state);
            match &state.way {
                Way::Up(_) => {}
                Way::Down(error, _) => return Err(error.clone()),
                _ => return Err(self.late()),
            }
            state.calls.insert((session.0, seq), send);
        }
        let mut bytes = Vec::new();
        encode_forwarded(false, session.0, &mut bytes);
        let head = bytes.len();
        encode_request(seq, &request, &mut bytes);
        let class = if is_deposit(&bytes[head..]) { Class::Bulk } else { Class::Control };
        self.outbox.put(Order::ToHome(self.home(), class, bytes));
        receive.recv_timeout(ANSWER).map(Some).map_err(|_| self.late())
    }
}

/// A session's process, as its node and its home tell each other of it.
pub(super) fn remote(who: &SessionInfo) -> RemoteSession {
    RemoteSession {
        nonce: who.nonce,
        pid: who.pid,
        started: who.started,
        uid: who.uid,
        gid: who.gid,
        write: who.write,
        groups: who.bound.as_ref().map(|groups| groups.to_vec()),
    }
}

/// The reverse, on the process's own node.
pub(super) fn local(who: RemoteSession) -> SessionInfo {
    SessionInfo {
        nonce: who.nonce,
        pid: who.pid,
        started: who.started,
        uid: who.uid,
        gid: who.gid,
        write: who.write,
        bound: who.groups.map(Into::into),
        node: None,
    }
}
