//! The data path: leased space, cached maps, copies in and out. Messages go through `session`.

pub(crate) mod append;
pub(crate) mod arena;
mod building;
pub(crate) mod cache;
pub(crate) mod callbacks;
mod carried;
pub(crate) mod kept;
pub(crate) mod leaving;
mod packed;
pub(crate) mod pieces;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod segments;
pub(crate) mod tiering;
pub(crate) mod workers;
pub(crate) mod write;
