//! Values of attributes of native files.

use std::ffi::{CString, c_void};

use cenote::{Error, ErrorKind};

use super::{Native, call};
use crate::error::h5_id;
use crate::ffi::Hid;
use crate::ffi::types::{H5P_DEFAULT, hid_t};
use crate::meta::attrs::Attr;
use crate::meta::resolve::Location;
use crate::value::{self, Stored};
use crate::{Result, dtype};

fn open(native: &Native, oid: u64, name: &[u8]) -> Result<Hid> {
    let h5 = native.h5;
    let object = native.object(oid)?;
    let text = CString::new(name)
        .map_err(|_| Error::new(ErrorKind::InvalidInput, "attribute").because("its name contains a NUL"))?;
    let named = || format!("attribute `{}` of {}", text.to_string_lossy(), native.name());
    // SAFETY: the name ends in NUL.
    let id = call(h5, named, || unsafe { (h5.H5Aopen)(object.get(), text.as_ptr(), H5P_DEFAULT) })?;
    h5_id(h5, "H5Aopen", id)
}

/// Reads a value into the program's memory.
pub fn read(native: &Native, oid: u64, name: &[u8], mem_type: hid_t, buf: *mut c_void) -> Result<()> {
    let attr = open(native, oid, name)?;
    let named = || format!("attribute `{}` of {}", String::from_utf8_lossy(name), native.name());
    // SAFETY: HDF5 vouches for the program's buffer.
    call(native.h5, named, || i64::from(unsafe { (native.h5.H5Aread)(attr.get(), mem_type, buf) }))?;
    Ok(())
}

/// The value in stored form, for a copy of the attribute in a file of the store.
pub fn stored(native: &Native, place: &Location, name: &[u8], attr: &Attr) -> Result<Stored> {
    let (file, h5) = (&place.file, native.h5);
    let count = usize::try_from(attr.extent.npoints())
        .map_err(|_| Error::new(ErrorKind::LimitExceeded, "attribute").because("it is too large"))?;
    let dtype = dtype::decode(h5, &attr.dtype)?;
    let mut elements = vec![0u8; dtype::size(h5, dtype.get())? * count.max(1)];
    let at = elements.as_mut_ptr().cast::<c_void>();
    read(native, place.oid, name, dtype.get(), at)?;
    let stored = value::store(file, dtype.get(), count, dtype.get(), at, None);
    let space = attr.extent.space(h5)?;
    // SAFETY: the elements are valid ones of the type and space, made by HDF5.
    unsafe { (h5.H5Treclaim)(dtype.get(), space.get(), H5P_DEFAULT, at) };
    stored
}
