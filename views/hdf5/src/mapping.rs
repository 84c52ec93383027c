//! Mappings of virtual datasets and segments of external ones, as creation properties: conversion from and to HDF5's property
//! lists, and our encoding.

use std::ffi::{CString, c_char};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::{h5_check, h5_failed, h5_id};
use crate::ffi::types::{H5D_VIRTUAL, hid_t};
use crate::ffi::{Api, Hid};
use crate::meta::bytes::{Encode, Reader};
use crate::selection::{Chosen, Shape};
use crate::space::Extent;

/// One mapping of a virtual dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// Selection in the virtual dataset.
    pub target: Shape,
    /// File of the source, as the program named it; `.` is the virtual dataset's own.
    pub file: Vec<u8>,
    /// Path of the source dataset in the file.
    pub dataset: Vec<u8>,
    /// Selection in the source.
    pub source: Shape,
}

/// One segment of a dataset with external raw data files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The file, as the program named it.
    pub name: Vec<u8>,
    /// Offset in the file, in bytes.
    pub offset: i64,
    /// Length in bytes; `u64::MAX` means unlimited.
    pub bytes: u64,
}

/// A name that HDF5 returns in two calls: its length, then its bytes.
pub fn name_of(call: &'static str, get: impl Fn(*mut c_char, usize) -> isize) -> Result<Vec<u8>> {
    let len = usize::try_from(get(std::ptr::null_mut(), 0)).map_err(|_| h5_failed(call))?;
    let mut name = vec![0u8; len + 1];
    if get(name.as_mut_ptr().cast(), name.len()) < 0 {
        return Err(h5_failed(call));
    }
    name.truncate(len);
    Ok(name)
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::new(ErrorKind::Corrupt, "a stored name").because("it has a zero byte in it"))
}

/// The mappings of a dataset creation property list with the virtual layout.
pub fn mappings_of(h5: &'static Api, plist: hid_t) -> Result<Vec<Mapping>> {
    let mut count = 0usize;
    // SAFETY: the list is a dataset creation property list with that layout; the place is valid.
    h5_check("H5Pget_virtual_count", unsafe { (h5.H5Pget_virtual_count)(plist, &raw mut count) })?;
    let one = |i: usize| {
        // SAFETY: plain queries of a mapping that exists.
        unsafe {
            let target = h5_id(h5, "H5Pget_virtual_vspace", (h5.H5Pget_virtual_vspace)(plist, i))?;
            let source = h5_id(h5, "H5Pget_virtual_srcspace", (h5.H5Pget_virtual_srcspace)(plist, i))?;
            let (mut whole, target_shape) = (Shape::of(h5, source.get())?, Shape::of(h5, target.get())?);
            if whole.chosen == Chosen::All && whole.extent.dims().is_empty() {
                // HDF5 does not know the source's extent in a dataset read from a file.
                let all = u64::try_from((h5.H5Sget_select_npoints)(target.get())).unwrap_or(0);
                let count = target_shape.chosen.block_elements().unwrap_or(all);
                whole.extent = Extent::Simple { dims: vec![count], max: vec![count] };
            }
            Ok(Mapping {
                target: target_shape,
                file: name_of("H5Pget_virtual_filename", |to, n| (h5.H5Pget_virtual_filename)(plist, i, to, n))?,
                dataset: name_of("H5Pget_virtual_dsetname", |to, n| (h5.H5Pget_virtual_dsetname)(plist, i, to, n))?,
                source: whole,
            })
        }
    };
    (0..count).map(one).collect()
}

/// Sets the virtual layout with these mappings on a dataset creation property list.
pub fn put_mappings(h5: &'static Api, plist: hid_t, mappings: &[Mapping]) -> Result<()> {
    // SAFETY: plain calls; names and dataspaces live across the calls.
    unsafe {
        h5_check("H5Pset_layout", (h5.H5Pset_layout)(plist, H5D_VIRTUAL))?;
        for mapping in mappings {
            let target: Hid = mapping.target.space(h5)?;
            let source = source_space(h5, &mapping.source, target.get())?;
            let (file, dataset) = (c_name(&mapping.file)?, c_name(&mapping.dataset)?);
            let status = (h5.H5Pset_virtual)(plist, target.get(), file.as_ptr(), dataset.as_ptr(), source.get());
            h5_check("H5Pset_virtual", status)?;
        }
    }
    Ok(())
}

/// The source's dataspace. A native file does not record the extent of a source that is mapped whole; then any extent with as
/// many elements as the target serves.
fn source_space(h5: &'static Api, source: &Shape, target: hid_t) -> Result<Hid> {
    // SAFETY: a plain query.
    let count = unsafe { (h5.H5Sget_select_npoints)(target) };
    match (&source.extent, &source.chosen, u64::try_from(count)) {
        (Extent::Scalar, Chosen::All, Ok(count)) if count != 1 => {
            Extent::Simple { dims: vec![count], max: vec![count] }.space(h5)
        }
        _ => source.space(h5),
    }
}

/// The external files of a dataset creation property list.
pub fn segments_of(h5: &'static Api, plist: hid_t) -> Result<Vec<Segment>> {
    // SAFETY: the list is a dataset creation property list.
    let count = h5_check("H5Pget_external_count", unsafe { (h5.H5Pget_external_count)(plist) })?;
    let one = |i: i32| {
        // HDF5 does not report the name's length.
        let mut name = vec![0u8; 4096];
        let (mut offset, mut bytes) = (0, 0);
        // SAFETY: the buffer has the size given, the places are valid.
        let status = unsafe {
            (h5.H5Pget_external)(
                plist,
                i as u32,
                name.len() - 1,
                name.as_mut_ptr().cast(),
                &raw mut offset,
                &raw mut bytes,
            )
        };
        h5_check("H5Pget_external", status)?;
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        name.truncate(len);
        Ok(Segment { name, offset, bytes })
    };
    (0..count).map(one).collect()
}

/// Adds external files to a dataset creation property list.
pub fn put_segments(h5: &'static Api, plist: hid_t, segments: &[Segment]) -> Result<()> {
    for segment in segments {
        let name = c_name(&segment.name)?;
        // SAFETY: the name lives across the call.
        let status = unsafe { (h5.H5Pset_external)(plist, name.as_ptr(), segment.offset, segment.bytes) };
        h5_check("H5Pset_external", status)?;
    }
    Ok(())
}

impl Mapping {
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        self.target.encode(w);
        w.put_bytes(&self.file);
        w.put_bytes(&self.dataset);
        self.source.encode(w);
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            target: Shape::decode(r)?,
            file: r.bytes()?.to_vec(),
            dataset: r.bytes()?.to_vec(),
            source: Shape::decode(r)?,
        })
    }
}

impl Segment {
    /// Appends the encoding.
    pub fn encode(&self, w: &mut Vec<u8>) {
        w.put_bytes(&self.name);
        w.put_i64(self.offset);
        w.put_u64(self.bytes);
    }
    /// Reads an encoding.
    pub fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { name: r.bytes()?.to_vec(), offset: r.i64()?, bytes: r.u64()? })
    }
}
