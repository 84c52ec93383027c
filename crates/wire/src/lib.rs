//! Messages between processes, as bytes: requests, responses, and the greeting on the store's socket.
//!
//! The only owner of encodings between processes. This room must not know media, sockets or rings.
//! Every message begins with [`WIRE_VERSION`]; numbers are little-endian and of fixed width, lists begin with a
//! `u32` count. The decoder takes bytes from anyone: it neither panics nor allocates more than a small multiple of
//! what it is given.

mod between;
mod codec;
mod greeting;
mod ha;
mod locks;
mod parts;
mod places;
mod profile;
mod telemetry;
mod values;
mod words;

pub use between::{
    Between, NodeMessage, RemoteSession, decode_between, encode_between, encode_changes, encode_forwarded,
    encode_locks, encode_piece, encode_words, is_about_view, is_deposit, number_of,
};
pub use codec::{
    PassedBytes, bytes_in_frame, decode_bytes, decode_request, decode_response, encode_bytes_head, encode_request,
    encode_response, passed_bytes,
};
pub use greeting::{ClusterPlace, Greeting, decode_greeting, encode_greeting};
pub use locks::{LockAsk, LockTokens, NodeLock, decode_lock_tokens, encode_lock_tokens};
pub use parts::{Assembly, MESSAGE_BYTES_MAX, PART_LAST, PART_MORE, parts};
pub use places::{PlaceAnswer, PlaceAsk, PlaceOf};
pub use words::{Changed, WordsMessage};

/// First byte of every message. A peer that reads another value answers `VersionMismatch`.
pub const WIRE_VERSION: u8 = 23;
