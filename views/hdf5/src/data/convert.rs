//! Conversion of elements between memory and stored form, by the process's own libhdf5.

use std::ffi::{c_int, c_void};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::{h5_check, h5_failed};
use crate::ffi::Api;
use crate::ffi::types::hid_t;

/// Whether a conversion needs the destination's old content (fields that the source lacks stay as they are).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Background {
    /// Not needed.
    No,
    /// A scratch buffer of the destination's size.
    Scratch,
    /// The destination's elements.
    Elements,
}

/// A conversion of elements between two types.
pub struct Conversion {
    h5: &'static Api,
    from: hid_t,
    to: hid_t,
    /// Size of a source element in bytes.
    pub from_bytes: usize,
    /// Size of a destination element in bytes.
    pub to_bytes: usize,
    /// Its need for the destination's content.
    pub background: Background,
}

/// The head of `H5T_cdata_t`.
#[repr(C)]
struct ConversionData {
    command: c_int,
    need_background: c_int,
    recalculate: bool,
    private: *mut c_void,
}

impl Conversion {
    /// The conversion from `from` to `to`; the ids must outlive it.
    pub fn new(h5: &'static Api, from: hid_t, to: hid_t) -> Result<Self> {
        let mut data: *mut ConversionData = std::ptr::null_mut();
        // SAFETY: both ids are datatypes; `data` receives a pointer into HDF5's table of conversions.
        let (found, from_bytes, to_bytes) = unsafe {
            let found = (h5.H5Tfind)(from, to, (&raw mut data).cast());
            (found, (h5.H5Tget_size)(from), (h5.H5Tget_size)(to))
        };
        if found.is_null() || data.is_null() {
            return Err(Error::new(ErrorKind::InvalidInput, "datatypes of memory and dataset")
                .because("HDF5 knows no conversion between them"));
        }
        if from_bytes == 0 || to_bytes == 0 {
            return Err(h5_failed("H5Tget_size"));
        }
        // SAFETY: it points to the data of the conversion just found.
        let background = match unsafe { (*data).need_background } {
            0 => Background::No,
            1 => Background::Scratch,
            _ => Background::Elements,
        };
        Ok(Self { h5, from, to, from_bytes, to_bytes, background })
    }

    /// Bytes per element during conversion in place.
    pub fn room(&self) -> usize {
        self.from_bytes.max(self.to_bytes)
    }

    /// Converts `count` packed elements at the beginning of `buf` in place; the results are packed too.
    pub fn run(&self, count: usize, buf: &mut [u8], background: &mut [u8], dxpl: hid_t) -> Result<()> {
        debug_assert!(buf.len() >= count * self.room());
        let background = if self.background == Background::No {
            std::ptr::null_mut()
        } else {
            debug_assert!(background.len() >= count * self.to_bytes);
            background.as_mut_ptr()
        };
        // SAFETY: both buffers hold `count` elements of the larger of both sizes.
        let status = unsafe {
            (self.h5.H5Tconvert)(self.from, self.to, count, buf.as_mut_ptr().cast(), background.cast(), dxpl)
        };
        h5_check("H5Tconvert", status).map(|_| ())
    }
}
