//! The clients of another node, at the home of this one: their sessions, their requests, and the answers.

use std::collections::BTreeSet;
use std::sync::Arc;

use cenote_model::{Error, ErrorKind, HomeId, NodeId, Request, Response, Result};
use cenote_rpc::net::Class;
use cenote_store::{SessionId, SessionInfo};
use cenote_wire::{
    Between, NodeMessage, RemoteSession, WordsMessage, decode_between, decode_request, encode_between,
    encode_bytes_head, encode_forwarded,
};

use super::super::peer::encode_answer;
use super::gateway::{local, remote};
use super::locks::Locks;
use super::outbox::{ConnectionId, Order, Outbox};
use crate::handling::Handling;
use crate::{Host, Service};

/// A message to the other node.
pub(super) struct Outgoing {
    pub class: Class,
    pub head: Vec<u8>,
    /// Bytes of an object, which go out from where they lie.
    pub rest: Vec<u8>,
    /// The session, and the number of the request that it answers, if any.
    pub to: Option<(u64, u64)>,
}

impl Outgoing {
    pub fn new(class: Class, bytes: Vec<u8>) -> Self {
        Self { class, head: bytes, rest: Vec::new(), to: None }
    }
}

/// The clients of one node; see the module.
pub(super) struct Foreign {
    node: NodeId,
    connection: ConnectionId,
    /// The home that they want.
    host: Arc<Host>,
    /// Its sessions here: it may use no others.
    sessions: BTreeSet<u64>,
    locks: Arc<Locks>,
}

impl Foreign {
    /// Begins with a new connection from a node that wants a home. Also returns what it is told first.
    pub fn begin(host: Arc<Host>, node: NodeId, connection: ConnectionId, locks: Arc<Locks>) -> (Self, Outgoing) {
        locks.came(host.summary.home, node, connection);
        let all = host.service.sessions().into_iter();
        let of_node: Vec<_> = all.filter(|(_, who)| who.node == Some(node)).collect();
        let sessions = of_node.iter().map(|(id, _)| id.0).collect();
        let told = of_node.iter().map(|(id, who)| (id.0, remote(who))).collect();
        let message = encode(&NodeMessage::Home { store: host.id(), sessions: told });
        (Self { node, connection, host, sessions, locks }, message)
    }
    /// Whose clients they are.
    pub fn node(&self) -> NodeId {
        self.node
    }
    /// The home.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }
    /// Takes a message of the node. Fails if it makes no sense; the connection is to end then.
    pub fn take<'a>(
        &mut self,
        service: &'a Service,
        outbox: &Arc<Outbox>,
        engines: &mut Option<Handling<'a>>,
        bytes: &[u8],
    ) -> Result<Option<Outgoing>> {
        match decode_between(bytes)? {
            Between::Request { session, message } => self.request(service, outbox, engines, session, message),
            Between::Sessions(message) => {
                *engines = None; // sessions lock the engines themselves
                self.about_sessions(message)
            }
            Between::Words(message) => self.about_words(service, &message),
            Between::Locks(message) => {
                *engines = None; // it may look at files
                self.locks.take_from_node(self.host.summary.home, self.node, self.connection, message);
                Ok(None)
            }
            Between::Answer { .. } | Between::Changes { .. } | Between::Piece { .. } => Err(out_of_turn()),
        }
    }
    fn request<'a>(
        &mut self,
        service: &'a Service,
        outbox: &Arc<Outbox>,
        engines: &mut Option<Handling<'a>>,
        session: u64,
        message: &[u8],
    ) -> Result<Option<Outgoing>> {
        let (seq, request) = decode_request(message)?;
        if !self.sessions.contains(&session) {
            let error = Error::new(ErrorKind::Disconnected, format!("session {session}"))
                .because("it is not open for this node")
                .try_next("attach again");
            return Ok(Some(answer(session, seq, Response::Failed(error))));
        }
        if matches!(request, Request::Shutdown { .. }) {
            let error = Error::new(ErrorKind::Unsupported, "daemon of another node")
                .because("a node stops only its own")
                .try_next("stop the cluster with `cenote cluster stop`");
            return Ok(Some(answer(session, seq, Response::Failed(error))));
        }
        if let (Request::Protect { losses }, Some(mirroring)) = (&request, &self.host.mirroring) {
            return Ok(Some(answer(session, seq, mirroring.protects(self.host.summary.home, *losses))));
        }
        let refusal = self.host.mirroring.as_ref().and_then(|it| it.refusal_of_more(self.host.summary.home));
        if let Some(error) = refusal {
            return Ok(Some(answer(session, seq, Response::Failed(error))));
        }
        let engines = engines.get_or_insert_with(|| service.lock());
        let (outbox, connection) = (outbox.clone(), self.connection);
        let later = || -> crate::Reply {
            Box::new(move |response| {
                outbox.put(Order::Answer(connection, answer(session, seq, response)));
            })
        };
        let request = (SessionId(session), seq, request);
        let response = match service.words.get() {
            Some(words) => engines.handle_from(words, Some(connection.number()), request, later),
            None => engines.handle(request.0, request.1, request.2, later),
        };
        Ok(response.map(|response| answer(session, seq, response)))
    }
    fn about_words(&self, service: &Service, message: &WordsMessage) -> Result<Option<Outgoing>> {
        // No longer than this node may act as host: its successor waits for nothing else.
        let most_ns = self.host.mirroring.as_ref().map_or(u64::MAX, |mirroring| mirroring.lease_left_ns());
        if matches!(message, WordsMessage::Trust { .. }) && most_ns == 0 {
            return Ok(None); // another node may be the host by now
        }
        match service.words.get() {
            Some(words) if words.take(self.connection.number(), message, most_ns) => Ok(None),
            _ => Err(out_of_turn()),
        }
    }
    fn about_sessions(&mut self, message: NodeMessage) -> Result<Option<Outgoing>> {
        match message {
            NodeMessage::Open { who } => {
                let nonce = who.nonce;
                let answer = match self.open(who) {
                    Ok(session) => NodeMessage::Opened { nonce, session },
                    Err(error) => NodeMessage::Refused { nonce, error },
                };
                Ok(Some(encode(&answer)))
            }
            NodeMessage::Close { session } => {
                if self.sessions.remove(&session) {
                    self.host.service.session_close(SessionId(session));
                }
                Ok(None)
            }
            _ => Err(out_of_turn()),
        }
    }
    fn open(&mut self, who: RemoteSession) -> Result<u64> {
        let uid = who.uid;
        let Some(may_write) = self.host.rights(uid) else {
            return Err(Error::new(ErrorKind::PermissionDenied, format!("home {}", self.host.summary.home))
                .because(format!("user {uid} is neither its owner nor among its writers and readers")));
        };
        let groups = who.groups.clone().unwrap_or_default();
        let mut who = SessionInfo { node: Some(self.node), ..local(who) };
        who.write &= may_write;
        // Whom owners and modes bind is judged here, whatever the other node says.
        who.bound = if self.host.is_owner(uid) { None } else { Some(groups.into()) };
        let is_other = |known: &SessionInfo| known.nonce == who.nonce && (known.uid != uid || known.node != who.node);
        if self.host.service.sessions().iter().any(|(_, known)| is_other(known)) {
            return Err(Error::new(ErrorKind::PermissionDenied, format!("home {}", self.host.summary.home))
                .because("that session is another process's"));
        }
        let session = self.host.service.session_open(&who)?;
        self.sessions.insert(session.0);
        Ok(session.0)
    }
}

impl Drop for Foreign {
    fn drop(&mut self) {
        self.locks.left(self.host.summary.home, self.node, self.connection);
    }
}

fn encode(message: &NodeMessage) -> Outgoing {
    let mut bytes = Vec::new();
    encode_between(message, &mut bytes);
    Outgoing::new(Class::Control, bytes)
}

/// The answer to a request of another node.
pub(super) fn answer(session: u64, seq: u64, response: Response) -> Outgoing {
    let mut head = Vec::new();
    encode_forwarded(true, session, &mut head);
    match response {
        Response::Bytes { size, version, bytes } => {
            encode_bytes_head(seq, (size, version), bytes.len(), &mut head);
            Outgoing { class: Class::Bulk, head, rest: bytes, to: Some((session, seq)) }
        }
        response => {
            encode_answer(seq, &response, &mut head);
            Outgoing { to: Some((session, seq)), ..Outgoing::new(Class::Control, head) }
        }
    }
}

#[cold]
pub(super) fn not_here(home: HomeId) -> Error {
    Error::new(ErrorKind::Disconnected, format!("home {home}"))
        .because("this node is not its host, or not yet")
        .try_next("see `cenote ha`")
}

#[cold]
fn out_of_turn() -> Error {
    Error::new(ErrorKind::InvalidInput, "message from another node").because("a message out of turn")
}
