//! Making and deleting objects: hard-link counts, and what happens when one reaches zero.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cenote::{Error, ErrorKind, Transaction};

use crate::Result;
use crate::data;
use crate::file::File;

use super::bytes::Reader;
use super::header::{Body, Header};
use super::links::{self, Link, Target};
use super::{attrs, gone, keys};

/// Seconds since 1970 for a header that tracks times, else 0.
pub fn born(track_times: bool) -> i64 {
    if !track_times {
        return 0;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// Writes the header and link count of a new object.
pub fn create(tx: &mut Transaction, file: &File, oid: u64, header: &Header, links: u32) -> Result<()> {
    tx.put_new(&file.meta, &keys::of(keys::TAG_HEADER, oid), &header.encode())?;
    tx.put_new(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid), &links.to_le_bytes())
}

/// Number of hard links to an object.
pub fn link_count(file: &File, oid: u64) -> Result<u32> {
    match file.meta.get_one(&keys::of(keys::TAG_REFCOUNT, oid))? {
        Some(bytes) => Reader::new("link count record", &bytes).u32(),
        None => Err(gone(file, oid)),
    }
}

fn link_count_in(tx: &mut Transaction, file: &File, oid: u64) -> Result<u32> {
    match tx.get(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid))? {
        Some(bytes) => Reader::new("link count record", &bytes).u32(),
        None => Err(gone(file, oid)),
    }
}

/// Changes the number of hard links to an object by `delta`. At zero the object is deleted, or, if this process has it
/// open, when it is closed.
pub fn link_count_add(tx: &mut Transaction, file: &Arc<File>, oid: u64, delta: i64) -> Result<()> {
    let now = i64::from(link_count_in(tx, file, oid)?) + delta;
    let now = u32::try_from(now).map_err(|_| {
        Error::new(ErrorKind::InvalidInput, format!("object {oid:016x} of file {}", file.path))
            .because("its link count would be below zero or above 2^32")
    })?;
    tx.put(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid), &now.to_le_bytes())?;
    if now == 0 && !file.shared.doom_if_open(oid) {
        delete(tx, file, oid)?;
    }
    Ok(())
}

/// Deletes all records and raw data of an object, and whatever only it led to.
pub fn delete(tx: &mut Transaction, file: &Arc<File>, oid: u64) -> Result<()> {
    // A work list, not recursion: a chain of groups may be deeper than the stack.
    let mut todo = vec![oid];
    while let Some(oid) = todo.pop() {
        let Some(record) = tx.get(&file.meta, &keys::of(keys::TAG_HEADER, oid))? else { continue };
        match Header::decode(&record)?.body {
            Body::Group(_) => {
                for (name, link) in links::list(file, oid)? {
                    links::remove(tx, file, oid, &name, &link)?;
                    let Target::Hard(child) = link.target else { continue };
                    let left = link_count_in(tx, file, child)?.saturating_sub(1);
                    tx.put(&file.meta, &keys::of(keys::TAG_REFCOUNT, child), &left.to_le_bytes())?;
                    if left == 0 && !file.shared.doom_if_open(child) {
                        todo.push(child);
                    }
                }
                tx.del(&file.meta, &keys::of(keys::TAG_LINK_NEXT, oid))?;
            }
            Body::Dataset { .. } => {
                data::delete(tx, file, oid)?;
                tx.del(&file.meta, &keys::extent(oid))?;
            }
            Body::Datatype { .. } => {}
        }
        for (name, _) in attrs::list(file, oid)? {
            attrs::remove(tx, file, oid, &name)?;
        }
        tx.del(&file.meta, &keys::of(keys::TAG_ATTR_NEXT, oid))?;
        tx.del(&file.meta, &keys::of(keys::TAG_COMMENT, oid))?;
        tx.del(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid))?;
        tx.del(&file.meta, &keys::of(keys::TAG_HEADER, oid))?;
    }
    Ok(())
}

/// Deletes an object that was unlinked while it was open and is now closed.
pub fn delete_if_unlinked(file: &Arc<File>, oid: u64) -> Result<()> {
    super::transact(file, |tx| match tx.get(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid))? {
        Some(bytes) if Reader::new("link count record", &bytes).u32()? == 0 => delete(tx, file, oid),
        _ => Ok(()),
    })
}

/// Adds a hard link to an existing object.
pub fn link_hard(tx: &mut Transaction, file: &Arc<File>, group: u64, name: &[u8], oid: u64, cset: u8) -> Result<()> {
    link_count_add(tx, file, oid, 1)?;
    links::insert(tx, file, group, name, Link { target: Target::Hard(oid), order: None, cset })
}

/// Takes a link away and lowers the count of the object that it led to.
pub fn unlink(tx: &mut Transaction, file: &Arc<File>, group: u64, name: &[u8]) -> Result<()> {
    let link = links::get_in(tx, file, group, name)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("link `{}`", String::from_utf8_lossy(name)))
            .because("name doesn't exist")
    })?;
    links::remove(tx, file, group, name, &link)?;
    if let Target::Hard(oid) = link.target {
        link_count_add(tx, file, oid, -1)?;
    }
    Ok(())
}
