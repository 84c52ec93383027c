//! Datatypes: encoding, and the form in which elements are stored.
//!
//! In *stored form* a variable-length part is a 32-bit count and a blob id of [`crate::blob::ID_BYTES`]; HDF5 itself
//! makes that form (`H5VLget_file_type`) and calls our blob callbacks when it converts. References of the old kind
//! (`H5T_STD_REF_OBJ`, 8 bytes: the object's number) are replaced by 64-bit integers in both the memory and the stored
//! type before conversion, because HDF5 takes any file that holds them for a native one.

use std::sync::Arc;

use crate::Result;
use crate::ffi::Hid;
use crate::ffi::types::hid_t;
use crate::file::File;

/// A datatype that converts: what stored elements look like, and what to call the program's memory type meanwhile.
pub struct Pair {
    /// Stored form of the dataset's or attribute's type.
    pub stored: Hid,
    /// The program's memory type, with old references replaced.
    pub memory: Hid,
    /// True if the types contain variable-length parts or new-style references, so that conversion calls blob callbacks.
    pub has_blobs: bool,
}

/// Makes the pair of types to hand to `H5Tconvert`.
pub fn pair(file: &Arc<File>, dtype: hid_t, mem_type: hid_t) -> Result<Pair> {
    let _ = (file, dtype, mem_type);
    Err(crate::error::unsupported("datatypes", "wait"))
}

/// Stored form of a type alone.
pub fn disk(file: &Arc<File>, dtype: hid_t) -> Result<Hid> {
    let _ = (file, dtype);
    Err(crate::error::unsupported("datatypes", "wait"))
}
