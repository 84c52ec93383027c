//! The memory that the variable-length parts of a selection take (`H5Dvlen_get_buf_size`): they are read with a memory
//! manager that counts. This module does not know the stored form of parts.

use std::ffi::c_void;

use super::Io;
use crate::Result;
use crate::error::{h5_check, h5_id};
use crate::ffi::types::{hid_t, hsize_t};
use crate::object::Dataset;

unsafe extern "C" fn allocate(bytes: usize, counter: *mut c_void) -> *mut c_void {
    // SAFETY: HDF5 gives back the pointer to the counter, which outlives the calls that use it.
    unsafe {
        *counter.cast::<hsize_t>() += bytes as hsize_t;
        libc::malloc(bytes)
    }
}

unsafe extern "C" fn free(part: *mut c_void, _: *mut c_void) {
    // SAFETY: `allocate` made it.
    unsafe { libc::free(part) }
}

/// Bytes that a read of the selection `file_space` as `mem_type` allocates.
pub fn bytes(dataset: &Dataset, mem_type: hid_t, file_space: hid_t) -> Result<hsize_t> {
    let h5 = dataset.h5();
    let mut bytes: hsize_t = 0;
    let counter = (&raw mut bytes).cast::<c_void>();
    // SAFETY: plain calls; the buffer has room for as many elements as are selected, and HDF5 frees its parts with the
    // functions that made them.
    unsafe {
        let points = (h5.H5Sget_select_npoints)(file_space).max(0);
        if points == 0 || !crate::dtype::has_variable_parts(h5, mem_type) {
            return Ok(0);
        }
        let dims = [points as hsize_t];
        let space = h5_id(h5, "H5Screate_simple", (h5.H5Screate_simple)(1, dims.as_ptr(), std::ptr::null()))?;
        let dxpl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_DATASET_XFER_ID_g()))?;
        let managed = (h5.H5Pset_vlen_mem_manager)(dxpl.get(), Some(allocate), counter, Some(free), counter);
        h5_check("H5Pset_vlen_mem_manager", managed)?;
        let mut buf = vec![0u8; (h5.H5Tget_size)(mem_type).max(1) * points as usize];
        let io = Io { dataset, mem_type, mem_space: space.get(), file_space, buf: buf.as_mut_ptr().cast() };
        let done = crate::blob::with_file(&dataset.file, || super::read(&[io], dxpl.get()));
        let freed = (h5.H5Treclaim)(mem_type, space.get(), dxpl.get(), buf.as_mut_ptr().cast());
        done?;
        h5_check("H5Treclaim", freed)?;
    }
    Ok(bytes)
}
