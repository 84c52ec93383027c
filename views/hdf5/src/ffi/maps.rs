//! The C types of operations on maps (`H5VL_map_args_t`), which are operations of a whole
//! connector.

#![allow(missing_docs, reason = "the names and meanings are those of HDF5's headers")]

use std::ffi::{c_char, c_int, c_void};

use super::types::{LocParams, herr_t, hid_t, hsize_t};

type Ptr = *mut c_void;

pub const MAP_CREATE: c_int = 1;
pub const MAP_OPEN: c_int = 2;
pub const MAP_GET_VAL: c_int = 3;
pub const MAP_EXISTS: c_int = 4;
pub const MAP_PUT: c_int = 5;
pub const MAP_GET: c_int = 6;
pub const MAP_SPECIFIC: c_int = 7;
pub const MAP_CLOSE: c_int = 9;
pub const MAP_GET_MAPL: c_int = 0;
pub const MAP_GET_MCPL: c_int = 1;
pub const MAP_GET_KEY_TYPE: c_int = 2;
pub const MAP_GET_VAL_TYPE: c_int = 3;
pub const MAP_GET_COUNT: c_int = 4;
pub const MAP_ITER: c_int = 0;
pub const MAP_DELETE: c_int = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapCreate {
    pub loc: LocParams,
    pub name: *const c_char,
    pub lcpl_id: hid_t,
    pub key_type: hid_t,
    pub value_type: hid_t,
    pub mcpl_id: hid_t,
    pub mapl_id: hid_t,
    pub map: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapOpen {
    pub loc: LocParams,
    pub name: *const c_char,
    pub mapl_id: hid_t,
    pub map: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapGetVal {
    pub key_type: hid_t,
    pub key: *const c_void,
    pub value_type: hid_t,
    pub value: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapExists {
    pub key_type: hid_t,
    pub key: *const c_void,
    pub exists: bool,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union MapGetU {
    pub id: hid_t,
    pub count: hsize_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapGet {
    pub op: c_int,
    pub args: MapGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapIterate {
    pub loc: LocParams,
    pub idx: hsize_t,
    pub key_type: hid_t,
    pub op: Option<unsafe extern "C" fn(hid_t, *const c_void, Ptr) -> herr_t>,
    pub op_data: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapDelete {
    pub loc: LocParams,
    pub key_type: hid_t,
    pub key: *const c_void,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union MapSpecificU {
    pub iterate: MapIterate,
    pub delete: MapDelete,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MapSpecific {
    pub op: c_int,
    pub args: MapSpecificU,
}
#[repr(C)]
pub union MapArgs {
    pub create: MapCreate,
    pub open: MapOpen,
    pub get_val: MapGetVal,
    pub exists: MapExists,
    pub put: MapGetVal,
    pub get: MapGet,
    pub specific: MapSpecific,
}
