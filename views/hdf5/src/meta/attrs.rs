//! Attributes: named values of an object, each one record.

use cenote::{Error, ErrorKind, NextFrom, Transaction};

use crate::Result;
use crate::file::{Core, random_u64};
use crate::space::Extent;
use crate::value::Stored;

use super::bytes::{Encode, Reader};
use super::{count_up, keys};

/// Maximum length of an attribute's name, including the final NUL.
const NAME_BYTES_MAX: usize = 65_535;

const VERSION: u8 = 1;

/// An attribute's record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Distinguishes this attribute from earlier or later ones of the same name.
    pub uid: u64,
    /// Creation order among the object's attributes.
    pub order: u64,
    /// Character set of the name (`H5T_CSET_*`).
    pub cset: u8,
    /// Encoded datatype.
    pub dtype: Vec<u8>,
    /// The committed datatype given at creation; 0 if none.
    pub committed: u64,
    /// Shape.
    pub extent: Extent,
    /// The value; `None` until written (reads as zeros then, as in HDF5).
    pub value: Option<Stored>,
}

impl Attr {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.put_u8(VERSION);
        w.put_u64(self.uid);
        w.put_u64(self.order);
        w.put_u8(self.cset);
        w.put_bytes(&self.dtype);
        w.put_u64(self.committed);
        self.extent.encode(&mut w);
        match &self.value {
            None => w.put_u8(0),
            Some(value) => {
                w.put_u8(1);
                value.encode(&mut w);
            }
        }
        w
    }
    fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::of("attribute record", record);
        if r.u8()? != VERSION {
            return Err(r.malformed("attribute of an unknown version"));
        }
        let attr = Self {
            uid: r.u64()?,
            order: r.u64()?,
            cset: r.u8()?,
            dtype: r.bytes()?.to_vec(),
            committed: r.u64()?,
            extent: Extent::decode(&mut r)?,
            value: if r.u8()? == 0 { None } else { Some(Stored::decode(&mut r)?) },
        };
        match attr.extent.counted() {
            Some(_) => Ok(attr),
            None => Err(r.malformed("more elements than any attribute has")),
        }
    }
}

/// For [`crate::fuzz`].
pub(crate) fn fuzz(record: &[u8]) {
    if let Ok(attr) = Attr::decode(record) {
        attr.extent.npoints();
        assert!(Attr::decode(&attr.encode()).is_ok());
    }
}

/// The error for a missing attribute.
pub fn missing(file: &Core, oid: u64, name: &[u8]) -> Error {
    Error::new(
        ErrorKind::NotFound,
        format!("attribute `{}` of object {oid:016x} of file {}", String::from_utf8_lossy(name), file.path),
    )
    .because("can't locate attribute: there is none of that name")
}

/// An attribute by name.
pub fn find(file: &Core, oid: u64, name: &[u8]) -> Result<Option<Attr>> {
    file.meta.get_one(&keys::named(keys::TAG_ATTR, oid, name))?.map(|r| Attr::decode(&r)).transpose()
}

/// An attribute by name; an error if it does not exist.
pub fn get(file: &Core, oid: u64, name: &[u8]) -> Result<Attr> {
    find(file, oid, name)?.ok_or_else(|| missing(file, oid, name))
}

/// Returns true if an attribute of that name exists.
pub fn has(file: &Core, oid: u64, name: &[u8]) -> Result<bool> {
    Ok(file.meta.get_one(&keys::named(keys::TAG_ATTR, oid, name))?.is_some())
}

/// All attributes in creation order.
pub fn list(file: &Core, oid: u64) -> Result<Vec<(Vec<u8>, Attr)>> {
    let prefix = keys::of(keys::TAG_ATTR, oid);
    file.meta
        .iter(&prefix)
        .map(|record| record.and_then(|(key, value)| Ok((keys::suffix(&key).to_vec(), Attr::decode(&value)?))))
        .collect()
}

/// All attributes in the order requested by `index` and `order`.
pub fn list_in(file: &Core, oid: u64, index: i32, order: i32) -> Result<Vec<(Vec<u8>, Attr)>> {
    use crate::ffi::types::{H5_INDEX_CRT_ORDER, H5_ITER_DEC};
    let mut all = list(file, oid)?;
    if index == H5_INDEX_CRT_ORDER {
        all.sort_by_key(|(_, attr)| attr.order);
    }
    if order == H5_ITER_DEC {
        all.reverse();
    }
    Ok(all)
}

/// The attribute at position `n` of the order requested by `index` and `order`.
pub fn nth(file: &Core, oid: u64, index: i32, order: i32, n: u64) -> Result<(Vec<u8>, Attr)> {
    let all = list_in(file, oid, index, order)?;
    all.into_iter().nth(usize::try_from(n).unwrap_or(usize::MAX)).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("attribute number {n} of object {oid:016x} of file {}", file.path))
            .because("the object has fewer attributes")
    })
}

/// Number of attributes.
pub fn count(file: &Core, oid: u64) -> Result<u64> {
    super::count(file, &keys::of(keys::TAG_ATTR, oid))
}

/// Returns an error if an attribute of that name cannot be added now.
pub fn check_new(file: &Core, oid: u64, name: &[u8]) -> Result<()> {
    check_length(name)?;
    let keys = [keys::named(keys::TAG_ATTR, oid, name), keys::of(keys::TAG_HEADER, oid)];
    match &file.meta.get(&[&keys[0], &keys[1]])?[..] {
        [Some(_), _] => Err(taken(name)),
        [None, Some(_)] => Ok(()),
        _ => Err(super::gone(file, oid)),
    }
}

/// Limits names to the length in HDF5's files (including the final NUL), to which a file may be exported.
fn check_length(name: &[u8]) -> Result<()> {
    if name.len() < NAME_BYTES_MAX {
        return Ok(());
    }
    let shown = String::from_utf8_lossy(&name[..32]);
    Err(Error::new(ErrorKind::LimitExceeded, format!("attribute `{shown}…`"))
        .because(format!("its name has {} bytes; HDF5 has less than {NAME_BYTES_MAX}", name.len()))
        .try_next("give it a shorter name"))
}

fn taken(name: &[u8]) -> Error {
    Error::new(ErrorKind::Exists, format!("attribute `{}`", String::from_utf8_lossy(name)))
        .because("attribute already exists")
}

/// Adds an attribute; sets its creation order, and its uid unless it has one.
pub fn create(tx: &mut Transaction, file: &Core, oid: u64, name: &[u8], attr: &mut Attr) -> Result<()> {
    let key = keys::named(keys::TAG_ATTR, oid, name);
    if tx.get(&file.meta, &key)?.is_some() {
        return Err(taken(name));
    }
    if tx.get(&file.meta, &keys::of(keys::TAG_HEADER, oid))?.is_none() {
        return Err(super::gone(file, oid));
    }
    if attr.uid == 0 {
        attr.uid = random_u64()?;
    }
    super::objects::use_type(tx, file, attr.committed)?;
    attr.order = count_up(tx, file, &keys::of(keys::TAG_ATTR_NEXT, oid))?;
    tx.put(&file.meta, &keys::ordered(keys::TAG_ATTR_ORDER, oid, attr.order), name)?;
    tx.put_new(&file.meta, &key, &attr.encode())
}

/// Changes an attribute (found by name, or by uid if it was renamed) with `change`.
pub fn update(
    tx: &mut Transaction,
    file: &Core,
    oid: u64,
    name: &[u8],
    uid: u64,
    change: impl FnOnce(&mut Attr) -> Result<()>,
) -> Result<()> {
    let mut key = keys::named(keys::TAG_ATTR, oid, name);
    let mut record = tx.get(&file.meta, &key)?.map(|r| Attr::decode(&r)).transpose()?;
    if record.as_ref().is_none_or(|r| r.uid != uid) {
        let (now, _) = by_uid(file, oid, uid)?.ok_or_else(|| missing(file, oid, name))?;
        key = keys::named(keys::TAG_ATTR, oid, &now);
        record = tx.get(&file.meta, &key)?.map(|r| Attr::decode(&r)).transpose()?;
    }
    let mut attr = record.filter(|r| r.uid == uid).ok_or_else(|| missing(file, oid, name))?;
    change(&mut attr)?;
    tx.put(&file.meta, &key, &attr.encode())
}

/// An attribute by its uid: its present name and record.
pub fn by_uid(file: &Core, oid: u64, uid: u64) -> Result<Option<(Vec<u8>, Attr)>> {
    Ok(list(file, oid)?.into_iter().find(|(_, attr)| attr.uid == uid))
}

/// An open attribute's present name and record, or its last ones if this process has deleted it meanwhile.
pub fn current(file: &Core, oid: u64, name: &[u8], uid: u64) -> Result<(Vec<u8>, Attr)> {
    if let Some(attr) = find(file, oid, name)?.filter(|a| a.uid == uid) {
        return Ok((name.to_vec(), attr));
    }
    if let Some(found) = by_uid(file, oid, uid)? {
        return Ok(found);
    }
    file.shared.attr_last(uid).map(|attr| (name.to_vec(), attr)).ok_or_else(|| missing(file, oid, name))
}

/// Restarts creation order if `name`, which this transaction removes, is the object's only attribute.
pub fn restart_order_if_last(tx: &mut Transaction, file: &Core, oid: u64, name: &[u8]) -> Result<()> {
    let counter = keys::of(keys::TAG_ATTR_NEXT, oid);
    // Read first: any later addition of an attribute makes this transaction fail.
    if tx.get(&file.meta, &counter)?.is_none() {
        return Ok(());
    }
    let left = file.meta.next_with_prefix(&keys::of(keys::TAG_ATTR, oid), NextFrom::Start, 2)?;
    if left.iter().all(|(key, _)| keys::suffix(key) == name) { tx.del(&file.meta, &counter) } else { Ok(()) }
}

/// Removes an attribute. The caller handles its datatype, if that is a committed one.
pub fn remove(tx: &mut Transaction, file: &Core, oid: u64, name: &[u8]) -> Result<Attr> {
    let key = keys::named(keys::TAG_ATTR, oid, name);
    let record = tx.get(&file.meta, &key)?.ok_or_else(|| missing(file, oid, name))?;
    let attr = Attr::decode(&record)?;
    tx.del(&file.meta, &keys::ordered(keys::TAG_ATTR_ORDER, oid, attr.order))?;
    tx.del(&file.meta, &key)?;
    file.shared.attr_deleted(&attr);
    Ok(attr)
}

/// Renames an attribute. An attribute that already has the new name is an error.
pub fn rename(tx: &mut Transaction, file: &Core, oid: u64, old: &[u8], new: &[u8]) -> Result<()> {
    if old == new {
        return Ok(());
    }
    check_length(new)?;
    let old_key = keys::named(keys::TAG_ATTR, oid, old);
    let new_key = keys::named(keys::TAG_ATTR, oid, new);
    let record = tx.get(&file.meta, &old_key)?.ok_or_else(|| missing(file, oid, old))?;
    if tx.get(&file.meta, &new_key)?.is_some() {
        return Err(taken(new));
    }
    let attr = Attr::decode(&record)?;
    tx.del(&file.meta, &old_key)?;
    tx.put(&file.meta, &keys::ordered(keys::TAG_ATTR_ORDER, oid, attr.order), new)?;
    tx.put(&file.meta, &new_key, &record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_encoding_and_a_short_one_is_an_error() {
        let attr = Attr {
            uid: 9,
            order: 3,
            cset: 1,
            dtype: vec![1, 2, 3],
            committed: 0,
            extent: Extent::Simple { dims: vec![2, 3], max: vec![2, u64::MAX] },
            value: Some(Stored { elements: vec![7; 6], heap: vec![8; 3] }),
        };
        let bytes = attr.encode();
        assert_eq!(Attr::decode(&bytes).unwrap(), attr);
        for n in 0..bytes.len() {
            assert!(Attr::decode(&bytes[..n]).is_err(), "prefix of {n} bytes");
        }
    }
}
