//! Records of a tree: their keys and their bytes. `docs/files.md` has them for people. This room must not know who reads or
//! writes them, nor what they are for.

mod bytes;
pub mod claimant;
mod entry;
pub mod keys;
mod node;
mod source;
mod times;

pub use bytes::{PutFields, TakeFields, reader};
pub use claimant::Claimant;
pub use entry::Entry;
pub use node::Node;
pub use source::Source;
pub use times::Times;

/// Version of every record here; the first byte of each.
pub const VERSION: u8 = 1;
/// Bits of a number within its tree.
pub const INO_BITS: u32 = 40;
/// The root directory of a tree.
pub const ROOT: u64 = 1;
/// The directory beside the root, for what views keep for themselves.
pub const BACKSTAGE: u64 = 2;
/// The first number that is drawn.
pub const FIRST: u64 = 16;

#[cfg(test)]
mod tests;
