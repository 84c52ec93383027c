//! Datatypes: encoding, and the form in which elements are stored.
//!
//! In *stored form* a variable-length part is a 32-bit count and a blob id of [`crate::blob::ID_BYTES`]; HDF5 itself makes that form
//! (`H5VLget_file_type`) and calls our blob callbacks when it converts. Old references (`H5T_STD_REF_OBJ`, 8 bytes: the object's number;
//! `H5T_STD_REF_DSETREG`, 12 bytes: see [`crate::regions`]) are replaced by integers or opaque bytes in both the memory and the stored
//! type before conversion, because HDF5 takes any file that contains them for a native one.

use std::collections::HashMap;
use std::ffi::{CStr, c_int};
use std::sync::{Arc, LazyLock};

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::Result;
use crate::error::{h5_check, h5_failed, h5_id};
use crate::ffi::entry::SLOTS_MAX;
use crate::ffi::types::{
    H5P_DEFAULT, H5T_ARRAY, H5T_COMPOUND, H5T_OPAQUE, H5T_REFERENCE, H5T_STRING, H5T_VLEN, hid_t, hsize_t,
};
use crate::ffi::{Api, Hid};
use crate::file::File;
use crate::object::{Body, Handle};

/// Size in memory of an old object reference, and of an old region reference.
const REF_OBJECT_BYTES: usize = 8;
const REF_REGION_BYTES: usize = 12;

/// The two types of a conversion: the stored form, and the program's memory type as used meanwhile.
pub struct Pair {
    /// Stored form of the dataset's or attribute's type.
    pub stored: Arc<Hid>,
    /// The program's memory type, with old references replaced.
    pub memory: Arc<Hid>,
    /// True if the types contain variable-length parts or new-style references, so that conversion calls blob callbacks.
    pub has_blobs: bool,
}

/// Makes the pair of types to hand to [`convert`] (or `H5Tconvert`).
pub fn pair(file: &Arc<File>, dtype: hid_t, mem_type: hid_t) -> Result<Pair> {
    let memory = match without_old_refs(file.h5, mem_type)? {
        Some(plain) => plain,
        None => copy(file.h5, mem_type)?,
    };
    let found = look(file.h5, dtype)?;
    Ok(Pair { stored: disk(file, dtype)?, memory: Arc::new(memory), has_blobs: found.blobs })
}

/// Stored form of a type alone.
pub fn disk(file: &Arc<File>, dtype: hid_t) -> Result<Arc<Hid>> {
    let h5 = file.h5;
    let found = look(h5, dtype)?;
    let plain = if found.old_refs { without_old_refs(h5, dtype)? } else { None };
    let plain = match plain {
        Some(plain) => plain,
        None => copy(h5, dtype)?,
    };
    if !found.blobs {
        return Ok(Arc::new(plain));
    }
    let key = (h5.slot, encode(h5, dtype)?);
    let mut types = TYPES.lock();
    // The library may have been closed and reopened since; then its ids are gone.
    if let Some(known) = types.get(&key).filter(|id| id.is_valid()) {
        return Ok(known.clone());
    }
    // SAFETY: the anchor is a handle of ours that is never freed; the ids are valid.
    let id = unsafe { (h5.H5VLget_file_type)(anchor(h5).cast(), file.connector.get(), plain.get()) };
    let made = Arc::new(h5_id(h5, "H5VLget_file_type", id)?.hidden());
    if let Some(stale) = types.insert(key, made.clone()).and_then(Arc::into_inner) {
        let _ = stale.release();
    }
    Ok(made)
}

/// Stored forms of datatypes with blobs, by slot and encoded type. HDF5 keeps every file type that ever took part in a conversion, so
/// each is made only once.
static TYPES: LazyLock<Mutex<Types>> = LazyLock::new(Mutex::default);
type Types = HashMap<(usize, Vec<u8>), Arc<Hid>>;

/// The handles that HDF5 takes for the file inside stored types, one per libhdf5; they live as long as the process.
static ANCHORS: Mutex<[usize; SLOTS_MAX]> = Mutex::new([0; SLOTS_MAX]);

fn anchor(h5: &'static Api) -> *mut Handle {
    let mut anchors = ANCHORS.lock();
    if anchors[h5.slot] == 0 {
        anchors[h5.slot] = Handle::new(h5, Body::Anchor) as usize;
    }
    anchors[h5.slot] as *mut Handle
}

/// A transient copy of a datatype.
pub fn copy(h5: &'static Api, dtype: hid_t) -> Result<Hid> {
    // SAFETY: a plain call.
    h5_id(h5, "H5Tcopy", unsafe { (h5.H5Tcopy)(dtype) })
}

/// Size of an element in bytes.
pub fn size(h5: &'static Api, dtype: hid_t) -> Result<usize> {
    // SAFETY: a plain query.
    match unsafe { (h5.H5Tget_size)(dtype) } {
        0 => Err(h5_failed("H5Tget_size")),
        n => Ok(n),
    }
}

/// The portable encoding of a datatype.
pub fn encode(h5: &'static Api, dtype: hid_t) -> Result<Vec<u8>> {
    // A committed datatype would be encoded as a reference to itself.
    let transient = copy(h5, dtype)?;
    let mut n = 0usize;
    // SAFETY: without a buffer HDF5 returns the size; then the buffer has that size.
    unsafe {
        h5_check("H5Tencode", (h5.H5Tencode)(transient.get(), std::ptr::null_mut(), &raw mut n))?;
        let mut buf = vec![0u8; n];
        h5_check("H5Tencode", (h5.H5Tencode)(transient.get(), buf.as_mut_ptr().cast(), &raw mut n))?;
        buf.truncate(n);
        Ok(buf)
    }
}

/// A datatype in memory form from its encoding.
pub fn decode(h5: &'static Api, bytes: &[u8]) -> Result<Hid> {
    // SAFETY: the bytes were made by `encode`; newer libraries check the length.
    let id = unsafe {
        match (h5.H5Tdecode2, h5.H5Tdecode1, h5.H5Tdecode) {
            (Some(f), _, _) => f(bytes.as_ptr().cast(), bytes.len()),
            (_, Some(f), _) | (_, _, Some(f)) => f(bytes.as_ptr().cast()),
            _ => -1,
        }
    };
    Hid::new(h5, id).ok_or_else(|| {
        Error::new(ErrorKind::VersionMismatch, "datatype")
            .because(format!("HDF5 {} cannot decode it; a newer HDF5 wrote it", h5.version))
    })
}

/// `H5Tconvert` in place: `work` holds `count` elements of `from` and has room for as many of `to`.
pub fn convert(
    h5: &'static Api,
    from: hid_t,
    to: hid_t,
    count: usize,
    work: &mut [u8],
    background: &mut [u8],
) -> Result<()> {
    // SAFETY: the caller sized both buffers for the larger of the two types.
    let status = unsafe {
        (h5.H5Tconvert)(from, to, count, work.as_mut_ptr().cast(), background.as_mut_ptr().cast(), H5P_DEFAULT)
    };
    if status < 0 {
        return Err(Error::new(ErrorKind::InvalidInput, "conversion between memory and stored datatype")
            .because("no appropriate function for conversion path, or the conversion failed"));
    }
    Ok(())
}

/// Returns true if stored elements of this type name bytes in the heap, or might: new references do.
pub fn names_blobs(h5: &Api, dtype: hid_t) -> bool {
    // SAFETY: a query of a datatype.
    has_variable_parts(h5, dtype) || unsafe { (h5.H5Tdetect_class)(dtype, H5T_REFERENCE) > 0 }
}

/// Returns true if elements contain variable-length sequences or strings.
pub fn has_variable_parts(h5: &Api, dtype: hid_t) -> bool {
    // HDF5 classes variable-length strings as strings, so these are checked separately.
    // SAFETY: queries of a datatype.
    unsafe {
        let has = |class| (h5.H5Tdetect_class)(dtype, class) > 0;
        has(H5T_VLEN) || (has(H5T_STRING) && has_variable_string(h5, dtype))
    }
}

fn has_variable_string(h5: &Api, dtype: hid_t) -> bool {
    // SAFETY: queries of a datatype; ids that HDF5 makes are closed again.
    unsafe {
        if (h5.H5Tis_variable_str)(dtype) > 0 {
            return true;
        }
        let look = |id: hid_t| {
            let found = id > 0 && has_variable_string(h5, id);
            if id > 0 {
                (h5.H5Tclose)(id);
            }
            found
        };
        match (h5.H5Tget_class)(dtype) {
            H5T_COMPOUND => {
                (0..(h5.H5Tget_nmembers)(dtype).max(0)).any(|i| look((h5.H5Tget_member_type)(dtype, i as u32)))
            }
            H5T_ARRAY | H5T_VLEN => look((h5.H5Tget_super)(dtype)),
            _ => false,
        }
    }
}

/// Special parts of a datatype.
#[derive(Clone, Copy, Default, Debug)]
pub struct Inside {
    /// Variable-length parts or new-style references.
    pub blobs: bool,
    /// Old references.
    pub old_refs: bool,
}

/// Inspects a datatype; refuses one that cannot be stored.
pub fn look(h5: &'static Api, dtype: hid_t) -> Result<Inside> {
    // SAFETY: plain queries; ids that they return are owned here.
    unsafe {
        match (h5.H5Tget_class)(dtype) {
            H5T_STRING => Ok(Inside {
                blobs: h5_check("H5Tis_variable_str", (h5.H5Tis_variable_str)(dtype))? > 0,
                old_refs: false,
            }),
            H5T_VLEN => {
                let base = h5_id(h5, "H5Tget_super", (h5.H5Tget_super)(dtype))?;
                Ok(Inside { blobs: true, old_refs: look(h5, base.get())?.old_refs })
            }
            H5T_ARRAY => {
                let base = h5_id(h5, "H5Tget_super", (h5.H5Tget_super)(dtype))?;
                look(h5, base.get())
            }
            H5T_COMPOUND => {
                let mut all = Inside::default();
                for i in 0..h5_check("H5Tget_nmembers", (h5.H5Tget_nmembers)(dtype))? {
                    let member = h5_id(h5, "H5Tget_member_type", (h5.H5Tget_member_type)(dtype, i as u32))?;
                    let inside = look(h5, member.get())?;
                    all.blobs |= inside.blobs;
                    all.old_refs |= inside.old_refs;
                }
                Ok(all)
            }
            H5T_REFERENCE => match size(h5, dtype)? {
                REF_OBJECT_BYTES | REF_REGION_BYTES => Ok(Inside { blobs: false, old_refs: true }),
                _ => Ok(Inside { blobs: true, old_refs: false }),
            },
            c if c < 0 => Err(h5_failed("H5Tget_class")),
            _ => Ok(Inside::default()),
        }
    }
}

/// The type with old object references replaced by 64-bit integers, and old region references by opaque bytes of their size; `None` if
/// it has none.
fn without_old_refs(h5: &'static Api, dtype: hid_t) -> Result<Option<Hid>> {
    if !look(h5, dtype)?.old_refs {
        return Ok(None);
    }
    // SAFETY: plain queries and constructors; ids that they return are owned here.
    unsafe {
        match (h5.H5Tget_class)(dtype) {
            H5T_REFERENCE => match size(h5, dtype)? {
                REF_OBJECT_BYTES => Ok(Some(copy(h5, h5.H5T_NATIVE_UINT64_g())?)),
                REF_REGION_BYTES => Ok(Some(h5_id(h5, "H5Tcreate", (h5.H5Tcreate)(H5T_OPAQUE, REF_REGION_BYTES))?)),
                _ => Ok(None),
            },
            H5T_VLEN => {
                let base = replaced_super(h5, dtype)?;
                Ok(Some(h5_id(h5, "H5Tvlen_create", (h5.H5Tvlen_create)(base.get()))?))
            }
            H5T_ARRAY => {
                let base = replaced_super(h5, dtype)?;
                let rank = h5_check("H5Tget_array_ndims", (h5.H5Tget_array_ndims)(dtype))?;
                let mut dims = vec![0 as hsize_t; rank as usize];
                h5_check("H5Tget_array_dims2", (h5.H5Tget_array_dims2)(dtype, dims.as_mut_ptr()))?;
                let id = (h5.H5Tarray_create2)(base.get(), rank as u32, dims.as_ptr());
                Ok(Some(h5_id(h5, "H5Tarray_create2", id)?))
            }
            H5T_COMPOUND => replaced_compound(h5, dtype).map(Some),
            _ => Ok(None),
        }
    }
}

fn replaced_super(h5: &'static Api, dtype: hid_t) -> Result<Hid> {
    // SAFETY: a plain query.
    let base = h5_id(h5, "H5Tget_super", unsafe { (h5.H5Tget_super)(dtype) })?;
    Ok(without_old_refs(h5, base.get())?.unwrap_or(base))
}

fn replaced_compound(h5: &'static Api, dtype: hid_t) -> Result<Hid> {
    // SAFETY: plain queries and constructors; a member's name is HDF5's memory until freed below.
    unsafe {
        let out = h5_id(h5, "H5Tcreate", (h5.H5Tcreate)(H5T_COMPOUND as c_int, size(h5, dtype)?))?;
        for i in 0..h5_check("H5Tget_nmembers", (h5.H5Tget_nmembers)(dtype))? as u32 {
            let member = h5_id(h5, "H5Tget_member_type", (h5.H5Tget_member_type)(dtype, i))?;
            let member = without_old_refs(h5, member.get())?.unwrap_or(member);
            let name = (h5.H5Tget_member_name)(dtype, i);
            if name.is_null() {
                return Err(h5_failed("H5Tget_member_name"));
            }
            let owned = CStr::from_ptr(name).to_owned();
            (h5.H5free_memory)(name.cast());
            let offset = (h5.H5Tget_member_offset)(dtype, i);
            h5_check("H5Tinsert", (h5.H5Tinsert)(out.get(), owned.as_ptr(), offset, member.get()))?;
        }
        Ok(out)
    }
}
