//! An open dataset's raw data: its layout, and reading and writing stored elements of any layout.

use std::sync::Arc;

use cenote::{Error, ErrorKind, Object};
use parking_lot::Mutex;

use super::aside;
use super::chunked::{Chunked, Facts};
use super::external::External;
use super::filter::{Filter, Pipeline, SHUFFLE};
use super::heap;
use super::memory::Memory;
use super::native::NativeChunk;
use super::place::DatasetRef;
use super::runs::Pair;
use super::transfer::{self, Part};
use super::virt::Virtual;
use crate::Result;
use crate::ffi::types::{H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_USER_DEFINED};
use crate::foreign::data::NativeData;
use crate::object::DatasetHeader;
use crate::props::{DatasetProps, Layout};
use crate::space::Extent;

/// Chunk size of contiguous datasets with a fill value, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4 << 20;

/// State that this module keeps for an open dataset.
pub struct DatasetState {
    /// The dataset's file and number.
    pub place: DatasetRef,
    /// Bytes of a stored element.
    pub element_bytes: usize,
    /// True if stored elements name bytes in the heap.
    pub blobs: bool,
    /// The layout of its elements.
    pub body: Body,
    /// Heap space that this handle may still use.
    pub lease: Mutex<heap::Lease>,
}

/// Layout of elements in the dataset's object.
pub enum Body {
    /// No elements.
    Empty,
    /// One run; bytes that were never written are zeros.
    Plain { object: Object, elements: u64 },
    /// One run with a fill value that is not zeros, kept as a row of chunks.
    Blocks { chunks: Arc<Chunked>, elements: u64 },
    /// Chunks.
    Chunked(Arc<Chunked>),
    /// A native file's dataset, read by HDF5.
    Native(NativeData),
    /// External raw data files.
    External(External),
    /// Other datasets (virtual layout).
    Virtual(Virtual),
    /// More elements than 64 bits can count. HDF5 makes such datasets, if they are chunked, but transfers no element of them.
    Countless,
}

impl DatasetState {
    /// The state of a dataset with this header. `element_bytes`: size of a stored element.
    pub fn new(place: DatasetRef, header: &DatasetHeader, element_bytes: usize, blobs: bool) -> Result<Self> {
        let body = body(&place, header, element_bytes)?;
        Ok(Self { place, element_bytes, blobs, body, lease: Mutex::default() })
    }

    /// Shows others a larger extent after a write, unless parts of chunks are still buffered, or the file is written for SWMR
    /// readers, who see the extent after a flush.
    pub fn show_extent(&self) -> Result<()> {
        match &self.body {
            Body::Chunked(chunks) if !chunks.has_aside() => self.place.file.shared.show_written(self.place.oid),
            _ => Ok(()),
        }
    }
    /// Writes stored elements. `dims`: the extent to which the pairs refer.
    pub fn write(&self, pairs: &[Pair], dims: &[u64], mem: Memory) -> Result<()> {
        match &self.body {
            Body::Empty => self.outside(),
            Body::Plain { object, elements } => {
                self.check(dims, *elements)?;
                self.with_parts(pairs, |parts| transfer::write(&self.place, object, parts, mem))
            }
            Body::Blocks { chunks, elements } => {
                self.check(dims, *elements)?;
                chunks.write(pairs, &[*elements], mem)
            }
            Body::Chunked(chunks) => chunks.write(pairs, dims, mem),
            Body::Native(_) => self.by_hdf5(),
            Body::External(files) => files.write(pairs, mem),
            Body::Virtual(_) => self.in_sources(),
            Body::Countless => self.countless(),
        }
    }

    /// Reads stored elements. `apart`: no two pairs overlap in memory.
    pub fn read(&self, pairs: &[Pair], dims: &[u64], mem: Memory, apart: bool, skip_checksums: bool) -> Result<()> {
        match &self.body {
            Body::Empty => self.outside(),
            Body::Plain { object, elements } => {
                self.check(dims, *elements)?;
                self.with_parts(pairs, |parts| transfer::read(&self.place, object, parts, mem, apart))
            }
            Body::Blocks { chunks, elements } => {
                self.check(dims, *elements)?;
                chunks.read(pairs, &[*elements], mem, apart, skip_checksums)
            }
            Body::Chunked(chunks) => chunks.read(pairs, dims, mem, apart, skip_checksums),
            Body::Native(_) => self.by_hdf5(),
            Body::External(files) => files.read(pairs, mem),
            Body::Virtual(_) => self.in_sources(),
            Body::Countless => self.countless(),
        }
    }

    /// Stores buffered chunks.
    pub fn flush(&self) -> Result<()> {
        match &self.body {
            Body::Chunked(chunks) => chunks.flush_aside(),
            Body::Virtual(this) => this.flush(),
            _ => Ok(()),
        }
    }

    fn with_parts(&self, pairs: &[Pair], act: impl FnOnce(&[Part]) -> Result<()>) -> Result<()> {
        let size = self.element_bytes as u64;
        let part = |pair: &Pair| Part { offset: pair.file * size, mem: pair.mem, count: pair.count };
        match pairs {
            [one] => act(&[part(one)]),
            _ => act(&pairs.iter().map(part).collect::<Vec<_>>()),
        }
    }

    /// Refuses a selection whose extent is not the dataset's.
    fn check(&self, dims: &[u64], elements: u64) -> Result<()> {
        if dims.iter().product::<u64>() == elements { Ok(()) } else { self.outside() }
    }

    #[cold]
    fn by_hdf5(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, self.place.name()).because("it is in a native file, and read as a whole"))
    }

    #[cold]
    fn outside(&self) -> Result<()> {
        Err(Error::new(ErrorKind::InvalidInput, self.place.name())
            .because("the file selection is not within its extent"))
    }

    #[cold]
    fn countless(&self) -> Result<()> {
        Err(Error::new(ErrorKind::LimitExceeded, self.place.name())
            .because("its extent has more than 2^64 elements")
            .try_next("make it with smaller dimensions, and unlimited ones where it is to grow"))
    }

    #[cold]
    fn in_sources(&self) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, self.place.name())
            .because("elements of a virtual dataset are in its sources"))
    }

    /// Number of elements for one conversion: enough to visit each chunk once, within limits.
    pub fn batch_elements(&self, dims: &[u64]) -> u64 {
        const SMALL: u64 = 1 << 20;
        const LARGE: u64 = 64 << 20;
        let size = self.element_bytes as u64;
        let bytes = match &self.body {
            Body::Chunked(chunks) => {
                let inner = dims.iter().skip(1).fold(1u64, |product, d| product.saturating_mul(*d));
                inner.saturating_mul(chunks.facts.chunk[0]).saturating_mul(size).clamp(SMALL, LARGE)
            }
            Body::Blocks { .. } => BLOCK_BYTES,
            _ => SMALL,
        };
        (bytes / size).max(1)
    }
}

fn body(place: &DatasetRef, header: &DatasetHeader, element_bytes: usize) -> Result<Body> {
    if let Some(native) = &place.file.native {
        return Ok(Body::Native(NativeData::open(native, place.oid)?));
    }
    if header.extent == Extent::Null {
        return Ok(Body::Empty);
    }
    match &header.props.layout {
        Layout::Virtual(mappings) => return Ok(Body::Virtual(Virtual::new(mappings))),
        Layout::External(segments) => return Ok(Body::External(External::new(segments))),
        _ => {}
    }
    if header.extent.counted().is_none() {
        return Ok(Body::Countless);
    }
    let fill = fill(place, header, element_bytes)?;
    if let Layout::Chunked(chunk) = &header.props.layout {
        let pipeline = pipeline(header, element_bytes);
        let native = (!pipeline.is_ours()).then(|| NativeChunk::new(&place.file, header, element_bytes)).transpose()?;
        let facts = Facts {
            element_bytes,
            chunk: chunk.clone(),
            max_dims: header.extent.max_dims().to_vec(),
            pipeline,
            native,
            fill,
            resizable: true,
            chunk_bytes: chunk_bytes(place, chunk, element_bytes)?,
        };
        return Ok(Body::Chunked(aside::shared(place.clone(), facts, header.extent.dims())?));
    }
    let elements = header.extent.npoints();
    if fill.is_none() || elements == 0 {
        return Ok(Body::Plain { object: place.object(), elements });
    }
    let block = (BLOCK_BYTES / element_bytes as u64).clamp(1, elements);
    let facts = Facts {
        element_bytes,
        chunk: vec![block],
        max_dims: vec![elements],
        pipeline: Pipeline::default(),
        native: None,
        fill,
        resizable: false,
        chunk_bytes: block * element_bytes as u64,
    };
    Ok(Body::Blocks { chunks: aside::shared(place.clone(), facts, &[elements])?, elements })
}

/// The value of an element that was never written; `None` for zeros.
fn fill(place: &DatasetRef, header: &DatasetHeader, element_bytes: usize) -> Result<Option<Vec<u8>>> {
    let props = &header.props;
    if props.fill_time == H5D_FILL_TIME_NEVER || props.fill_status != H5D_FILL_VALUE_USER_DEFINED {
        return Ok(None);
    }
    let Some(stored) = &props.fill else { return Ok(None) };
    let element = if stored.heap.is_empty() {
        stored.elements.clone()
    } else {
        let record = place.index().get_one(&place.fill_key())?;
        record.ok_or_else(|| place.corrupt("its fill value is missing"))?
    };
    if element.len() != element_bytes {
        return Err(place.corrupt("its fill value has the wrong size"));
    }
    Ok(element.iter().any(|byte| *byte != 0).then_some(element))
}

/// Bytes of a chunk; HDF5 requires less than 4 GiB.
pub fn chunk_bytes(place: &DatasetRef, chunk: &[u64], element_bytes: usize) -> Result<u64> {
    chunk
        .iter()
        .try_fold(element_bytes as u64, |product, c| product.checked_mul(*c))
        .filter(|bytes| *bytes > 0 && *bytes < 1 << 32)
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, place.name()).because("chunk size must be < 4GB and > 0"))
}

/// The filters as this module applies them: shuffle gets the element size as a parameter.
pub fn pipeline(header: &DatasetHeader, element_bytes: usize) -> Pipeline {
    pipeline_of(&header.props, element_bytes)
}

/// The filters by creation properties.
pub(super) fn pipeline_of(props: &DatasetProps, element_bytes: usize) -> Pipeline {
    let mut is_told = false;
    let filters = props.filters.iter().map(|f| {
        let mut params = f.params.clone();
        // HDF5 gives the size to the first shuffle only: a second one fails and, being optional, is left out.
        if f.id as u32 == SHUFFLE && params.is_empty() && !std::mem::replace(&mut is_told, true) {
            params.push(element_bytes as u32);
        }
        Filter { id: f.id as u32, flags: f.flags, params }
    });
    Pipeline { filters: filters.collect() }
}
