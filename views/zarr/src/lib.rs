//! Zarr over the HDF5 files of a store: groups, arrays, attributes and chunks under the keys that Zarr has for them.
//!
//! A file is a hierarchy of Zarr's format 3 and 2, without copies: metadata documents are made on request from the file's
//! records, and a chunk is the bytes that HDF5 stored. Zarr's writes change the HDF5 file, by the same transactions.
//! `docs/zarr.md` says what maps to what, and what is refused.
//!
//! This module knows Zarr's documents and keys, and how datatypes, filters, attributes and dimension names correspond. It must
//! not know how records and chunks are kept (`cenote-hdf5` does), nor HTTP, Python or libhdf5.

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

/// The error for something without a counterpart, with an alternative.
#[cold]
fn refused(subject: impl Into<String>, cause: impl Into<String>, next: &str) -> Error {
    let error = Error::new(ErrorKind::Unsupported, subject).because(cause);
    if next.is_empty() { error } else { error.try_next(next) }
}

/// The error for an invalid document or key.
#[cold]
fn invalid(subject: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, subject).because(cause)
}
