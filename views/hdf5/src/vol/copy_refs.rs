//! Object references in what `H5Ocopy` copies: with `H5O_COPY_EXPAND_REFERENCE_FLAG` what they point to is copied too and
//! they point to the copy; else they are null where HDF5 makes them so. References inside of compounds and variable-length
//! parts stay as they are, as in HDF5.

use std::ffi::c_int;

use crate::ffi::types::{H5S_ALL, H5T_REFERENCE, hid_t};
use crate::ffi::{Api, Hid};
use crate::meta::attrs::Attr;
use crate::meta::resolve::Place;
use crate::meta::{header, keys, objects, transact};
use crate::object::Dataset;
use crate::{Result, blob, data, dtype};

use super::copy::{Job, one};

/// Size of an object reference of the old kind.
const REF_BYTES: usize = 8;
/// References of a dataset that are looked at in one go.
const ELEMENTS_MAX: u64 = 1 << 24;

fn is_reference(h5: &'static Api, dtype: hid_t) -> bool {
    // SAFETY: plain queries of a datatype.
    unsafe { (h5.H5Tget_class)(dtype) == H5T_REFERENCE as c_int && (h5.H5Tget_size)(dtype) == REF_BYTES }
}

/// An attribute's references.
pub fn in_attr(job: &mut Job, from: &Place, to: &Place, attr: &mut Attr) -> Result<()> {
    let Some(value) = &mut attr.value else { return Ok(()) };
    let h5 = to.file.h5;
    let dtype: Hid = dtype::decode(h5, &attr.dtype)?;
    if !is_reference(h5, dtype.get()) {
        return Ok(());
    }
    if job.expands_references() {
        return translate(job, from, to, &mut value.elements);
    }
    value.elements.fill(0);
    Ok(())
}

/// A dataset's references, in the copy. Within a file they stay as they are.
pub fn in_dataset(job: &mut Job, from: &Place, to: &Place, copy: &Dataset) -> Result<()> {
    let count = copy.extent()?.npoints();
    let dtype = copy.header.dtype.get();
    if from.file.is_same(&to.file) || !is_reference(copy.h5(), dtype) || count == 0 || count > ELEMENTS_MAX {
        return Ok(());
    }
    let mut elements = vec![0u8; count as usize * REF_BYTES];
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
        translate(job, from, to, &mut elements)?;
    } else {
        elements.fill(0);
    }
    blob::with_file(&copy.file, || data::write(std::slice::from_ref(&part), dxpl))
}

/// References to objects of one file become references to their copies in another.
fn translate(job: &mut Job, from: &Place, to: &Place, elements: &mut [u8]) -> Result<()> {
    for element in elements.as_chunks_mut::<REF_BYTES>().0 {
        let oid = crate::meta::objects::canonical(&from.file, u64::from_le_bytes(*element))?;
        let copy = match oid {
            0 => 0,
            _ if header::find(&from.file, oid)?.is_none() => 0,
            _ => {
                let target = Place { file: from.file.clone(), oid, path: Vec::new() };
                let copy = one(job, &target, to, 1)?;
                job.pointed_at.push(copy);
                copy
            }
        };
        *element = copy.to_le_bytes();
    }
    Ok(())
}

/// What only references lead to gets a link in the root group, by the name that HDF5 gives it.
pub fn link_pointed_at(job: &mut Job, to: &Place) -> Result<()> {
    for copy in std::mem::take(&mut job.pointed_at) {
        if objects::link_count(&to.file, copy)? == 0 {
            let name = format!("~obj_pointed_by_{copy}");
            transact(&to.file, |tx| objects::link_hard(tx, &to.file, keys::ROOT, name.as_bytes(), copy, 0))?;
        }
    }
    Ok(())
}
