//! Messages between the daemons of a cluster: the requests that clients of one node make of a home on another, the
//! answers, and the sessions to which both belong.
//!
//! A forwarded request is what its client encoded, byte for byte: the node in between reads none of it but its kind.

use cenote_model::{DeviceId, Error, HomeId, Result, StoreId};

use crate::WIRE_VERSION;
use crate::codec::{decode, encode, malformed, wire_enum, wire_struct};
use crate::locks::NodeLock;
use crate::places::{PlaceAnswer, PlaceAsk, PlaceOf};
use crate::words::WordsMessage;

/// First bytes of a request or response: version, number, kind.
pub(crate) const HEAD_BYTES: usize = 10;
/// Kind of [`cenote_model::Request::Deposit`], which a test compares.
const DEPOSIT: u8 = 45;

/// Kinds of [`NodeMessage::Beat`], [`NodeMessage::AskRegister`] and [`NodeMessage::AskGroup`], which a test compares.
const BEAT: u8 = 6;
const ASK_REGISTER: u8 = 8;
const ASK_GROUP: u8 = 46;

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const SESSIONS: u8 = 3;
const CHANGES: u8 = 4;
const WORDS: u8 = 20;
const LOCKS: u8 = 60;
const PIECE: u8 = 80;
/// Version, kind, session.
#[cfg(test)]
const FORWARDED_HEAD: usize = 10;

/// The process of a session, on the node that forwards its requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RemoteSession {
    /// Drawn by the client: the same one finds the same session.
    pub nonce: u128,
    /// Process id there.
    pub pid: u32,
    /// Start time of the process there.
    pub started: u64,
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Whether it may change anything.
    pub write: bool,
    /// Its further groups, if owners and modes of containers bind it.
    pub groups: Option<Vec<u32>>,
}
wire_struct!(RemoteSession, 34, { nonce, pid, started, uid, gid, write, groups });

/// A message about sessions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum NodeMessage {
    /// From the node of a client: opens a session, or finds the one with this nonce.
    Open { who: RemoteSession },
    /// To it: the session with this nonce is open.
    Opened { nonce: u128, session: u64 },
    /// To it: it is not, with the cause.
    Refused { nonce: u128, error: Error },
    /// From the node of a client: the session ends.
    Close { session: u64 },
    /// From the home, in answer to `Visit`: its store, and the sessions of that node that are open.
    Home { store: StoreId, sessions: Vec<(u64, RemoteSession)> },
    /// From the node of clients, first on its connection: the home that it wants.
    Visit { home: HomeId },
    /// From a client that has a session with this nonce by the gateway of its node, first on a connection of its own: it reads objects
    /// of the home over it, and nothing else. Answered by `Opened` or `Declined`.
    Direct { home: HomeId, nonce: u128 },
    /// From the host of a home, first on its connection: changes of that home come, for a copy of it. `stream`: drawn when
    /// the host opened the home, so that chunks of another opening are not taken for its.
    Mirror { home: HomeId, term: u64, store: StoreId, stream: u64 },
    /// To the host: all chunks of this stream up to this number are carried out. 0: none, so a copy of everything is due.
    Has { chunk: u64 },
    /// To the other node: it asked for what is not here, or not for it; the connection ends.
    Declined { error: Error },
    /// From a node that wants to be the host of a home whose copy it has: the host lets it go once the copy is complete.
    Yield { home: HomeId },
    /// To it: the home is let go; the view names the node as its host.
    Yielded { home: HomeId },
    /// From the host of a home, on a connection of its own: bytes of a device are wanted from the copy there, since the host's own
    /// are bad. `stream` as in `Mirror`. More follow on the same connection.
    ReadCopy { home: HomeId, term: u64, stream: u64, device: DeviceId, offset: u64, len: u32 },
    /// To it: the bytes.
    CopyBytes { bytes: Vec<u8> },
    /// From the host of a home, on a connection of its own: a place on the other node is asked, for one of the home's tiers. More
    /// follow on the same connection.
    AskPlace { of: PlaceOf, ask: PlaceAsk },
    /// To it: the answer.
    PlaceSays { answer: PlaceAnswer },
    /// To the node that has the register: a sign of life, in an encoding of `cluster`. It is answered by number.
    Beat { number: u64, beat: Vec<u8> },
    /// From it: what it knows of all nodes, in the same encoding.
    Notice { number: u64, notice: Vec<u8> },
    /// To the node that has the register: a question about it, in an encoding of `cluster`. It is answered by number.
    AskRegister { number: u64, request: Vec<u8> },
    /// From it: the answer, in the same encoding.
    RegisterSays { number: u64, answer: Vec<u8> },
    /// Between nodes that keep the register together, in an encoding of `cluster`. It is answered by number.
    AskGroup { number: u64, message: Vec<u8> },
    /// The answer, in the same encoding.
    GroupSays { number: u64, answer: Vec<u8> },
}

wire_enum!(NodeMessage, 1, "message about sessions", {
    1 => Open { who },
    2 => Opened { nonce, session },
    3 => Refused { nonce, error },
    4 => Close { session },
    5 => Home { store, sessions },
    40 => Visit { home },
    41 => Mirror { home, term, store, stream },
    42 => Has { chunk },
    43 => Declined { error },
    44 => Yield { home },
    45 => Yielded { home },
    48 => ReadCopy { home, term, stream, device, offset, len },
    49 => CopyBytes { bytes },
    50 => AskPlace { of, ask },
    51 => PlaceSays { answer },
    52 => Direct { home, nonce },
    6 => Beat { number, beat },
    7 => Notice { number, notice },
    8 => AskRegister { number, request },
    9 => RegisterSays { number, answer },
    46 => AskGroup { number, message },
    47 => GroupSays { number, answer },
});

/// A message between two daemons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Between<'a> {
    /// A client's request, as the client encoded it.
    Request {
        /// The client's session with the home.
        session: u64,
        /// What [`crate::decode_request`] reads.
        message: &'a [u8],
    },
    /// The answer to one, as the home's daemon encoded it.
    Answer {
        /// The client's session with the home.
        session: u64,
        /// What [`crate::decode_response`] reads.
        message: &'a [u8],
    },
    /// A message about sessions.
    Sessions(NodeMessage),
    /// A message about version words.
    Words(WordsMessage),
    /// A message about locks of files.
    Locks(NodeLock),
    /// Bytes that a message before it announced.
    Piece {
        /// Where they begin.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
    },
    /// Changes of a home, for a copy of it.
    Changes {
        /// The number of the chunk in its stream.
        chunk: u64,
        /// The changes, as `cenote_device::mirror` encodes them.
        changes: &'a [u8],
    },
}

/// Appends the head of a forwarded request, or of the answer to one; the message follows.
pub fn encode_forwarded(is_answer: bool, session: u64, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    out.push(if is_answer { ANSWER } else { REQUEST });
    out.extend_from_slice(&session.to_le_bytes());
}

/// The head of a chunk of changes; the changes follow.
pub fn encode_changes(chunk: u64, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    out.push(CHANGES);
    out.extend_from_slice(&chunk.to_le_bytes());
}

/// The head of bytes that a message before it announced; they follow.
pub fn encode_piece(offset: u64, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    out.push(PIECE);
    out.extend_from_slice(&offset.to_le_bytes());
}

/// Appends a message about sessions.
pub fn encode_between(message: &NodeMessage, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    out.push(SESSIONS);
    encode(0, message, out);
}

/// Appends a message about version words.
pub fn encode_words(message: &WordsMessage, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    out.push(WORDS);
    encode(0, message, out);
}

/// Appends a message about locks of files.
pub fn encode_locks(message: &NodeLock, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    out.push(LOCKS);
    encode(0, message, out);
}

/// Decodes a message from another daemon, from bytes that may be hostile. What it forwards is not read.
pub fn decode_between(bytes: &[u8]) -> Result<Between<'_>> {
    let (head, rest) = bytes.split_at_checked(2).ok_or_else(|| malformed("no head"))?;
    if head[0] != WIRE_VERSION {
        return decode::<u8>(bytes).map(|_| Between::Sessions(NodeMessage::Close { session: 0 })); // the error of a version
    }
    if head[1] == SESSIONS {
        return decode(rest).map(|(_, message)| Between::Sessions(message));
    }
    if head[1] == WORDS {
        return decode(rest).map(|(_, message)| Between::Words(message));
    }
    if head[1] == LOCKS {
        return decode(rest).map(|(_, message)| Between::Locks(message));
    }
    let (session, message) = rest.split_first_chunk::<8>().ok_or_else(|| malformed("no session"))?;
    let session = u64::from_le_bytes(*session);
    match head[1] {
        REQUEST => Ok(Between::Request { session, message }),
        ANSWER => Ok(Between::Answer { session, message }),
        CHANGES => Ok(Between::Changes { chunk: session, changes: message }),
        PIECE => Ok(Between::Piece { offset: session, bytes: message }),
        _ => Err(malformed("an unknown kind of message between nodes")),
    }
}

/// Returns true if a message from another daemon is a beat or a question about the register.
pub fn is_about_view(message: &[u8]) -> bool {
    let kind = message.get(2 + HEAD_BYTES - 1);
    message.get(1) == Some(&SESSIONS) && [BEAT, ASK_REGISTER, ASK_GROUP].iter().any(|it| kind == Some(it))
}

/// The number of an encoded request, or of the request that an encoded response answers.
pub fn number_of(message: &[u8]) -> Option<u64> {
    message.get(1..).and_then(<[u8]>::first_chunk).map(|number| u64::from_le_bytes(*number))
}

/// Returns true if an encoded request brings bytes that its client waits for: it may overtake others of its session.
pub fn is_deposit(message: &[u8]) -> bool {
    message.get(HEAD_BYTES - 1) == Some(&DEPOSIT)
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ErrorKind, Request, Response};

    use super::*;
    use crate::{
        PART_LAST, PassedBytes, bytes_in_frame, decode_bytes, encode_bytes_head, encode_request, encode_response,
        passed_bytes,
    };

    #[test]
    fn what_is_forwarded_stays_as_it_was() {
        let mut message = Vec::new();
        encode_forwarded(true, 77, &mut message);
        assert_eq!(message.len(), FORWARDED_HEAD);
        encode_response(5, &Response::Done, &mut message);
        let Ok(Between::Answer { session: 77, message: inner }) = decode_between(&message) else { panic!() };
        assert_eq!(crate::decode_response(inner), Ok((5, Response::Done)));
    }

    #[test]
    fn messages_about_sessions_are_read_as_they_were_written() {
        let who = RemoteSession { nonce: 7, pid: 2, groups: Some(vec![4]), ..RemoteSession::default() };
        let of = PlaceOf { home: HomeId(2), term: 3, store: StoreId(4), device: DeviceId(5), place: 6 };
        for message in [
            NodeMessage::Open { who: who.clone() },
            NodeMessage::Opened { nonce: 7, session: 3 },
            NodeMessage::Refused { nonce: 7, error: Error::new(ErrorKind::Busy, "a store") },
            NodeMessage::Close { session: 3 },
            NodeMessage::Home { store: StoreId(9), sessions: vec![(3, who)] },
            NodeMessage::Beat { number: 4, beat: vec![1, 2] },
            NodeMessage::Notice { number: 4, notice: vec![3] },
            NodeMessage::AskRegister { number: 5, request: vec![] },
            NodeMessage::RegisterSays { number: 5, answer: vec![4; 9] },
            NodeMessage::Direct { home: HomeId(3), nonce: 1 << 100 },
            NodeMessage::AskPlace { of, ask: PlaceAsk::Look },
            NodeMessage::AskPlace { of, ask: PlaceAsk::Put { name: "s/pack@0".into(), len: 9 } },
            NodeMessage::AskPlace { of, ask: PlaceAsk::Get { name: "s/pack@0".into(), from: 1, len: 2 } },
            NodeMessage::AskPlace { of, ask: PlaceAsk::List { prefix: "s/".into() } },
            NodeMessage::AskPlace { of, ask: PlaceAsk::Delete { name: "s/pack@0".into() } },
            NodeMessage::AskPlace { of, ask: PlaceAsk::Make },
            NodeMessage::AskPlace { of, ask: PlaceAsk::Remove },
            NodeMessage::PlaceSays { answer: PlaceAnswer::Done },
            NodeMessage::PlaceSays { answer: PlaceAnswer::Looked { free_bytes: 7 } },
            NodeMessage::PlaceSays { answer: PlaceAnswer::Bytes { len: 5 } },
            NodeMessage::PlaceSays { answer: PlaceAnswer::Names { names: vec!["a".into(), "b/c".into()] } },
            NodeMessage::PlaceSays {
                answer: PlaceAnswer::Refused { error: Error::new(ErrorKind::Full, "a place"), again: true },
            },
            NodeMessage::AskGroup { number: 6, message: vec![1; 3] },
            NodeMessage::GroupSays { number: 6, answer: vec![] },
        ] {
            let mut bytes = Vec::new();
            encode_between(&message, &mut bytes);
            let is_view = matches!(
                message,
                NodeMessage::Beat { .. } | NodeMessage::AskRegister { .. } | NodeMessage::AskGroup { .. }
            );
            assert_eq!(is_about_view(&bytes), is_view, "{message:?}");
            assert_eq!(decode_between(&bytes), Ok(Between::Sessions(message)));
            for len in 0..bytes.len() {
                assert!(decode_between(&bytes[..len]).is_err());
            }
        }
    }

    #[test]
    fn messages_about_words_are_read_as_they_were_written() {
        for message in [
            WordsMessage::Trust { asked_ns: 5 },
            WordsMessage::Trusted { asked_ns: 5, for_ms: 2000 },
            WordsMessage::Told { upto: 3, words: vec![(1, 9), (70_000, 1 << 40)] },
            WordsMessage::Revoke { number: 4, words: vec![1, 2] },
            WordsMessage::LetGo { number: 4 },
        ] {
            let mut bytes = Vec::new();
            encode_words(&message, &mut bytes);
            assert_eq!(decode_between(&bytes), Ok(Between::Words(message)));
            for len in 0..bytes.len() {
                assert!(decode_between(&bytes[..len]).is_err());
            }
        }
    }

    #[test]
    fn pieces_are_bytes_behind_their_offset() {
        let mut bytes = Vec::new();
        encode_piece(1 << 40, &mut bytes);
        bytes.extend_from_slice(b"abc");
        assert_eq!(decode_between(&bytes), Ok(Between::Piece { offset: 1 << 40, bytes: b"abc" }));
        assert!(decode_between(&bytes[..9]).is_err());
    }

    #[test]
    fn another_version_is_named() {
        let error = decode_between(&[WIRE_VERSION - 1, REQUEST, 0, 0, 0, 0, 0, 0, 0, 0]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::VersionMismatch, "{error}");
        assert!(decode_between(&[WIRE_VERSION, 9, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }

    #[test]
    fn bulk_is_told_by_its_kind() {
        let deposit = Request::Deposit { container: ContainerId(1), bytes: vec![1], avoid: vec![], durability: None };
        let (mut bytes, mut other) = (Vec::new(), Vec::new());
        encode_request(5, &deposit, &mut bytes);
        encode_request(5, &Request::Devices, &mut other);
        assert!(is_deposit(&bytes) && !is_deposit(&other) && !is_deposit(&[]));
    }

    #[test]
    fn bytes_may_lie_apart_from_their_head() {
        let response = Response::Bytes { size: 1, version: 2, bytes: vec![7; 300] };
        let (mut whole, mut head) = (vec![PART_LAST], vec![PART_LAST]);
        encode_response(5, &response, &mut whole);
        encode_bytes_head(5, (1, 2), 300, &mut head);
        assert_eq!([head.clone(), vec![7; 300]].concat(), whole);
        assert_eq!((bytes_in_frame(&whole), bytes_in_frame(&head)), (Some(head.len()), Some(head.len())));
        assert_eq!(decode_bytes(&head, vec![7; 300]), Ok((5, response)));
        assert!(decode_bytes(&head, vec![7; 299]).is_err() && decode_bytes(&[], vec![]).is_err());
        let passed = PassedBytes { seq: 5, size: 1, version: 2, begin: whole.len() - 301 };
        assert_eq!(passed_bytes(&whole[1..]), Ok(Some(passed)));
        assert!((head.len()..whole.len()).all(|len| passed_bytes(&whole[1..len]).is_err()));
        assert!((1..head.len()).all(|len| passed_bytes(&whole[1..len]) == Ok(None)));
        let mut other = vec![PART_LAST];
        encode_response(5, &Response::Done, &mut other);
        assert_eq!(passed_bytes(&other[1..]), Ok(None));
        assert_eq!((bytes_in_frame(&other), bytes_in_frame(&[])), (None, None));
        assert!((0..head.len()).all(|len| bytes_in_frame(&head[..len]).is_none()));
    }
}
