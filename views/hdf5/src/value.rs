//! Self-contained values: elements in stored form with the variable-length parts beside them (attributes, fill values).

use std::ffi::c_void;
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::data::{Background, Conversion, references};
use crate::ffi::Api;
use crate::ffi::types::{H5P_DEFAULT, H5T_COMPOUND, hid_t};
use crate::file::File;
use crate::meta::bytes::{Encode, Reader};
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
    pub fn encode(&self, w: &mut Vec<u8>) {
        w.put_bytes(&self.elements);
        w.put_bytes(&self.heap);
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

/// Runs a conversion of elements of `file`, with blobs in `heap`.
fn in_file<T>(file: &Arc<File>, heap: Vec<u8>, f: impl FnOnce() -> T) -> (T, Vec<u8>) {
    blob::with_file(file, || blob::with_heap(heap, f))
}

/// Returns true if elements of `mem_type` lack fields of `dtype`, so that storing them needs the stored value.
pub fn is_partial(file: &Arc<File>, dtype: hid_t, mem_type: hid_t) -> Result<bool> {
    let pair = dtype::pair(file, dtype, mem_type)?;
    keeps_fields(file.h5, pair.memory.get(), pair.stored.get())
}

/// Returns true if a conversion leaves fields of the destination unchanged.
fn keeps_fields(h5: &'static Api, from: hid_t, to: hid_t) -> Result<bool> {
    // SAFETY: a plain query of a datatype. Only compounds have fields, and most attributes are not compounds.
    let has_fields = unsafe { (h5.H5Tdetect_class)(to, H5T_COMPOUND) } > 0;
    Ok(has_fields && Conversion::new(h5, from, to)?.background == Background::Elements)
}

/// Converts `count` elements from memory (`mem_type` at `buf`) into stored form of `dtype`. Fields that `mem_type` lacks
/// come from `old`; without it, they are zeros.
pub fn store(
    file: &Arc<File>,
    dtype: hid_t,
    count: usize,
    mem_type: hid_t,
    buf: *const c_void,
    old: Option<&Stored>,
) -> Result<Stored> {
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
    let mut heap = Vec::new();
    if let Some(old) = old.filter(|old| old.elements.len() == count * to) {
        background[..count * to].copy_from_slice(&old.elements);
        heap.clone_from(&old.heap);
    }
    let (converted, heap) = in_file(file, heap, || {
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
    if let Some(old_bytes) = references::read_as_new(h5, dtype, mem_type) {
        let new = references::new_ones(file, &stored.elements, old_bytes)?;
        let bytes = new.len().min(count * references::NEW_BYTES);
        // SAFETY: HDF5 vouches that the program's buffer has room for `count` elements of the memory type.
        unsafe { std::ptr::copy_nonoverlapping(new.as_ptr(), buf.cast::<u8>(), bytes) };
        return Ok(());
    }
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
    // SAFETY: HDF5 vouches that the program's buffer has room for `count` elements of the memory type.
    let user = unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), count * to) };
    if keeps_fields(h5, pair.stored.get(), pair.memory.get())? {
        background[..count * to].copy_from_slice(user);
    }
    let (converted, _) = in_file(file, stored.heap.clone(), || {
        dtype::convert(h5, pair.stored.get(), pair.memory.get(), count, &mut work, &mut background)
    });
    converted?;
    user.copy_from_slice(&work[..count * to]);
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

/// Zeroes `count` elements of `mem_type` at `buf`: the result of reading a value never written.
pub fn zero(h5: &'static Api, count: usize, mem_type: hid_t, buf: *mut c_void) -> Result<()> {
    let bytes = dtype::size(h5, mem_type)?.checked_mul(count).ok_or_else(too_large)?;
    // SAFETY: HDF5 vouches that the program's buffer has room for `count` elements of the memory type.
    unsafe { std::ptr::write_bytes(buf.cast::<u8>(), 0, bytes) };
    Ok(())
}
