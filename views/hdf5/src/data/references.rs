//! Old references (`H5T_STD_REF_OBJ`, `H5T_STD_REF_DSETREG`) that a program reads as those of HDF5 1.12
//! (`H5T_STD_REF`), as HDF5's tools do.
//!
//! HDF5 converts them itself only in native files: here they name objects by number.

use std::ffi::c_void;
use std::sync::Arc;

use crate::Result;
use crate::error::{h5_check, unsupported};
use crate::ffi::Api;
use crate::ffi::types::{H5P_DEFAULT, H5T_REFERENCE, hid_t};
use crate::file::File;
use crate::meta::header::{self, Body};
use crate::meta::objects;
use crate::meta::resolve::Location;
use crate::regions;
use crate::regions::records::{self, REFERENCE_BYTES as REGION_BYTES};
use crate::vol::visit::GroupId;

/// Bytes of an old object reference.
const OBJECT_BYTES: usize = 8;
/// Bytes of a new reference in memory (`H5R_ref_t`).
pub const NEW_BYTES: usize = 64;

/// Size of the old references in elements of `dtype`, if they are read as new ones.
pub fn read_as_new(h5: &Api, dtype: hid_t, mem_type: hid_t) -> Option<usize> {
    // SAFETY: plain queries of two datatypes.
    let size = |dtype| unsafe { ((h5.H5Tget_class)(dtype) == H5T_REFERENCE).then(|| (h5.H5Tget_size)(dtype)) };
    let old = size(dtype).filter(|bytes| [OBJECT_BYTES, REGION_BYTES].contains(bytes))?;
    (size(mem_type) == Some(NEW_BYTES)).then_some(old)
}

/// New references for stored old ones of `old_bytes` each. A reference whose target does not exist (any more)
/// becomes a null reference: zeros.
pub fn new_ones(file: &Arc<File>, stored: &[u8], old_bytes: usize) -> Result<Vec<u8>> {
    let mut new = vec![0; stored.len() / old_bytes * NEW_BYTES];
    for (old, new) in stored.chunks_exact(old_bytes).zip(new.as_chunks_mut::<NEW_BYTES>().0) {
        // HDF5's structure must be aligned to words.
        let mut made = [0u64; NEW_BYTES / 8];
        let place = made.as_mut_ptr().cast();
        match <[u8; REGION_BYTES]>::try_from(old) {
            Ok(region) => to_region(file, &region, place)?,
            Err(_) => to_object(file, old, place)?,
        }
        for (word, bytes) in made.iter().zip(new.as_chunks_mut::<8>().0) {
            *bytes = word.to_ne_bytes();
        }
    }
    Ok(new)
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn id_of(file: &Arc<File>, oid: u64) -> Result<GroupId> {
    GroupId::new(file.h5, &Location { file: file.clone(), oid, path: Vec::new() })
}

/// Makes a new object reference. `place` has the size and the alignment of a new reference.
fn to_object(file: &Arc<File>, old: &[u8], place: *mut c_void) -> Result<()> {
    let create = file.h5.H5Rcreate_object.ok_or_else(|| {
        unsupported("reading old object references as new ones with this libhdf5", "read them as H5T_STD_REF_OBJ")
    })?;
    let oid = number(old);
    if oid == 0 || header::find(file, oid)?.is_none() {
        return Ok(());
    }
    let id = id_of(file, oid)?;
    // SAFETY: the id is valid; the place is one of a reference.
    h5_check("H5Rcreate_object", unsafe { create(id.get(), c".".as_ptr(), H5P_DEFAULT, place) }).map(|_| ())
}

/// Makes a new region reference. `place` is as above.
fn to_region(file: &Arc<File>, old: &[u8; REGION_BYTES], place: *mut c_void) -> Result<()> {
    let create = file.h5.H5Rcreate_region.ok_or_else(|| {
        unsupported("reading old region references as new ones with this libhdf5", "read them as H5T_STD_REF_DSETREG")
    })?;
    let Some(referred) = records::get(file, old)? else { return Ok(()) };
    let oid = objects::canonical(file, number(&referred))?;
    if !matches!(header::find(file, oid)?.map(|header| header.body), Some(Body::Dataset { .. })) {
        return Ok(());
    }
    let id = id_of(file, oid)?;
    let space = regions::selection(file.h5, id.get(), old)?;
    // SAFETY: as above.
    let status = unsafe { create(id.get(), c".".as_ptr(), space.get(), H5P_DEFAULT, place) };
    h5_check("H5Rcreate_region", status).map(|_| ())
}
