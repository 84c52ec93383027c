//! Old references (`H5T_STD_REF_OBJ`, `H5T_STD_REF_DSETREG`) in what `H5Ocopy` copies. With `H5O_COPY_EXPAND_REFERENCE_FLAG` their
//! targets are copied too and the references point to the copies; otherwise they become null where HDF5 makes them so. References
//! inside compounds and variable-length parts stay unchanged, as in HDF5.

use std::ffi::c_int;

use crate::error::unsupported;
use crate::ffi::types::{H5S_ALL, H5T_REFERENCE, hid_t};
use crate::ffi::{Api, Hid};
use crate::meta::attrs::Attr;
use crate::meta::resolve::Location;
use crate::meta::{header, keys, objects, transact};
use crate::object::Dataset;
use crate::regions::records::{self, REFERENCE_BYTES as REGION_BYTES};
use crate::{Result, blob, data, dtype};

use super::copy::{Job, one};

/// Size of a reference to an object.
const OBJECT_BYTES: usize = 8;
/// Most references of a dataset that are processed at once.
const ELEMENTS_MAX: u64 = 1 << 24;

/// Size of elements that are old references.
fn reference_bytes(h5: &'static Api, dtype: hid_t) -> Option<usize> {
    // SAFETY: plain queries of a datatype.
    let size = unsafe { ((h5.H5Tget_class)(dtype) == H5T_REFERENCE as c_int).then(|| (h5.H5Tget_size)(dtype)) };
    size.filter(|bytes| [OBJECT_BYTES, REGION_BYTES].contains(bytes))
}

/// Processes the references of an attribute.
pub fn in_attr(job: &mut Job, from: &Location, to: &Location, attr: &mut Attr) -> Result<()> {
    let Some(value) = &mut attr.value else { return Ok(()) };
    let h5 = to.file.h5;
    let dtype: Hid = dtype::decode(h5, &attr.dtype)?;
    let Some(bytes) = reference_bytes(h5, dtype.get()) else { return Ok(()) };
    if job.expands_references() {
        return translate(job, from, to, &mut value.elements, bytes);
    }
    value.elements.fill(0);
    Ok(())
}

/// Processes the references in the copy of a dataset. Within a file they stay unchanged.
pub fn in_dataset(job: &mut Job, from: &Location, to: &Location, copy: &Dataset) -> Result<()> {
    let count = copy.extent()?.npoints();
    let dtype = copy.header.dtype.get();
    let Some(bytes) = reference_bytes(copy.h5(), dtype) else { return Ok(()) };
    if from.file.is_same(&to.file) || count == 0 || count > ELEMENTS_MAX {
        return Ok(());
    }
    let mut elements = vec![0u8; count as usize * bytes];
    let part = data::Io {
        dataset: copy,
        mem_type: dtype,
        mem_space: H5S_ALL,
        file_space: H5S_ALL,
        buf: elements.as_mut_ptr().cast(),
    };
    let dxpl = copy.h5().H5P_LST_DATASET_XFER_ID_g();
    blob::with_file(&copy.file, || data::read(std::slice::from_ref(&part), dxpl))?;
    if elements.iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    if job.expands_references() {
        translate(job, from, to, &mut elements, bytes)?;
    } else {
        elements.fill(0);
    }
    blob::with_file(&copy.file, || data::write(std::slice::from_ref(&part), dxpl))
}

/// Turns references within one file into references to the copies in another.
fn translate(job: &mut Job, from: &Location, to: &Location, elements: &mut [u8], bytes: usize) -> Result<()> {
    for element in elements.chunks_exact_mut(bytes) {
        if let Ok(region) = <[u8; REGION_BYTES]>::try_from(&*element) {
            element.copy_from_slice(&region_copy(job, from, to, &region)?);
        } else {
            let oid = element.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            element.copy_from_slice(&pointed_at(job, from, to, oid)?.to_le_bytes());
        }
    }
    Ok(())
}

/// The copy of a reference's target; 0 for a null reference.
fn pointed_at(job: &mut Job, from: &Location, to: &Location, number: u64) -> Result<u64> {
    let oid = objects::canonical(&from.file, number)?;
    if oid == 0 || header::find(&from.file, oid)?.is_none() {
        return Ok(0);
    }
    let target = Location { file: from.file.clone(), oid, path: Vec::new() };
    let copy = one(job, &target, to, 1)?;
    job.pointed_at.push(copy);
    Ok(copy)
}

/// A reference to the same region of the copy.
fn region_copy(
    job: &mut Job,
    from: &Location,
    to: &Location,
    region: &[u8; REGION_BYTES],
) -> Result<[u8; REGION_BYTES]> {
    let nothing = [0; REGION_BYTES];
    if *region == nothing {
        return Ok(nothing);
    }
    if from.file.native.is_some() {
        return Err(unsupported(
            "copying what region references of a native file refer to",
            "copy without H5O_COPY_EXPAND_REFERENCE_FLAG, or use `cenote import`",
        ));
    }
    let Some(mut referred) = records::get(&from.file, region)? else { return Ok(nothing) };
    let Some(number) = referred.first_chunk_mut::<OBJECT_BYTES>() else { return Ok(nothing) };
    match pointed_at(job, from, to, u64::from_le_bytes(*number))? {
        0 => Ok(nothing),
        copy => {
            *number = copy.to_le_bytes();
            records::put(&to.file, &referred)
        }
    }
}

/// Links copies that only references lead to into the root group, under HDF5's name for them.
pub fn link_pointed_at(job: &mut Job, to: &Location) -> Result<()> {
    for copy in std::mem::take(&mut job.pointed_at) {
        if objects::link_count(&to.file, copy)? == 0 {
            let name = format!("~obj_pointed_by_{copy}");
            transact(&to.file, |tx| objects::link_hard(tx, &to.file, keys::ROOT, name.as_bytes(), copy, 0))?;
        }
    }
    Ok(())
}
