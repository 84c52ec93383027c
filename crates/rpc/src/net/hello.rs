//! The handshake: who is at the other end, and the proof that it has the cluster's key.
//!
//! The client sends its [`Hello`]; the server answers with its own and a proof over both; the client answers with its
//! proof. Each hello has a random nonce, so that neither proof can be used again.

use cenote_model::{Error, ErrorKind, Result};

use super::frame::CLASSES;
use super::key::{ClusterKey, KEY_BYTES, random};

const MAGIC: [u8; 8] = *b"CENOTEN\0";
/// Bytes of an encoded hello.
pub(super) const HELLO_BYTES: usize = 96;
/// Longest text of a refusal.
const TEXT_BYTES_MAX: usize = 512;

/// What a node says of itself when it connects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// The cluster that it belongs to.
    pub cluster: u128,
    /// Its number in the cluster.
    pub node: u16,
    /// Drawn when its process began: tells a restarted node from the one before.
    pub incarnation: u64,
    /// The newest view of the cluster that it knows.
    pub view: u64,
}

/// An introduction on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub who: Introduction,
    /// Bytes of each class that it takes before it has released some.
    pub windows: [u32; CLASSES],
    nonce: [u8; 32],
}

/// Who proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    fn label(self) -> &'static [u8] {
        match self {
            Self::Client => b"cenote client 1\0",
            Self::Server => b"cenote server 1\0",
        }
    }
}

impl Hello {
    pub fn new(who: Introduction, windows: [u32; CLASSES]) -> Result<Self> {
        Ok(Self { who, windows, nonce: random()? })
    }
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.who.node.to_le_bytes());
        bytes[16..32].copy_from_slice(&self.who.cluster.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.who.incarnation.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.who.view.to_le_bytes());
        for (window, bytes) in self.windows.iter().zip(bytes[48..60].chunks_exact_mut(4)) {
            bytes.copy_from_slice(&window.to_le_bytes());
        }
        bytes[64..].copy_from_slice(&self.nonce);
        bytes
    }
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; HELLO_BYTES] = bytes.try_into().ok()?;
        let window = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let who = Introduction {
            node: u16::from_le_bytes([bytes[8], bytes[9]]),
            cluster: u128::from_le_bytes(bytes[16..32].try_into().ok()?),
            incarnation: u64::from_le_bytes(bytes[32..40].try_into().ok()?),
            view: u64::from_le_bytes(bytes[40..48].try_into().ok()?),
        };
        let windows = [window(48), window(52), window(56)];
        (bytes[..8] == MAGIC).then_some(Self { who, windows, nonce: bytes[64..].try_into().ok()? })
    }
}

/// Proves that `side` of a connection has the key.
pub(super) fn prove(key: &ClusterKey, side: Side, client: &Hello, server: &Hello) -> [u8; KEY_BYTES] {
    key.prove(&[side.label(), &client.encode(), &server.encode()])
}

/// Checks the proof of `side`.
pub(super) fn is_proved(key: &ClusterKey, side: Side, client: &Hello, server: &Hello, proof: &[u8]) -> bool {
    key.holds(&[side.label(), &client.encode(), &server.encode()], proof)
}

/// Fails if the other end is of another cluster, or another process with this node's number. A process may connect to
/// itself: it has a home of another node, and clients who want it.
pub(super) fn check_peer(me: &Introduction, peer: &Introduction) -> Result<()> {
    let subject = || format!("node {} at the other end", peer.node);
    if me.cluster != peer.cluster {
        return Err(Error::new(ErrorKind::Conflict, subject())
            .because(format!("it belongs to cluster {:032x}, this node to {:032x}", peer.cluster, me.cluster))
            .try_next(
                "one of the two addresses or directories is another cluster's: `cenote cluster status` on both",
            ));
    }
    if me.node == peer.node && me.incarnation != peer.incarnation {
        return Err(Error::new(ErrorKind::Conflict, subject())
            .because("another process has this node's number")
            .try_next("look whether a host is in the list twice, or a node's directory was copied"));
    }
    Ok(())
}

/// The error for an end without the cluster's key.
#[cold]
pub(super) fn without_key(node: u16) -> Error {
    Error::new(ErrorKind::PermissionDenied, format!("node {node} at the other end"))
        .because("it does not have this cluster's key")
        .try_next("copy the key file of the cluster's first node to it")
}

/// Encodes a refusal.
pub(super) fn encode_refusal(error: &Error) -> Vec<u8> {
    let text = error.to_string();
    let mut bytes = vec![error.kind() as u8];
    bytes.extend(text.bytes().take(TEXT_BYTES_MAX));
    bytes
}

/// The error for a refusal by the other end, whose text may be anything.
pub(super) fn decode_refusal(bytes: &[u8]) -> Error {
    let (code, text) = bytes.split_first().unwrap_or((&0, &[]));
    let kind = ErrorKind::from_code(*code).unwrap_or(ErrorKind::Disconnected);
    let text: String = String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).collect();
    Error::new(kind, "connection between nodes").because(format!("the other end refuses: {text}"))
}
