//! Queries about storage: sizes, status, and HDF5's calls about single chunks.

use std::ffi::{c_int, c_uint, c_void};

use cenote::{Error, ErrorKind};

use super::body::Body;
use super::chunked::Chunked;
use super::native::NativeChunk;
use super::place::ChunkRecord;
use super::{select, transfer};
use crate::Result;
use crate::error::unsupported;
use crate::ffi::LibraryVersion;
use crate::ffi::class::{
    NATIVE_DATASET_CHUNK_ITER, NATIVE_DATASET_CHUNK_READ, NATIVE_DATASET_CHUNK_WRITE, NATIVE_DATASET_FORMAT_CONVERT,
    NATIVE_DATASET_GET_CHUNK_INDEX_TYPE, NATIVE_DATASET_GET_CHUNK_INFO_BY_COORD, NATIVE_DATASET_GET_CHUNK_INFO_BY_IDX,
    NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE, NATIVE_DATASET_GET_NUM_CHUNKS, NATIVE_DATASET_GET_OFFSET,
    NATIVE_DATASET_GET_VLEN_BUF_SIZE,
};
use crate::ffi::types::{
    H5D_ALLOC_TIME_EARLY, H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_UNDEFINED, H5D_SPACE_STATUS_ALLOCATED,
    H5D_SPACE_STATUS_NOT_ALLOCATED, H5D_SPACE_STATUS_PART_ALLOCATED, H5S_ALL, haddr_t, herr_t, hid_t, hsize_t,
};
use crate::object::Dataset;
use crate::props::{DatasetProps, Layout};

const HADDR_UNDEF: haddr_t = u64::MAX;
/// Address of the first chunk as programs see it: address 0 would look like none.
const ADDRESS_BASE: haddr_t = 4096;

/// Creation properties, see [`super::props`].
pub fn props(dataset: &Dataset) -> DatasetProps {
    let mut props = dataset.header.props.clone();
    let Body::Chunked(chunks) = &dataset.data.body else { return props };
    match chunks.facts.native.as_ref().map(NativeChunk::filters) {
        Some(Ok(filters)) => props.filters = filters,
        Some(Err(_)) => {} // if a filter is missing, the filters stay as the program set them
        None => {
            for (filter, told) in props.filters.iter_mut().zip(&chunks.facts.pipeline.filters) {
                filter.params.clone_from(&told.params);
            }
        }
    }
    props
}

/// Storage size, see [`super::storage_size`].
pub fn storage_size(dataset: &Dataset) -> Result<u64> {
    let state = &dataset.data;
    match &state.body {
        Body::Native(native) => Ok(native.storage_size()),
        Body::Empty | Body::Virtual(_) | Body::Countless => Ok(0),
        // As in HDF5: for the extent at creation.
        Body::External(_) => Ok(dataset.header.extent.npoints().saturating_mul(state.element_bytes as u64)),
        Body::Plain { elements, .. } | Body::Blocks { elements, .. } => {
            Ok(if is_allocated(dataset)? { elements * state.element_bytes as u64 } else { 0 })
        }
        Body::Chunked(chunks) => {
            let existing = chunks.existing()?;
            let stored: u64 = existing.iter().map(|(_, record)| record.bytes).sum();
            if dataset.header.props.alloc_time != H5D_ALLOC_TIME_EARLY {
                return Ok(stored);
            }
            // HDF5 would have allocated the missing chunks when it made the dataset.
            let missing = chunks.geometry()?.chunks().saturating_sub(existing.len() as u64);
            Ok(if missing == 0 { stored } else { stored + missing * chunks.fill_bytes_stored()? })
        }
    }
}

/// Refuses, as HDF5 does, to read a dataset with neither storage nor a fill value.
pub fn check_readable(dataset: &Dataset) -> Result<()> {
    let props = &dataset.header.props;
    if props.fill_status != H5D_FILL_VALUE_UNDEFINED
        || props.fill_time == H5D_FILL_TIME_NEVER
        || matches!(dataset.data.body, Body::Empty)
        || may_be_allocated(dataset)?
    {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, dataset.name())
        .because("read requested with no storage allocated and undefined fill value")
        .try_next("write it first, or give it a fill value"))
}

/// Returns false for datasets whose layout allocates space and that have none allocated.
pub(super) fn may_be_allocated(dataset: &Dataset) -> Result<bool> {
    match &dataset.data.body {
        Body::Plain { .. } | Body::Blocks { .. } | Body::Chunked(_) => is_allocated(dataset),
        _ => Ok(true),
    }
}

pub(super) fn is_allocated(dataset: &Dataset) -> Result<bool> {
    let props = &dataset.header.props;
    let is_early = props.alloc_time == H5D_ALLOC_TIME_EARLY;
    if props.layout == Layout::Compact {
        return Ok(true);
    }
    match &dataset.data.body {
        Body::Plain { object, elements } => Ok(*elements > 0 && (is_early || object.stat()?.size > 0)),
        Body::Blocks { chunks, elements } => Ok(*elements > 0 && (is_early || chunks.had_any()?)),
        Body::Chunked(chunks) => Ok(is_early || chunks.had_any()?),
        Body::Empty | Body::Native(_) | Body::Countless => Ok(false),
        Body::External(_) | Body::Virtual(_) => Ok(true),
    }
}

/// Space status, see [`super::space_status`].
pub fn space_status(dataset: &Dataset) -> Result<c_int> {
    if let Body::Native(native) = &dataset.data.body {
        return native.space_status(|| dataset.name());
    }
    if let Body::Chunked(chunks) = &dataset.data.body {
        let (have, all) = (chunks.existing()?.len() as u64, chunks.geometry()?.chunks());
        return Ok(match have {
            _ if all > 0 && dataset.header.props.alloc_time == H5D_ALLOC_TIME_EARLY => H5D_SPACE_STATUS_ALLOCATED,
            0 => H5D_SPACE_STATUS_NOT_ALLOCATED,
            _ if have == all => H5D_SPACE_STATUS_ALLOCATED,
            _ => H5D_SPACE_STATUS_PART_ALLOCATED,
        });
    }
    Ok(if is_allocated(dataset)? { H5D_SPACE_STATUS_ALLOCATED } else { H5D_SPACE_STATUS_NOT_ALLOCATED })
}

impl Chunked {
    /// Stored size of a chunk of fill values only, in bytes.
    fn fill_bytes_stored(&self) -> Result<u64> {
        if self.facts.pipeline.is_empty() {
            return Ok(self.facts.chunk_bytes);
        }
        let mut image = vec![0; self.facts.chunk_bytes as usize];
        super::chunked::fill_bytes(&mut image, self.facts.fill.as_deref());
        Ok(self.encode(&image)?.0.len() as u64)
    }

    /// Returns true if any chunk exists or existed: HDF5 keeps the index that it made for the first one.
    fn had_any(&self) -> Result<bool> {
        self.flush_aside()?;
        let index = self.place.index();
        Ok(index.iter(&self.place.chunk_prefix()).next().transpose()?.is_some()
            || index.get_one(&self.place.had_key())?.is_some())
    }

    /// Every existing chunk: grid coordinates and record, row-major.
    pub(super) fn existing(&self) -> Result<Vec<(Vec<u64>, ChunkRecord)>> {
        self.flush_aside()?;
        let rank = self.facts.chunk.len();
        self.place
            .index()
            .iter(&self.place.chunk_prefix())
            .map(|record| {
                let (key, value) = record?;
                Ok((self.place.chunk_coords(&key, rank)?, self.record(&value)?))
            })
            .collect()
    }

    /// Grid coordinates of the chunk whose first element is at `offset`.
    fn at_offset(&self, offset: &[u64]) -> Result<Vec<u64>> {
        let geometry = self.geometry()?;
        let bad = |cause: &str| Error::new(ErrorKind::InvalidInput, self.place.name()).because(cause);
        for ((x, c), d) in offset.iter().zip(&self.facts.chunk).zip(geometry.dims()) {
            if x >= d {
                return Err(bad("offset exceeds dimensions of dataset"));
            }
            if x % c != 0 {
                return Err(bad("offset doesn't fall on chunk's boundary"));
            }
        }
        Ok(offset.iter().zip(&self.facts.chunk).map(|(x, c)| x / c).collect())
    }

    /// Grid coordinates of the chunk with the element at `offset`, which may lie outside the extent.
    fn around(&self, offset: &[u64]) -> Vec<u64> {
        offset.iter().zip(&self.facts.chunk).map(|(x, c)| x / c).collect()
    }

    fn record_at(&self, coords: &[u64]) -> Result<Option<ChunkRecord>> {
        self.flush_aside()?;
        let stored = self.place.index().get_one(&self.place.chunk_key(coords))?;
        stored.map(|bytes| self.record(&bytes)).transpose()
    }

    fn address(&self, record: &ChunkRecord) -> Result<haddr_t> {
        Ok(ADDRESS_BASE + self.slot_offset(record.slot)?)
    }

    /// The stored bytes of a chunk, and its filter mask.
    pub(super) fn read_raw(&self, coords: &[u64]) -> Result<(Vec<u8>, u32)> {
        for _ in 0..1000 {
            let Some(record) = self.record_at(coords)? else {
                return Err(Error::new(ErrorKind::NotFound, self.place.name())
                    .because("chunk address isn't defined: it was never written"));
            };
            let mut bytes = vec![0; record.bytes as usize];
            let offset = self.slot_offset(record.slot)?;
            self.place.wait_for_others(&self.object, offset, record.bytes)?;
            transfer::read_range(&self.object, offset, &mut bytes)?;
            if self.record_at(coords)? == Some(record) {
                return Ok((bytes, record.mask));
            }
        }
        Err(Error::new(ErrorKind::Busy, self.place.name())
            .because("a chunk was rewritten faster than it could be read"))
    }

    /// Stores a chunk in stored form.
    pub(super) fn write_raw(&self, coords: &[u64], bytes: &[u8], mask: u32) -> Result<()> {
        if self.facts.pipeline.is_empty() && bytes.len() as u64 != self.facts.chunk_bytes
            || bytes.len() as u64 > self.slot_bytes()
        {
            return Err(Error::new(ErrorKind::InvalidInput, self.place.name())
                .because(format!("{} bytes are not a chunk of this dataset", bytes.len())));
        }
        let geometry = self.geometry()?;
        self.drop_aside(coords);
        let key = self.place.chunk_key(coords);
        let number = geometry.number(coords).unwrap_or_default();
        let mut new_slot = None;
        self.place.transact(|tx| {
            let old = tx.get(self.place.index(), &key)?.map(|bytes| self.record(&bytes)).transpose()?;
            let slot = match (old, new_slot) {
                (Some(old), _) => old.slot,
                (None, Some(slot)) => slot,
                (None, None) => *new_slot.insert(self.new_slot(&geometry, number)?),
            };
            self.put_chunk(tx, old, &key, slot, bytes, mask).map(|_| ())
        })
    }
}

#[repr(C)]
struct ByIndex {
    space: hid_t,
    index: hsize_t,
    offset: *mut hsize_t,
    mask: *mut c_uint,
    address: *mut haddr_t,
    size: *mut hsize_t,
}
#[repr(C)]
struct ByCoord {
    offset: *const hsize_t,
    mask: *mut c_uint,
    address: *mut haddr_t,
    size: *mut hsize_t,
}
#[repr(C)]
struct NumChunks {
    space: hid_t,
    count: *mut hsize_t,
}
#[repr(C)]
struct VlenBufSize {
    mem_type: hid_t,
    space: hid_t,
    size: *mut hsize_t,
}
#[repr(C)]
struct StorageSize {
    offset: *const hsize_t,
    size: *mut hsize_t,
}
#[repr(C)]
struct ChunkRead {
    offset: *const hsize_t,
    mask: u32,
    buf: *mut c_void,
    /// Since HDF5 2.0.
    buf_bytes: *mut usize,
}
/// Up to HDF5 1.14.
#[repr(C)]
struct ChunkWrite1 {
    offset: *const hsize_t,
    mask: u32,
    bytes: u32,
    buf: *const c_void,
}
/// Since HDF5 2.0.
#[repr(C)]
struct ChunkWrite2 {
    offset: *const hsize_t,
    mask: u32,
    bytes: usize,
    buf: *const c_void,
}
type ChunkOp = unsafe extern "C" fn(*const hsize_t, c_uint, haddr_t, hsize_t, *mut c_void) -> c_int;
#[repr(C)]
struct ChunkIter {
    op: Option<ChunkOp>,
    data: *mut c_void,
}

/// Writes to a place unless the program left it null.
unsafe fn give<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller vouches for a non-null place.
        unsafe { place.write(value) };
    }
}

/// Carries out an optional operation, see [`super::optional`].
pub fn optional(dataset: &Dataset, op: c_int, args: *mut c_void, dxpl: hid_t) -> Result<()> {
    if let Body::Native(native) = &dataset.data.body {
        return native.optional(|| dataset.name(), op, args, dxpl);
    }
    if op == NATIVE_DATASET_GET_OFFSET {
        // SAFETY: HDF5 passes this operation's arguments.
        unsafe { give(*args.cast::<*mut haddr_t>(), HADDR_UNDEF) };
        return Ok(());
    }
    if op == NATIVE_DATASET_FORMAT_CONVERT {
        // Only one format exists.
        return Ok(());
    }
    if op == NATIVE_DATASET_GET_VLEN_BUF_SIZE {
        // SAFETY: as above.
        let args = unsafe { &*args.cast::<VlenBufSize>() };
        let bytes = super::parts::bytes(dataset, args.mem_type, args.space)?;
        // SAFETY: HDF5 passes a place or null.
        unsafe { give(args.size, bytes) };
        return Ok(());
    }
    if op == NATIVE_DATASET_GET_NUM_CHUNKS && matches!(dataset.data.body, Body::Countless) {
        // SAFETY: HDF5 passes the arguments of the operation that it names.
        unsafe { give((*args.cast::<NumChunks>()).count, 0) };
        return Ok(());
    }
    let Body::Chunked(chunks) = &dataset.data.body else {
        return Err(Error::new(ErrorKind::InvalidInput, dataset.name()).because("not a chunked dataset"));
    };
    let rank = chunks.facts.chunk.len();
    let modern = dataset.h5().version >= LibraryVersion::new(2, 0);
    // SAFETY: HDF5 passes the arguments of the operation that it names; offsets have an entry for each dimension.
    unsafe {
        match op {
            NATIVE_DATASET_GET_CHUNK_INDEX_TYPE => {
                give(*args.cast::<*mut c_int>(), index_type(dataset));
                Ok(())
            }
            NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE => {
                let args = &*args.cast::<StorageSize>();
                let coords = chunks.around(std::slice::from_raw_parts(args.offset, rank));
                match chunks.record_at(&coords)? {
                    Some(record) => give(args.size, record.bytes),
                    // As in HDF5: neither an error nor a size while no chunk was ever made.
                    None if !chunks.had_any()? => {}
                    None => {
                        return Err(Error::new(ErrorKind::NotFound, dataset.name())
                            .because("chunk storage is not allocated: it was never written"));
                    }
                }
                Ok(())
            }
            NATIVE_DATASET_GET_NUM_CHUNKS => {
                let args = &*args.cast::<NumChunks>();
                give(args.count, selected(dataset, chunks, args.space)?.len() as u64);
                Ok(())
            }
            NATIVE_DATASET_GET_CHUNK_INFO_BY_IDX => info_by_index(dataset, chunks, &*args.cast::<ByIndex>()),
            NATIVE_DATASET_GET_CHUNK_INFO_BY_COORD => {
                let args = &*args.cast::<ByCoord>();
                let coords = chunks.around(std::slice::from_raw_parts(args.offset, rank));
                let record = chunks.record_at(&coords)?;
                give(args.mask, record.map_or(0, |record| record.mask));
                give(args.size, record.map_or(0, |record| record.bytes));
                give(args.address, record.map_or(Ok(HADDR_UNDEF), |record| chunks.address(&record))?);
                Ok(())
            }
            NATIVE_DATASET_CHUNK_READ => {
                let args = &mut *args.cast::<ChunkRead>();
                let coords = chunks.at_offset(std::slice::from_raw_parts(args.offset, rank))?;
                let (bytes, mask) = chunks.read_raw(&coords)?;
                args.mask = mask;
                let room = if modern { args.buf_bytes.as_ref().copied() } else { None };
                if !args.buf.is_null() && room.is_none_or(|room| room >= bytes.len()) {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), args.buf.cast(), bytes.len());
                }
                if modern {
                    give(args.buf_bytes, bytes.len());
                }
                Ok(())
            }
            NATIVE_DATASET_CHUNK_WRITE => {
                dataset.file.need_writable(&dataset.name())?;
                let (offset, mask, len, buf) = if modern {
                    let args = &*args.cast::<ChunkWrite2>();
                    (args.offset, args.mask, args.bytes, args.buf)
                } else {
                    let args = &*args.cast::<ChunkWrite1>();
                    (args.offset, args.mask, args.bytes as usize, args.buf)
                };
                let coords = chunks.at_offset(std::slice::from_raw_parts(offset, rank))?;
                chunks.write_raw(&coords, std::slice::from_raw_parts(buf.cast(), len), mask)
            }
            NATIVE_DATASET_CHUNK_ITER => iterate(chunks, &*args.cast::<ChunkIter>()),
            _ => Err(unsupported(format!("operation {op} on a dataset"), "use another call")),
        }
    }
}

/// The index type that HDF5 itself would use (of its newer ones).
fn index_type(dataset: &Dataset) -> c_int {
    let extent = &dataset.header.extent;
    match extent.max_dims().iter().filter(|d| **d == u64::MAX).count() {
        0 => 3,
        1 => 4,
        _ => 5,
    }
}

/// The existing chunks that intersect the selection of a dataspace.
fn selected(dataset: &Dataset, chunks: &Chunked, space: hid_t) -> Result<Vec<(Vec<u64>, ChunkRecord)>> {
    let mut existing = chunks.existing()?;
    if space == H5S_ALL {
        return Ok(existing);
    }
    let h5 = dataset.h5();
    // SAFETY: query of a dataspace.
    if unsafe { (h5.H5Sget_select_type)(space) } == crate::ffi::types::H5S_SEL_ALL {
        return Ok(existing);
    }
    let dims = select::dims_of(h5, space)?;
    existing.retain(|(coords, _)| {
        let low: Vec<u64> = coords.iter().zip(&chunks.facts.chunk).map(|(x, c)| x * c).collect();
        let high: Vec<u64> =
            low.iter().zip(&chunks.facts.chunk).zip(&dims).map(|((l, c), d)| (l + c).min(*d).max(l + 1) - 1).collect();
        // SAFETY: both corners have an entry for each dimension.
        low.len() == dims.len() && unsafe { (h5.H5Sselect_intersect_block)(space, low.as_ptr(), high.as_ptr()) > 0 }
    });
    Ok(existing)
}

unsafe fn info_by_index(dataset: &Dataset, chunks: &Chunked, args: &ByIndex) -> Result<()> {
    let list = selected(dataset, chunks, args.space)?;
    let Some((coords, record)) = usize::try_from(args.index).ok().and_then(|i| list.get(i)) else {
        return Err(Error::new(ErrorKind::InvalidInput, dataset.name()).because("chunk index is out of range"));
    };
    // SAFETY: the caller vouches for the places that HDF5 passed on.
    unsafe {
        if !args.offset.is_null() {
            for (i, (x, c)) in coords.iter().zip(&chunks.facts.chunk).enumerate() {
                args.offset.add(i).write(x * c);
            }
        }
        give(args.mask, record.mask);
        give(args.address, chunks.address(record)?);
        give(args.size, record.bytes);
    }
    Ok(())
}

unsafe fn iterate(chunks: &Chunked, args: &ChunkIter) -> Result<()> {
    let Some(op) = args.op else {
        return Err(Error::new(ErrorKind::InvalidInput, "H5Dchunk_iter").because("no function was given"));
    };
    for (coords, record) in chunks.existing()? {
        let offset: Vec<u64> = coords.iter().zip(&chunks.facts.chunk).map(|(x, c)| x * c).collect();
        let address = chunks.address(&record)?;
        // SAFETY: the program's function, with the arguments that HDF5 documents.
        let status: herr_t = unsafe { op(offset.as_ptr(), record.mask, address, record.bytes, args.data) };
        if status < 0 {
            return Err(Error::new(ErrorKind::InvalidInput, "H5Dchunk_iter").because("the program's function failed"));
        }
        if status > 0 {
            break;
        }
    }
    Ok(())
}
