//! Groups and arrays: the target of a path, and the properties of an array.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Result};
use cenote_hdf5::data::plain::PlainData;
use cenote_hdf5::file::Core;
use cenote_hdf5::message::Type;
use cenote_hdf5::meta::header::{self, Body, Header};
use cenote_hdf5::meta::keys::ROOT;
use cenote_hdf5::meta::links::{self, Target};
use cenote_hdf5::space::Extent;

use crate::codecs::{self, Sharing};
use crate::dtype::{Dtype, Elem};
use crate::{grid, refused};

/// Maximum number of soft links in one path, as in HDF5.
const LINKS_MAX: u32 = 16;

/// The target of a path.
pub enum At<'a> {
    /// A group: its number.
    Group(u64),
    /// A dataset: its number, and the rest of the path.
    Dataset(u64, &'a [&'a str]),
    /// Nothing: the last group on the way, and the rest of the path.
    Nothing(u64, &'a [&'a str]),
}

/// Follows a path from the root group.
pub fn walk<'a>(core: &Core, path: &'a [&'a str]) -> Result<At<'a>> {
    let mut group = ROOT;
    for (i, name) in path.iter().enumerate() {
        match follow(core, group, name.as_bytes(), LINKS_MAX)? {
            Some((oid, Body::Group(_))) => group = oid,
            Some((oid, Body::Dataset { .. })) => return Ok(At::Dataset(oid, &path[i + 1..])),
            _ => return Ok(At::Nothing(group, &path[i..])),
        }
    }
    Ok(At::Group(group))
}

/// Numbers of the groups on a path to a member, the root first.
pub fn groups(core: &Core, path: &[&str]) -> Result<Vec<u64>> {
    let mut out = vec![ROOT];
    for len in 1..path.len() {
        if let At::Group(oid) = walk(core, &path[..len])? {
            out.push(oid);
        }
    }
    Ok(out)
}

/// The object to which a name in a group leads, also over soft links; `None` if it is missing, or in another
/// file.
pub fn follow(core: &Core, group: u64, name: &[u8], links_left: u32) -> Result<Option<(u64, Body)>> {
    match links::get(core, group, name)?.map(|link| link.target) {
        Some(Target::Hard(oid)) => Ok(header::find(core, oid)?.map(|header| (oid, header.body))),
        Some(Target::Soft(path)) if links_left > 0 => {
            let mut at = if path.starts_with(b"/") { ROOT } else { group };
            let parts: Vec<&[u8]> = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").collect();
            let Some((last, before)) = parts.split_last() else {
                return Ok(header::find(core, at)?.map(|header| (at, header.body)));
            };
            for part in before {
                match follow(core, at, part, links_left - 1)? {
                    Some((oid, Body::Group(_))) => at = oid,
                    _ => return Ok(None),
                }
            }
            follow(core, at, last, links_left - 1)
        }
        _ => Ok(None),
    }
}

/// A dataset as an array.
pub struct Array {
    /// The file.
    pub core: Arc<Core>,
    /// Its number.
    pub oid: u64,
    /// Data type.
    pub dtype: Dtype,
    /// Raw data.
    pub data: PlainData,
    /// How Zarr sees its chunks.
    pub sharing: Sharing,
    /// Present dimensions of the dataset.
    pub dims: Vec<u64>,
    /// Dimensions of a chunk, or of a piece of a dataset without chunks.
    pub chunk: Vec<u64>,
}

impl Array {
    /// Opens the dataset with this number; an error says why Zarr cannot represent it.
    pub fn open(core: &Arc<Core>, oid: u64) -> Result<Self> {
        Self::of(core, oid, &header::get(core, oid)?)
    }
    /// Opens a dataset with a known header.
    pub fn of(core: &Arc<Core>, oid: u64, header: &Header) -> Result<Self> {
        let Body::Dataset { dtype, props, extent, .. } = &header.body else {
            return Err(Error::new(ErrorKind::InvalidInput, "a Zarr array").because("it is no dataset"));
        };
        let subject = || format!("dataset {oid:016x} of file {} as a Zarr array", core.path);
        let no = |why: String| refused(subject(), why, "read it by HDF5");
        let damaged = || Error::new(ErrorKind::Corrupt, subject()).because("its datatype is damaged");
        let parsed = Type::parse(dtype).ok_or_else(damaged)?;
        let dtype = Dtype::of(&parsed).map_err(no)?;
        if *extent == Extent::Null {
            return Err(no("it has no elements and no shape".into()));
        }
        let data = PlainData::new(core, oid, props, extent, dtype.bytes())?;
        let sharing = match codecs::sharing(&data.pipeline).map_err(no)? {
            Sharing::Shared(_) if dtype.elem == Elem::Text => Sharing::Converted(
                "HDF5 keeps strings of any length apart: chunks are made from them, and cannot be written".into(),
            ),
            _ if dtype.elem == Elem::Text && !data.pipeline.is_ours() => {
                return Err(no("its strings went through a filter that HDF5 alone can undo".into()));
            }
            sharing => sharing,
        };
        let dims = data.extent()?.dims().to_vec();
        let chunk = data.chunk.clone().unwrap_or_else(|| grid::piece(&dims, dtype.bytes()));
        Ok(Self { core: core.clone(), oid, dtype, data, sharing, dims, chunk })
    }
    /// The array's shape.
    pub fn shape(&self) -> Vec<u64> {
        [&self.dims[..], &self.dtype.inner].concat()
    }
    /// The shape of its chunks.
    pub fn chunk_shape(&self) -> Vec<u64> {
        [&self.chunk[..], &self.dtype.inner].concat()
    }
    /// Bytes of a whole chunk without filters, in HDF5's stored form.
    pub fn chunk_bytes(&self) -> usize {
        (self.chunk.iter().product::<u64>() * self.dtype.bytes()) as usize
    }
    /// Returns true if byte order must be specified.
    pub fn has_order(&self) -> bool {
        self.dtype.elem.has_order()
    }
    /// The dataset's name for errors.
    pub fn name(&self) -> String {
        self.data.name()
    }
}
