//! Raw data of datasets: selections, conversion between memory and stored form, layouts, chunks, filters, blobs.
//!
//! Called from `vol` with checked arguments; knows nothing of links, attributes or names. Its records in the file's
//! metadata index have tags from [`crate::meta::keys::TAG_DATA`] on, with the dataset's number behind the tag.
//!
//! `runs` and `geometry` are pure arithmetic; `filter` turns chunks into stored bytes.

pub mod filter;
pub mod geometry;
pub mod runs;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cenote::Transaction;

use crate::Result;
use crate::error::unsupported;
use crate::ffi::types::hid_t;
use crate::file::File;
use crate::object::{Dataset, DatasetHeader};

/// What this room keeps for an open dataset.
pub struct State {}

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

/// Refuses what cannot be stored (layouts, filters that are not there), and makes what a new dataset needs beside its
/// header and extent records, in the transaction that creates it.
pub fn create(tx: &mut Transaction, file: &Arc<File>, oid: u64, header: &DatasetHeader) -> Result<()> {
    let _ = (tx, file, oid, header);
    Ok(())
}
/// The state of a dataset that is being opened (or was just made).
pub fn open(file: &Arc<File>, oid: u64, header: &DatasetHeader) -> Result<State> {
    let _ = (file, oid, header);
    Ok(State {})
}
/// Reads.
pub fn read(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    let _ = (parts, dxpl);
    Err(unsupported("reading datasets", "wait"))
}
/// Writes. The file was checked to be writable.
pub fn write(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    let _ = (parts, dxpl);
    Err(unsupported("writing datasets", "wait"))
}
/// Changes the current dimensions: checks them against the maximum, drops or clears what lies outside, and sets the
/// extent record ([`crate::meta::extent_put_in`]), atomically.
pub fn set_extent(dataset: &Dataset, dims: &[u64]) -> Result<()> {
    let _ = (dataset, dims);
    Err(unsupported("changing the extent of datasets", "wait"))
}
/// Everything written so far survives power loss.
pub fn flush(dataset: &Dataset) -> Result<()> {
    let _ = dataset;
    Ok(())
}
/// `H5Dget_storage_size`.
pub fn storage_size(dataset: &Dataset) -> Result<u64> {
    let _ = dataset;
    Err(unsupported("storage size", "wait"))
}
/// `H5Dget_space_status` (`H5D_SPACE_STATUS_*`).
pub fn space_status(dataset: &Dataset) -> Result<c_int> {
    let _ = dataset;
    Err(unsupported("space status", "wait"))
}
/// Optional operations (`NATIVE_DATASET_*` in [`crate::ffi::class`]).
pub fn optional(dataset: &Dataset, op: c_int, args: *mut c_void, dxpl: hid_t) -> Result<()> {
    let _ = (dataset, args, dxpl);
    Err(unsupported(format!("dataset operation {op}"), "wait"))
}
/// Deletes all raw data of a dataset, in the transaction that deletes its header.
pub fn delete(tx: &mut Transaction, file: &Arc<File>, oid: u64) -> Result<()> {
    let _ = (tx, file, oid);
    Ok(())
}
/// Copies all raw data to a new dataset with an equal header, possibly in another file or store; called before the
/// copy becomes visible.
pub fn copy(from: &Dataset, to: &Dataset) -> Result<()> {
    let _ = (from, to);
    Err(unsupported("copying datasets", "wait"))
}
/// Keeps a blob and writes its id (16 bytes, not all zero).
pub fn blob_put(file: &Arc<File>, bytes: &[u8]) -> Result<[u8; crate::blob::ID_BYTES]> {
    let _ = (file, bytes);
    Err(unsupported("variable-length data", "wait"))
}
/// Gives a blob's bytes into `buf`.
pub fn blob_get(file: &Arc<File>, id: [u8; crate::blob::ID_BYTES], buf: &mut [u8]) -> Result<()> {
    let _ = (file, id, buf);
    Err(unsupported("variable-length data", "wait"))
}
/// Forgets a blob.
pub fn blob_delete(file: &Arc<File>, id: [u8; crate::blob::ID_BYTES]) -> Result<()> {
    let _ = (file, id);
    Ok(())
}
