//! One end of a connection, without I/O: bytes in, bytes out. TCP and the simulation drive it.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use cenote_model::{Error, ErrorKind, Result};
use smallvec::{SmallVec, smallvec};

use super::frame::{CLASSES, Class, Kind, malformed};
use super::hello::{
    Hello, Introduction, Side, check_peer, decode_refusal, encode_refusal, is_proved, prove, without_key,
};
use super::inbound::{Arrived, Inbound, MESSAGE_BYTES_MAX, Message};
use super::key::ClusterKey;
use super::outbound::Outbound;
use super::tls::Role;

/// Bytes of each class that an end takes before it has released some of them.
const WINDOWS: [u32; CLASSES] = [4 << 20, 16 << 20, 32 << 20];

/// What happened on a connection.
#[derive(Debug)]
pub enum Event {
    /// Both ends have proved that they have the key. From now on messages may be sent.
    Opened(Introduction),
    /// A message; give it back with [`Endpoint::release`] once it is dealt with.
    Message(Message),
    /// The other end is alive.
    Beat,
    /// The other end leaves on purpose: no more comes.
    Left,
}

/// How far the connection is.
enum Phase {
    /// A client that waits for the server's hello and proof.
    Greeted,
    /// A server that waits for the client's hello.
    Waiting,
    /// A server that waits for the client's proof.
    Challenged(Hello),
    /// A client that waits to be admitted.
    Proved(Introduction),
    Open,
    Over,
}

/// One end of a connection; see the module.
pub struct Endpoint {
    key: ClusterKey,
    hello: Hello,
    phase: Phase,
    inbound: Inbound,
    outbound: Outbound,
    /// Credits to give to the other end.
    owed: [u64; CLASSES],
    events: VecDeque<Event>,
}

impl Endpoint {
    /// An end of a new connection. Fails if the system has no random numbers.
    pub fn new(role: Role, who: Introduction, key: &ClusterKey) -> Result<Self> {
        let hello = Hello::new(who, WINDOWS)?;
        let mut outbound = Outbound::default();
        outbound.view = who.view;
        let phase = match role {
            Role::Server => Phase::Waiting,
            Role::Client => {
                outbound.tell(Kind::Hello, hello.encode().to_vec());
                Phase::Greeted
            }
        };
        let inbound = Inbound::new(WINDOWS);
        Ok(Self { key: key.clone(), hello, phase, inbound, outbound, owed: [0; CLASSES], events: VecDeque::new() })
    }
    /// Returns true once messages may be sent.
    pub fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }
    /// Sets the number of the view that frames carry from now on.
    pub fn set_view(&mut self, view: u64) {
        self.outbound.view = view;
    }
    /// Queues a message. `LimitExceeded` if it is longer than any may be, `Disconnected` if the connection is not open.
    pub fn send(&mut self, class: Class, message: impl Into<Bytes>) -> Result<()> {
        self.send_parts(class, message, Bytes::new())
    }
    /// The same for a message whose bytes lie in two places.
    pub fn send_parts(&mut self, class: Class, head: impl Into<Bytes>, rest: impl Into<Bytes>) -> Result<()> {
        self.send_all(class, smallvec![head.into(), rest.into()], None)
    }
    /// The same for a message whose bytes lie in several places, where the CRC-32C of all behind the head is known: if they fit
    /// a frame, nobody reads them here.
    pub fn send_summed(
        &mut self,
        class: Class,
        head: impl Into<Bytes>,
        rest: impl IntoIterator<Item = Bytes>,
        sum: u32,
    ) -> Result<()> {
        let parts = std::iter::once(head.into()).chain(rest).collect();
        self.send_all(class, parts, Some(sum))
    }
    fn send_all(&mut self, class: Class, parts: SmallVec<[Bytes; 2]>, sum: Option<u32>) -> Result<()> {
        let len = parts.iter().map(Bytes::len).sum::<usize>();
        if len > MESSAGE_BYTES_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, "message to a node")
                .because(format!("it has {len} bytes; one has at most {MESSAGE_BYTES_MAX}"))
                .try_next("split it"));
        }
        if !self.is_open() {
            return Err(Error::new(ErrorKind::Disconnected, "connection between nodes").because("it is not open"));
        }
        self.outbound.send(class, parts, sum);
        Ok(())
    }
    /// Bytes of queued messages of this class that wait for credits or for the network.
    pub fn queued_bytes(&self, class: Class) -> u64 {
        self.outbound.queued_bytes(class)
    }
    /// Returns true if nothing waits to be written.
    pub fn is_sent(&self) -> bool {
        self.outbound.is_empty()
    }
    /// Copies what waits to be written: the bytes of messages are not needed any more where they lie.
    pub fn own_queued(&mut self) {
        self.outbound.own();
    }
    /// From now on, the last part of a message of the bulk class in several parts is not checked. Its checksum comes with the
    /// message, for a reader that goes through the bytes anyway.
    pub fn defer_checks(&mut self) {
        self.inbound.defers_checks = true;
    }
    /// Tells the other end that this one is alive.
    pub fn beat(&mut self) {
        if self.is_open() {
            self.outbound.tell(Kind::Beat, Bytes::new());
        }
    }
    /// Tells the other end that this one leaves on purpose. Messages that wait are dropped.
    pub fn leave(&mut self) {
        self.outbound.forget_messages();
        self.outbound.tell(Kind::Bye, Bytes::new());
        self.phase = Phase::Over;
    }
    /// Gives a message back: the other end may send as much again. Its bytes may have been taken out.
    pub fn release(&mut self, message: Message) {
        let class = message.class;
        let credits = self.inbound.release(message);
        self.owe(class, credits);
    }
    /// Takes the buffer of a message that was taken out of it, to be used again.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.inbound.recycle(buffer);
    }
    /// Credits are given in quarters of a window, so that they cost little.
    fn owe(&mut self, class: Class, credits: u64) {
        self.owed[class as usize] += credits;
        if self.owed[class as usize] < u64::from(WINDOWS[class as usize] / 4) {
            return;
        }
        let credits = std::mem::take(&mut self.owed);
        let payload: Vec<u8> = credits.iter().flat_map(|credits| (*credits as u32).to_le_bytes()).collect();
        self.outbound.tell(Kind::Credit, payload);
    }
    /// The next event.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }
    /// Returns where received bytes go: all of the first part, then of the second.
    pub fn spaces(&mut self) -> (&mut [u8], &mut [u8]) {
        self.inbound.spaces()
    }
    /// Takes in `count` bytes that were put into the spaces. After an error the connection is over, but for the bytes
    /// that are still to be written, which tell the other end why.
    pub fn received(&mut self, count: usize) -> Result<()> {
        let mut result = self.inbound.received(count);
        while let Some(arrived) = self.inbound.arrived.pop_front() {
            if let Err(error) = self.take(arrived) {
                result = Err(error);
                break;
            }
        }
        result.inspect_err(|error| self.fail(error))
    }
    fn fail(&mut self, error: &Error) {
        if !matches!(self.phase, Phase::Over) {
            self.outbound.forget_messages();
            self.outbound.tell(Kind::Refuse, encode_refusal(error));
        }
        self.phase = Phase::Over;
    }
    fn take(&mut self, arrived: Arrived) -> Result<()> {
        match arrived {
            Arrived::Part(class, credits) => {
                self.owe(class, credits);
                Ok(())
            }
            Arrived::Message(message) if self.is_open() => {
                self.events.push_back(Event::Message(message));
                Ok(())
            }
            Arrived::Message(_) => Err(malformed("a message out of turn")),
            Arrived::Other(Kind::Refuse, text) => {
                self.phase = Phase::Over; // nothing is answered to a refusal
                Err(decode_refusal(&text))
            }
            Arrived::Other(kind, payload) => self.take_other(kind, &payload),
        }
    }
    fn take_other(&mut self, kind: Kind, payload: &[u8]) -> Result<()> {
        match (&self.phase, kind) {
            (Phase::Waiting, Kind::Hello) => self.challenge(payload),
            (Phase::Greeted, Kind::Challenge) => self.answer(payload),
            (Phase::Challenged(client), Kind::Proof) => {
                let client = *client;
                if !is_proved(&self.key, Side::Client, &client, &self.hello, payload) {
                    return Err(without_key(client.who.node));
                }
                self.outbound.tell(Kind::Accept, Bytes::new());
                self.open(client.who);
                Ok(())
            }
            (Phase::Proved(server), Kind::Accept) => {
                let server = *server;
                self.open(server);
                Ok(())
            }
            (Phase::Open, Kind::Credit) => self.add_credits(payload),
            (Phase::Open, Kind::Beat) => {
                self.events.push_back(Event::Beat);
                Ok(())
            }
            (Phase::Open, Kind::Bye) => {
                self.events.push_back(Event::Left);
                self.phase = Phase::Over;
                Ok(())
            }
            _ => Err(malformed(format!("a frame of kind {} out of turn", kind as u8))),
        }
    }
    fn peer(&mut self, bytes: &[u8]) -> Result<Hello> {
        let peer = Hello::decode(bytes).ok_or_else(|| malformed("no introduction of a node"))?;
        check_peer(&self.hello.who, &peer.who)?;
        self.outbound.add_credits(peer.windows);
        Ok(peer)
    }
    /// A server's answer to a client's hello.
    fn challenge(&mut self, hello: &[u8]) -> Result<()> {
        let client = self.peer(hello)?;
        let mut bytes = self.hello.encode().to_vec();
        bytes.extend(prove(&self.key, Side::Server, &client, &self.hello));
        self.outbound.tell(Kind::Challenge, bytes);
        self.phase = Phase::Challenged(client);
        Ok(())
    }
    /// A client's answer to a challenge.
    fn answer(&mut self, challenge: &[u8]) -> Result<()> {
        let (hello, proof) = challenge
            .split_at_checked(super::hello::HELLO_BYTES)
            .ok_or_else(|| malformed("a challenge that is too short"))?;
        let server = self.peer(hello)?;
        if !is_proved(&self.key, Side::Server, &self.hello, &server, proof) {
            return Err(without_key(server.who.node));
        }
        self.outbound.tell(Kind::Proof, prove(&self.key, Side::Client, &self.hello, &server).to_vec());
        self.phase = Phase::Proved(server.who);
        // The server's acceptance and its first messages may come in one piece.
        self.inbound.is_trusted = true;
        Ok(())
    }
    fn open(&mut self, peer: Introduction) {
        self.inbound.is_trusted = true;
        self.phase = Phase::Open;
        self.events.push_back(Event::Opened(peer));
    }
    fn add_credits(&mut self, payload: &[u8]) -> Result<()> {
        let payload: &[u8; 4 * CLASSES] = payload.try_into().map_err(|_| malformed("credits that make no sense"))?;
        let mut credits = [0; CLASSES];
        for (credits, bytes) in credits.iter_mut().zip(payload.chunks_exact(4)) {
            *credits = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        self.outbound.add_credits(credits);
        Ok(())
    }
    /// Adds the bytes that are to be written next to `slices`.
    pub fn slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.outbound.slices(slices);
    }
    /// Drops the `count` bytes that were written.
    pub fn written(&mut self, count: usize) {
        self.outbound.written(count);
    }
}
