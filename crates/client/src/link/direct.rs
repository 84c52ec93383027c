//! A connection of this process to the node that has a home, for reads of objects alone: their bytes cross neither a ring
//! nor the daemon of this node. It needs the cluster's key, so that only the cluster's owner has one; all others, and whoever
//! has none at the moment, read by the daemon. Words of what was read come by the daemon in any case.

use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use cenote_cluster::Members;
use cenote_host::fork::{CloseInChild, generation};
use cenote_model::{Error, ErrorKind, ObjectKey, Request, Response, Result};
use cenote_rpc::net::{Class, Event, TcpConnection, Unchecked};
use cenote_wire::{
    Between, NodeMessage, decode_between, decode_response, encode_between, encode_forwarded, encode_request,
    passed_bytes,
};

use super::attachment::Attachment;
use super::channel::Channel;

/// A connection is made once so many bytes were read: less is not worth it.
const WORTH_BYTES: u64 = 256 << 10;
/// Time limit for a connection.
const CONNECT: Duration = Duration::from_millis(500);
/// For this long after one could not be made, none is tried…
const REST: Duration = Duration::from_secs(30);
/// …and for this long after one was lost.
const REST_AFTER_LOSS: Duration = Duration::from_secs(1);
/// Time without an answer after which it is lost.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest wait without a look whether the home is still there.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The connection, if there is one; see the module.
#[derive(Default)]
pub(crate) struct Direct(Mutex<State>);

#[derive(Default)]
struct State {
    open: Option<Open>,
    rests_until: Option<Instant>,
    /// Bytes that were read without one.
    read_bytes: u64,
}

struct Open {
    // Fields drop in order: the registration goes before the descriptor.
    _close_in_child: Option<CloseInChild>,
    tcp: TcpConnection,
    session: u64,
    /// Number of the last request.
    asked: u64,
    /// The instance of the home that it leads to, and the fork generation that it belongs to.
    of: (u64, u64),
}

/// The connection, for one read at a time.
pub(crate) struct Reading<'a> {
    state: MutexGuard<'a, State>,
    /// Answers to requests before this number are for a read that has ended early.
    first: u64,
    is_lost: bool,
}

/// An answer.
pub(crate) struct Answer {
    pub size: u64,
    pub version: u64,
    /// The bytes, from `begin` on.
    pub bytes: Vec<u8>,
    pub begin: usize,
    /// Set if nobody has checked the bytes yet.
    pub unchecked: Option<Unchecked>,
}

impl Direct {
    /// Begins a read of so many bytes. `None` if another thread reads, or if there is no connection and none is to be made.
    pub fn begin(&self, channel: &Channel, attachment: &Attachment, bytes: u64) -> Option<Reading<'_>> {
        let mut state = match self.0.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let of = (attachment.instance, generation());
        if state.open.as_ref().is_some_and(|open| open.of != of) {
            state.open = None;
        }
        if state.open.is_none() {
            state.read_bytes = state.read_bytes.saturating_add(bytes);
            let rests = state.rests_until.is_some_and(|until| Instant::now() < until);
            if rests || state.read_bytes < WORTH_BYTES {
                return None;
            }
            match connect(channel, attachment) {
                Ok((tcp, session)) => {
                    state.open = Some(Open { _close_in_child: CloseInChild::new(&tcp), tcp, session, asked: 0, of });
                }
                Err(error) => {
                    tracing::debug!(%error, "objects of another node are read by the daemon");
                    state.rests_until = Some(Instant::now() + REST);
                    return None;
                }
            }
        }
        let first = state.open.as_ref()?.asked + 1;
        Some(Reading { state, first, is_lost: false })
    }
}

/// Connects to the node that has the home. Returns this process's session there, too.
fn connect(channel: &Channel, attachment: &Attachment) -> Result<(TcpConnection, u64)> {
    let (dir, nonce, place) = (&channel.address.dir, channel.traffic.nonce, &attachment.place);
    let subject = || format!("home {}", place.home);
    let address = place.host.parse().map_err(|_| Error::new(ErrorKind::Unsupported, subject()))?;
    let members = Members::read(dir)?.ok_or_else(|| Error::new(ErrorKind::NotFound, subject()))?;
    let who = members.introduction(crate::ids::random() as u64);
    let mut tcp = TcpConnection::connect(address, who, &members.key(dir)?, CONNECT)?;
    let mut bytes = Vec::new();
    encode_between(&NodeMessage::Direct { home: place.home, nonce }, &mut bytes);
    tcp.endpoint().send(Class::Control, bytes)?;
    let (message, _) = wait(&mut tcp, || Ok(()))?;
    match decode_between(&message)? {
        Between::Sessions(NodeMessage::Opened { nonce: its, session }) if its == nonce => {
            tcp.wait_in_reads(LOOK_EVERY)?;
            tcp.endpoint().defer_checks();
            Ok((tcp, session))
        }
        Between::Sessions(NodeMessage::Declined { error }) => Err(error),
        _ => Err(nonsense()),
    }
}

/// The bytes of a message, and the part of them that is not checked yet.
type Arrived = (Vec<u8>, Option<Unchecked>);

/// The bytes of the next message. `check` is called while none comes.
fn wait(tcp: &mut TcpConnection, check: impl Fn() -> Result<()>) -> Result<Arrived> {
    let begin = Instant::now();
    loop {
        if let Some(bytes) = arrived(tcp)? {
            return Ok(bytes);
        }
        let is_busy = tcp.turn()?;
        if let Some(bytes) = arrived(tcp)? {
            return Ok(bytes);
        }
        if !is_busy {
            tcp.wait(LOOK_EVERY)?;
            check()?;
            if begin.elapsed() >= PATIENCE {
                return Err(late(tcp));
            }
        }
    }
}

/// The bytes of a message that is there already.
fn arrived(tcp: &mut TcpConnection) -> Result<Option<Arrived>> {
    while let Some(event) = tcp.endpoint().next_event() {
        match event {
            Event::Message(mut message) => {
                let (bytes, unchecked) = (std::mem::take(&mut message.bytes), message.unchecked);
                tcp.endpoint().release(message);
                return Ok(Some((bytes, unchecked)));
            }
            Event::Left => return Err(late(tcp)),
            Event::Opened(_) | Event::Beat => {}
        }
    }
    Ok(None)
}

impl Reading<'_> {
    /// Asks for a range. Answers come in the order of requests.
    pub fn ask(&mut self, key: ObjectKey, offset: u64, len: u32) {
        let Some(open) = &mut self.state.open else { return };
        open.asked += 1;
        let mut bytes = Vec::with_capacity(64);
        encode_forwarded(false, open.session, &mut bytes);
        encode_request(open.asked, &Request::Read { key, offset, len }, &mut bytes);
        self.is_lost |= open.tcp.endpoint().send(Class::Control, bytes).is_err();
    }
    /// The next answer. `None`: the connection is lost, or the home says that it cannot answer over it.
    pub fn answer(&mut self, attachment: &Attachment) -> Result<Option<Answer>> {
        match self.next(attachment) {
            Ok(Ok(answer)) => Ok(Some(answer)),
            Ok(Err(error)) if error.kind() != ErrorKind::Disconnected => Err(error),
            Ok(Err(error)) | Err(error) => {
                tracing::debug!(%error, "a connection for reads is lost");
                self.is_lost = true;
                Ok(None)
            }
        }
    }
    /// The bytes of an answer are not those that were sent, or not those that were written: the connection is given up, and
    /// whoever reads them by the daemon is told what is wrong.
    #[cold]
    pub fn is_damaged(&mut self) {
        tracing::warn!("bytes of another node do not match their checksum: they are read again by the daemon");
        self.is_lost = true;
    }
    /// Takes the bytes of an answer that nobody needs any more.
    pub fn recycle(&mut self, bytes: Vec<u8>) {
        if let Some(open) = &mut self.state.open {
            open.tcp.endpoint().recycle(bytes);
        }
    }
    /// The answer of the home, or its error; fails if the connection is lost.
    fn next(&mut self, attachment: &Attachment) -> Result<Result<Answer>> {
        let open = self.state.open.as_mut().filter(|_| !self.is_lost).ok_or_else(nonsense)?;
        loop {
            let (bytes, unchecked) =
                wait(&mut open.tcp, || if attachment.is_current() { Ok(()) } else { Err(nonsense()) })?;
            let Between::Answer { message, .. } = decode_between(&bytes)? else { return Err(nonsense()) };
            let skipped = bytes.len() - message.len();
            if let Some(found) = passed_bytes(message)? {
                if found.seq >= self.first {
                    let (size, version, begin) = (found.size, found.version, skipped + found.begin);
                    return Ok(Ok(Answer { size, version, bytes, begin, unchecked }));
                }
                continue;
            }
            match decode_response(message)? {
                (seq, _) if seq < self.first => {}
                (_, Response::Failed(error)) => return Ok(Err(error)),
                _ => return Err(nonsense()),
            }
        }
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        if self.is_lost {
            self.state.open = None;
            self.state.rests_until = Some(Instant::now() + REST_AFTER_LOSS);
        }
    }
}

#[cold]
fn nonsense() -> Error {
    Error::new(ErrorKind::Disconnected, "connection to a home")
        .because("it has another instance by now, or speaks out of turn")
}

#[cold]
fn late(tcp: &TcpConnection) -> Error {
    Error::new(ErrorKind::Disconnected, format!("node at {}", tcp.peer()))
        .because("it did not answer in time, or has ended")
}
