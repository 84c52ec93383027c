//! The connections on which other nodes tell that they live, on a node that keeps the register. They have a thread of their
//! own: leases count from its answers, so no engine may hold it up.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use cenote_model::{Error, ErrorKind, NodeId, Result};
use cenote_rpc::net::{Class, Event, TcpConnection};
use cenote_rpc::{Doorbell, Poller};
use cenote_wire::{Between, NodeMessage, decode_between, encode_between};

use crate::service::lock;

/// Interval at which the thread looks whether the daemon stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A connection without a message for this long has ended.
const SILENCE: Duration = Duration::from_secs(10);

/// See the module.
pub(super) struct Desk {
    bell: Doorbell,
    state: Mutex<State>,
}

/// What other threads bring.
#[derive(Default)]
struct State {
    fresh: Vec<(NodeId, Box<TcpConnection>, Vec<u8>)>,
    /// Answers that come late.
    answers: Vec<(Line, NodeMessage)>,
}

/// The number of a connection: none has that of another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct Line(u64);

/// A connection.
struct Caller {
    node: NodeId,
    tcp: Box<TcpConnection>,
    heard_at: Instant,
}

/// Takes a message of a node on a connection; `None`: the answer comes late, or there is none.
type Take<'a> = &'a dyn Fn(NodeId, Line, NodeMessage) -> Result<Option<NodeMessage>>;

impl Desk {
    pub fn new() -> Result<Self> {
        Ok(Self { bell: Doorbell::new()?, state: Mutex::default() })
    }
    /// Takes over a connection of a node, whose first message has been received.
    pub fn adopt(&self, node: NodeId, tcp: Box<TcpConnection>, first: Vec<u8>) {
        lock(&self.state).fresh.push((node, tcp, first));
        self.bell.ring();
    }
    /// Sends an answer on a connection, unless that has ended.
    pub fn answer(&self, line: Line, message: NodeMessage) {
        lock(&self.state).answers.push((line, message));
        self.bell.ring();
    }
    /// Makes the thread look whether the daemon stops.
    pub fn wake(&self) {
        self.bell.ring();
    }
    /// Serves until the daemon stops.
    pub fn run(&self, take: Take<'_>, is_stopping: impl Fn() -> bool) {
        let mut poller = Poller::new(self.bell.clone());
        let mut lines: BTreeMap<Line, Caller> = BTreeMap::new();
        let mut last = Line::default();
        while !is_stopping() {
            let State { fresh, answers } = std::mem::take(&mut *lock(&self.state));
            for (node, tcp, first) in fresh {
                last = Line(last.0 + 1);
                let mut caller = Caller { node, tcp, heard_at: Instant::now() };
                if caller.take(last, &first, take).is_ok() {
                    lines.insert(last, caller);
                }
            }
            for (line, message) in answers {
                let sent = lines.get_mut(&line).map_or(Ok(()), |caller| caller.send(&message));
                if sent.is_err() {
                    lines.remove(&line);
                }
            }
            let mut is_busy = false;
            lines.retain(|line, caller| match caller.turn(*line, take) {
                Ok(busy) => {
                    is_busy |= busy;
                    true
                }
                Err(error) => {
                    tracing::debug!(%error, node = caller.node.0, "the connection of a node's watch ended");
                    let _ = caller.tcp.turn(); // what says why
                    false
                }
            });
            if !is_busy {
                sleep(&mut poller, &mut lines);
            }
        }
        for caller in lines.values_mut() {
            caller.tcp.endpoint().leave();
            let _ = caller.tcp.turn();
        }
    }
}

fn sleep(poller: &mut Poller, lines: &mut BTreeMap<Line, Caller>) {
    let flags: Vec<_> = lines.values_mut().map(|caller| caller.tcp.wanted()).collect();
    let sockets: Vec<_> = lines.values().zip(flags).map(|(caller, flags)| (caller.tcp.as_fd(), flags)).collect();
    let ready = poller.wait_also(std::iter::empty(), &sockets, LOOK_EVERY);
    for (at, caller) in lines.values_mut().enumerate() {
        if ready.contains(&at) {
            caller.tcp.set_readable();
        }
    }
}

impl Caller {
    /// Takes and answers what has come. Returns true if there may be more.
    fn turn(&mut self, line: Line, take: Take<'_>) -> Result<bool> {
        let mut is_busy = self.tcp.turn()?;
        while let Some(event) = self.tcp.endpoint().next_event() {
            self.heard_at = Instant::now();
            is_busy = true;
            match event {
                Event::Message(message) => {
                    self.take(line, &message.bytes, take)?;
                    self.tcp.endpoint().release(message);
                }
                Event::Left => return Err(ended("it left")),
                Event::Opened(_) | Event::Beat => {}
            }
        }
        if self.heard_at.elapsed() >= SILENCE {
            return Err(ended("it was silent for too long"));
        }
        Ok(self.tcp.turn()? || is_busy)
    }
    fn take(&mut self, line: Line, bytes: &[u8], take: Take<'_>) -> Result<()> {
        let Between::Sessions(message) = decode_between(bytes)? else { return Err(ended("a message out of turn")) };
        take(self.node, line, message)?.map_or(Ok(()), |answer| self.send(&answer))
    }
    fn send(&mut self, message: &NodeMessage) -> Result<()> {
        let mut bytes = Vec::new();
        encode_between(message, &mut bytes);
        self.tcp.endpoint().send(Class::Control, bytes)
    }
}

#[cold]
fn ended(why: &str) -> Error {
    Error::new(ErrorKind::Disconnected, "the watch of another node").because(why)
}
