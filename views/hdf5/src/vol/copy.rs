//! `H5Ocopy`: copies an object with everything below it, within a file or to another.

use std::collections::HashMap;
use std::ffi::c_uint;

use cenote::{Error, ErrorKind, Transaction};

use crate::ffi::types::{
    H5O_COPY_EXPAND_EXT_LINK_FLAG, H5O_COPY_EXPAND_REFERENCE_FLAG, H5O_COPY_EXPAND_SOFT_LINK_FLAG,
    H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG, H5O_COPY_SHALLOW_HIERARCHY_FLAG, H5O_COPY_WITHOUT_ATTR_FLAG,
};
use crate::meta::header::{self, Body as HeaderBody};
use crate::meta::links::{self, Link, Target};
use crate::meta::resolve::{self, Location};
use crate::meta::{self, attrs, keys, objects, transact};
use crate::object::{self as objects_open, Body};
use crate::{Result, data, foreign};

use super::copy_refs;
use super::group::link_new;
use super::visit;

/// State of one copy call.
pub struct Job {
    flags: c_uint,
    /// Committed datatypes that the target file had before, once they were looked up.
    types: Option<Vec<(Vec<u8>, u64)>>,
    /// Numbers of the copies, by object number and file number of the source.
    done: HashMap<(u64, u64), u64>,
    /// Copies made because of references.
    pub pointed_at: Vec<u64>,
}

impl Job {
    /// Returns true if the targets of references are copied too.
    pub fn expands_references(&self) -> bool {
        self.flags & H5O_COPY_EXPAND_REFERENCE_FLAG != 0
    }
}

impl Job {
    /// A committed datatype of the target file equal to `dtype`, searched from the root as in HDF5.
    fn equal_type(&mut self, to: &Location, dtype: &[u8]) -> Result<Option<u64>> {
        if self.types.is_none() {
            let mut found = Vec::new();
            let look = &mut |met: &visit::Met<'_>| {
                if let Target::Hard(oid) = met.link.target
                    && met.file.is_same(&to.file)
                    && let Some(HeaderBody::Datatype { dtype, .. }) = header::find(&to.file, oid)?.map(|h| h.body)
                {
                    found.push((dtype, oid));
                }
                Ok(visit::Step::Go)
            };
            visit::links_below(&to.file, keys::ROOT, 0, 0, look)?;
            self.types = Some(found);
        }
        let types = self.types.as_ref().into_iter().flatten();
        Ok(types.into_iter().find(|(known, _)| known == dtype).map(|(_, oid)| *oid))
    }
}

/// Copies the object at `from` to the name `name` relative to `to`. The copy becomes visible whole: its link is made last.
pub fn object(from: &Location, to: &Location, name: &[u8], flags: c_uint, options: (bool, u8)) -> Result<()> {
    to.file.need_writable("copying an object")?;
    if let Ok(found) = resolve::resolve(to, name, false)
        && (found.link.is_some() || found.name.is_empty())
    {
        return Err(links::exists(name));
    }
    let mut job = Job { flags, types: None, done: HashMap::new(), pointed_at: Vec::new() };
    let oid = one(&mut job, from, to, 0)?;
    let made = link_new(to, name, options, |tx, file, group, last| {
        objects::link_hard(tx, file, group, last, oid, options.1)?;
        Ok(oid)
    });
    if let Err(error) = made {
        objects::delete_if_unlinked(&to.file, oid)?;
        return Err(error);
    }
    copy_refs::link_pointed_at(&mut job, to)
}

/// Copies one object; the copy has no link yet.
pub fn one(job: &mut Job, from: &Location, to: &Location, depth: u32) -> Result<u64> {
    let key = (from.file.fileno(), from.oid);
    if let Some(oid) = job.done.get(&key) {
        return Ok(*oid);
    }
    let header = header::get(&from.file, from.oid)?;
    let mut header_new = header.clone();
    if let HeaderBody::Dataset { committed, .. } = &mut header_new.body {
        *committed = type_of(job, from, to, *committed)?;
    }
    if let HeaderBody::Datatype { dtype, .. } = &header.body
        && job.flags & H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG != 0
        && let Some(oid) = job.equal_type(to, dtype)?
    {
        return Ok(oid);
    }
    let oid = to.file.new_id()?;
    job.done.insert(key, oid);
    let place = Location { file: to.file.clone(), oid, path: Vec::new() };
    match &header.body {
        HeaderBody::Dataset { .. } => copy_dataset(job, from, &place, &header_new)?,
        _ => transact(&to.file, |tx| objects::create(tx, &to.file, oid, &header_new))?,
    }
    if matches!(header.body, HeaderBody::Map { .. }) {
        meta::maps::copy(&from.file, from.oid, &to.file, oid)?;
    }
    copy_record(from, &place, keys::TAG_COMMENT)?;
    if job.flags & H5O_COPY_WITHOUT_ATTR_FLAG == 0 {
        copy_attrs(job, from, &place)?;
    }
    if matches!(header.body, HeaderBody::Group(_)) && (depth == 0 || job.flags & H5O_COPY_SHALLOW_HIERARCHY_FLAG == 0) {
        let order = i32::from(links::is_ordered(&from.file, from.oid)?);
        for (name, link) in links::list_in(&from.file, from.oid, order, 0)? {
            copy_link(job, from, &place, &name, &link, depth)?;
        }
        copy_record(from, &place, keys::TAG_LINK_NEXT)?;
    }
    Ok(oid)
}

fn copy_link(job: &mut Job, from: &Location, to: &Location, name: &[u8], link: &Link, depth: u32) -> Result<()> {
    let follow = match &link.target {
        Target::Hard(_) => true,
        Target::Soft(_) => job.flags & H5O_COPY_EXPAND_SOFT_LINK_FLAG != 0,
        Target::User(..) => job.flags & H5O_COPY_EXPAND_EXT_LINK_FLAG != 0,
    };
    let target = match follow.then(|| resolve::resolve(from, name, true)) {
        Some(Ok(found)) => found.place().ok(),
        // A dangling link is copied as it is; a soft link whose path cannot be followed is an error, as in HDF5.
        Some(Err(error)) if matches!(link.target, Target::Soft(_)) => return Err(error),
        _ => None,
    };
    match target {
        Some(child) => {
            let oid = one(job, &child, to, depth + 1)?;
            transact(&to.file, |tx| {
                count_from(tx, to, keys::TAG_LINK_NEXT, link.order)?;
                objects::link_hard(tx, &to.file, to.oid, name, oid, link.cset)
            })
        }
        // A soft or external link is copied as a link, even if it dangles.
        None if !matches!(link.target, Target::Hard(_)) => transact(&to.file, |tx| {
            count_from(tx, to, keys::TAG_LINK_NEXT, link.order)?;
            links::insert(tx, &to.file, to.oid, name, link.clone())
        }),
        None => Err(meta::gone(&from.file, from.oid)),
    }
}

/// Sets the creation order of a copy's next link or attribute: copies keep the original's order.
fn count_from(tx: &mut Transaction, to: &Location, tag: u8, order: Option<u64>) -> Result<()> {
    order.map_or(Ok(()), |order| tx.put(&to.file.meta, &keys::of(tag, to.oid), &order.to_le_bytes()))
}

/// Copies the record with this tag: the creation order of the next link or attribute, or the comment.
fn copy_record(from: &Location, to: &Location, tag: u8) -> Result<()> {
    match from.file.meta.get_one(&keys::of(tag, from.oid))? {
        Some(record) => transact(&to.file, |tx| tx.put(&to.file.meta, &keys::of(tag, to.oid), &record)),
        None => Ok(()),
    }
}

/// The copy of an object's committed datatype (0: none), made once per call like all copies.
fn type_of(job: &mut Job, from: &Location, to: &Location, committed: u64) -> Result<u64> {
    if committed == 0 || header::find(&from.file, committed)?.is_none() {
        return Ok(0);
    }
    one(job, &Location { file: from.file.clone(), oid: committed, path: Vec::new() }, to, 0)
}

fn copy_attrs(job: &mut Job, from: &Location, to: &Location) -> Result<()> {
    let mut all = attrs::list_in(&from.file, from.oid, 1, 0)?;
    if let Some(native) = &from.file.native {
        for (name, attr) in &mut all {
            attr.value = Some(foreign::attr::stored(native, from, name, attr)?);
        }
    }
    if all.is_empty() {
        return Ok(());
    }
    for (_, attr) in &mut all {
        attr.committed = type_of(job, from, to, attr.committed)?;
        copy_refs::in_attr(job, from, to, attr)?;
    }
    transact(&to.file, |tx| {
        for (name, attr) in &all {
            let mut attr = attr.clone();
            attr.uid = 0;
            count_from(tx, to, keys::TAG_ATTR_NEXT, Some(attr.order))?;
            attrs::create(tx, &to.file, to.oid, name, &mut attr)?;
        }
        Ok(())
    })?;
    copy_record(from, to, keys::TAG_ATTR_NEXT)
}

fn copy_dataset(job: &mut Job, from: &Location, to: &Location, header: &header::Header) -> Result<()> {
    let Body::Dataset(source) = objects_open::open(from)? else {
        return Err(Error::new(ErrorKind::Internal, "copy").because("the source is not a dataset"));
    };
    let result = (|| {
        let extent = source.extent()?;
        let mut header = header.clone();
        if let HeaderBody::Dataset { extent: at_creation, .. } = &mut header.body {
            at_creation.clone_from(&extent);
        }
        transact(&to.file, |tx| {
            objects::create(tx, &to.file, to.oid, &header)?;
            let HeaderBody::Dataset { dtype, committed, props, extent } = &header.body else { return Ok(()) };
            let fixed = objects_open::DatasetHeader {
                dtype: crate::dtype::decode(to.file.h5, dtype)?,
                committed: *committed,
                props: props.clone(),
                extent: extent.clone(),
            };
            data::create(tx, &to.file, to.oid, &fixed)
        })?;
        let Body::Dataset(copy) = objects_open::open(to)? else {
            return Err(Error::new(ErrorKind::Internal, "copy").because("the copy is not a dataset"));
        };
        let copied = crate::blob::with_file(&to.file, || data::copy(&source, &copy));
        let copied = copied.and_then(|()| copy_refs::in_dataset(job, from, to, &copy));
        to.file.shared.closed(to.oid);
        copied
    })();
    from.file.shared.closed(from.oid);
    result
}
