//! Clients of other nodes that read objects of a home over connections of their own, so that the bytes cross neither the
//! ring of the client nor the daemon of its node. Each such connection has a thread here. All else goes by the gateway of the
//! client's node, which is told the words of what was read, too.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_model::{Error, ErrorKind, HomeId, NodeId, Request, Response, Result};
use cenote_rpc::net::{Class, TcpConnection};
use cenote_store::{InPlace, SessionId};
use cenote_wire::{Between, NodeMessage, decode_between, decode_request, encode_bytes_head, encode_forwarded};

use super::super::Daemon;
use super::Nodes;
use super::foreign::{answer, not_here};
use super::outbox::ConnectionId;
use super::talk::{next, say, wait_unless};
use crate::Host;
use crate::service::lock;
use crate::words::Look;

/// Most such connections at a time; further clients read by their gateways.
const MOST: usize = 64;
/// A connection without a request for so long is given up. Its client makes another one.
const IDLE: Duration = Duration::from_mins(1);
/// No more is read for a client while so many bytes wait for the network.
const QUEUED_MAX: u64 = 8 << 20;
/// No more is asked for a client while so many answers are to come.
const WAITING_MAX: usize = 64;
/// For so long a client that does not read may keep the space from reuse whose bytes are sent to it.
const LENT_MAX: Duration = Duration::from_millis(100);
/// Interval of looks whether a mirror has what an answer tells.
const MIRROR_EVERY: Duration = Duration::from_micros(50);
/// Longest wait without a look whether the daemon stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What connections of this kind share.
#[derive(Default)]
pub(super) struct Direct {
    count: AtomicUsize,
    /// The last connection of each node's gateway to each home here.
    gateways: Mutex<BTreeMap<(HomeId, NodeId), ConnectionId>>,
}

impl Direct {
    /// The gateway of a node to a home here has connected.
    pub fn came(&self, of: (HomeId, NodeId), connection: ConnectionId) {
        lock(&self.gateways).insert(of, connection);
    }
    /// Counts one more; `None` if there are too many.
    fn enter(&self) -> Option<Entered<'_>> {
        let entered = Entered(&self.count);
        (self.count.fetch_add(1, Ordering::SeqCst) < MOST).then_some(entered)
    }
}

/// A connection that is counted.
struct Entered<'a>(&'a AtomicUsize);

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The number of a request, and its answer.
type Late = (u64, Response);

/// An answer that is there.
enum Answer {
    Whole(Response),
    /// With bytes that lie in a memory tier, and go out from there.
    InPlace(InPlace),
}

/// A client that reads.
struct Reader<'a> {
    nodes: &'a Nodes,
    of: (HomeId, NodeId),
    host: Weak<Host>,
    session: u64,
    /// Answers in the order of their requests. `None`: it comes later, by the channel.
    answers: VecDeque<(u64, Look, Option<Answer>)>,
    late: (Sender<Late>, Receiver<Late>),
    is_over: &'a dyn Fn() -> bool,
}

impl Nodes {
    /// Answers a client of another node until it leaves, or has asked for nothing for long.
    pub(super) fn read_directly(
        &self,
        daemon: &Daemon,
        connection: &mut TcpConnection,
        node: NodeId,
        home: HomeId,
        nonce: u128,
    ) -> Result<()> {
        let Some(_entered) = self.direct.enter() else {
            return Err(Error::new(ErrorKind::Busy, format!("home {home}"))
                .because(format!("{MOST} clients of other nodes read there already")));
        };
        let host = self.served(daemon, home).ok_or_else(|| not_here(home))?;
        let all = host.service.sessions();
        let session = all.iter().find(|(_, who)| who.nonce == nonce && who.node == Some(node));
        let session = session.map(|(session, _)| session.0).ok_or_else(|| not_open(home))?;
        let is_over = || daemon.is_stopping();
        let host = Arc::downgrade(&host);
        say(connection, &NodeMessage::Opened { nonce, session })?;
        connection.wait_in_reads(LOOK_EVERY)?;
        let (of, answers, late) = ((home, node), VecDeque::new(), channel());
        Reader { nodes: self, of, host, session, answers, late, is_over: &is_over }.serve(connection)
    }
}

impl Reader<'_> {
    fn serve(mut self, connection: &mut TcpConnection) -> Result<()> {
        let mut heard_at = Instant::now();
        while let Some(message) = wait_unless(connection, IDLE, self.is_over)? {
            let mut message = Some(message);
            while let Some(taken) = message {
                self.take(&taken.bytes)?;
                connection.endpoint().release(taken);
                self.tell(connection, self.answers.len() > WAITING_MAX)?;
                message = next(connection, &mut heard_at)?;
            }
            while !self.answers.is_empty() {
                self.tell(connection, true)?;
            }
        }
        Ok(())
    }
    fn host(&self) -> Result<Arc<Host>> {
        self.host.upgrade().ok_or_else(|| not_here(self.of.0))
    }
    /// Takes a request.
    fn take(&mut self, message: &[u8]) -> Result<()> {
        let (seq, request) = match decode_between(message)? {
            Between::Request { session, message } if session == self.session => decode_request(message)?,
            _ => return Err(out_of_turn()),
        };
        let Request::Read { key, offset, len } = request else { return Err(out_of_turn()) };
        let host = self.host()?;
        let look = Look::of(&request);
        let mut engines = host.service.lock();
        if let Some(lent) = engines.lend(SessionId(self.session), key, offset, len) {
            drop(engines);
            self.looked(&host, look, None);
            self.answers.push_back((seq, look, Some(Answer::InPlace(lent))));
            return Ok(());
        }
        let late = self.late.0.clone();
        let later = || -> crate::Reply {
            Box::new(move |response| {
                let _ = late.send((seq, response)); // its client may have left
            })
        };
        let response = engines.handle(SessionId(self.session), seq, request, later);
        drop(engines);
        if response.is_some() {
            self.looked(&host, look, response.as_ref());
        }
        self.answers.push_back((seq, look, response.map(Answer::Whole)));
        Ok(())
    }
    /// The gateway of the client's node is told the words of what was read, so that its clients may trust what they keep.
    fn looked(&self, host: &Host, look: Look, response: Option<&Response>) {
        let gateway = lock(&self.nodes.direct.gateways).get(&self.of).copied();
        if let (Some(words), Some(gateway)) = (host.service.words.get(), gateway) {
            words.looked(gateway.number(), look, response);
            if words.has_messages() {
                self.nodes.outbox.wake();
            }
        }
    }
    /// Sends the answers that are there, up to the first that is not. `waits`: waits for that one, or for a moment.
    fn tell(&mut self, connection: &mut TcpConnection, waits: bool) -> Result<()> {
        while let Some((seq, look, answered)) = self.answers.pop_front() {
            let Some(answered) = answered else {
                self.answers.push_front((seq, look, None));
                if !self.take_late(waits)? {
                    break;
                }
                continue;
            };
            self.wait_for_mirrors()?;
            match answered {
                Answer::Whole(response) => {
                    let outgoing = answer(self.session, seq, response);
                    connection.endpoint().send_parts(outgoing.class, outgoing.head, outgoing.rest)?;
                    connection.turn()?;
                }
                Answer::InPlace(lent) => self.send_in_place(connection, seq, lent)?,
            }
            while connection.endpoint().queued_bytes(Class::Bulk) > QUEUED_MAX {
                self.check_going()?;
                connection.wait(LOOK_EVERY)?;
                connection.turn()?;
            }
        }
        Ok(())
    }
    /// Sends bytes from where they lie, with the sum that they had when they were written: nobody here reads them. What the
    /// network does not take for a while is copied.
    fn send_in_place(&self, connection: &mut TcpConnection, seq: u64, lent: InPlace) -> Result<()> {
        let InPlace { size, version, parts, sum } = lent;
        let mut head = Vec::with_capacity(64);
        encode_forwarded(true, self.session, &mut head);
        let len = parts.iter().map(|part| part.as_ref().len()).sum();
        encode_bytes_head(seq, (size, version), len, &mut head);
        let parts = parts.into_iter().map(Bytes::from_owner);
        connection.endpoint().send_summed(Class::Bulk, head, parts, sum)?;
        connection.turn()?;
        let begin = Instant::now();
        while !connection.endpoint().is_sent() {
            if begin.elapsed() > LENT_MAX {
                connection.endpoint().own_queued();
                break;
            }
            self.check_going()?;
            connection.wait(LENT_MAX)?;
            connection.turn()?;
        }
        Ok(())
    }
    /// Takes answers that have come late. Returns true if there was one.
    fn take_late(&mut self, waits: bool) -> Result<bool> {
        let patience = if waits { LOOK_EVERY } else { Duration::ZERO };
        match self.late.1.recv_timeout(patience) {
            Ok((seq, response)) => {
                let host = self.host()?;
                if let Some(at) = self.answers.iter().position(|(known, ..)| *known == seq) {
                    self.looked(&host, self.answers[at].1, Some(&response));
                    self.answers[at].2 = Some(Answer::Whole(response));
                }
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => self.check_going().map(|()| false),
            Err(RecvTimeoutError::Disconnected) => Err(out_of_turn()),
        }
    }
    /// An answer is told once the mirrors have what it tells, and while this node may act as host.
    fn wait_for_mirrors(&self) -> Result<()> {
        let Some(mirroring) = self.host()?.mirroring.clone() else { return Ok(()) };
        let after = mirroring.stream.end();
        while !mirroring.may_tell(after) {
            self.check_going()?;
            if let Some(error) = mirroring.refusal(self.of.0) {
                return Err(error); // its client asks the daemon of its node, and is told the same
            }
            std::thread::sleep(MIRROR_EVERY);
        }
        Ok(())
    }
    fn check_going(&self) -> Result<()> {
        self.host()?;
        if (self.is_over)() { Err(not_here(self.of.0)) } else { Ok(()) }
    }
}

#[cold]
fn not_open(home: HomeId) -> Error {
    Error::new(ErrorKind::Disconnected, format!("home {home}"))
        .because("the client has no session there")
        .try_next("attach again")
}

#[cold]
fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidInput, "direct connection of a client").because("a message that is no read")
}
