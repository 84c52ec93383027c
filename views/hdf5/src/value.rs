//! Self-contained values: elements in stored form with the variable-length parts beside them (attributes, fill values).

use std::ffi::c_void;
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::ffi::Api;
use crate::ffi::types::{H5P_DEFAULT, hid_t};
use crate::file::File;
use crate::meta::bytes::{Reader, Writer};
use crate::{Result, blob, dtype};

/// Elements in stored form ([`crate::dtype::disk`]) with the heap that their blob ids point into.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// The elements.
    pub elements: Vec<u8>,
    /// Variable-length parts; a blob id is an offset and a length in here.
    pub heap: Vec<u8>,
}

impl Stored {
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Writer) {
        w.bytes(&self.elements);
        w.bytes(&self.heap);
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { elements: r.bytes()?.to_vec(), heap: r.bytes()?.to_vec() })
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::LimitExceeded, "attribute or fill value")
        .because("it is larger than this machine's memory allows")
}

/// Runs a conversion of elements of `file` whose blobs are in `heap`.
fn in_file<T>(file: &Arc<File>, heap: Vec<u8>, f: impl FnOnce() -> T) -> (T, Vec<u8>) {
    blob::with_file(file, || blob::with_heap(heap, f))
}

/// Converts `count` elements from memory (`mem_type` at `buf`) into stored form of `dtype`.
pub fn store(file: &Arc<File>, dtype: hid_t, count: usize, mem_type: hid_t, buf: *const c_void) -> Result<Stored> {
    let h5 = file.h5;
    let pair = dtype::pair(file, dtype, mem_type)?;
    let (from, to) = (dtype::size(h5, pair.memory.get())?, dtype::size(h5, pair.stored.get())?);
    let bytes = count.checked_mul(from.max(to)).ok_or_else(too_large)?;
    if count == 0 {
        return Ok(Stored::default());
    }
    let mut work = vec![0u8; bytes];
    // SAFETY: HDF5 vouches that the program's buffer holds `count` elements of the memory type.
    work[..count * from].copy_from_slice(unsafe { std::slice::from_raw_parts(buf.cast::<u8>(), count * from) });
    let mut background = vec![0u8; bytes];
    let (converted, heap) = in_file(file, Vec::new(), || {
        dtype::convert(h5, pair.memory.get(), pair.stored.get(), count, &mut work, &mut background)
    });
    converted?;
    work.truncate(count * to);
    Ok(Stored { elements: work, heap })
}

/// Converts `count` stored elements of `dtype` into `mem_type` at `buf`.
pub fn load(
    file: &Arc<File>,
    dtype: hid_t,
    stored: &Stored,
    count: usize,
    mem_type: hid_t,
    buf: *mut c_void,
) -> Result<()> {
    let h5 = file.h5;
    let pair = dtype::pair(file, dtype, mem_type)?;
    let (from, to) = (dtype::size(h5, pair.stored.get())?, dtype::size(h5, pair.memory.get())?);
    if count == 0 {
        return Ok(());
    }
    if stored.elements.len() != count * from {
        return Err(Error::new(ErrorKind::Corrupt, format!("attribute or fill value in file {}", file.path)).because(
            format!("{} bytes are stored where {count} elements of {from} bytes belong", stored.elements.len()),
        ));
    }
    let bytes = count.checked_mul(from.max(to)).ok_or_else(too_large)?;
    let mut work = vec![0u8; bytes];
    work[..count * from].copy_from_slice(&stored.elements);
    let mut background = vec![0u8; bytes];
    let (converted, _) = in_file(file, stored.heap.clone(), || {
        dtype::convert(h5, pair.stored.get(), pair.memory.get(), count, &mut work, &mut background)
    });
    converted?;
    // SAFETY: HDF5 vouches that the program's buffer has room for `count` elements of the memory type.
    unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), count * to) }.copy_from_slice(&work[..count * to]);
    Ok(())
}

/// Frees the variable-length parts of one element in memory.
pub fn reclaim(h5: &'static Api, dtype: hid_t, element: *mut c_void) {
    // SAFETY: the element is a valid one of its type, made by HDF5 or by `load`.
    unsafe {
        let space = (h5.H5Screate)(crate::ffi::types::H5S_SCALAR);
        if space > 0 {
            (h5.H5Treclaim)(dtype, space, H5P_DEFAULT, element);
            (h5.H5Sclose)(space);
        }
    }
}

/// Zeroes `count` elements of `mem_type` at `buf`: what reading a value never written gives.
pub fn zero(h5: &'static Api, count: usize, mem_type: hid_t, buf: *mut c_void) -> Result<()> {
    let bytes = dtype::size(h5, mem_type)?.checked_mul(count).ok_or_else(too_large)?;
    // SAFETY: HDF5 vouches that the program's buffer has room for `count` elements of the memory type.
    unsafe { std::ptr::write_bytes(buf.cast::<u8>(), 0, bytes) };
    Ok(())
}
