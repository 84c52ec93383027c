//! Creating and deleting objects: hard-link counts, and deletion when a count reaches zero.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use cenote::{Error, ErrorKind, IndexVersion, Transaction};

use crate::Result;
use crate::data;
use crate::file::{Core, File};

use super::bytes::Reader;
use super::header::{Body, Header};
use super::links::{self, Link, Target};
use super::{attrs, extent_put_in, gone, keys, maps};

/// The present time in seconds since 1970 for a header that tracks times, else 0.
pub fn born(track_times: bool) -> i64 {
    if !track_times {
        return 0;
    }
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64)
}

/// Writes the header of a new object, and its extent if that can change. The caller makes its only link.
pub fn create_linked(tx: &mut Transaction, file: &Core, oid: u64, header: &Header) -> Result<()> {
    tx.put_new(&file.meta, &keys::of(keys::TAG_HEADER, oid), &header.encode())?;
    if let Body::Dataset { committed, props, extent, .. } = &header.body {
        use_type(tx, file, *committed)?;
        if props.layout.is_resizable() {
            extent_put_in(tx, file, oid, extent)?;
        }
    }
    Ok(())
}

/// Writes the records of a new object without a link.
pub fn create(tx: &mut Transaction, file: &Core, oid: u64, header: &Header) -> Result<()> {
    create_linked(tx, file, oid, header)?;
    tx.put_new(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid), &0u32.to_le_bytes())
}

/// The number of the object named by a token or a stored reference: in native and imported files, references name the root
/// group by its address.
pub fn canonical(file: &File, oid: u64) -> Result<u64> {
    if let Some(native) = &file.native {
        return Ok(native.number(oid));
    }
    // Addresses in files are small; the store's numbers are not.
    if oid >> 48 != 0 || file.meta.get_one(&keys::of(keys::TAG_HEADER, oid))?.is_some() {
        return Ok(oid);
    }
    match file.meta.get_one(&keys::of(keys::TAG_ALIAS, oid))? {
        Some(bytes) => Reader::of("alias record", &bytes).u64(),
        None => Ok(oid),
    }
}

/// The link count of an object without a record of it: nearly all objects have one link.
const ONE_LINK: u32 = 1;

/// Number of hard links to an object.
pub fn link_count(file: &Core, oid: u64) -> Result<u32> {
    let record = file.meta.get_one(&keys::of(keys::TAG_REFCOUNT, oid))?;
    if record.is_none() && file.meta.get_one(&keys::of(keys::TAG_HEADER, oid))?.is_none() {
        return Err(gone(file, oid));
    }
    decode_count(record)
}

/// Number of hard links to an existing object.
pub fn link_count_or_one(file: &Core, oid: u64) -> Result<u32> {
    decode_count(file.meta.get_one(&keys::of(keys::TAG_REFCOUNT, oid))?)
}

/// Link counts of many objects of a file that this process does not change: fetches the few counts other than one together,
/// and again after the file has changed.
pub struct Counts {
    file: Arc<File>,
    seen: Option<IndexVersion>,
    not_one: HashMap<u64, u32>,
}

impl Counts {
    /// For the objects of a file.
    pub fn new(file: &Arc<File>) -> Self {
        Self { file: file.clone(), seen: None, not_one: HashMap::new() }
    }
    /// The link count of an existing object.
    pub fn of(&mut self, oid: u64) -> Result<u32> {
        if self.file.writable || self.file.native.is_some() {
            return link_count_or_one(&self.file, oid);
        }
        let now = self.file.meta.index().version()?;
        if self.seen != Some(now) {
            self.not_one.clear();
            for record in self.file.meta.iter(&[keys::TAG_REFCOUNT]) {
                let (key, value) = record?;
                if let Some(Ok(oid)) = key.get(1..).map(<[u8; 8]>::try_from) {
                    self.not_one.insert(u64::from_be_bytes(oid), decode_count(Some(value))?);
                }
            }
            self.seen = Some(now);
        }
        Ok(self.not_one.get(&oid).copied().unwrap_or(ONE_LINK))
    }
}

fn decode_count(record: Option<Vec<u8>>) -> Result<u32> {
    record.map_or(Ok(ONE_LINK), |bytes| Reader::of("link count record", &bytes).u32())
}

fn link_count_in(tx: &mut Transaction, file: &Core, oid: u64) -> Result<u32> {
    let record = tx.get(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid))?;
    if record.is_none() && tx.get(&file.meta, &keys::of(keys::TAG_HEADER, oid))?.is_none() {
        return Err(gone(file, oid));
    }
    decode_count(record)
}

/// Number of datasets and attributes made with a committed datatype, which stays while there are any, even without a link.
pub fn users(file: &Core, oid: u64) -> Result<u32> {
    file.meta.get_one(&keys::of(keys::TAG_USERS, oid))?.map_or(Ok(0), |bytes| Reader::of("user count", &bytes).u32())
}

fn users_in(tx: &mut Transaction, file: &Core, oid: u64) -> Result<u32> {
    tx.get(&file.meta, &keys::of(keys::TAG_USERS, oid))?.map_or(Ok(0), |bytes| Reader::of("user count", &bytes).u32())
}

/// Counts another dataset or attribute made with a committed datatype (none if 0).
pub fn use_type(tx: &mut Transaction, file: &Core, committed: u64) -> Result<()> {
    if committed == 0 {
        return Ok(());
    }
    let now = users_in(tx, file, committed)?.saturating_add(1);
    tx.put(&file.meta, &keys::of(keys::TAG_USERS, committed), &now.to_le_bytes())
}

/// Counts one less. Returns true if nothing leads to the type any more; the caller then deletes it.
fn leave_type(tx: &mut Transaction, file: &Core, committed: u64) -> Result<bool> {
    // It may have been made before counts were kept: then nothing is subtracted.
    if committed == 0 || users_in(tx, file, committed)? == 0 {
        return Ok(false);
    }
    let now = users_in(tx, file, committed)? - 1;
    if now > 0 {
        tx.put(&file.meta, &keys::of(keys::TAG_USERS, committed), &now.to_le_bytes())?;
        return Ok(false);
    }
    tx.del(&file.meta, &keys::of(keys::TAG_USERS, committed))?;
    let is_linked = match tx.get(&file.meta, &keys::of(keys::TAG_REFCOUNT, committed))? {
        Some(bytes) => Reader::of("link count record", &bytes).u32()? > 0,
        None => true,
    };
    Ok(!is_linked && !file.shared.doom_if_open(committed))
}

/// Removes an attribute from an object.
pub fn remove_attr(tx: &mut Transaction, file: &Core, oid: u64, name: &[u8]) -> Result<()> {
    let attr = attrs::remove(tx, file, oid, name)?;
    attrs::restart_order_if_last(tx, file, oid, name)?;
    if leave_type(tx, file, attr.committed)? { delete(tx, file, attr.committed) } else { Ok(()) }
}

/// Changes the number of hard links to an object by `delta`. At zero the object is deleted; if this process has it open,
/// when it is closed.
pub fn link_count_add(tx: &mut Transaction, file: &Core, oid: u64, delta: i64) -> Result<()> {
    let now = i64::from(link_count_in(tx, file, oid)?) + delta;
    let now = u32::try_from(now).map_err(|_| {
        Error::new(ErrorKind::InvalidInput, format!("object {oid:016x} of file {}", file.path))
            .because("its link count would be below zero or above 2^32")
    })?;
    tx.put(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid), &now.to_le_bytes())?;
    if now == 0 && users_in(tx, file, oid)? == 0 && !file.shared.doom_if_open(oid) {
        delete(tx, file, oid)?;
    }
    Ok(())
}

/// Deletes all records and raw data of an object, and the objects that only it led to.
pub fn delete(tx: &mut Transaction, file: &Core, oid: u64) -> Result<()> {
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
                    if left == 0 && users_in(tx, file, child)? == 0 && !file.shared.doom_if_open(child) {
                        todo.push(child);
                    }
                }
                tx.del(&file.meta, &keys::of(keys::TAG_LINK_NEXT, oid))?;
            }
            Body::Dataset { committed, .. } => {
                data::delete(tx, file, oid)?;
                if leave_type(tx, file, committed)? {
                    todo.push(committed);
                }
                tx.del(&file.meta, &keys::extent(oid))?;
            }
            Body::Datatype { .. } => {}
            Body::Map { .. } => maps::clear(tx, file, oid)?,
        }
        for (name, _) in attrs::list(file, oid)? {
            let attr = attrs::remove(tx, file, oid, &name)?;
            if leave_type(tx, file, attr.committed)? {
                todo.push(attr.committed);
            }
        }
        tx.del(&file.meta, &keys::of(keys::TAG_ATTR_NEXT, oid))?;
        tx.del(&file.meta, &keys::of(keys::TAG_COMMENT, oid))?;
        tx.del(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid))?;
        tx.del(&file.meta, &keys::of(keys::TAG_HEADER, oid))?;
    }
    Ok(())
}

/// Deletes an object that was unlinked while it was open and is now closed.
pub fn delete_if_unlinked(file: &Core, oid: u64) -> Result<()> {
    super::transact(file, |tx| match tx.get(&file.meta, &keys::of(keys::TAG_REFCOUNT, oid))? {
        Some(bytes) if Reader::of("link count record", &bytes).u32()? == 0 && users_in(tx, file, oid)? == 0 => {
            delete(tx, file, oid)
        }
        _ => Ok(()),
    })
}

/// Adds a hard link to an existing object.
pub fn link_hard(tx: &mut Transaction, file: &Core, group: u64, name: &[u8], oid: u64, cset: u8) -> Result<()> {
    link_count_add(tx, file, oid, 1)?;
    links::insert(tx, file, group, name, Link::hard(oid, cset))
}

/// Removes a link and lowers the link count of its object.
pub fn unlink(tx: &mut Transaction, file: &Core, group: u64, name: &[u8]) -> Result<()> {
    let link = links::get_in(tx, file, group, name)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("link `{}`", String::from_utf8_lossy(name)))
            .because("name doesn't exist")
    })?;
    links::remove(tx, file, group, name, &link)?;
    links::restart_order_if_last(tx, file, group, name)?;
    if let Target::Hard(oid) = link.target {
        link_count_add(tx, file, oid, -1)?;
    }
    Ok(())
}
