//! Object references of the old kind that a program reads as those of HDF5 1.12 (`H5T_STD_REF`), as HDF5's tools do.
//!
//! HDF5 converts them itself only where they are in a native file: here they are the objects' numbers.

use std::sync::Arc;

use crate::Result;
use crate::error::unsupported;
use crate::ffi::types::{H5P_DEFAULT, H5T_REFERENCE};
use crate::file::File;
use crate::meta::header;
use crate::meta::resolve::Place;
use crate::vol::visit::GroupId;

use super::Io;

/// Bytes of an old object reference, of a new reference in memory (`H5R_ref_t`).
pub const OLD_BYTES: usize = 8;
pub const NEW_BYTES: usize = 64;

/// True if a dataset of old object references is read as new ones.
pub fn are_asked_for(io: &Io<'_>) -> bool {
    let h5 = io.dataset.h5();
    // SAFETY: plain queries of two datatypes.
    let is = |dtype, bytes| unsafe { (h5.H5Tget_class)(dtype) == H5T_REFERENCE && (h5.H5Tget_size)(dtype) == bytes };
    is(io.dataset.header.dtype.get(), OLD_BYTES) && is(io.mem_type, NEW_BYTES)
}

/// New references for stored old ones. What refers to nothing (any more) becomes a reference to nothing: zeros.
pub fn new_ones(file: &Arc<File>, stored: &[u8]) -> Result<Vec<u8>> {
    let h5 = file.h5;
    let create = h5.H5Rcreate_object.ok_or_else(|| {
        unsupported("reading old object references as new ones with this libhdf5", "read them as H5T_STD_REF_OBJ")
    })?;
    let mut new = vec![0; stored.len() / OLD_BYTES * NEW_BYTES];
    for (old, new) in stored.as_chunks::<OLD_BYTES>().0.iter().zip(new.as_chunks_mut::<NEW_BYTES>().0) {
        let oid = u64::from_le_bytes(*old);
        if oid == 0 || header::find(file, oid)?.is_none() {
            continue;
        }
        let id = GroupId::new(h5, &Place { file: file.clone(), oid, path: Vec::new() })?;
        // HDF5's structure wants to be aligned as words are.
        let mut made = [0u64; NEW_BYTES / 8];
        // SAFETY: the id is valid; the place has the size and the alignment of a reference.
        let status = unsafe { create(id.get(), c".".as_ptr(), H5P_DEFAULT, made.as_mut_ptr().cast()) };
        crate::error::h5_check("H5Rcreate_object", status)?;
        for (word, bytes) in made.iter().zip(new.as_chunks_mut::<8>().0) {
            *bytes = word.to_ne_bytes();
        }
    }
    Ok(new)
}
