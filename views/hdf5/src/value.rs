//! Self-contained values: elements in stored form with the variable-length parts beside them (attributes, fill values).

use std::ffi::c_void;
use std::sync::Arc;

use crate::Result;
use crate::ffi::types::hid_t;
use crate::file::File;

/// Elements in stored form ([`crate::dtype::disk`]) with the heap that their blob ids point into.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stored {
    /// The elements.
    pub elements: Vec<u8>,
    /// Variable-length parts; a blob id is an offset and a length in here.
    pub heap: Vec<u8>,
}

/// Converts `count` elements from memory (`mem_type` at `buf`) into stored form of `dtype`.
pub fn store(file: &Arc<File>, dtype: hid_t, count: usize, mem_type: hid_t, buf: *const c_void) -> Result<Stored> {
    let _ = (file, dtype, count, mem_type, buf);
    Err(crate::error::unsupported("attribute values", "wait"))
}

/// Converts `count` stored elements of `dtype` into `mem_type` at `buf`.
pub fn load(
    file: &Arc<File>,
    dtype: hid_t,
    stored: &Stored,
    count: usize,
    mem_type: hid_t,
    buf: *mut c_void,
) -> Result<()> {
    let _ = (file, dtype, stored, count, mem_type, buf);
    Err(crate::error::unsupported("attribute values", "wait"))
}
