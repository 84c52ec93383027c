//! The way to a node that keeps the register: connections of its own, so that no request of a client holds up a beat.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cenote_cluster::register::{Ask, Carry};
use cenote_cluster::{Beat, Member, Notice};
use cenote_model::{Error, ErrorKind, NodeId, Result};
use cenote_rpc::net::{Class, ClusterKey, Event, Introduction, TcpConnection};
use cenote_wire::{Between, NodeMessage, decode_between};

use super::super::talk::{Kept, cause_of, encoded};
use super::probe::refuses;

/// Longest wait without a look whether the daemon stops.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Connections that are kept while nobody uses them, and for how long: the other end gives them up after 10 s.
const FREE_MAX: usize = 4;
const FREE_FOR: Duration = Duration::from_secs(5);

/// See the module. Each question that is under way has a connection for itself.
pub(super) struct Way {
    to: Member,
    who: Introduction,
    key: ClusterKey,
    /// How long the answer to a beat is waited for.
    patience: Duration,
    kept: Kept,
    /// Of questions.
    number: AtomicU64,
    is_over: AtomicBool,
}

impl Way {
    pub fn new(to: Member, who: Introduction, key: ClusterKey, patience: Duration) -> Self {
        let kept = Kept::new(FREE_MAX, FREE_FOR);
        Self { to, who, key, patience, kept, number: AtomicU64::new(1), is_over: AtomicBool::new(false) }
    }
    /// Makes whoever waits for an answer go on without.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
    /// The node.
    pub fn node(&self) -> NodeId {
        NodeId(self.to.home.0)
    }
    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.to.name
    }
    /// Whether its machine is there and refuses connections.
    pub fn refuses(&self) -> bool {
        refuses(self.to.address, self.patience)
    }
    /// Sends a beat and waits for what is known of all nodes.
    pub fn beat(&self, beat: &Beat) -> Result<Notice> {
        let beat = beat.encode();
        let notice = self.ask(self.patience, |number| NodeMessage::Beat { number, beat })?;
        Notice::decode(&notice)
    }
    fn subject(&self) -> String {
        format!("the register, on node `{}` ({})", self.to.name, self.to.address)
    }
    /// Asks, and waits for the answer with the same number. After an error the connection is given up.
    fn ask(&self, patience: Duration, question: impl FnOnce(u64) -> NodeMessage) -> Result<Vec<u8>> {
        let until = Instant::now() + patience;
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let bytes = encoded(&question(number));
        let connection = self.kept.take().map_or_else(|| self.connect(until), Ok);
        let answer = connection.and_then(|mut connection| {
            let answer = self.converse(&mut connection, bytes, number, until)?;
            self.kept.give_back(connection);
            Ok(answer)
        });
        answer.map_err(|error| {
            self.kept.clear(); // what ended one has ended the others
            Error::new(error.kind(), self.subject()).because(cause_of(&error)).try_next(error.next_step())
        })
    }
    fn connect(&self, until: Instant) -> Result<TcpConnection> {
        let patience = until.saturating_duration_since(Instant::now());
        TcpConnection::connect(self.to.address, self.who, &self.key, patience)
    }
    fn converse(&self, tcp: &mut TcpConnection, question: Vec<u8>, number: u64, until: Instant) -> Result<Vec<u8>> {
        tcp.endpoint().send(Class::Control, question)?;
        loop {
            let is_busy = tcp.turn()?;
            if let Some(answer) = answer_in(tcp, number)? {
                return Ok(answer);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over.load(Ordering::SeqCst) {
                return Err(Error::new(ErrorKind::Disconnected, "its node")
                    .because("it did not answer in time")
                    .try_next("`cenote cluster status` shows which nodes are alive"));
            }
            if !is_busy {
                tcp.wait(left.min(LOOK_EVERY))?;
            }
        }
    }
}

/// The answer with this number, if it has come. Others are too late, or not for us.
fn answer_in(tcp: &mut TcpConnection, number: u64) -> Result<Option<Vec<u8>>> {
    while let Some(event) = tcp.endpoint().next_event() {
        match event {
            Event::Message(message) => {
                let answer = match decode_between(&message.bytes)? {
                    Between::Sessions(
                        NodeMessage::Notice { number: of, notice: answer }
                        | NodeMessage::RegisterSays { number: of, answer }
                        | NodeMessage::GroupSays { number: of, answer },
                    ) if of == number => Some(answer),
                    _ => None,
                };
                tcp.endpoint().release(message);
                if answer.is_some() {
                    return Ok(answer);
                }
            }
            Event::Left => {
                return Err(Error::new(ErrorKind::Disconnected, "its node").because("its daemon has ended"));
            }
            Event::Opened(_) | Event::Beat => {}
        }
    }
    Ok(None)
}

/// Carries questions about the register to one of the nodes that keep it: to the one that answered last, and to the next
/// one if it does not. A question may arrive twice, which registers bear.
pub(super) struct Asking {
    ways: Vec<Arc<Way>>,
    preferred: AtomicUsize,
}

impl Asking {
    pub fn new(ways: Vec<Arc<Way>>) -> Self {
        Self { ways, preferred: AtomicUsize::new(0) }
    }
}

impl Ask for Asking {
    fn ask(&self, request: &[u8], timeout: Duration) -> Result<Vec<u8>> {
        let until = Instant::now() + timeout;
        let first = self.preferred.load(Ordering::Relaxed);
        let mut last = Error::new(ErrorKind::Disconnected, "the register").because("no other node keeps it");
        for tried in 0..self.ways.len() {
            let at = (first + tried) % self.ways.len();
            let left = until.saturating_duration_since(Instant::now()) / (self.ways.len() - tried) as u32;
            let request = request.to_vec();
            match self.ways[at].ask(left, |number| NodeMessage::AskRegister { number, request }) {
                Ok(answer) => {
                    self.preferred.store(at, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Carries messages between the nodes that keep the register together.
pub(super) struct Carrying(pub BTreeMap<NodeId, Arc<Way>>);

impl Carry for Carrying {
    fn carry(&self, to: NodeId, message: Vec<u8>, timeout: Duration) -> Result<Vec<u8>> {
        let way = self.0.get(&to).ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("node {}", to.0)).because("it does not keep the register")
        })?;
        way.ask(timeout, |number| NodeMessage::AskGroup { number, message })
    }
    fn refuses(&self, node: NodeId) -> bool {
        self.0.get(&node).is_some_and(|way| way.refuses())
    }
}
