//! A home's files and devices on another node, kept the same change by change, so that the home can be opened there when
//! this node is lost.
//!
//! ```text
//!  engine ──► Files, MirroredDevice ──► directory and devices of this node
//!                     └──► Stream ──► Tap (one per mirror) ──► network ──► Replica ──► directory and devices there
//! ```
//!
//! A change is done here first, then noted in the [`Stream`]. The bytes of clients, which no call of the engine writes,
//! are noted by [`crate::Device::committed`], before the journal names them. A mirror carries out all changes in their
//! order. So what it has is at each moment what this node would have after a death of its daemon.
//!
//! A mirror begins with a [`copy`](Source::copy_to) of everything. Changes that happen meanwhile follow it in the same
//! queue, and each part is read and queued under the stream's lock: whichever comes later is the later one.
//!
//! This module must not know what the files are, what a network is, or who decides which nodes are mirrors.

mod change;
mod devices;
mod files;
mod rehomed;
mod replica;
mod source;
mod stream;
#[cfg(test)]
mod tests;

pub use devices::MirroredDevices;
pub use files::MirroredFiles;
pub use rehomed::Rehomed;
pub use replica::{Replica, Unsynced};
pub use source::Source;
pub use stream::{Chunk, Stream, Twins, Waker};

/// What a file of a store is; `None` in a [`Kinds`] function: it is not mirrored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Of fixed size, written in place.
    Log,
    /// Replaced as a whole.
    Whole,
}

/// Says what the file with a name is.
pub type Kinds = fn(&str) -> Option<FileKind>;
