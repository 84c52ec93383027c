//! Records of a tree: keys and encoding. `docs/files.md` describes them for people. This module must not know who reads or
//! writes them, nor what they are for.

mod bytes;
pub mod claimant;
mod entry;
pub mod keys;
mod node;
mod page_cache;
mod source;
mod times;

pub use bytes::{PutFields, TakeFields, reader};
pub use claimant::Claimant;
pub use entry::Entry;
pub use node::Node;
pub use page_cache::PageCacheNote;
pub use source::Source;
pub use times::Times;

/// Version of every record here but those of page caches: its first byte.
pub const VERSION: u8 = 1;
/// Bits of an inode number within its tree.
pub const INO_BITS: u32 = 40;
/// The root directory of a tree.
pub const ROOT: u64 = 1;
/// The directory beside the root, for the views' own data.
pub const PRIVATE: u64 = 2;
/// The first inode number that is assigned.
pub const FIRST: u64 = 16;

#[cfg(test)]
mod tests;
