//! What a client knows of objects' maps: pieces of known content, and where the bytes of each come from. This room must not
//! know engines, messages, nor how bytes are copied.

pub(crate) mod cache;
pub(crate) mod pieces;
