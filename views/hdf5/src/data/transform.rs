//! Data transforms (`H5Pset_data_transform`): an expression applied to elements in the program's memory type, before writing
//! and after reading.
//!
//! HDF5 has no call that applies one. Writing to a dataset in memory by HDF5's own connector does, and reading it back gives
//! the transformed elements.

use std::ffi::c_void;

use cenote::{Error, ErrorKind};

use super::io;
use super::memory::Memory;
use super::native::file_in_memory;
use super::runs::Run;
use super::select::{self, Selection};
use super::{Io, body::Body};
use crate::error::{h5_check, h5_id, quietly};
use crate::ffi::types::{H5P_DEFAULT, H5S_ALL, H5S_BLOCK, hid_t};
use crate::ffi::{Api, Hid};
use crate::{Result, dtype};

/// Returns true if the transfer properties ask for a transform.
pub fn is_asked(h5: &'static Api, dxpl: hid_t) -> bool {
    if dxpl == H5P_DEFAULT || dxpl == h5.H5P_LST_DATASET_XFER_ID_g() {
        return false;
    }
    // To HDF5, asking for a transform that is not set is an error, which it would print.
    // SAFETY: a plain query.
    quietly(h5, || unsafe { (h5.H5Pget_data_transform)(dxpl, std::ptr::null_mut(), 0) > 0 })
}

/// Reads one part, then transforms it.
pub fn read(io: &Io<'_>, dxpl: hid_t) -> Result<()> {
    let mut whole = Whole::of(io, dxpl)?;
    if whole.count == 0 {
        return Ok(());
    }
    io::read(&[whole.io(io)], whole.plain.get())?;
    whole.transform(io, dxpl)?;
    whole.each_run(|scratch, user| user.copy_from_slice(scratch));
    Ok(())
}

/// Writes one part, transformed; the program's buffer is not changed.
pub fn write(io: &Io<'_>, dxpl: hid_t) -> Result<()> {
    let mut whole = Whole::of(io, dxpl)?;
    if whole.count == 0 {
        return Ok(());
    }
    whole.each_run(|scratch, user| scratch.copy_from_slice(user));
    whole.transform(io, dxpl)?;
    io::write(&[whole.io(io)], whole.plain.get())
}

/// A call's selected elements, as a block.
struct Whole {
    h5: &'static Api,
    runs: Vec<Run>,
    user: *mut u8,
    count: u64,
    bytes: usize,
    elements: Vec<u8>,
    /// The transfer properties without the transform.
    plain: Hid,
}

impl Whole {
    fn of(io: &Io<'_>, dxpl: hid_t) -> Result<Self> {
        let h5 = io.dataset.h5();
        let extent = || Ok((io.dataset.extent()?.dims().to_vec(), io.dataset.extent()?.npoints()));
        let mut mem = Selection::pair(h5, io.mem_space, io.file_space, extent)?.0;
        let runs = select::all_runs(&mut *mem.runs)?;
        if mem.count > 0 && io.buf.is_null() {
            return Err(Error::new(ErrorKind::InvalidInput, io.dataset.name()).because("no buffer was given"));
        }
        let bytes = dtype::size(h5, io.mem_type)?;
        let room = usize::try_from(mem.count).ok().and_then(|count| count.checked_mul(bytes));
        let room = room.ok_or_else(|| Error::new(ErrorKind::LimitExceeded, io.dataset.name()).because("too large"))?;
        // SAFETY: plain calls with a list of ours.
        let plain = unsafe {
            let plain = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_DATASET_XFER_ID_g()))?;
            let check = h5_check("H5Pget_edc_check", (h5.H5Pget_edc_check)(dxpl))?;
            h5_check("H5Pset_edc_check", (h5.H5Pset_edc_check)(plain.get(), check))?;
            plain
        };
        Ok(Self { h5, runs, user: io.buf.cast(), count: mem.count, bytes, elements: vec![0; room], plain })
    }

    /// The part with this block in place of the program's memory.
    fn io<'a>(&mut self, io: &Io<'a>) -> Io<'a> {
        Io {
            dataset: io.dataset,
            mem_type: io.mem_type,
            mem_space: H5S_BLOCK,
            file_space: if matches!(io.dataset.data.body, Body::Empty) { H5S_ALL } else { io.file_space },
            buf: self.elements.as_mut_ptr().cast::<c_void>(),
        }
    }

    /// Passes matching runs of the block and the program's memory to `act`.
    fn each_run(&mut self, act: impl Fn(&mut [u8], &mut [u8])) {
        // SAFETY: HDF5's caller promises a buffer for the memory selection, which was checked against its extent.
        let user = unsafe { Memory::new(self.user, self.bytes) };
        let mut rest = &mut self.elements[..];
        for run in &self.runs {
            let (here, after) = rest.split_at_mut(run.count as usize * self.bytes);
            act(here, user.get_mut(run.at, run.count));
            rest = after;
        }
    }

    fn transform(&mut self, io: &Io<'_>, dxpl: hid_t) -> Result<()> {
        let h5 = self.h5;
        // SAFETY: plain calls; the buffer has `count` elements of the type.
        unsafe {
            let file = file_in_memory(h5, "cenote-transform")?;
            let space =
                h5_id(h5, "H5Screate_simple", (h5.H5Screate_simple)(1, &raw const self.count, std::ptr::null()))?;
            let (name, none) = (c"elements".as_ptr(), H5P_DEFAULT);
            let dset = (h5.H5Dcreate2)(file.get(), name, io.mem_type, space.get(), none, none, none);
            let dset = h5_id(h5, "H5Dcreate2", dset)?;
            let (from, to) = (self.elements.as_ptr().cast(), self.elements.as_mut_ptr().cast());
            let status = (h5.H5Dwrite)(dset.get(), io.mem_type, H5S_ALL, H5S_ALL, dxpl, from);
            h5_check("H5Dwrite", status)?;
            let status = (h5.H5Dread)(dset.get(), io.mem_type, H5S_ALL, H5S_ALL, self.plain.get(), to);
            h5_check("H5Dread", status).map(|_| ())
        }
    }
}
