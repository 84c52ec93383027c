//! The records of a file's metadata index, their keys and the operations on them.
//!
//! Every change is one transaction, so that a crash leaves a file whole. Parallel creators in one group never conflict: object numbers
//! are random, and only groups that track creation order share a counter.
//! This module must not know HDF5's callbacks.

pub mod attrs;
pub mod bytes;
pub mod header;
pub mod keys;
pub mod links;
pub mod maps;
pub mod objects;
pub mod records;
pub mod resolve;
#[cfg(test)]
mod tests;

use std::time::Duration;

use cenote::{Error, ErrorKind, Store, Transaction};

use crate::Result;
use crate::file::{Ahead, Core, Shared};
use crate::space::Extent;

/// Attempts of a transaction before a conflict with other processes becomes an error.
const CONFLICT_TRIES: u32 = 2_000;

/// Runs `f` in a transaction. While this process is the file's only writer, the transaction is launched ([`crate::file::ahead`]);
/// otherwise it fails if what it read has changed, and is repeated until it commits.
pub fn transact<T>(file: &Core, f: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
    transact_ahead(file.shared.ahead(), f)
}

fn transact_ahead<T>(ahead: &Ahead, mut f: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
    ahead.with(|precondition| match precondition {
        Some(precondition) => {
            let mut tx = ahead.store().begin();
            let out = f(&mut tx)?;
            ahead.send(tx, precondition).map(|()| out)
        }
        None => transact_awaited(ahead.store(), &mut f),
    })
}

fn transact_awaited<T>(store: &Store, f: &mut impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
    let mut tries = 0;
    loop {
        let mut tx = store.begin();
        tx.detect_conflicts(true);
        let out = f(&mut tx)?;
        match tx.commit() {
            Ok(_) => return Ok(out),
            Err(error) if error.kind() == ErrorKind::Conflict && tries < CONFLICT_TRIES => {
                tries += 1;
                let spread = crate::file::random_u64()? % u64::from(tries.min(50) * 20 + 1);
                std::thread::sleep(Duration::from_micros(spread));
            }
            Err(error) => return Err(error),
        }
    }
}

/// The current extent of a dataset. If the dataset cannot be resized, only the header has it.
pub fn extent_get(file: &Core, oid: u64) -> Result<Extent> {
    if let Some(held) = file.shared.held_extent(oid) {
        return Ok(held);
    }
    if let Some(record) = file.meta.get_one(&keys::extent(oid))? {
        return decode_extent(&record);
    }
    match header::get(file, oid)?.body {
        header::Body::Dataset { extent, .. } => Ok(extent),
        _ => Err(gone(file, oid)),
    }
}

/// The current extent of a resizable dataset, as seen by a transaction (which relies on it if conflicts are detected).
pub fn extent_get_in(tx: &mut Transaction, file: &Core, oid: u64) -> Result<Extent> {
    let record = tx.get(&file.meta, &keys::extent(oid))?;
    decode_extent(&record.ok_or_else(|| gone(file, oid))?)
}

/// Sets the current extent of a dataset.
pub fn extent_put_in(tx: &mut Transaction, file: &Core, oid: u64, extent: &Extent) -> Result<()> {
    let mut w = Vec::new();
    extent.encode(&mut w);
    tx.put(&file.meta, &keys::extent(oid), &w)
}

/// Makes an extent held by this process ([`Shared::hold_extent`]) visible to all, if the dataset still exists; dimensions that others
/// have made larger meanwhile stay.
pub fn extent_show(shared: &Shared, oid: u64, extent: &Extent) -> Result<()> {
    let (key, meta) = (keys::extent(oid), shared.meta());
    transact_ahead(shared.ahead(), |tx| {
        let Some(record) = tx.get(meta, &key)? else { return Ok(()) };
        let now = decode_extent(&record)?;
        let dims = now.dims().iter().zip(extent.dims()).map(|(now, held)| *now.max(held)).collect();
        let mut w = Vec::new();
        Extent::Simple { dims, max: extent.max_dims().to_vec() }.encode(&mut w);
        tx.put(meta, &key, &w)
    })
}

fn decode_extent(record: &[u8]) -> Result<Extent> {
    Extent::decode(&mut bytes::Reader::of("extent record", record))
}

/// The error for an object whose records are gone.
pub fn gone(file: &Core, oid: u64) -> Error {
    Error::new(ErrorKind::NotFound, format!("object {oid:016x} of file {}", file.path))
        .because("it does not exist: it was deleted, or the file was created anew, by another process")
        .try_next("open the file again")
}

/// The next value of a counter record, as seen by a transaction, which raises the counter.
pub fn count_up(tx: &mut Transaction, file: &Core, key: &[u8]) -> Result<u64> {
    let now = match tx.get(&file.meta, key)? {
        Some(bytes) => bytes::Reader::of("counter record", &bytes).u64()?,
        None => 0,
    };
    tx.put(&file.meta, key, &(now + 1).to_le_bytes())?;
    Ok(now)
}

/// Value of a counter record.
pub fn counter(file: &Core, key: &[u8]) -> Result<u64> {
    match file.meta.get_one(key)? {
        Some(bytes) => bytes::Reader::of("counter record", &bytes).u64(),
        None => Ok(0),
    }
}

/// Number of records whose keys begin with `prefix`.
pub fn count(file: &Core, prefix: &[u8]) -> Result<u64> {
    let mut n = 0;
    for record in file.meta.iter(prefix) {
        record?;
        n += 1;
    }
    Ok(n)
}
