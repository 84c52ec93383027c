//! A file as a hierarchy of keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use cenote::{ErrorKind, IndexVersion, Result, Store};
use cenote_hdf5::file::{Core, plain};
use cenote_hdf5::meta::header::Body;
use cenote_hdf5::meta::keys::ROOT;
use cenote_hdf5::meta::links::{self, Target};
use serde_json::{Map, Value, json};

use crate::codecs::Sharing;
use crate::node::{Array, At, follow, groups, walk};
use crate::parse::{self, Doc};
use crate::{dims, doc, invalid, make};

const ZARR_JSON: &str = "zarr.json";
const ZARRAY: &str = ".zarray";
const ZGROUP: &str = ".zgroup";
const ZATTRS: &str = ".zattrs";
/// Arrays cached by a tree.
const ARRAYS_MAX: usize = 4096;
/// Most soft links on the way to a child.
const LINKS_MAX: u32 = 16;

/// The format of the documents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Format {
    /// Zarr format 3.
    #[default]
    V3,
    /// Zarr format 2.
    V2,
}

/// The kind of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// A key with keys below it.
    Directory,
    /// A value of this many bytes.
    File(u64),
}

/// A dataset that Zarr sees in another form than HDF5 does, or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Note {
    /// The dataset's path.
    pub path: String,
    /// True if it is an array of the hierarchy, with converted chunks.
    pub is_there: bool,
    /// Why.
    pub why: String,
}

/// An HDF5 file of a store as Zarr's keys and values. Many threads may use it.
pub struct Tree {
    core: Arc<Core>,
    format: Format,
    /// Cached arrays, with the version of the file's metadata for which they hold.
    arrays: Mutex<HashMap<u64, (IndexVersion, Arc<Array>)>>,
    /// Attributes of format 2 that arrived before their node.
    early: Mutex<HashMap<String, Map<String, Value>>>,
}

fn parts(key: &str) -> Vec<&str> {
    key.split('/').filter(|part| !part.is_empty()).collect()
}

fn is_doc(name: &str) -> bool {
    matches!(name, ZARR_JSON | ZARRAY | ZGROUP | ZATTRS)
}

impl Tree {
    /// Opens the file whose stub is at `path`.
    pub fn open(store: &Store, path: &Path, writable: bool, format: Format) -> Result<Self> {
        Ok(Self::of(plain::open(store, path, writable)?, format))
    }
    /// Makes a new, empty file at `path`.
    pub fn create(store: &Store, path: &Path, format: Format) -> Result<Self> {
        Ok(Self::of(plain::create(store, path)?, format))
    }
    fn of(core: Arc<Core>, format: Format) -> Self {
        Self { core, format, arrays: Mutex::default(), early: Mutex::default() }
    }
    /// The incarnation of the file: creating it again changes this.
    pub fn generation(&self) -> u64 {
        self.core.generation
    }
    /// Returns true if opened for writing.
    pub fn is_writable(&self) -> bool {
        self.core.writable
    }

    /// The dataset with this number as an array.
    fn array(&self, oid: u64) -> Result<Arc<Array>> {
        // Read first, so that a cached array is never older than its version says.
        let now = self.core.meta.index().version()?;
        let known = self.arrays.lock().unwrap_or_else(PoisonError::into_inner).get(&oid).cloned();
        if let Some((_, array)) = known.filter(|(version, _)| *version == now) {
            return Ok(array);
        }
        let array = Arc::new(Array::open(&self.core, oid)?);
        let mut arrays = self.arrays.lock().unwrap_or_else(PoisonError::into_inner);
        if arrays.len() >= ARRAYS_MAX {
            arrays.clear();
        }
        arrays.insert(oid, (now, array.clone()));
        Ok(array)
    }
    /// The value of a key.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let parts = parts(key);
        match parts.split_last() {
            Some((name, path)) if is_doc(name) => Ok(self.doc(path, name)?.map(|doc| bytes_of(&doc))),
            _ => match self.chunk_at(&parts)? {
                Some((array, coords)) => array.chunk(&coords),
                None => Ok(None),
            },
        }
    }
    fn doc(&self, path: &[&str], name: &str) -> Result<Option<Value>> {
        let is_mine = (name == ZARR_JSON) == (self.format == Format::V3);
        if !is_mine {
            return Ok(None);
        }
        match walk(&self.core, path)? {
            At::Group(oid) => Ok(match name {
                ZARR_JSON => Some(doc::group_v3(&doc::attributes(&self.core, oid)?)),
                ZGROUP => Some(json!({"zarr_format": 2})),
                ZATTRS => Some(Value::Object(doc::attributes(&self.core, oid)?)),
                _ => None,
            }),
            At::Dataset(oid, []) => {
                let array = self.array(oid)?;
                let names =
                    || dims::names(&self.core, oid, array.dims.len(), &groups(&self.core, path)?, path[path.len() - 1]);
                Ok(match name {
                    ZARR_JSON => Some(doc::array_v3(&array, &doc::array_attributes(&array, true)?, names()?)),
                    ZARRAY => Some(doc::array_v2(&array)),
                    ZATTRS => Some(doc::attributes_v2(doc::array_attributes(&array, false)?, names()?)),
                    _ => None,
                })
            }
            _ => Ok(None),
        }
    }
    /// The array and the chunk coordinates of a key; `None` if the key names no chunk.
    fn chunk_at(&self, parts: &[&str]) -> Result<Option<(Arc<Array>, Vec<u64>)>> {
        let At::Dataset(oid, rest) = walk(&self.core, parts)? else { return Ok(None) };
        if rest.is_empty() {
            return Ok(None);
        }
        let array = self.array(oid)?;
        let rank = array.shape().len();
        let coords: Option<Vec<u64>> = match (self.format, rest) {
            (Format::V3, ["c", coords @ ..]) => coords.iter().map(|part| coordinate(part)).collect(),
            (Format::V2, ["0"]) if rank == 0 => Some(Vec::new()),
            (Format::V2, [one]) => one.split('.').map(coordinate).collect(),
            _ => None,
        };
        Ok(coords.filter(|coords| coords.len() == rank).map(|coords| (array, coords)))
    }

    /// The kind of a key; `None` if it does not exist.
    pub fn entry(&self, key: &str) -> Result<Option<Entry>> {
        let parts = parts(key);
        if parts.last().is_some_and(|name| is_doc(name)) {
            return Ok(self.get(key)?.map(|bytes| Entry::File(bytes.len() as u64)));
        }
        match walk(&self.core, &parts)? {
            At::Group(_) => Ok(Some(Entry::Directory)),
            At::Dataset(oid, []) => Ok(is_array(&self.core, oid)?.then_some(Entry::Directory)),
            At::Nothing(..) => Ok(None),
            At::Dataset(..) => {
                if let Some((array, coords)) = self.chunk_at(&parts)?
                    && let Some(bytes) = array.chunk_len(&coords)?
                {
                    return Ok(Some(Entry::File(bytes)));
                }
                Ok(Some(Entry::Directory).filter(|_| self.list_dir(key).is_ok_and(|names| !names.is_empty())))
            }
        }
    }

    /// Names directly below a key, and whether each has keys below it. Empty if there are none.
    pub fn list_dir(&self, key: &str) -> Result<BTreeMap<String, bool>> {
        let mut out = BTreeMap::new();
        let docs = |out: &mut BTreeMap<String, bool>, names: [&str; 2]| match self.format {
            Format::V3 => {
                out.insert(ZARR_JSON.into(), false);
            }
            Format::V2 => out.extend(names.map(|name| (name.to_owned(), false))),
        };
        let parts = parts(key);
        match walk(&self.core, &parts)? {
            At::Group(oid) => {
                docs(&mut out, [ZGROUP, ZATTRS]);
                out.extend(children(&self.core, oid)?.into_iter().map(|(name, _)| (name, true)));
            }
            At::Dataset(oid, rest) if is_array(&self.core, oid)? => {
                if rest.is_empty() {
                    docs(&mut out, [ZARRAY, ZATTRS]);
                }
                let below: Vec<&str> = rest.to_vec();
                let array = self.array(oid)?;
                for key in self.chunk_keys(&array)? {
                    let names: Vec<&str> = key.split('/').collect();
                    if names.len() > below.len() && names[..below.len()] == below[..] {
                        out.insert(names[below.len()].to_owned(), names.len() > below.len() + 1);
                    }
                }
            }
            _ => {}
        }
        Ok(out)
    }
    /// Keys of an array's chunks, relative to the array.
    fn chunk_keys(&self, array: &Array) -> Result<Vec<String>> {
        let word = |coords: Vec<u64>, separator| coords.iter().map(u64::to_string).collect::<Vec<_>>().join(separator);
        let chunks = array.chunks()?;
        Ok(match self.format {
            Format::V3 if array.shape().is_empty() => chunks.into_iter().map(|_| "c".to_owned()).collect(),
            Format::V3 => chunks.into_iter().map(|coords| format!("c/{}", word(coords, "/"))).collect(),
            Format::V2 if array.shape().is_empty() => chunks.into_iter().map(|_| "0".to_owned()).collect(),
            Format::V2 => chunks.into_iter().map(|coords| word(coords, ".")).collect(),
        })
    }
    /// All keys at or below a key.
    pub fn list(&self, key: &str) -> Result<Vec<String>> {
        let parts = parts(key);
        let mut out = Vec::new();
        match walk(&self.core, &parts)? {
            At::Group(oid) => self.list_group(parts.join("/"), oid, &mut out)?,
            At::Dataset(oid, rest) if is_array(&self.core, oid)? => {
                let path = &parts[..parts.len() - rest.len()];
                self.list_array(&path.join("/"), oid, &mut out)?;
                let below = format!("{}/", parts.join("/"));
                out.retain(|found| rest.is_empty() || found.starts_with(&below) || *found == parts.join("/"));
            }
            _ if parts.last().is_some_and(|name| is_doc(name)) && self.get(key)?.is_some() => out.push(parts.join("/")),
            _ => {}
        }
        Ok(out)
    }
    fn list_group(&self, path: String, oid: u64, out: &mut Vec<String>) -> Result<()> {
        // A work list: groups may be nested deeper than the stack. False: all members of the group were listed.
        let (mut todo, mut above) = (vec![(path, oid, true)], BTreeSet::new());
        while let Some((path, oid, begins)) = todo.pop() {
            if !begins {
                above.remove(&oid);
                continue;
            }
            // A group may contain itself.
            if !above.insert(oid) {
                continue;
            }
            self.list_docs(&path, [ZGROUP, ZATTRS], out);
            todo.push((String::new(), oid, false));
            for (name, (child, is_group)) in children(&self.core, oid)? {
                let path = join(&path, &name);
                if is_group {
                    todo.push((path, child, true));
                } else {
                    self.list_array(&path, child, out)?;
                }
            }
        }
        Ok(())
    }
    fn list_array(&self, path: &str, oid: u64, out: &mut Vec<String>) -> Result<()> {
        self.list_docs(path, [ZARRAY, ZATTRS], out);
        let array = self.array(oid)?;
        let keys = self.chunk_keys(&array)?;
        out.extend(keys.into_iter().map(|key| join(path, &key)));
        Ok(())
    }
    fn list_docs(&self, path: &str, v2: [&str; 2], out: &mut Vec<String>) {
        match self.format {
            Format::V3 => out.push(join(path, ZARR_JSON)),
            Format::V2 => out.extend(v2.map(|name| join(path, name))),
        }
    }
    /// Datasets that Zarr does not see, or sees converted, with the reason.
    pub fn notes(&self) -> Result<Vec<Note>> {
        let (mut out, mut seen) = (Vec::new(), BTreeSet::new());
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, group)) = todo.pop() {
            if !seen.insert(group) {
                continue;
            }
            for (name, link) in links::list(&self.core, group)? {
                let path = join(&path, &String::from_utf8_lossy(&name));
                if let Err(why) = usable(&name) {
                    out.push(Note { path, is_there: false, why });
                    continue;
                }
                if matches!(link.target, Target::User(..)) {
                    out.push(Note { path, is_there: false, why: "it is a link out of this file".into() });
                    continue;
                }
                match follow(&self.core, group, &name, LINKS_MAX)? {
                    Some((oid, Body::Group(_))) => todo.push((path, oid)),
                    Some((oid, Body::Dataset { .. })) => match Array::open(&self.core, oid) {
                        Ok(array) => {
                            if let Sharing::Converted(why) = array.sharing {
                                out.push(Note { path, is_there: true, why });
                            }
                        }
                        Err(error) if error.kind() == ErrorKind::Unsupported => {
                            out.push(Note { path, is_there: false, why: error.cause().to_owned() });
                        }
                        Err(error) => return Err(error),
                    },
                    _ => {}
                }
            }
        }
        out.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(out)
    }

    /// Sets a key. Documents create or change groups and datasets; other keys are chunks of existing arrays.
    pub fn set(&self, key: &str, bytes: &[u8]) -> Result<()> {
        self.core.need_writable("writing")?;
        let parts = parts(key);
        match parts.split_last() {
            Some((name, path)) if is_doc(name) => {
                for part in path {
                    usable(part.as_bytes()).map_err(|why| invalid(format!("key {key}"), why))?;
                }
                self.set_doc(path, name, bytes)
            }
            _ => match self.chunk_at(&parts)? {
                Some((array, coords)) => array.set_chunk(&coords, bytes),
                None => Err(invalid(
                    format!("key {key} of file {}", self.core.path),
                    "it is neither a metadata document nor a chunk of an array that is there",
                )),
            },
        }
    }
    fn set_doc(&self, path: &[&str], name: &str, bytes: &[u8]) -> Result<()> {
        let doc: Value =
            serde_json::from_slice(bytes).map_err(|error| invalid(name, format!("it is no JSON: {error}")))?;
        let place = path.join("/");
        match (name, self.format) {
            (ZARR_JSON, Format::V3) => make::apply(&self.core, path, &parse::v3(&doc)?),
            (ZATTRS, Format::V2) => {
                let attributes = doc.as_object().ok_or_else(|| invalid(name, "it is no JSON object"))?;
                if !make::apply_attributes(&self.core, path, attributes)? {
                    self.early.lock().unwrap_or_else(PoisonError::into_inner).insert(place, attributes.clone());
                }
                Ok(())
            }
            (ZGROUP | ZARRAY, Format::V2) => {
                let node = if name == ZGROUP { Doc::Group(None) } else { Doc::Array(Box::new(parse::v2(&doc)?)) };
                make::apply(&self.core, path, &node)?;
                let early = self.early.lock().unwrap_or_else(PoisonError::into_inner).remove(&place);
                early.map_or(Ok(()), |attributes| make::apply_attributes(&self.core, path, &attributes).map(drop))
            }
            _ => Err(invalid(
                format!("key {name}"),
                format!("this file is open as Zarr format {}", if self.format == Format::V3 { 3 } else { 2 }),
            )),
        }
    }
    /// Deletes a key; returns false if it did not exist. Deleting a dataset's document deletes the dataset; a group's
    /// document stays while the group has members.
    pub fn delete(&self, key: &str) -> Result<bool> {
        self.core.need_writable("deleting")?;
        let parts = parts(key);
        match parts.split_last() {
            Some((name, path)) if is_doc(name) => match walk(&self.core, path)? {
                At::Dataset(_, []) if *name != ZATTRS => make::remove(&self.core, path),
                At::Group(oid) if *name != ZATTRS && !path.is_empty() && links::list(&self.core, oid)?.is_empty() => {
                    make::remove(&self.core, path)
                }
                At::Group(_) | At::Dataset(_, []) => make::apply_attributes(&self.core, path, &Map::new()),
                _ => Ok(false),
            },
            _ => match self.chunk_at(&parts)? {
                Some((array, coords)) => array.drop_chunk(&coords),
                None => Ok(false),
            },
        }
    }
    /// Deletes everything at or below a key.
    pub fn delete_dir(&self, key: &str) -> Result<()> {
        self.core.need_writable("deleting")?;
        let parts = parts(key);
        match walk(&self.core, &parts)? {
            At::Group(_) | At::Dataset(_, []) => make::remove(&self.core, &parts).map(drop),
            At::Dataset(..) => self.list(key)?.iter().try_for_each(|key| self.delete(key).map(drop)),
            At::Nothing(..) => Ok(()),
        }
    }
}

fn bytes_of(doc: &Value) -> Vec<u8> {
    format!("{doc:#}").into_bytes()
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}

/// Parses a grid coordinate in Zarr's form: one text for each number.
fn coordinate(part: &str) -> Option<u64> {
    let is_plain = part == "0" || (!part.starts_with(['0', '+']) && !part.is_empty());
    part.parse().ok().filter(|_| is_plain)
}

/// The text of a name; an error for names that HDF5 allows and keys cannot have.
fn usable(name: &[u8]) -> std::result::Result<&str, String> {
    match std::str::from_utf8(name) {
        Err(_) => Err("its name is not UTF-8".into()),
        Ok(name) if is_doc(name) => Err(format!("`{name}` is the name of a Zarr document")),
        Ok(name) if name.contains('\0') => Err("its name has a NUL".into()),
        Ok(".." | ".") => Err("its name is not one of a key".into()),
        Ok(name) => Ok(name),
    }
}

fn is_array(core: &Arc<Core>, oid: u64) -> Result<bool> {
    match Array::open(core, oid) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
        Err(error) => Err(error),
    }
}

/// Groups and arrays in a group: name, number, and whether it is a group.
fn children(core: &Arc<Core>, group: u64) -> Result<Vec<(String, (u64, bool))>> {
    let mut out = Vec::new();
    for (name, _) in links::list(core, group)? {
        let Ok(text) = usable(&name) else { continue };
        match follow(core, group, &name, LINKS_MAX)? {
            Some((oid, Body::Group(_))) => out.push((text.to_owned(), (oid, true))),
            Some((oid, Body::Dataset { .. })) if is_array(core, oid)? && !dims::is_only_a_name(core, oid)? => {
                out.push((text.to_owned(), (oid, false)));
            }
            _ => {}
        }
    }
    Ok(out)
}
