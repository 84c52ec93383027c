//! What the connector reports about itself.

use std::ffi::{c_int, c_void};

use crate::ffi::class::{
    ConnectorClass, IntrospectClass, NATIVE_ATTR_ITERATE_OLD, NATIVE_DATASET_CHUNK_ITER,
    NATIVE_DATASET_GET_CHUNK_INDEX_TYPE, NATIVE_DATASET_GET_VLEN_BUF_SIZE, NATIVE_GROUP_GET_OBJINFO,
    NATIVE_GROUP_ITERATE_OLD, NATIVE_OBJECT_GET_COMMENT, NATIVE_OBJECT_GET_NATIVE_INFO,
};
use crate::ffi::types::herr_t;
use crate::ffi::{Api, entry};
use crate::file::given;
use crate::object::{Body, Handle};
use crate::{Result, blob};

use super::native_file::POST_OPEN;
use super::{args, status};

/// `H5VL_CAP_FLAG_*`: asynchronous operations; basic and more of attributes, datasets, files, groups, links, maps, objects,
/// references; references to objects, regions and attributes; stored datatypes, creation order, iteration, storage size,
/// by index, property lists, flush and refresh; external, hard, soft and user-defined links; times, mounting, filters,
/// fill values. All of the native connector's but "produces native files", and all of the DAOS connector's.
pub const CAPABILITIES: u64 = {
    let basic_and_more = 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x8000 | 0x1_0000;
    let references = 0x2_0000 | 0x4_0000 | 0x8_0000 | 0x10_0000 | 0x20_0000;
    let maps = 0x2000 | 0x4000;
    let stored_types_order_iterate_storage_idx_plist_flush =
        0x40_0000 | 0x80_0000 | 0x100_0000 | 0x200_0000 | 0x400_0000 | 0x800_0000 | 0x1000_0000;
    let links = 0x2000_0000 | 0x4000_0000 | 0x8000_0000 | 0x1_0000_0000;
    let times_mount_filters_fill = 0x2_0000_0000 | 0x4_0000_0000 | 0x8_0000_0000 | 0x10_0000_0000;
    let asynchronous = 0x2;
    asynchronous
        | basic_and_more
        | maps
        | references
        | stored_types_order_iterate_storage_idx_plist_flush
        | links
        | times_mount_filters_fill
};

const LEVEL_CURRENT: c_int = 0;
const SUPPORTED: u64 = 1;

pub fn class<const N: usize>() -> IntrospectClass {
    IntrospectClass {
        get_conn_cls: Some(get_conn_cls::<N>),
        get_cap_flags: Some(get_cap_flags::<N>),
        opt_query: Some(opt_query::<N>),
    }
}

/// The native connector's class in this libhdf5.
fn native_class(h5: &'static Api, object: *mut c_void) -> Result<*const ConnectorClass> {
    let mut class = std::ptr::null();
    let native = h5.native_connector()?;
    // SAFETY: the native connector answers without looking at the object; the place is valid.
    let status = unsafe { (h5.H5VLintrospect_get_conn_cls)(object, native.get(), LEVEL_CURRENT, &raw mut class) };
    crate::error::h5_check("H5VLintrospect_get_conn_cls", status)?;
    Ok(class.cast())
}

unsafe extern "C" fn get_conn_cls<const N: usize>(
    object: *mut c_void,
    level: c_int,
    out: *mut *const ConnectorClass,
) -> herr_t {
    status::<N>("introspect_get_conn_cls", |h5| {
        let own = entry::class_of(N).map_or(std::ptr::null(), std::ptr::from_ref);
        // See `facade`. The file handle inside stored types must be reported truly, because libhdf5 would go on to use it.
        // During a conversion all handles are: otherwise libhdf5 would take references to lead from one file into another,
        // and store them with a file name, which is wrong once the file is renamed.
        let is_object = matches!(Handle::at(object), Ok(handle) if !matches!(handle.body, Body::Anchor));
        let class = if is_object && level != LEVEL_CURRENT && blob::current_file().is_none() {
            super::facade::reset();
            native_class(h5, object)?
        } else {
            own
        };
        args::put(out, class)
    })
}

unsafe extern "C" fn get_cap_flags<const N: usize>(_: *const c_void, out: *mut u64) -> herr_t {
    status::<N>("introspect_get_cap_flags", |_| args::put(out, CAPABILITIES))
}

unsafe extern "C" fn opt_query<const N: usize>(pointer: *mut c_void, class: c_int, op: c_int, out: *mut u64) -> herr_t {
    status::<N>("introspect_opt_query", |_| {
        let is_asked_back = class == FILES && op == POST_OPEN && given::is_waiting(pointer);
        args::put(out, if is_asked_back || is_supported(class, op) { SUPPORTED } else { 0 })
    })
}

/// `H5VL_SUBCLS_FILE`.
const FILES: c_int = 6;

fn is_supported(class: c_int, op: c_int) -> bool {
    match class {
        3 => op == NATIVE_ATTR_ITERATE_OLD,
        4 => {
            // libhdf5 finds the size of variable-length parts itself, by reading.
            (NATIVE_DATASET_GET_CHUNK_INDEX_TYPE..=NATIVE_DATASET_CHUNK_ITER).contains(&op)
                && op != NATIVE_DATASET_GET_VLEN_BUF_SIZE
        }
        7 => op == NATIVE_GROUP_GET_OBJINFO || op == NATIVE_GROUP_ITERATE_OLD,
        9 => (NATIVE_OBJECT_GET_COMMENT..=NATIVE_OBJECT_GET_NATIVE_INFO).contains(&op),
        _ => false,
    }
}
