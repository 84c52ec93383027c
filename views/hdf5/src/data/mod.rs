//! Raw data of datasets: selections, conversion between memory and stored form, layouts, chunks, filters, blobs.
//!
//! Called from `vol` with checked arguments; knows nothing of links, attributes or names. Its records in the file's metadata
//! index have tags from [`crate::meta::keys::TAG_DATA`] on, with the dataset's number after the tag.
//!
//! `runs` and `geometry` are pure arithmetic; `filter` turns chunks into stored bytes.

mod access;
mod aside;
mod batch;
mod body;
mod chunked;
pub mod convert;
mod external;
pub mod filter;
mod filtered;
mod foreign;
pub mod geometry;
mod heap;
mod io;
mod later;
mod life;
mod memory;
mod native;
mod parts;
mod place;
pub mod plain;
mod queries;
pub mod references;
mod resize;
pub mod runs;
mod select;
mod slots;
mod transfer;
mod transform;
mod virt;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cenote::{Error, ErrorKind, Transaction};
use parking_lot::Mutex;

use crate::Result;
use crate::error;
use crate::ffi::Hid;
use crate::ffi::types::hid_t;
use crate::file::{Core, File};
use crate::foreign::making::Making;
use crate::object::{Dataset, DatasetHeader};
use crate::props::DatasetProps;
use crate::space::Extent;

pub use body::DatasetState;
pub(crate) use convert::{Background, Conversion};
pub use later::{Direction, Later, later};
pub(crate) use place::{HEAP_BIT, nonce};

/// One dataset's part of a read or write call, as HDF5 gave it (`H5S_ALL`, `H5S_BLOCK` and `H5S_PLIST` included).
pub struct Io<'a> {
    /// The dataset.
    pub dataset: &'a Dataset,
    /// Type of the elements in memory.
    pub mem_type: hid_t,
    /// Selection in memory.
    pub mem_space: hid_t,
    /// Selection in the dataset.
    pub file_space: hid_t,
    /// The program's buffer (written to by reads only).
    pub buf: *mut c_void,
}

/// A function that changes elements in memory form.
pub type Fix<'a> = &'a mut dyn FnMut(&mut [u8]) -> Result<()>;

/// Refuses what cannot be stored (layouts, missing filters), and makes what a new dataset needs beside its header and extent
/// records, in the transaction that creates it.
pub fn create(tx: &mut Transaction, file: &Arc<File>, oid: u64, header: &DatasetHeader) -> Result<()> {
    life::create(tx, file, oid, header)
}
/// The state of a dataset that is being opened (or was just made).
pub fn open(file: &Arc<File>, oid: u64, header: &DatasetHeader) -> Result<DatasetState> {
    life::open(file, oid, header)
}
/// Reads the parts of one call.
pub fn read(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    if parts.first().is_some_and(|io| transform::is_asked(io.dataset.h5(), dxpl)) {
        return parts.iter().try_for_each(|io| transform::read(io, dxpl));
    }
    io::read(parts, dxpl)
}
/// Writes the parts of one call, in a file checked to be writable.
pub fn write(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    let written = if parts.first().is_some_and(|io| transform::is_asked(io.dataset.h5(), dxpl)) {
        parts.iter().try_for_each(|io| transform::write(io, dxpl))
    } else {
        io::write(parts, dxpl)
    };
    // Also after a failure: a resize that came before remains.
    let shown = parts.iter().try_for_each(|io| io.dataset.data.show_extent());
    written.and(shown).map_err(|error| match parts {
        [one] => named(error, &one.dataset.file, || one.dataset.name()),
        _ => error,
    })
}
/// Names the dataset in an error about space: the store knows objects only by number.
fn named(error: Error, file: &File, name: impl FnOnce() -> String) -> Error {
    let is_about_room = matches!(error.kind(), ErrorKind::LimitExceeded | ErrorKind::Full);
    if !is_about_room || error.subject().contains(&file.path) {
        return error;
    }
    error::fail(error.kind(), format!("writing {}", name()), error.to_string())
}
/// The access properties as a program sees them.
pub fn access_plist(dataset: &Dataset) -> Result<Hid> {
    access::plist(dataset)
}
/// The present extent: sources of a virtual dataset, or other processes, may have changed it.
pub fn extent(dataset: &Dataset) -> Result<Extent> {
    match &dataset.data.body {
        body::Body::Virtual(this) => virt::extent(dataset, this),
        _ => crate::meta::extent_get(&dataset.file, dataset.oid),
    }
}
/// Forgets what a handle caches of other datasets. Everything else is looked up in the store each time.
pub fn refresh(dataset: &Dataset) {
    if let body::Body::Virtual(this) = &dataset.data.body {
        this.refresh();
    }
}
/// Changes the current dimensions atomically: checks them against the maximum, drops or clears what lies outside, and sets the
/// extent record ([`crate::meta::extent_put_in`]).
pub fn set_extent(dataset: &Dataset, dims: &[u64]) -> Result<()> {
    resize::set_extent(dataset, dims)
}
/// Stores what this process still buffers, and waits for media if flushes are set to.
pub fn flush(dataset: &Dataset) -> Result<()> {
    dataset.data.flush()?;
    dataset.file.shared.show_extents(Some(dataset.oid))?;
    dataset.file.settle()?;
    dataset.file.flush_to_media()
}
/// Stores what this process still buffers of a dataset, when a handle is closed. What cannot be stored is kept for the file's
/// next flush or close, which reports why.
pub fn close(dataset: &Dataset) -> Result<()> {
    match &dataset.data.body {
        body::Body::Chunked(chunks) => {
            if chunks.flush_aside().is_err() {
                aside::keep(chunks);
            }
            Ok(())
        }
        _ => dataset.data.flush(),
    }
}
/// Gives up data that could not be stored, when a file is closed nevertheless.
pub fn give_up(file: &File) {
    aside::give_up(file);
}
/// Stores what this process still buffers of any dataset of a file. Called when the file is flushed or closed.
pub fn flush_file(file: &File) -> Result<()> {
    aside::flush_file(file)?;
    file.shared.show_extents(None)
}
/// Answers `H5Dget_storage_size`.
pub fn storage_size(dataset: &Dataset) -> Result<u64> {
    queries::storage_size(dataset)
}
/// The creation properties as a program sees them.
pub fn props(dataset: &Dataset) -> DatasetProps {
    queries::props(dataset)
}
/// Answers `H5Dget_space_status` (`H5D_SPACE_STATUS_*`).
pub fn space_status(dataset: &Dataset) -> Result<c_int> {
    queries::space_status(dataset)
}
/// Optional operations (`NATIVE_DATASET_*` in [`crate::ffi::class`]).
pub fn optional(dataset: &Dataset, op: c_int, args: *mut c_void, dxpl: hid_t) -> Result<()> {
    queries::optional(dataset, op, args, dxpl)?;
    dataset.data.show_extent()
}
/// Deletes all raw data of a dataset, in the transaction that deletes its header.
pub fn delete(tx: &mut Transaction, file: &Core, oid: u64) -> Result<()> {
    life::delete(tx, file, oid)
}
/// Copies all raw data to a new dataset with an equal header, possibly in another file or store. Called before the copy
/// becomes visible.
pub fn copy(from: &Dataset, to: &Dataset) -> Result<()> {
    life::copy(from, to)
}
/// Copies all raw data to a new dataset of a native file, which has an equal header. `fix` gets elements in memory form before
/// they are written, if their type holds something that has another meaning there.
///
/// `making`: set if the native file is made in the store; raw data are then lent to it in place, as far as possible.
pub fn give(from: &Dataset, native: hid_t, fix: Option<Fix<'_>>, making: Option<&Mutex<Making>>) -> Result<()> {
    foreign::give(from, native, fix, making)
}
/// Number of existing chunks of a dataset, and their stored bytes, from its records alone.
pub fn stored_chunks(meta: &cenote::Index, oid: u64) -> Result<(u64, u64)> {
    place::stored_chunks(meta, oid)
}
/// Keeps a blob and writes its id (16 bytes, not all zero).
pub fn blob_put(bytes: &[u8]) -> Result<[u8; crate::blob::ID_BYTES]> {
    heap::put(bytes)
}
/// Reads a blob's bytes into `buf`.
pub fn blob_get(id: [u8; crate::blob::ID_BYTES], buf: &mut [u8]) -> Result<()> {
    heap::get(id, buf)
}
