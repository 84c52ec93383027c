//! The thread that has all connections to other nodes, and the rings of clients of gateways.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, HomeId, NodeId, Response, Result};
use cenote_rpc::Poller;
use cenote_rpc::net::{Class, Endpoint, Event, Introduction, Message, TcpConnection};
use cenote_store::SessionId;
use cenote_wire::{Between, NodeMessage, decode_between, encode_forwarded, is_deposit};

use super::super::Daemon;
use super::super::peer::{Answering, Peer, Standing};
use super::Nodes;
use super::foreign::{Foreign, Outgoing, answer, not_here};
use super::gateway::Gateway;
use super::outbox::{ConnectionId, Order};
use super::talk::encoded;
use super::trust;
use crate::Service;
use crate::handling::Handling;
use crate::mirroring::{Held, Mirroring};

/// Longest sleep; shorter than the time between two signs of life.
const SLEEP: Duration = Duration::from_millis(250);
/// Sleep while the network takes no more requests.
const SLEEP_FULL: Duration = Duration::from_millis(1);
/// Interval of signs of life.
const BEAT_EVERY: Duration = Duration::from_secs(1);
/// A connection waits so long for a home that is being opened here…
const OPENING: Duration = Duration::from_secs(8);
/// …and so long for a view that says that it is to be.
const VIEW: Duration = Duration::from_millis(500);
/// A connection without any sign of life for this long has ended.
const SILENCE: Duration = Duration::from_secs(10);
/// No more requests are taken from clients while so many bytes wait for the network.
const QUEUED_MAX: u64 = 8 << 20;
/// Time for what is queued when the daemon ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// A connection, whoever made it.
struct Line {
    number: ConnectionId,
    tcp: TcpConnection,
    heard_at: Instant,
    beat_at: Instant,
    failed: Option<Error>,
}

impl Line {
    fn new(number: ConnectionId, tcp: TcpConnection) -> Self {
        let now = Instant::now();
        Self { number, tcp, heard_at: now, beat_at: now, failed: None }
    }
    fn send(&mut self, Outgoing { class, head, rest, .. }: Outgoing) {
        if let Err(error) = self.tcp.endpoint().send_parts(class, head, rest) {
            self.fail(error);
        }
    }
    fn fail(&mut self, error: Error) {
        self.failed.get_or_insert(error);
    }
    /// Reads and writes what is possible at once. Returns true if there may be more.
    fn turn(&mut self) -> bool {
        match self.tcp.turn() {
            Ok(more) => more,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }
    fn next_message(&mut self) -> Option<Message> {
        while let Some(event) = self.tcp.endpoint().next_event() {
            self.heard_at = Instant::now();
            match event {
                Event::Message(message) => return Some(message),
                Event::Left => self.fail(
                    Error::new(ErrorKind::Disconnected, format!("node at {}", self.tcp.peer()))
                        .because("its daemon has ended")
                        .try_next("`cenote cluster status` shows which nodes are alive"),
                ),
                Event::Opened(_) | Event::Beat => {}
            }
        }
        None
    }
    /// Gives and expects signs of life.
    fn keep(&mut self, now: Instant) {
        if now.duration_since(self.beat_at) >= BEAT_EVERY {
            self.beat_at = now;
            self.tcp.endpoint().beat();
        }
        if now.duration_since(self.heard_at) >= SILENCE {
            let error = Error::new(ErrorKind::Disconnected, format!("node at {}", self.tcp.peer()))
                .because(format!("it was silent for {} s", SILENCE.as_secs()))
                .try_next("`cenote cluster status` shows which nodes are alive");
            self.fail(error);
        }
    }
    fn is_full(&mut self) -> bool {
        let endpoint = self.tcp.endpoint();
        endpoint.queued_bytes(Class::Control) + endpoint.queued_bytes(Class::Bulk) > QUEUED_MAX
    }
}

/// The connection to a home, and the clients of this node that it serves.
struct Way {
    gateway: Arc<Gateway>,
    line: Line,
    peers: BTreeMap<u64, Peer>,
}

/// A connection from another node, and its clients.
struct Visitor {
    line: Line,
    foreign: Foreign,
    held: Held<Outgoing>,
}

/// Hands a client's requests to the connection.
struct Forwarding<'a>(&'a mut Endpoint, &'a Gateway);

impl Answering for Forwarding<'_> {
    const FORWARDS: bool = true;
    fn forward(&mut self, standing: &Arc<Standing>, mut frame: Vec<u8>) -> Result<()> {
        let class = self.class_of(&frame[1..]);
        let mut head = Vec::with_capacity(16);
        encode_forwarded(false, standing.session.0, &mut head);
        // The frame goes out as it is: its first byte, which is not the message's, becomes the last one of the head.
        frame[0] = head.pop().unwrap_or_default();
        self.0.send_parts(class, head, frame)
    }
    fn take(&mut self, standing: &Arc<Standing>, message: &[u8], _out: &mut Vec<u8>) -> Result<bool> {
        let mut bytes = Vec::with_capacity(message.len() + 16);
        encode_forwarded(false, standing.session.0, &mut bytes);
        bytes.extend_from_slice(message);
        self.0.send(self.class_of(message), bytes).map(|()| true)
    }
}

impl Forwarding<'_> {
    /// Only what its client waits for may overtake others.
    fn class_of(&self, message: &[u8]) -> Class {
        if is_deposit(message) {
            return Class::Bulk;
        }
        self.1.sending(message);
        Class::Control
    }
}

/// The state of the thread.
struct State<'a> {
    nodes: &'a Nodes,
    daemon: &'a Daemon,
    ways: BTreeMap<HomeId, Way>,
    visitors: BTreeMap<ConnectionId, Visitor>,
    /// Connections for homes that are not served here yet, and when each came.
    parked: Vec<(Instant, Introduction, HomeId, TcpConnection)>,
    /// The homes that other nodes may know words of.
    homes: Vec<Weak<Service>>,
}

/// Serves until the daemon stops.
pub(super) fn run(nodes: &Arc<Nodes>, daemon: &Arc<Daemon>) {
    let homes = vec![Arc::downgrade(&daemon.host.service)];
    let mut state =
        State { nodes, daemon, ways: BTreeMap::new(), visitors: BTreeMap::new(), parked: Vec::new(), homes };
    let mut poller = Poller::new(nodes.outbox.bell().clone());
    while !daemon.is_stopping() {
        let busy = state.turn();
        state.bury();
        if !busy {
            state.sleep(&mut poller);
        }
    }
    state.leave();
}

impl State<'_> {
    /// Does what can be done at once. Returns true if there may be more.
    fn turn(&mut self) -> bool {
        let mut busy = false;
        for order in self.nodes.outbox.take_all() {
            busy = true;
            self.obey(order);
        }
        self.homes.iter().filter_map(Weak::upgrade).for_each(|service| service.go_on());
        for (since, who, home, tcp) in std::mem::take(&mut self.parked) {
            self.accept(since, who, home, tcp);
        }
        let now = Instant::now();
        for way in self.ways.values_mut() {
            way.line.keep(now);
            if let Some(asking) = way.gateway.ask_trust(now) {
                way.line.send(asking);
            }
            busy |= way.turn();
        }
        for visitor in self.visitors.values_mut() {
            visitor.line.keep(now);
            busy |= visitor.turn(self.nodes);
        }
        busy
    }
    fn obey(&mut self, order: Order) {
        match order {
            Order::Connected(home, number, tcp) => {
                let Ok(gateway) = self.nodes.gateway(home) else { return };
                let way = Way { gateway: gateway.clone(), line: Line::new(number, *tcp), peers: BTreeMap::new() };
                let is_moved = !gateway.is_at(way.line.tcp.peer());
                if let Some(mut before) = self.ways.insert(home, way) {
                    before.end(&replaced());
                }
                if is_moved {
                    self.obey(Order::Moved(home));
                }
            }
            Order::Accepted(who, home, tcp) => self.accept(Instant::now(), who, home, *tcp),
            Order::Moved(home) => {
                if let Some(mut way) = self.ways.remove(&home) {
                    way.end(&moved(home));
                }
            }
            Order::ToHome(home, class, bytes) => {
                if let Some(way) = self.ways.get_mut(&home) {
                    if let (Class::Control, Ok(Between::Request { message, .. })) = (class, decode_between(&bytes)) {
                        way.gateway.sending(message);
                    }
                    way.line.send(Outgoing::new(class, bytes));
                }
            }
            Order::Answer(connection, answer) => {
                if let Some(visitor) = self.visitors.get_mut(&connection) {
                    visitor.send(answer);
                }
            }
            Order::Serve(home, mut peer) => match self.ways.get_mut(&home) {
                Some(way) => drop(way.peers.insert(peer.session().0, *peer)),
                None => peer.close(), // its client attaches again
            },
        }
    }
    /// Takes a connection for a home; one that came while the home is being opened waits.
    fn accept(&mut self, since: Instant, who: Introduction, home: HomeId, tcp: TcpConnection) {
        let node = NodeId(who.node);
        self.replace(node, home);
        // In this order: a home is served before it is no longer being opened.
        let patience = if self.nodes.homes.is_opening(home) { OPENING } else { VIEW };
        let served = self.nodes.served(self.daemon, home);
        if served.is_none() && since.elapsed() < patience {
            return self.parked.push((since, who, home, tcp));
        }
        let number = self.nodes.outbox.number();
        let mut line = Line::new(number, tcp);
        // A process connects to itself for a home of another node alone.
        if node.0 == self.nodes.who.node && home == self.nodes.home {
            tracing::warn!(node = node.0, peer = %line.tcp.peer(), "a connection of this node for its own home");
            return;
        }
        let Some(host) = served else {
            line.send(Outgoing::new(Class::Control, encoded(&NodeMessage::Declined { error: not_here(home) })));
            line.turn();
            return;
        };
        if let Some(words) = host.service.words.get() {
            words.came(number.number(), node.0);
        }
        self.nodes.direct.came((home, node), number);
        let service = Arc::downgrade(&host.service);
        self.homes.retain(|known| known.strong_count() > 0 && !known.ptr_eq(&service));
        self.homes.push(service);
        let (foreign, greeting) = Foreign::begin(host, node, number, self.nodes.locks.clone());
        line.send(greeting);
        self.visitors.insert(number, Visitor { line, foreign, held: Held::default() });
    }
    /// Ends what a node had for a home before it connected anew. Requests of programs that died with the node may still be in
    /// that connection, and must not be carried out after what its programs ask for by the new one.
    fn replace(&mut self, node: NodeId, home: HomeId) {
        self.parked.retain(|(_, who, of, _)| (NodeId(who.node), *of) != (node, home));
        let is_former = |foreign: &Foreign| foreign.node() == node && foreign.host().summary.home == home;
        for (_, mut visitor) in self.visitors.extract_if(.., |_, visitor| is_former(&visitor.foreign)) {
            visitor.end(&replaced());
        }
    }
    /// Ends connections that have failed.
    fn bury(&mut self) {
        self.ways.retain(|_, way| match way.line.failed.take() {
            Some(error) => {
                way.end(&error);
                false
            }
            None => true,
        });
        self.visitors.retain(|_, visitor| match visitor.line.failed.take() {
            Some(error) => {
                visitor.end(&error);
                false
            }
            None => true,
        });
    }
    fn sleep(&mut self, poller: &mut Poller) {
        let is_full = self.ways.values_mut().any(|way| way.line.is_full());
        let pause = self.ways.values().flat_map(|way| way.peers.values()).filter_map(Peer::pause).min();
        let sleep = pause.unwrap_or(SLEEP).min(if is_full { SLEEP_FULL } else { SLEEP });
        let due = self.homes.iter().filter_map(Weak::upgrade).filter_map(|service| service.words.get()?.expire());
        let sleep = due.fold(sleep, Duration::min);
        let flags: Vec<_> = self.lines().map(|line| line.tcp.wanted()).collect();
        let sockets: Vec<_> = self
            .ways
            .values()
            .map(|way| &way.line)
            .chain(self.visitors.values().map(|visitor| &visitor.line))
            .zip(flags)
            .map(|(line, flags)| (line.tcp.as_fd(), flags))
            .collect();
        let peers = self.ways.values().flat_map(|way| way.peers.values());
        let rings = peers.filter(|peer| !peer.is_blocked()).map(Peer::requests);
        let ready = poller.wait_also(rings, &sockets, sleep);
        drop(sockets);
        let mut ready = ready.into_iter().peekable();
        for (at, line) in self.lines().enumerate() {
            if ready.next_if_eq(&at).is_some() {
                line.tcp.set_readable();
            }
        }
    }
    fn lines(&mut self) -> impl Iterator<Item = &mut Line> {
        let ways = self.ways.values_mut().map(|way| &mut way.line);
        ways.chain(self.visitors.values_mut().map(|visitor| &mut visitor.line))
    }
    /// Answers what can be answered, and tells other nodes that this one leaves.
    fn leave(mut self) {
        for visitor in self.visitors.values_mut() {
            visitor.turn(self.nodes);
        }
        let begin = Instant::now();
        while begin.elapsed() < FAREWELL && self.lines().any(Line::turn) {}
        for way in self.ways.values_mut() {
            way.end(&replaced());
        }
        for line in self.lines() {
            line.tcp.endpoint().leave();
            line.turn();
        }
    }
}

impl Way {
    /// Moves messages in both directions. Returns true if there may be more.
    fn turn(&mut self) -> bool {
        let mut busy = self.line.turn();
        while let Some(message) = self.line.next_message() {
            busy = true;
            if let Err(error) = self.take(&message.bytes) {
                self.line.fail(error);
            }
            self.line.tcp.endpoint().release(message);
        }
        if self.line.is_full() {
            self.peers.values_mut().for_each(Peer::publish);
        } else {
            for peer in self.peers.values_mut() {
                busy |= peer.turn(Forwarding(self.line.tcp.endpoint(), &self.gateway));
            }
        }
        self.peers.retain(|_, peer| !peer.is_gone());
        self.line.turn() || busy
    }
    fn take(&mut self, bytes: &[u8]) -> Result<()> {
        match decode_between(bytes)? {
            Between::Answer { session, message } => {
                if !self.gateway.answer(session, message)?
                    && let Some(peer) = self.peers.get_mut(&session)
                {
                    peer.pass_on(message);
                }
            }
            Between::Sessions(NodeMessage::Opened { nonce, session }) => {
                self.gateway.opened(nonce, Ok(SessionId(session)));
            }
            Between::Sessions(NodeMessage::Refused { nonce, error }) => self.gateway.opened(nonce, Err(error)),
            Between::Sessions(NodeMessage::Home { store, sessions }) => {
                self.gateway.told(self.line.number, store, sessions)?;
            }
            Between::Words(message) => {
                if let Some(answer) = self.gateway.take_words(&message) {
                    self.line.send(answer);
                }
            }
            Between::Locks(message) => self.gateway.take_lock(message),
            Between::Sessions(NodeMessage::Declined { error }) => return Err(error),
            _ => return Err(Error::new(ErrorKind::InvalidInput, "message from a home").because("it is out of turn")),
        }
        Ok(())
    }
    /// Lets the clients go: they attach again.
    fn end(&mut self, error: &Error) {
        self.gateway.ended(self.line.number, self.line.tcp.peer(), error);
        for peer in self.peers.values_mut() {
            peer.close();
        }
    }
}

impl Visitor {
    /// Lets go of what its node was told by this connection.
    fn end(&mut self, error: &Error) {
        tracing::debug!(%error, "a connection from another node ended");
        if let Some(words) = self.foreign.host().service.words.get() {
            words.left(self.line.number.number());
        }
        let _ = self.line.tcp.turn(); // what says why
    }
    /// Takes the messages of the node and answers them. Returns true if there may be more.
    fn turn(&mut self, nodes: &Nodes) -> bool {
        let mut busy = self.line.turn() | self.tell_held();
        let service = self.foreign.host().service.clone();
        let mut engines: Option<Handling<'_>> = None;
        while self.may_take()
            && let Some(message) = self.line.next_message()
        {
            busy = true;
            let taken = self.foreign.take(&service, &nodes.outbox, &mut engines, &message.bytes);
            // Words come before the answer that teaches what they are of.
            self.tell();
            match taken {
                Ok(Some(answer)) => self.send(answer),
                Ok(None) => {}
                Err(error) => self.line.fail(error),
            }
            self.line.tcp.endpoint().release(message);
        }
        drop(engines);
        self.tell();
        self.line.turn() || busy
    }
    /// Sends what the node is to know of the words of the home.
    fn tell(&mut self) {
        let words = self.foreign.host().service.words.get().map(|words| &**words);
        for message in trust::messages(words, self.line.number) {
            self.line.send(message);
        }
    }
    fn mirroring(&self) -> Option<&Arc<Mirroring>> {
        self.foreign.host().mirroring.as_ref()
    }
    fn may_take(&self) -> bool {
        self.mirroring().is_none_or(|mirroring| mirroring.may_take(self.foreign.host().summary.home))
    }
    /// Sends an answer once the mirrors have what it tells.
    fn send(&mut self, answer: Outgoing) {
        let told = match &self.foreign.host().mirroring {
            Some(mirroring) => self.held.keep(mirroring, answer),
            None => Some(answer),
        };
        if let Some(told) = told {
            self.line.send(told);
        }
    }
    /// Sends answers that may be told by now. Returns true if there were any.
    fn tell_held(&mut self) -> bool {
        let Some(mirroring) = self.mirroring().cloned().filter(|_| !self.held.is_empty()) else { return false };
        let home = self.foreign.host().summary.home;
        let mut busy = false;
        while let Some((told, refusal)) = self.held.next(&mirroring, home) {
            let told = match (refusal, told.to) {
                (Some(error), Some((session, seq))) => answer(session, seq, Response::Failed(error)),
                _ => told,
            };
            self.line.send(told);
            busy = true;
        }
        busy
    }
}

#[cold]
fn moved(home: HomeId) -> Error {
    Error::new(ErrorKind::Disconnected, format!("home {home}")).because("another node is its host by now")
}

#[cold]
fn replaced() -> Error {
    Error::new(ErrorKind::Disconnected, "connection between nodes").because("this daemon has let it go")
}
