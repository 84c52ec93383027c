//! The data path over a link: copies bytes into leased space and out of sources. This room must not know sessions,
//! handles, the search for engines, nor the transport of messages.

pub(crate) mod append;
mod carried;
mod far;
mod packed;
pub(crate) mod read;
pub(crate) mod source;
pub(crate) mod tiering;
pub(crate) mod write;
