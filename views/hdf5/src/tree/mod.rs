//! The content of a file of the store, read from its records alone, without libhdf5. For the `cenote` command; knows
//! nothing of terminals.

mod types;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use cenote::{Error, ErrorKind, Index, ObjectId, ObjectKey, Store};

use crate::Result;
use crate::data::stored_chunks;
use crate::file::open::locate;
use crate::meta::bytes::Reader;
use crate::meta::header::{Body, Header};
use crate::meta::keys::{self, ROOT};
use crate::meta::links::{Link, Target};
use crate::props::{Filter, Layout};
use crate::space::Extent;

/// Clear in numbers of datasets; set in those of their heaps.
const HEAP_BIT: u64 = 1 << 63;

/// An object or link in a file.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its whole path.
    pub path: String,
    /// Number of groups above it.
    pub depth: usize,
    /// Its kind.
    pub kind: Kind,
    /// Number of attributes.
    pub attributes: u64,
    /// Comment; empty if it has none.
    pub comment: String,
}

/// The kind of a node.
#[derive(Clone, Debug)]
pub enum Kind {
    /// A group with this number of links.
    Group(u64),
    /// A dataset.
    Dataset(Box<DatasetFacts>),
    /// A committed datatype, as text.
    Datatype(String),
    /// A map of keys to values.
    Map,
    /// An object already listed at this path.
    Same(String),
    /// A soft link to a path.
    Soft(String),
    /// An external link: file and path.
    External(String, String),
    /// A user-defined link of this class.
    User(u8),
}

/// Properties of a dataset.
#[derive(Clone, Debug)]
pub struct DatasetFacts {
    /// Datatype as text.
    pub dtype: String,
    /// Current extent.
    pub extent: Extent,
    /// `contiguous`, `chunked`, …
    pub layout: &'static str,
    /// Dimensions of a chunk, if chunked.
    pub chunk: Vec<u64>,
    /// Number of existing chunks, and their stored bytes.
    pub chunks: Option<(u64, u64)>,
    /// Filters, by name.
    pub filters: Vec<String>,
    /// Bytes in the store by the tier from which they are read, including variable-length parts.
    pub tiers: BTreeMap<String, u64>,
    /// True if only some extents were looked at, so that the tiers are those of a part.
    pub is_part: bool,
}

/// Calls `each` for the root and everything below, up to `depth_max` groups deep, in the order of names.
pub fn walk(store: &Store, path: &Path, depth_max: usize, each: &mut dyn FnMut(Node) -> Result<()>) -> Result<()> {
    let (container, generation) = locate(store, path)?;
    let tree = Tree {
        store,
        container: container.id(),
        meta: container.index(cenote::IndexId(u128::from(generation))),
        generation,
    };
    let mut seen: HashMap<u64, String> = HashMap::new();
    // Nodes still to visit, the next one last.
    let mut todo = vec![("/".to_owned(), 0, Target::Hard(ROOT))];
    while let Some((path, depth, target)) = todo.pop() {
        let bare = |path, kind| Node { path, depth, kind, attributes: 0, comment: String::new() };
        let oid = match target {
            Target::Hard(oid) => oid,
            other => {
                each(bare(path, kind_of(other)))?;
                continue;
            }
        };
        if let Some(first) = seen.get(&oid) {
            each(bare(path, Kind::Same(first.clone())))?;
            continue;
        }
        seen.insert(oid, path.clone());
        let top = path.trim_end_matches('/').to_owned();
        let links = tree.tell(oid, path, depth, each)?;
        if depth < depth_max {
            let below = |name: &[u8]| format!("{top}/{}", String::from_utf8_lossy(name));
            todo.extend(links.into_iter().rev().map(|(name, link)| (below(&name), depth + 1, link.target)));
        }
    }
    Ok(())
}

fn kind_of(target: Target) -> Kind {
    match target {
        Target::Soft(to) => Kind::Soft(String::from_utf8_lossy(&to).into_owned()),
        Target::User(64, value) => match crate::meta::resolve::external_parts(&value) {
            Ok((file, path)) => {
                Kind::External(String::from_utf8_lossy(file).into_owned(), String::from_utf8_lossy(path).into_owned())
            }
            Err(_) => Kind::User(64),
        },
        Target::User(class, _) => Kind::User(class),
        Target::Hard(_) => Kind::Same(String::new()),
    }
}

struct Tree<'a> {
    store: &'a Store,
    container: cenote::ContainerId,
    meta: Index,
    generation: u64,
}

impl Tree<'_> {
    /// Reports an object and, for a group, its links.
    fn tell(
        &self,
        oid: u64,
        path: String,
        depth: usize,
        each: &mut dyn FnMut(Node) -> Result<()>,
    ) -> Result<Vec<(Vec<u8>, Link)>> {
        let record = self.meta.get_one(&keys::of(keys::TAG_HEADER, oid))?.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("object {oid:016x} at {path}"))
                .because("a link leads to it, and it has no record")
                .try_next("run `cenote verify` on the store")
        })?;
        let mut links = Vec::new();
        let kind = match Header::decode(&record)?.body {
            Body::Group(_) => {
                for record in self.meta.iter(&keys::of(keys::TAG_LINK, oid)) {
                    let (key, value) = record?;
                    links.push((keys::suffix(&key).to_vec(), Link::decode(&value)?));
                }
                Kind::Group(links.len() as u64)
            }
            Body::Map { .. } => Kind::Map,
            Body::Datatype { dtype, .. } => Kind::Datatype(types::text(&dtype)),
            Body::Dataset { dtype, props, extent, .. } => {
                Kind::Dataset(Box::new(self.dataset(oid, &dtype, &props, extent)?))
            }
        };
        let mut attributes = 0;
        for record in self.meta.iter(&keys::of(keys::TAG_ATTR, oid)) {
            record?;
            attributes += 1;
        }
        let comment = self.meta.get_one(&keys::of(keys::TAG_COMMENT, oid))?.unwrap_or_default();
        let comment = String::from_utf8_lossy(&comment).into_owned();
        each(Node { path, depth, kind, attributes, comment })?;
        Ok(links)
    }

    fn dataset(
        &self,
        oid: u64,
        dtype: &[u8],
        props: &crate::props::DatasetProps,
        at_creation: Extent,
    ) -> Result<DatasetFacts> {
        let extent = match self.meta.get_one(&keys::extent(oid))? {
            Some(record) => Extent::decode(&mut Reader::of("extent record", &record))?,
            None => at_creation,
        };
        let (chunk, chunks) = match &props.layout {
            Layout::Chunked(chunk) => (chunk.clone(), Some(stored_chunks(&self.meta, oid)?)),
            _ => (Vec::new(), None),
        };
        let mut facts = DatasetFacts {
            dtype: types::text(dtype),
            extent,
            layout: props.layout.word(),
            chunk,
            chunks,
            filters: props.filters.iter().map(name_of).collect(),
            tiers: BTreeMap::new(),
            is_part: false,
        };
        for number in [oid, oid | HEAP_BIT] {
            let object = ObjectId(u128::from(self.generation) << 64 | u128::from(number));
            match self.store.explain(ObjectKey { container: self.container, object }) {
                Ok(found) => {
                    facts.is_part |= (found.ranges.len() as u64) < found.stat.extents;
                    for range in found.ranges {
                        *facts.tiers.entry(range.device).or_default() += u64::from(range.extent.len);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(facts)
    }
}

/// A filter's name with its parameters.
fn name_of(filter: &Filter) -> String {
    let name = crate::data::filter::name(filter.id as u32);
    match filter.params[..] {
        [] => name,
        [one] => format!("{name} {one}"),
        _ => format!("{name} {:?}", filter.params),
    }
}
