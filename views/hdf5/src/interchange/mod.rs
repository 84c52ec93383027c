//! Exact copies of whole files between native HDF5 and the store, both ways. For the `cenote` command; knows nothing of
//! terminals.

pub mod export;
pub mod image;
pub mod import;
mod regions;
pub mod stage;

use crate::Result;
use crate::error::{h5_check, h5_id};
use crate::ffi::Api;
use crate::ffi::Hid;
use crate::ffi::types::{H5T_ARRAY, H5T_COMPOUND, H5T_REFERENCE, H5T_VLEN, hid_t, hvl_t};

pub use export::export;
pub use image::image;
pub use import::{import, import_object};
pub use stage::{stage, unstage};

/// Called now and then with the raw bytes copied so far.
pub type Progress<'a> = &'a mut dyn FnMut(u64) -> Result<()>;

/// Numbers of copied objects.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Groups.
    pub groups: u64,
    /// Datasets.
    pub datasets: u64,
    /// Committed datatypes.
    pub datatypes: u64,
    /// Attributes.
    pub attributes: u64,
    /// Bytes of raw data in stored form.
    pub bytes: u64,
}

/// The classes of reference inside a datatype, by their sizes in memory.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct References {
    /// Object references (8 bytes).
    pub objects: bool,
    /// Old region references (12 bytes).
    pub regions: bool,
    /// New references (64 bytes).
    pub others: bool,
}

/// Finds the references in a datatype.
pub(crate) fn references(h5: &'static Api, dtype: hid_t) -> Result<References> {
    let mut found = References::default();
    // SAFETY: plain queries; ids that they return are owned here.
    unsafe {
        match (h5.H5Tget_class)(dtype) {
            H5T_REFERENCE if (h5.H5Tget_size)(dtype) == 8 => found.objects = true,
            H5T_REFERENCE if (h5.H5Tget_size)(dtype) == 12 => found.regions = true,
            H5T_REFERENCE => found.others = true,
            H5T_VLEN | H5T_ARRAY => {
                if let Some(base) = Hid::new(h5, (h5.H5Tget_super)(dtype)) {
                    found = references(h5, base.get())?;
                }
            }
            H5T_COMPOUND => {
                for i in 0..h5_check("H5Tget_nmembers", (h5.H5Tget_nmembers)(dtype))? as u32 {
                    if let Some(member) = Hid::new(h5, (h5.H5Tget_member_type)(dtype, i)) {
                        let inside = references(h5, member.get())?;
                        found.objects |= inside.objects;
                        found.regions |= inside.regions;
                        found.others |= inside.others;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Applies `each` to every old reference, of 8 or 12 bytes, in `count` elements in memory form.
pub(crate) fn remap(
    h5: &'static Api,
    dtype: hid_t,
    elements: &mut [u8],
    count: usize,
    each: &mut dyn FnMut(&mut [u8]) -> Result<()>,
) -> Result<()> {
    let found = references(h5, dtype)?;
    if !(found.objects || found.regions) || count == 0 {
        return Ok(());
    }
    let size = elements.len() / count;
    // SAFETY: plain queries, whose ids are owned here; a sequence in memory is a length and a pointer to as many elements,
    // which HDF5 has made.
    unsafe {
        match (h5.H5Tget_class)(dtype) {
            H5T_REFERENCE => elements.chunks_exact_mut(size).try_for_each(each)?,
            H5T_ARRAY => {
                let base = h5_id(h5, "H5Tget_super", (h5.H5Tget_super)(dtype))?;
                let inner = (h5.H5Tget_size)(base.get()).max(1);
                let count = elements.len() / inner;
                remap(h5, base.get(), elements, count, each)?;
            }
            H5T_VLEN => {
                let base = h5_id(h5, "H5Tget_super", (h5.H5Tget_super)(dtype))?;
                let inner = (h5.H5Tget_size)(base.get());
                for sequence in elements.chunks_exact(size) {
                    let sequence = sequence.as_ptr().cast::<hvl_t>().read_unaligned();
                    if sequence.len > 0 && !sequence.p.is_null() {
                        let parts = std::slice::from_raw_parts_mut(sequence.p.cast::<u8>(), sequence.len * inner);
                        remap(h5, base.get(), parts, sequence.len, each)?;
                    }
                }
            }
            H5T_COMPOUND => {
                for i in 0..h5_check("H5Tget_nmembers", (h5.H5Tget_nmembers)(dtype))? as u32 {
                    let member = h5_id(h5, "H5Tget_member_type", (h5.H5Tget_member_type)(dtype, i))?;
                    let at = (h5.H5Tget_member_offset)(dtype, i);
                    let inner = (h5.H5Tget_size)(member.get());
                    for element in elements.chunks_exact_mut(size) {
                        remap(h5, member.get(), &mut element[at..at + inner], 1, each)?;
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}
