//! The C interface: opaque handles over the client's types, an error for every failure, no panic across the boundary.
//!
//! This crate must not know the engine, the wire or the media; it uses the client only. `include/cenote.h` is
//! generated from this source (`check-header.sh` compares, `check-header.sh --fix` writes it).
#![allow(unsafe_code, reason = "every function of a C interface takes pointers that only its caller can vouch for")]
#![allow(non_camel_case_types, reason = "types are named as C programs see them")]
#![allow(clippy::missing_safety_doc, reason = "the header's introduction states the rules for all functions at once")]

mod abi;
mod container;
pub mod error;
mod handle;
mod index;
mod inspect;
mod object;
mod op;
pub mod range;
mod store;
mod transaction;
pub mod types;
mod version;
