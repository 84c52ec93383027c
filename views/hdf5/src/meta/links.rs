//! Links: the names in a group.

use cenote::{Error, ErrorKind, NextFrom, Transaction};

use crate::Result;
use crate::file::Core;

use super::bytes::{Encode, Reader};
use super::header::{self, Body};
use super::{count_up, keys};

/// Maximum length of a link's name, in bytes: the room in a key.
const NAME_BYTES_MAX: usize = 130_000;

/// A link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// The link's target.
    pub target: Target,
    /// Creation order; `None` in groups that do not track it.
    pub order: Option<u64>,
    /// Character set of its name (`H5T_CSET_*`).
    pub cset: u8,
}

/// The target of a link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// An object of this file.
    Hard(u64),
    /// A path.
    Soft(Vec<u8>),
    /// A user-defined link: its class (64 is external) and its value.
    User(u8, Vec<u8>),
}

impl Link {
    /// A new hard link to an object of this file.
    pub fn hard(oid: u64, cset: u8) -> Self {
        Self { target: Target::Hard(oid), order: None, cset }
    }
    /// `H5L_type_t`.
    pub fn kind(&self) -> i32 {
        match self.target {
            Target::Hard(_) => 0,
            Target::Soft(_) => 1,
            Target::User(class, _) => i32::from(class),
        }
    }
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        w.put_u8(self.kind() as u8);
        w.put_u8(self.cset);
        w.put_u64(self.order.map_or(u64::MAX, |o| o));
        match &self.target {
            Target::Hard(oid) => w.put_u64(*oid),
            Target::Soft(value) | Target::User(_, value) => w.put_bytes(value),
        }
        w
    }
    pub(crate) fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::of("link record", record);
        let kind = r.u8()?;
        let cset = r.u8()?;
        let order = Some(r.u64()?).filter(|o| *o != u64::MAX);
        let target = match kind {
            0 => Target::Hard(r.u64()?),
            1 => Target::Soft(r.bytes()?.to_vec()),
            class => Target::User(class, r.bytes()?.to_vec()),
        };
        Ok(Self { target, order, cset })
    }
}

/// For [`crate::fuzz`].
pub(crate) fn fuzz(record: &[u8]) {
    if let Ok(link) = Link::decode(record) {
        assert!(Link::decode(&link.encode()).is_ok());
    }
}

/// A link by name.
pub fn get(file: &Core, group: u64, name: &[u8]) -> Result<Option<Link>> {
    file.meta.get_one(&keys::named(keys::TAG_LINK, group, name))?.map(|r| Link::decode(&r)).transpose()
}

/// A link by name, as a transaction sees it.
pub fn get_in(tx: &mut Transaction, file: &Core, group: u64, name: &[u8]) -> Result<Option<Link>> {
    tx.get(&file.meta, &keys::named(keys::TAG_LINK, group, name))?.map(|r| Link::decode(&r)).transpose()
}

/// Returns true if the group tracks creation order of links.
pub fn is_ordered(file: &Core, group: u64) -> Result<bool> {
    match header::get(file, group)?.body {
        Body::Group(props) => Ok(props.link_order & 1 != 0),
        _ => Err(not_a_group(file, group)),
    }
}

/// The error for a name lookup in an object that is no group.
pub fn not_a_group(file: &Core, oid: u64) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("object {oid:016x} of file {}", file.path)).because("it is not a group")
}

/// Adds a link; sets its creation order. The commit fails with `Exists` if the name is taken.
pub fn insert(tx: &mut Transaction, file: &Core, group: u64, name: &[u8], mut link: Link) -> Result<()> {
    if name.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "link").because("its name is empty"));
    }
    let key = keys::named(keys::TAG_LINK, group, name);
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::new(ErrorKind::LimitExceeded, "link")
            .because(format!("its name has {} bytes; at most {NAME_BYTES_MAX} are allowed", name.len())));
    }
    if tx.get(&file.meta, &key)?.is_some() {
        return Err(exists(name));
    }
    // Read through the transaction, which must fail if the group is deleted meanwhile.
    let group_header = tx.get(&file.meta, &keys::of(keys::TAG_HEADER, group))?;
    let group_header = header::Header::decode(&group_header.ok_or_else(|| super::gone(file, group))?)?;
    let Body::Group(props) = group_header.body else { return Err(not_a_group(file, group)) };
    link.order = None;
    if props.link_order & 1 != 0 {
        let order = count_up(tx, file, &keys::of(keys::TAG_LINK_NEXT, group))?;
        link.order = Some(order);
        tx.put(&file.meta, &keys::ordered(keys::TAG_LINK_ORDER, group, order), name)?;
    }
    tx.put_new(&file.meta, &key, &link.encode())
}

/// The error for a taken name.
pub fn exists(name: &[u8]) -> Error {
    Error::new(ErrorKind::Exists, format!("`{}`", String::from_utf8_lossy(name))).because("name already exists")
}

/// Removes a link. The caller handles the object that it led to.
pub fn remove(tx: &mut Transaction, file: &Core, group: u64, name: &[u8], link: &Link) -> Result<()> {
    if let Some(order) = link.order {
        tx.del(&file.meta, &keys::ordered(keys::TAG_LINK_ORDER, group, order))?;
    }
    tx.del(&file.meta, &keys::named(keys::TAG_LINK, group, name))
}

/// Restarts creation order if `name`, which this transaction removes, is the group's only link.
pub fn restart_order_if_last(tx: &mut Transaction, file: &Core, group: u64, name: &[u8]) -> Result<()> {
    let counter = keys::of(keys::TAG_LINK_NEXT, group);
    // Read first: any later addition of a link makes this transaction fail.
    let next = tx.get(&file.meta, &counter)?;
    // A changed counter means that this transaction has put another link into the group.
    if next.is_none() || next != file.meta.get_one(&counter)? {
        return Ok(());
    }
    let left = file.meta.next_with_prefix(&keys::of(keys::TAG_LINK, group), NextFrom::Start, 2)?;
    if left.iter().all(|(key, _)| keys::suffix(key) == name) { tx.del(&file.meta, &counter) } else { Ok(()) }
}

/// All links in the order of their names (bytewise).
pub fn list(file: &Core, group: u64) -> Result<Vec<(Vec<u8>, Link)>> {
    let prefix = keys::of(keys::TAG_LINK, group);
    file.meta
        .iter(&prefix)
        .map(|record| record.and_then(|(key, value)| Ok((keys::suffix(&key).to_vec(), Link::decode(&value)?))))
        .collect()
}

/// All links in the order requested by `index` (`H5_INDEX_*`) and `order` (`H5_ITER_*`).
pub fn list_in(file: &Core, group: u64, index: i32, order: i32) -> Result<Vec<(Vec<u8>, Link)>> {
    use crate::ffi::types::{H5_INDEX_CRT_ORDER, H5_ITER_DEC};
    let ordered = is_ordered(file, group)?; // an error if it is no group
    let mut all = list(file, group)?;
    if index == H5_INDEX_CRT_ORDER {
        if !ordered {
            return Err(Error::new(ErrorKind::InvalidInput, format!("group {group:016x} of file {}", file.path))
                .because("creation order not tracked for links in group")
                .try_next("create groups with H5Pset_link_creation_order (h5py: track_order=True)"));
        }
        all.sort_by_key(|(_, link)| link.order);
    }
    if order == H5_ITER_DEC {
        all.reverse();
    }
    Ok(all)
}

/// The link at position `n` of the order requested by `index` and `order`.
pub fn nth(file: &Core, group: u64, index: i32, order: i32, n: u64) -> Result<(Vec<u8>, Link)> {
    use crate::ffi::types::{H5_INDEX_NAME, H5_ITER_DEC};
    let found = if index == H5_INDEX_NAME && order != H5_ITER_DEC {
        nth_by_name(file, group, n)?
    } else {
        list_in(file, group, index, order)?.into_iter().nth(usize::try_from(n).unwrap_or(usize::MAX))
    };
    found.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("link number {n} of group {group:016x} of file {}", file.path))
            .because("the group has fewer links")
    })
}

fn nth_by_name(file: &Core, group: u64, n: u64) -> Result<Option<(Vec<u8>, Link)>> {
    let prefix = keys::of(keys::TAG_LINK, group);
    let (mut from, mut skip) = (NextFrom::Start, n);
    loop {
        let limit = u32::try_from(skip.saturating_add(1)).unwrap_or(u32::MAX).min(4096);
        let page = file.meta.next_with_prefix(&prefix, from, limit)?;
        if let Some((key, value)) = usize::try_from(skip).ok().and_then(|at| page.get(at)) {
            return Ok(Some((keys::suffix(key).to_vec(), Link::decode(value)?)));
        }
        let Some((last, _)) = page.last() else { return Ok(None) };
        skip -= page.len() as u64;
        from = NextFrom::After(last.to_vec());
    }
}
