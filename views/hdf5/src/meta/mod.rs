//! The records of a file's metadata index, their keys and the operations on them.

pub mod bytes;
pub mod keys;

use crate::Result;
use crate::file::File;
use crate::space::Extent;
use cenote::{Error, ErrorKind, Transaction};

/// The current extent of a dataset.
pub fn extent_get(file: &File, oid: u64) -> Result<Extent> {
    let record = file.meta.get_one(&keys::extent(oid))?;
    decode_extent(file, oid, record)
}

/// The current extent of a dataset, as a transaction sees it (and relies on it, if conflicts are detected).
pub fn extent_get_in(tx: &mut Transaction, file: &File, oid: u64) -> Result<Extent> {
    let record = tx.get(&file.meta, &keys::extent(oid))?;
    decode_extent(file, oid, record)
}

/// Sets the current extent of a dataset.
pub fn extent_put_in(tx: &mut Transaction, file: &File, oid: u64, extent: &Extent) -> Result<()> {
    let mut w = bytes::Writer::default();
    extent.encode(&mut w);
    tx.put(&file.meta, &keys::extent(oid), &w.0)
}

fn decode_extent(file: &File, oid: u64, record: Option<Vec<u8>>) -> Result<Extent> {
    let record = record.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("dataset {oid:016x} of file {}", file.path))
            .because("it was deleted, or the file was truncated, by another process")
    })?;
    Extent::decode(&mut bytes::Reader::new("extent record", &record))
}
