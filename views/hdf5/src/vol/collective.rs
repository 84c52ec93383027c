//! The transfer mode that parallel programs ask for (collective or independent), and the mode that is reported.
//!
//! In a collective transfer each rank acts for itself: what it writes goes into the store in one message, without waiting
//! for other ranks, and no rank has to gather pieces for a file system. So every transfer is possible in the requested
//! mode, and is reported so.

use std::ffi::{CStr, c_int, c_void};

use crate::Result;
use crate::data::Io;
use crate::ffi::Api;
use crate::ffi::types::hid_t;
use crate::props::Layout;

/// `H5FD_MPIO_COLLECTIVE`.
const COLLECTIVE: c_int = 1;
/// `H5D_MPIO_CHUNK_COLLECTIVE`, `H5D_MPIO_CONTIGUOUS_COLLECTIVE`, and no collective transfer.
const MODE_CHUNKED: c_int = 2;
const MODE_CONTIGUOUS: c_int = 4;
/// `H5D_MPIO_LINK_CHUNK`: all chunks in one go.
const ALL_CHUNKS: c_int = 1;
/// `H5D_MPIO_COLLECTIVE` as a cause: nothing prevented a collective transfer. `H5D_MPIO_SET_INDEPENDENT`.
const CAUSE_NONE: u32 = 0;
const CAUSE_INDEPENDENT: u32 = 1;

/// Called after a write: stores parts of chunks with filters at once, since other ranks may read them after a barrier.
pub fn wrote(parts: &[Io<'_>], dxpl: hid_t) -> Result<()> {
    for part in parts.iter().filter(|part| part.dataset.file.team.is_some()) {
        part.dataset.data.flush()?;
    }
    done(parts, dxpl);
    Ok(())
}

/// Called after a transfer: sets the answers of `H5Pget_mpio_actual_io_mode` and similar calls.
pub fn done(parts: &[Io<'_>], dxpl: hid_t) {
    let Some(first) = parts.first().filter(|part| part.dataset.file.is_parallel) else { return };
    let h5 = first.dataset.h5();
    // The default list is independent, and nobody may change it.
    let Some(get) = h5.H5Pget_dxpl_mpio.filter(|_| dxpl > 0 && dxpl != h5.H5P_LST_DATASET_XFER_ID_g()) else {
        return;
    };
    let mut mode: c_int = 0;
    // SAFETY: a plain query of a list that is valid during the call.
    if unsafe { get(dxpl, &raw mut mode) } < 0 {
        return;
    }
    let is_chunked = matches!(first.dataset.header.props.layout, Layout::Chunked(_));
    let (mode, chunks, cause) = match (mode == COLLECTIVE, is_chunked) {
        (false, _) => (0, 0, CAUSE_INDEPENDENT),
        (true, false) => (MODE_CONTIGUOUS, 0, CAUSE_NONE),
        (true, true) => (MODE_CHUNKED, ALL_CHUNKS, CAUSE_NONE),
    };
    set(h5, dxpl, c"actual_io_mode", &mode);
    set(h5, dxpl, c"actual_chunk_opt_mode", &chunks);
    set(h5, dxpl, c"local_no_collective_cause", &cause);
    set(h5, dxpl, c"global_no_collective_cause", &cause);
}

fn set<T>(h5: &'static Api, dxpl: hid_t, name: &CStr, value: &T) {
    // SAFETY: HDF5 copies a value of the property's size, which all of these have; a failure leaves the old answer.
    unsafe { (h5.H5Pset)(dxpl, name.as_ptr(), std::ptr::from_ref(value).cast::<c_void>()) };
}
