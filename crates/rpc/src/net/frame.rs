//! Frames: the head before each payload.
//!
//! | bytes | |
//! |---|---|
//! | 0..4 | CRC-32C of everything behind it in the frame |
//! | 4..8 | length of the payload |
//! | 8 | kind |
//! | 9 | class |
//! | 10..12 | version of the protocol |
//! | 12..16 | bytes of the message that follow in later frames; zero in its last frame, and in frames of other kinds |
//! | 16..24 | number of the sender's view of the cluster |
//!
//! All numbers are little-endian.

use cenote_model::{Error, ErrorKind, Result, combine_sums};
use crc_fast::CrcAlgorithm::Crc32Iscsi;

/// Version of the protocol between nodes.
pub const NET_VERSION: u16 = 1;
/// Bytes of a frame's head.
pub(super) const HEAD_BYTES: usize = 24;
/// Longest payload: a message of another class waits no longer than for one frame.
pub(super) const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Longest payload of a peer that has not proved that it has the key.
pub(super) const STRANGE_BYTES_MAX: usize = 1024;
/// Number of classes.
pub(super) const CLASSES: usize = 3;

/// What a message is for. Each class has credits of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Class {
    /// Requests and their answers, views, invalidations. Sent before all others.
    Control = 0,
    /// Batches of journal records for mirrors.
    Replication = 1,
    /// Bytes of objects.
    Bulk = 2,
}

impl Class {
    /// All classes; the first that may send does.
    pub const ALL: [Self; CLASSES] = [Self::Control, Self::Replication, Self::Bulk];

    pub(super) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|class| *class as u8 == code)
    }
}

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// The first frame of a client: its introduction.
    Hello = 1,
    /// The server's introduction and its proof.
    Challenge = 2,
    /// The client's proof.
    Proof = 3,
    /// The client is admitted.
    Accept = 4,
    /// The connection ends; why.
    Refuse = 5,
    /// A message, or a part of it.
    Message = 6,
    /// More bytes may be sent, by class.
    Credit = 7,
    /// The sender is alive.
    Beat = 8,
    /// The sender leaves on purpose.
    Bye = 9,
}

impl Kind {
    fn from_code(code: u8) -> Option<Self> {
        use Kind as K;
        [K::Hello, K::Challenge, K::Proof, K::Accept, K::Refuse, K::Message, K::Credit, K::Beat, K::Bye]
            .into_iter()
            .find(|kind| *kind as u8 == code)
    }
}

/// The head of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Head {
    pub kind: Kind,
    pub class: Class,
    /// Bytes of the payload.
    pub len: usize,
    /// Bytes of the message in later frames.
    pub more: usize,
    pub view: u64,
}

/// The error for bytes that no node of this protocol sends.
#[cold]
pub(super) fn malformed(cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, "connection between nodes")
        .because(cause)
        .try_next("the connection is made again; if this repeats, look for what changes bytes on the way")
}

fn sum(head: &[u8; HEAD_BYTES], payload: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(Crc32Iscsi);
    digest.update(&head[4..]);
    digest.update(payload);
    digest.finalize() as u32
}

fn u32_at(head: &[u8; HEAD_BYTES], at: usize) -> u32 {
    u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
}

/// Encodes the head of a frame with this payload. `more`: bytes of the message that follow in later frames.
pub(super) fn encode_head(what: (Kind, Class), view: u64, payload: &[u8], more: usize) -> [u8; HEAD_BYTES] {
    let mut head = head_without_sum(what, view, payload.len(), more);
    let sum = sum(&head, payload);
    head[..4].copy_from_slice(&sum.to_le_bytes());
    head
}

/// The same for the last frame of a message, whose payload has this length and this CRC-32C: nobody reads it here.
pub(super) fn encode_head_summed(what: (Kind, Class), view: u64, (len, known): (usize, u32)) -> [u8; HEAD_BYTES] {
    let mut head = head_without_sum(what, view, len, 0);
    let sum = combine_sums(sum(&head, &[]), known, len as u32);
    head[..4].copy_from_slice(&sum.to_le_bytes());
    head
}

fn head_without_sum((kind, class): (Kind, Class), view: u64, len: usize, more: usize) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[4..8].copy_from_slice(&(len as u32).to_le_bytes());
    (head[8], head[9]) = (kind as u8, class as u8);
    head[10..12].copy_from_slice(&NET_VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(more as u32).to_le_bytes());
    head[16..24].copy_from_slice(&view.to_le_bytes());
    head
}

/// Decodes a head. The payload may have at most `most` bytes.
pub(super) fn decode_head(head: &[u8; HEAD_BYTES], most: usize) -> Result<Head> {
    let version = u16::from_le_bytes([head[10], head[11]]);
    if version != NET_VERSION {
        return Err(Error::new(ErrorKind::VersionMismatch, "connection between nodes")
            .because(format!("the other end speaks version {version}, this program {NET_VERSION}"))
            .try_next("use one version of Cenote on all nodes of a cluster"));
    }
    let len = u32_at(head, 4) as usize;
    if len > most {
        return Err(malformed(format!("a frame of {len} bytes, where at most {most} are allowed")));
    }
    let kind = Kind::from_code(head[8]).ok_or_else(|| malformed(format!("a frame of kind {}", head[8])))?;
    let class = Class::from_code(head[9]).ok_or_else(|| malformed(format!("a frame of class {}", head[9])))?;
    let view = u64::from(u32_at(head, 16)) | u64::from(u32_at(head, 20)) << 32;
    let more = u32_at(head, 12) as usize;
    if more > 0 && kind != Kind::Message {
        return Err(malformed(format!("a frame of kind {} that goes on", head[8])));
    }
    Ok(Head { kind, class, len, more, view })
}

/// Fails unless the frame's checksum holds.
pub(super) fn check(head: &[u8; HEAD_BYTES], payload: &[u8]) -> Result<()> {
    if sum(head, payload) == u32_at(head, 0) {
        return Ok(());
    }
    Err(malformed(format!("a frame of {} bytes whose checksum does not hold", payload.len())))
}

/// The payload of a frame that was not checked; see [`super::Endpoint::defer_checks`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unchecked {
    /// Where it begins in its message, at whose end it ends.
    pub from: usize,
    head_sum: u32,
    sum: u32,
}

impl Unchecked {
    pub(super) fn of(head: &[u8; HEAD_BYTES], from: usize) -> Self {
        Self { from, head_sum: sum(head, &[]), sum: u32_at(head, 0) }
    }
    /// Returns true if a payload of `len` bytes with this CRC-32C is the one that was sent.
    pub fn is_intact(&self, payload_sum: u32, len: usize) -> bool {
        combine_sums(self.head_sum, payload_sum, len as u32) == self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_written() {
        let head = encode_head((Kind::Message, Class::Bulk), u64::MAX - 5, b"payload", 99);
        let decoded = decode_head(&head, 7).unwrap();
        assert_eq!((decoded.kind, decoded.class, decoded.len, decoded.more), (Kind::Message, Class::Bulk, 7, 99));
        assert_eq!(decoded.view, u64::MAX - 5);
        assert!(check(&head, b"payload").is_ok());
        assert_eq!(check(&head, b"paylaod").unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(decode_head(&head, 6).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn payloads_with_a_known_sum_are_not_read_and_can_be_checked_later() {
        let sum = crc_fast::checksum(Crc32Iscsi, b"payload") as u32;
        let known = encode_head_summed((Kind::Message, Class::Bulk), 3, (7, sum));
        assert_eq!(known, encode_head((Kind::Message, Class::Bulk), 3, b"payload", 0));
        let unchecked = Unchecked::of(&known, 9);
        assert!(unchecked.is_intact(sum, 7) && !unchecked.is_intact(sum ^ 1, 7) && !unchecked.is_intact(sum, 8));
        let wrong = encode_head_summed((Kind::Message, Class::Bulk), 3, (7, sum ^ 1));
        assert!(check(&wrong, b"payload").is_err(), "whoever does not defer it notices");
    }

    #[test]
    fn each_changed_bit_is_noticed() {
        let head = encode_head((Kind::Message, Class::Control), 3, b"some", 0);
        for bit in 0..HEAD_BYTES * 8 {
            let mut other = head;
            other[bit / 8] ^= 1 << (bit % 8);
            let taken = decode_head(&other, 1 << 20).and_then(|found| {
                // A changed length would make the reader wait for other bytes; their sum would not hold either.
                if found.len == 4 { check(&other, b"some") } else { Err(malformed("another length")) }
            });
            assert!(taken.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn other_versions_are_refused_by_name() {
        let mut head = encode_head((Kind::Hello, Class::Control), 0, b"", 0);
        head[10] = 9;
        let error = decode_head(&head, 100).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::VersionMismatch);
        assert!(error.to_string().contains("version 9"), "{error}");
    }
}
