//! How numbers and byte strings lie in records, messages and headers: little endian, of fixed width, without padding; a byte
//! string is its length in 32 bits and the bytes.
//!
//! [`Encode`] appends to a vector; [`Decoder`] takes from the front of bytes that nobody vouches for: each step checks its
//! bounds, so damaged bytes are an error, never a panic, and a count never makes the caller allocate more than the bytes that
//! are there allow. What such an error says besides the reason is up to the room whose bytes they are ([`Subject`]).
//! [`u32_at`] and its like read fixed headers.
//!
//! This room must not know any record, its version or its checksum, nor do I/O.

mod decode;
mod encode;
mod fixed;

pub use decode::{Anonymous, Decoder, Malformed, Subject};
pub use encode::Encode;
pub use fixed::{u16_at, u32_at, u64_at, u128_at};

#[cfg(test)]
mod tests;
