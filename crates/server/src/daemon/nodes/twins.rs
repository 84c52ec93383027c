//! Bytes of a home's devices that are bad here are read from a mirror, which has the same.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cenote_device::mirror::Twins;
use cenote_model::{DeviceId, Error, ErrorKind, HomeId, Result};
use cenote_rpc::net::{Class, TcpConnection};
use cenote_wire::{Between, NodeMessage, decode_between};

use super::Nodes;
use super::talk::{encoded, say, wait_for_one};
use crate::Host;

/// Bytes in one answer: fewer than a frame has.
const PIECE_BYTES: usize = 128 << 10;
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for an answer.
const ANSWER: Duration = Duration::from_secs(5);

/// A place in a home's devices, as its host asks a mirror for it.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    pub home: HomeId,
    pub term: u64,
    /// The number of the host's opening.
    pub stream: u64,
    pub device: DeviceId,
    pub offset: u64,
    pub len: u32,
}

/// The mirrors of a home.
struct Mirrors {
    nodes: Weak<Nodes>,
    home: HomeId,
}

impl Nodes {
    /// Lets jobs of a home read from its mirrors.
    pub(super) fn read_twins_of(self: &Arc<Self>, host: &Host) {
        if let Some(mirroring) = &host.mirroring {
            let (nodes, home) = (Arc::downgrade(self), host.summary.home);
            mirroring.stream.read_twins_by(Box::new(Mirrors { nodes, home }));
        }
    }
    /// Answers the host of a home, until it closes the connection.
    pub(super) fn tell_copy(
        &self,
        connection: &mut TcpConnection,
        first: Wanted,
        is_over: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut wanted = first;
        loop {
            let bytes = self.copies.read(wanted.home, wanted.stream, wanted.device, (wanted.offset, wanted.len))?;
            connection.endpoint().send(Class::Bulk, encoded(&NodeMessage::CopyBytes { bytes }))?;
            connection.turn()?;
            if is_over() {
                return Ok(());
            }
            let Ok(message) = wait_for_one(connection, ANSWER) else { return Ok(()) };
            let next = match decode_between(&message.bytes)? {
                Between::Sessions(NodeMessage::ReadCopy { home, term, stream, device, offset, len }) => {
                    Wanted { home, term, stream, device, offset, len }
                }
                _ => {
                    return Err(Error::new(ErrorKind::InvalidInput, "message from a host").because("it is out of turn"));
                }
            };
            connection.endpoint().release(message);
            if (next.home, next.term) != (wanted.home, wanted.term) {
                return Err(
                    Error::new(ErrorKind::InvalidInput, "message from a host").because("it is about another home")
                );
            }
            wanted = next;
        }
    }
}

impl Twins for Mirrors {
    fn read(&self, device: DeviceId, offset: u64, buf: &mut [u8]) -> Result<()> {
        let fail =
            |why: &str| Error::new(ErrorKind::Disconnected, format!("mirrors of home {}", self.home)).because(why);
        let nodes = self.nodes.upgrade().ok_or_else(|| fail("this daemon ends"))?;
        let mut last = fail("none has a complete copy now");
        for (node, address, term, stream) in nodes.homes.complete_mirrors(self.home) {
            let begin = Instant::now();
            let wanted = Wanted { home: self.home, term, stream, device, offset, len: 0 };
            let connected = TcpConnection::connect(address, nodes.who, &nodes.key, CONNECT);
            match connected.and_then(|mut connection| ask(&mut connection, wanted, buf)) {
                Ok(()) => {
                    let (home, bytes, took_ms) = (self.home, buf.len(), begin.elapsed().as_millis() as u64);
                    tracing::warn!(%home, %device, offset, bytes, node = node.0, took_ms, "bad bytes are read from a mirror");
                    return Ok(());
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

/// Reads a range from the copy at the other end.
fn ask(connection: &mut TcpConnection, wanted: Wanted, buf: &mut [u8]) -> Result<()> {
    let Wanted { home, term, stream, device, mut offset, .. } = wanted;
    for piece in buf.chunks_mut(PIECE_BYTES) {
        let len = piece.len() as u32;
        say(connection, &NodeMessage::ReadCopy { home, term, stream, device, offset, len })?;
        let message = wait_for_one(connection, ANSWER)?;
        match decode_between(&message.bytes)? {
            Between::Sessions(NodeMessage::CopyBytes { bytes }) if bytes.len() == piece.len() => {
                piece.copy_from_slice(&bytes);
            }
            Between::Sessions(NodeMessage::Declined { error }) => return Err(error),
            _ => return Err(Error::new(ErrorKind::InvalidInput, "message from a mirror").because("it is out of turn")),
        }
        connection.endpoint().release(message);
        offset += u64::from(len);
    }
    Ok(())
}

/// Most bytes that a host may ask for at once.
pub(super) fn may_ask(len: u32) -> bool {
    len as usize <= PIECE_BYTES
}
