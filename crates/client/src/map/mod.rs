//! The cached maps of objects: pieces with known content, and the source of each piece's bytes. This room must not know
//! engines, messages, nor how bytes are copied.

pub(crate) mod cache;
pub(crate) mod kept;
pub(crate) mod pieces;
