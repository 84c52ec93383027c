//! Creating, opening, deleting and copying the raw data of datasets.

use std::ffi::c_void;
use std::sync::Arc;

use cenote::{Error, ErrorKind, Object, Transaction};

use super::body::{Body, DatasetState, chunk_bytes, pipeline};
use super::heap::Session;
use super::native::NativeChunk;
use super::place::{self, DatasetRef};
use super::transfer;
use crate::error::{h5_check, unsupported};
use crate::ffi::types::{H5P_DEFAULT, H5T_FLOAT, H5T_INTEGER, hid_t};
use crate::file::{Core, File};
use crate::object::{Dataset, DatasetHeader};
use crate::props::Layout;
use crate::value;
use crate::{Result, dtype};

/// Largest compact dataset, as in HDF5.
const COMPACT_BYTES_MAX: u64 = 64 << 10;
/// Bytes copied at a time.
const COPY_BYTES: usize = 4 << 20;

/// Size of a stored element in bytes, and whether it names bytes in the heap.
fn stored_form(file: &Arc<File>, dtype: hid_t) -> Result<(usize, bool)> {
    let h5 = file.h5;
    // SAFETY: queries of a datatype.
    let simple = unsafe { matches!((h5.H5Tget_class)(dtype), H5T_INTEGER | H5T_FLOAT) };
    let blobs = !simple && dtype::names_blobs(h5, dtype);
    let bytes = if simple {
        // SAFETY: as above.
        unsafe { (h5.H5Tget_size)(dtype) }
    } else {
        let stored = dtype::disk(file, dtype)?;
        // SAFETY: as above.
        unsafe { (h5.H5Tget_size)(stored.get()) }
    };
    if bytes == 0 || bytes >= 1 << 32 {
        return Err(Error::new(ErrorKind::InvalidInput, "datatype").because(format!("its elements have {bytes} bytes")));
    }
    Ok((bytes, blobs))
}

/// Creates raw data, see [`super::create`].
pub fn create(tx: &mut Transaction, file: &Arc<File>, oid: u64, header: &DatasetHeader) -> Result<()> {
    let place = DatasetRef { file: file.clone(), oid };
    let (element_bytes, blobs) = stored_form(file, header.dtype.get())?;
    check(&place, header, element_bytes)?;
    tx.create_object(&file.container, Some(place.object_id()), None)?;
    if blobs {
        let heap = tx.create_object(&file.container, Some(place.heap_id()), None)?;
        let used = store_fill(tx, &place, &heap, header, element_bytes)?;
        tx.put(place.index(), &place.heap_key(), &used.to_le_bytes())?;
    }
    Ok(())
}

/// Refuses impossible layouts and missing filters.
fn check(place: &DatasetRef, header: &DatasetHeader, element_bytes: usize) -> Result<()> {
    let bad = |cause: String| Err(Error::new(ErrorKind::InvalidInput, "a new dataset").because(cause));
    let (dims, max) = (header.extent.dims(), header.extent.max_dims());
    match &header.props.layout {
        Layout::Chunked(chunk) => {
            if chunk.len() != dims.len() || dims.is_empty() {
                return bad(format!("its {}-dimensional chunks do not fit {} dimensions", chunk.len(), dims.len()));
            }
            if chunk.contains(&0) {
                return bad("chunk size must be > 0".to_string());
            }
            chunk_bytes(place, chunk, element_bytes)?;
            let pipeline = pipeline(header, element_bytes);
            pipeline.check("a new dataset")?;
            if pipeline.is_ours() {
                return Ok(());
            }
            NativeChunk::new(&place.file, header, element_bytes)?.check()
        }
        _ if !header.props.filters.is_empty() => bad("filters can only be used with chunked layout".to_string()),
        Layout::Virtual(_) => super::virt::check(header),
        Layout::External(segments) => super::external::check(header, segments, element_bytes),
        layout => {
            if dims != max {
                return bad("a dataset that can be extended must be chunked".to_string());
            }
            let bytes = dims.iter().try_fold(element_bytes as u64, |product, d| product.checked_mul(*d));
            match bytes {
                None => bad("its size passes 2^64 bytes".to_string()),
                Some(bytes) if bytes >= 1 << 63 => bad("its size passes 2^63 bytes".to_string()),
                Some(bytes) if *layout == Layout::Compact && bytes > COMPACT_BYTES_MAX => {
                    bad("compact dataset size is bigger than header message maximum size".to_string())
                }
                _ => Ok(()),
            }
        }
    }
}

/// Stores a fill value with variable-length parts. Returns the heap bytes that it takes.
fn store_fill(
    tx: &mut Transaction,
    place: &DatasetRef,
    heap: &Object,
    header: &DatasetHeader,
    element_bytes: usize,
) -> Result<u64> {
    let Some(fill) = header.props.fill.as_ref().filter(|fill| !fill.heap.is_empty()) else { return Ok(0) };
    let (file, dtype) = (&place.file, header.dtype.get());
    let h5 = file.h5;
    // SAFETY: query of a datatype.
    let memory_bytes = unsafe { (h5.H5Tget_size)(dtype) };
    let mut element = vec![0u8; memory_bytes.max(element_bytes)];
    value::load(file, dtype, fill, 1, dtype, element.as_mut_ptr().cast::<c_void>())?;
    let mut stored = element.clone();
    let pair = dtype::pair(file, dtype, dtype)?;
    let convert = || {
        let conversion = super::convert::Conversion::new(h5, pair.memory.get(), pair.stored.get())?;
        let mut background = vec![0; element.len()];
        conversion.run(1, &mut stored, &mut background, H5P_DEFAULT)
    };
    let (done, session) = Session::fresh(place).run(convert);
    // HDF5 frees the parts that `load` allocated.
    // SAFETY: one element of the type, in a scalar dataspace.
    let freed = unsafe {
        let space = (h5.H5Screate)(crate::ffi::types::H5S_SCALAR);
        let freed = (h5.H5Treclaim)(dtype, space, H5P_DEFAULT, element.as_mut_ptr().cast());
        (h5.H5Sclose)(space);
        freed
    };
    done?;
    h5_check("H5Treclaim", freed)?;
    let (at, bytes, end) = session.into_parts();
    if !bytes.is_empty() {
        tx.write(heap, at, &bytes)?;
    }
    tx.put(place.index(), &place.fill_key(), &stored[..element_bytes])?;
    Ok(end)
}

/// Opens raw data, see [`super::open`].
pub fn open(file: &Arc<File>, oid: u64, header: &DatasetHeader) -> Result<DatasetState> {
    let (element_bytes, blobs) = stored_form(file, header.dtype.get())?;
    DatasetState::new(DatasetRef { file: file.clone(), oid }, header, element_bytes, blobs)
}

/// Deletes raw data, see [`super::delete`].
pub fn delete(tx: &mut Transaction, file: &Core, oid: u64) -> Result<()> {
    let heap = place::heap_key(oid);
    // A write that arrives later would find no object.
    file.shared.ahead().wait_for_all_others()?;
    tx.delete_object(&file.object(oid))?;
    if file.meta.get_one(&heap)?.is_some() {
        tx.delete_object(&file.object(oid | place::HEAP_BIT))?;
    }
    for key in [place::generation_key(oid), place::slot_key(oid), heap, place::fill_key(oid), place::had_key(oid)] {
        tx.del(&file.meta, &key)?;
    }
    for record in file.meta.iter(&place::chunk_prefix(oid)) {
        tx.del(&file.meta, &record?.0)?;
    }
    Ok(())
}

/// Copies raw data, see [`super::copy`].
pub fn copy(from: &Dataset, to: &Dataset) -> Result<()> {
    let (source, target) = (&from.data, &to.data);
    if source.element_bytes != target.element_bytes {
        return Err(unsupported("copying between files whose stored forms differ", "read and write the dataset"));
    }
    if let Body::Native(native) = &source.body {
        return super::foreign::copy(native, from, to);
    }
    source.place.wait_for_all_others()?;
    // Bytes first, then the records that refer to them.
    match (&source.body, &target.body) {
        (Body::Plain { object, .. }, Body::Plain { object: copy, .. }) => copy_object(object, copy)?,
        (Body::Blocks { chunks, .. }, Body::Blocks { chunks: copy, .. })
        | (Body::Chunked(chunks), Body::Chunked(copy)) => chunks.copy_to(copy)?,
        _ => {}
    }
    if source.blobs {
        copy_object(&source.place.heap(), &target.place.heap())?;
    }
    let keys = |place: &DatasetRef| [place.slot_key(), place.heap_key(), place.fill_key(), place.had_key()];
    for (key, copy) in keys(&source.place).iter().zip(&keys(&target.place)) {
        if let Some(record) = source.place.index().get_one(key)? {
            target.place.index().put(&[(copy, &record)])?;
        }
    }
    Ok(())
}

/// Copies everything but zeros, and the size, up to which bytes were written, even if zeros.
fn copy_object(from: &Object, to: &Object) -> Result<()> {
    let size = from.stat()?.size;
    let mut bytes = vec![0; COPY_BYTES];
    let (mut at, mut written) = (0, 0);
    while at < size {
        let len = (size - at).min(COPY_BYTES as u64) as usize;
        transfer::read_range(from, at, &mut bytes[..len])?;
        if bytes[..len].iter().any(|byte| *byte != 0) {
            to.write_at(at, &bytes[..len])?;
            written = at + len as u64;
        }
        at += len as u64;
    }
    if written < size { to.truncate(size) } else { Ok(()) }
}
