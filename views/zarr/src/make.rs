//! Applies documents that Zarr writes to the HDF5 file, each in one transaction.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Result, Transaction};
use cenote_hdf5::file::Core;
use cenote_hdf5::meta::header::{Body, Header};
use cenote_hdf5::meta::keys::ROOT;
use cenote_hdf5::meta::links::Link;
use cenote_hdf5::meta::{self, attrs as records, links, objects};
use cenote_hdf5::props::{DatasetProps, GroupProps, Layout};
use cenote_hdf5::space::Extent;
use serde_json::{Map, Value};

use crate::dtype::Elem;
use crate::node::{Array, At, groups, walk};
use crate::parse::{Doc, Spec};
use crate::{attrs, dims, doc, invalid, refused};

/// HDF5's number for UTF-8 names.
const UTF8: u8 = 1;
/// Maximum length of an attribute's name in HDF5, including the final NUL.
const NAME_BYTES_MAX: usize = 65_535;
/// Attempts when other processes create the same objects.
const RACES_MAX: usize = 100;
const OTHER_KIND: &str = "an HDF5 object of the other kind has that name";
/// The attribute for names of dimensions, as written by `H5DSset_label`.
const DIMENSION_LABELS: &[u8] = b"DIMENSION_LABELS";

/// Applies a document to the node at `path`, creating the node and missing groups above it.
pub fn apply(core: &Arc<Core>, path: &[&str], doc: &Doc) -> Result<()> {
    core.need_writable("writing Zarr metadata")?;
    for _ in 0..RACES_MAX {
        match apply_once(core, path, doc) {
            // Another process has meanwhile created it, or a group above it.
            Err(error) if error.kind() == ErrorKind::Exists && error.cause() != OTHER_KIND => {}
            done => return done,
        }
    }
    apply_once(core, path, doc)
}

fn apply_once(core: &Arc<Core>, path: &[&str], doc: &Doc) -> Result<()> {
    match (walk(core, path)?, doc) {
        (At::Group(oid), Doc::Group(attributes)) => {
            attributes.as_ref().map_or(Ok(()), |attributes| set_attributes(core, oid, attributes, None))
        }
        (At::Dataset(oid, []), Doc::Array(spec)) => update(&Array::open(core, oid)?, path, spec),
        (At::Nothing(group, rest), doc) => create(core, group, rest, doc),
        (At::Group(_) | At::Dataset(_, []), _) => {
            Err(Error::new(ErrorKind::Exists, format!("`{}` in file {}", path.join("/"), core.path))
                .because(OTHER_KIND)
                .try_next("delete it first, or use another name"))
        }
        (At::Dataset(..), _) => {
            let cause = "a dataset is on the way, and nothing can be in it";
            Err(invalid(format!("`{}` in file {}", path.join("/"), core.path), cause))
        }
    }
}

/// Sets the attributes of an existing node.
pub fn apply_attributes(core: &Arc<Core>, path: &[&str], attributes: &Map<String, Value>) -> Result<bool> {
    core.need_writable("writing Zarr attributes")?;
    match walk(core, path)? {
        At::Group(oid) => set_attributes(core, oid, attributes, None).map(|()| true),
        At::Dataset(oid, []) => {
            let mut attributes = attributes.clone();
            let names = attributes.remove(doc::V2_DIMENSIONS);
            let array = Array::open(core, oid)?;
            set_attributes(core, oid, &attributes, Some(&array.dtype.elem))?;
            if let Some(names) = names.as_ref().and_then(Value::as_array) {
                let names: Vec<Option<String>> = names.iter().map(|name| name.as_str().map(str::to_owned)).collect();
                set_names(core, oid, &names)?;
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

fn set_attributes(core: &Arc<Core>, oid: u64, wanted: &Map<String, Value>, elem: Option<&Elem>) -> Result<()> {
    meta::transact(core, |tx| attributes_in(tx, core, oid, wanted, elem))
}

/// Sets the attributes that Zarr sees to the wanted ones; the others stay.
fn attributes_in(
    tx: &mut Transaction,
    core: &Arc<Core>,
    oid: u64,
    wanted: &Map<String, Value>,
    elem: Option<&Elem>,
) -> Result<()> {
    for (name, attr) in records::list(core, oid)? {
        let known = attrs::to_json(&attr);
        if attrs::is_hidden(&name) || known.is_none() {
            continue;
        }
        let new = std::str::from_utf8(&name).ok().and_then(|text| wanted.get(text).map(|value| (text, value)));
        let is_same = match (new, &known) {
            (Some((name, value)), Some(known)) => {
                let plain = elem.and_then(|elem| doc::plain_fill_value(name, value, elem));
                value == known || plain.as_ref() == Some(known)
            }
            _ => false,
        };
        if !is_same {
            objects::remove_attr(tx, core, oid, &name)?;
        }
    }
    for (name, value) in wanted {
        if name.is_empty() || name.len() >= NAME_BYTES_MAX || name.contains('\0') {
            return Err(invalid(
                "a Zarr attribute",
                "HDF5 has no attribute of that name: empty, too long, or with NUL",
            ));
        }
        if attrs::is_hidden(name.as_bytes()) {
            return Err(refused(format!("attribute `{name}`"), "HDF5's dimension scales use that name", "rename it"));
        }
        let there = tx.get(&core.meta, &meta::keys::named(meta::keys::TAG_ATTR, oid, name.as_bytes()))?;
        if there.is_some() {
            continue;
        }
        let plain = elem.and_then(|elem| Some((elem, doc::plain_fill_value(name, value, elem)?)));
        let mut attr = match plain.and_then(|(elem, plain)| attrs::of_number(elem, &plain)) {
            Some(attr) => attr,
            None => attrs::of_json(value),
        };
        records::create(tx, core, oid, name.as_bytes(), &mut attr)?;
    }
    Ok(())
}

fn set_names(core: &Arc<Core>, oid: u64, names: &[Option<String>]) -> Result<()> {
    meta::transact(core, |tx| names_in(tx, core, oid, names))
}

fn names_in(tx: &mut Transaction, core: &Arc<Core>, oid: u64, names: &[Option<String>]) -> Result<()> {
    let key = meta::keys::named(meta::keys::TAG_ATTR, oid, DIMENSION_LABELS);
    if tx.get(&core.meta, &key)?.is_some() {
        objects::remove_attr(tx, core, oid, DIMENSION_LABELS)?;
    }
    if names.iter().all(Option::is_none) {
        return Ok(());
    }
    let texts: Vec<&str> = names.iter().map(|name| name.as_deref().unwrap_or_default()).collect();
    records::create(tx, core, oid, DIMENSION_LABELS, &mut attrs::of_strings(&texts))
}

/// Updates an existing array: shape, attributes and names of dimensions can change.
fn update(array: &Array, path: &[&str], spec: &Spec) -> Result<()> {
    let own = array.dims.len();
    let inner = &array.dtype.inner;
    let fixed_is_same = spec.dtype.elem == array.dtype.elem
        && spec.chunk == array.chunk_shape()
        && spec.shape.len() == array.shape().len()
        && spec.shape[own..] == inner[..];
    if !fixed_is_same {
        return Err(refused(
            format!("another data type, chunk shape or rank for {}", array.name()),
            "they are fixed when an HDF5 dataset is made",
            "delete the array first (overwrite=True)",
        ));
    }
    let (core, oid) = (&array.core, array.oid);
    if spec.shape[..own] != array.dims[..] {
        array.data.resize(&spec.shape[..own])?;
    }
    if let Some(attributes) = &spec.attributes {
        set_attributes(core, oid, attributes, Some(&array.dtype.elem))?;
    }
    let Some(names) = spec.names.as_ref().map(|names| &names[..own.min(names.len())]) else { return Ok(()) };
    let known = dims::names(core, oid, own, &groups(core, path)?, path.last().copied().unwrap_or_default())?;
    if known.is_some_and(|known| known == names) || names.iter().all(Option::is_none) {
        return Ok(());
    }
    if dims::has_scales(core, oid)? {
        return Err(refused(
            format!("other dimension names for {}", array.name()),
            "they are those of its dimension scales",
            "rename the scales, by HDF5",
        ));
    }
    set_names(core, oid, names)
}

fn create(core: &Arc<Core>, group: u64, path: &[&str], doc: &Doc) -> Result<()> {
    let Some((last, above)) = path.split_last() else {
        return Err(invalid(format!("file {}", core.path), "its root is a group"));
    };
    let numbers: Vec<u64> = path.iter().map(|_| core.new_id()).collect::<Result<_>>()?;
    meta::transact(core, |tx| {
        let mut at = group;
        let new_group = || Header { born_unix_s: objects::born(false), body: Body::Group(GroupProps::defaults()) };
        for (name, oid) in above.iter().zip(&numbers) {
            objects::create_linked(tx, core, *oid, &new_group())?;
            links::insert(tx, core, at, name.as_bytes(), Link::hard(*oid, UTF8))?;
            at = *oid;
        }
        let oid = numbers[above.len()];
        let (header, attributes, elem) = match doc {
            Doc::Group(attributes) => (new_group(), attributes.clone(), None),
            Doc::Array(spec) => (dataset(spec)?, spec.attributes.clone(), Some(&spec.dtype.elem)),
        };
        objects::create_linked(tx, core, oid, &header)?;
        if matches!(header.body, Body::Dataset { .. }) {
            tx.create_object(&core.container, Some(core.object_id(oid)), None)?;
        }
        links::insert(tx, core, at, last.as_bytes(), Link::hard(oid, UTF8))?;
        if let Some(attributes) = attributes {
            attributes_in(tx, core, oid, &attributes, elem)?;
        }
        if let Doc::Array(spec) = doc
            && let Some(names) = &spec.names
        {
            names_in(tx, core, oid, names)?;
        }
        Ok(())
    })
}

/// The header of a new dataset, which can grow along all dimensions like Zarr's arrays.
fn dataset(spec: &Spec) -> Result<Header> {
    let Some(dtype) = spec.dtype.elem.encode() else {
        return Err(refused("strings of variable length", "chunks cannot hold them", "write them by HDF5"));
    };
    let (layout, extent) = if spec.shape.is_empty() {
        (Layout::Contiguous, Extent::Scalar)
    } else {
        let extent = Extent::Simple { dims: spec.shape.clone(), max: vec![u64::MAX; spec.shape.len()] };
        (Layout::Chunked(spec.chunk.clone()), extent)
    };
    let props = DatasetProps::defaults(layout, spec.filters.clone(), spec.fill.clone());
    Ok(Header { born_unix_s: objects::born(false), body: Body::Dataset { dtype, committed: 0, props, extent } })
}

/// Removes the name of a node, and the node with everything below if it was the last name.
pub fn remove(core: &Arc<Core>, path: &[&str]) -> Result<bool> {
    core.need_writable("deleting")?;
    let Some((last, above)) = path.split_last() else {
        return clear(core).map(|()| true);
    };
    let At::Group(group) = walk(core, above)? else { return Ok(false) };
    if links::get(core, group, last.as_bytes())?.is_none() {
        return Ok(false);
    }
    meta::transact(core, |tx| objects::unlink(tx, core, group, last.as_bytes())).map(|()| true)
}

/// Removes everything from the root group.
fn clear(core: &Arc<Core>) -> Result<()> {
    for (name, _) in links::list(core, ROOT)? {
        meta::transact(core, |tx| objects::unlink(tx, core, ROOT, &name))?;
    }
    set_attributes(core, ROOT, &Map::new(), None)
}
