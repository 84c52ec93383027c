//! Messages between processes, as bytes: requests, responses, and the greeting on the store's socket.
//!
//! The only owner of encodings between processes. This room must not know media, sockets or rings.
//! Every message begins with [`WIRE_VERSION`]; numbers are little-endian and of fixed width, lists begin with a
//! `u32` count. The decoder takes bytes from anyone: it neither panics nor allocates more than a small multiple of
//! what it is given.

mod codec;
mod greeting;
mod parts;
mod profile;
mod telemetry;
mod values;

pub use codec::{decode_request, decode_response, encode_request, encode_response};
pub use greeting::{Greeting, decode_greeting, encode_greeting};
pub use parts::{Assembly, MESSAGE_BYTES_MAX, PART_LAST, PART_MORE, parts};

/// First byte of every message. A peer that reads another value answers `VersionMismatch`.
pub const WIRE_VERSION: u8 = 12;
