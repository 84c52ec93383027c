//! What the bytes of an object become on several places: copies, stripes and parity, where each part goes, how it is
//! read when places are slow or gone, and how it is rebuilt.
//!
//! Everything here is a function of its arguments. This room must not know I/O, clocks, threads, the engine, nor how
//! places are reached: the caller says which are reachable and how fast they are, and carries plans out. It allocates
//! for plans, but never for bytes of objects: those are borrowed.

pub mod code;
mod composite;
mod coverage;
mod geometry;
mod layout;
mod place;
pub mod plan;
mod ranges;
mod survival;

pub use code::Code;
pub use composite::{Composite, Layer};
pub use coverage::Coverage;
pub use geometry::{Piece, StripeWrite, WriteAs, part_lengths, pieces, plan_write};
pub use layout::{Domain, Layout, PARTS_MAX, SPAN_BYTES, Scheme, UNIT_BYTES_DEFAULT, UNIT_BYTES_MAX, UNIT_BYTES_MIN};
pub use place::{Candidate, Place, StripeKey, choose, choose_instead, hash_of, near};
pub use ranges::Ranges;
pub use survival::{Survival, survives, weakest};
