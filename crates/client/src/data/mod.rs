//! The data path over a link: bytes go into leased space and come out of sources. This room must not know sessions, handles,
//! how engines are found, nor how messages are carried.

pub(crate) mod append;
mod carried;
mod packed;
pub(crate) mod read;
pub(crate) mod source;
pub(crate) mod tiering;
pub(crate) mod write;
