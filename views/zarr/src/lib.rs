//! Zarr over the HDF5 files of a store: groups, arrays, attributes and chunks under the keys that Zarr has for them.
//!
//! A file is a hierarchy of Zarr's format 3 and 2; nothing is copied for that: metadata documents are made from the file's
//! records when they are asked for, and a chunk is the bytes that HDF5 stored. What is written by Zarr is a change of the
//! HDF5 file, by the same transactions. `docs/zarr.md` has what maps to what, and what is refused.
//!
//! This room knows Zarr's documents and keys, and how datatypes, filters, attributes and dimension names correspond. How records
//! and chunks are kept it must not know (`cenote-hdf5` does), nor HTTP, Python or libhdf5.

mod attrs;
mod chunks;
mod codecs;
mod dims;
mod doc;
mod dtype;
mod grid;
mod make;
mod node;
mod parse;
mod tree;

pub use cenote::{Error, ErrorKind, Result};
pub use cenote_hdf5::file::plain::store_dir;
pub use tree::{Entry, Format, Note, Tree};

/// The refusal of something that has no counterpart, with what can be done instead.
#[cold]
fn refused(subject: impl Into<String>, cause: impl Into<String>, next: &str) -> Error {
    let error = Error::new(ErrorKind::Unsupported, subject).because(cause);
    if next.is_empty() { error } else { error.try_next(next) }
}

/// A document or key that makes no sense.
#[cold]
fn invalid(subject: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, subject).because(cause)
}
