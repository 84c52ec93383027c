//! The C types of HDF5's connector interface (`H5VL_VERSION` 3; the same from 1.14.5 to 2.2.0), declared by hand.

#![allow(missing_docs, non_camel_case_types, reason = "the names and meanings are those of HDF5's headers")]

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

pub type hid_t = i64;
pub type herr_t = c_int;
pub type htri_t = c_int;
pub type hsize_t = u64;
pub type hssize_t = i64;
pub type haddr_t = u64;
pub type ssize_t = isize;

pub const H5I_INVALID_HID: hid_t = -1;
pub const H5P_DEFAULT: hid_t = 0;
pub const H5S_ALL: hid_t = 0;
pub const H5S_BLOCK: hid_t = 1;
pub const H5S_PLIST: hid_t = 2;
pub const H5S_UNLIMITED: hsize_t = u64::MAX;
pub const H5E_DEFAULT: hid_t = 0;

// H5I_type_t
pub const H5I_BADID: c_int = -1;
pub const H5I_FILE: c_int = 1;
pub const H5I_GROUP: c_int = 2;
pub const H5I_DATATYPE: c_int = 3;
pub const H5I_DATASPACE: c_int = 4;
pub const H5I_DATASET: c_int = 5;
pub const H5I_MAP: c_int = 6;
pub const H5I_ATTR: c_int = 7;
pub const H5I_GENPROP_LST: c_int = 11;

// H5O_type_t
pub const H5O_TYPE_GROUP: c_int = 0;
pub const H5O_TYPE_DATASET: c_int = 1;
pub const H5O_TYPE_NAMED_DATATYPE: c_int = 2;
pub const H5O_TYPE_MAP: c_int = 3;

// H5T_class_t
pub const H5T_INTEGER: c_int = 0;
pub const H5T_FLOAT: c_int = 1;
pub const H5T_TIME: c_int = 2;
pub const H5T_STRING: c_int = 3;
pub const H5T_BITFIELD: c_int = 4;
pub const H5T_OPAQUE: c_int = 5;
pub const H5T_COMPOUND: c_int = 6;
pub const H5T_REFERENCE: c_int = 7;
pub const H5T_ENUM: c_int = 8;
pub const H5T_VLEN: c_int = 9;
pub const H5T_ARRAY: c_int = 10;
pub const H5T_COMPLEX: c_int = 11;

// H5S_class_t
pub const H5S_SCALAR: c_int = 0;
pub const H5S_SIMPLE: c_int = 1;
pub const H5S_NULL: c_int = 2;

// H5S_sel_type
pub const H5S_SEL_NONE: c_int = 0;
pub const H5S_SEL_POINTS: c_int = 1;
pub const H5S_SEL_HYPERSLABS: c_int = 2;
pub const H5S_SEL_ALL: c_int = 3;

// H5S_seloper_t
pub const H5S_SELECT_SET: c_int = 0;
pub const H5S_SELECT_OR: c_int = 1;
pub const H5S_SELECT_AND: c_int = 2;

// H5S selection iterator flags
pub const H5S_SEL_ITER_GET_SEQ_LIST_SORTED: c_uint = 1;
pub const H5S_SEL_ITER_SHARE_WITH_DATASPACE: c_uint = 2;

// H5D_layout_t
pub const H5D_COMPACT: c_int = 0;
pub const H5D_CONTIGUOUS: c_int = 1;
pub const H5D_CHUNKED: c_int = 2;
pub const H5D_VIRTUAL: c_int = 3;

// H5D_fill_value_t, H5D_fill_time_t, H5D_alloc_time_t, H5D_space_status_t
pub const H5D_FILL_VALUE_UNDEFINED: c_int = 0;
pub const H5D_FILL_VALUE_DEFAULT: c_int = 1;
pub const H5D_FILL_VALUE_USER_DEFINED: c_int = 2;
pub const H5D_FILL_TIME_ALLOC: c_int = 0;
pub const H5D_FILL_TIME_NEVER: c_int = 1;
pub const H5D_FILL_TIME_IFSET: c_int = 2;
pub const H5D_ALLOC_TIME_DEFAULT: c_int = 0;
pub const H5D_ALLOC_TIME_EARLY: c_int = 1;
pub const H5D_ALLOC_TIME_LATE: c_int = 2;
pub const H5D_ALLOC_TIME_INCR: c_int = 3;
pub const H5D_SPACE_STATUS_NOT_ALLOCATED: c_int = 0;
pub const H5D_SPACE_STATUS_PART_ALLOCATED: c_int = 1;
pub const H5D_SPACE_STATUS_ALLOCATED: c_int = 2;

// H5L_type_t
pub const H5L_TYPE_HARD: c_int = 0;
pub const H5L_TYPE_SOFT: c_int = 1;
pub const H5L_TYPE_EXTERNAL: c_int = 64;

// H5_index_t, H5_iter_order_t
pub const H5_INDEX_NAME: c_int = 0;
pub const H5_INDEX_CRT_ORDER: c_int = 1;
pub const H5_ITER_INC: c_int = 0;
pub const H5_ITER_DEC: c_int = 1;
pub const H5_ITER_NATIVE: c_int = 2;

// H5F flags, scopes, degrees
pub const H5F_ACC_RDWR: c_uint = 0x1;
pub const H5F_ACC_TRUNC: c_uint = 0x2;
pub const H5F_ACC_EXCL: c_uint = 0x4;
pub const H5F_ACC_CREAT: c_uint = 0x10;
pub const H5F_ACC_SWMR_WRITE: c_uint = 0x20;
pub const H5F_ACC_SWMR_READ: c_uint = 0x40;
pub const H5F_ACC_DEFAULT: c_uint = 0xffff;
pub const H5F_OBJ_FILE: c_uint = 0x1;
pub const H5F_OBJ_DATASET: c_uint = 0x2;
pub const H5F_OBJ_GROUP: c_uint = 0x4;
pub const H5F_OBJ_DATATYPE: c_uint = 0x8;
pub const H5F_OBJ_ATTR: c_uint = 0x10;
pub const H5F_OBJ_LOCAL: c_uint = 0x20;
pub const H5F_CLOSE_DEFAULT: c_int = 0;
pub const H5F_CLOSE_WEAK: c_int = 1;
pub const H5F_CLOSE_SEMI: c_int = 2;
pub const H5F_CLOSE_STRONG: c_int = 3;

// H5O info fields, copy flags
pub const H5O_INFO_BASIC: c_uint = 1;
pub const H5O_INFO_TIME: c_uint = 2;
pub const H5O_INFO_NUM_ATTRS: c_uint = 4;
pub const H5O_COPY_SHALLOW_HIERARCHY_FLAG: c_uint = 0x1;
pub const H5O_COPY_EXPAND_SOFT_LINK_FLAG: c_uint = 0x2;
pub const H5O_COPY_EXPAND_EXT_LINK_FLAG: c_uint = 0x4;
pub const H5O_COPY_EXPAND_REFERENCE_FLAG: c_uint = 0x8;
pub const H5O_COPY_WITHOUT_ATTR_FLAG: c_uint = 0x10;
pub const H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG: c_uint = 0x40;

#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct H5O_token_t(pub [u8; 16]);

#[repr(C)]
#[derive(Clone, Copy)]
pub struct LocByName {
    pub name: *const c_char,
    pub lapl_id: hid_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LocByIdx {
    pub name: *const c_char,
    pub idx_type: c_int,
    pub order: c_int,
    pub n: hsize_t,
    pub lapl_id: hid_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LocByToken {
    pub token: *const H5O_token_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union LocData {
    pub by_token: LocByToken,
    pub by_name: LocByName,
    pub by_idx: LocByIdx,
}
pub const H5VL_OBJECT_BY_SELF: c_int = 0;
pub const H5VL_OBJECT_BY_NAME: c_int = 1;
pub const H5VL_OBJECT_BY_IDX: c_int = 2;
pub const H5VL_OBJECT_BY_TOKEN: c_int = 3;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LocParams {
    pub obj_type: c_int,
    pub kind: c_int,
    pub data: LocData,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct OptionalArgs {
    pub op_type: c_int,
    pub args: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct H5A_info_t {
    pub corder_valid: bool,
    pub corder: u32,
    pub cset: c_int,
    pub data_size: hsize_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union LinkInfoU {
    pub token: H5O_token_t,
    pub val_size: usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct H5L_info2_t {
    pub kind: c_int,
    pub corder_valid: bool,
    pub corder: i64,
    pub cset: c_int,
    pub u: LinkInfoU,
}
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct H5G_info_t {
    pub storage_type: c_int,
    pub nlinks: hsize_t,
    pub max_corder: i64,
    pub mounted: bool,
}
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct H5O_info2_t {
    pub fileno: c_ulong,
    pub token: H5O_token_t,
    pub kind: c_int,
    pub rc: c_uint,
    pub atime: c_long,
    pub mtime: c_long,
    pub ctime: c_long,
    pub btime: c_long,
    pub num_attrs: hsize_t,
}
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct H5O_stat_t {
    pub size: hsize_t,
    pub free: hsize_t,
    pub nmesgs: c_uint,
    pub nchunks: c_uint,
}
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct H5G_stat_t {
    pub fileno: [c_ulong; 2],
    pub objno: [c_ulong; 2],
    pub nlink: c_uint,
    pub kind: c_int,
    pub mtime: c_long,
    pub linklen: usize,
    pub ohdr: H5O_stat_t,
}
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ContainerInfo {
    pub version: c_uint,
    pub feature_flags: u64,
    pub token_size: usize,
    pub blob_id_size: usize,
}
/// A variable-length sequence in memory.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct hvl_t {
    pub len: usize,
    pub p: *mut c_void,
}

/// A class of user-defined links, as a program registers it (`H5Lregister`).
#[repr(C)]
pub struct H5L_class_t {
    pub version: c_int,
    pub id: c_int,
    pub comment: *const c_char,
    pub create: Option<unsafe extern "C" fn(*const c_char, hid_t, *const c_void, usize, hid_t) -> herr_t>,
    pub move_: Option<unsafe extern "C" fn(*const c_char, hid_t, *const c_void, usize) -> herr_t>,
    pub copy: Option<unsafe extern "C" fn(*const c_char, hid_t, *const c_void, usize) -> herr_t>,
    pub traverse: Option<unsafe extern "C" fn(*const c_char, hid_t, *const c_void, usize, hid_t, hid_t) -> hid_t>,
    pub delete: Option<unsafe extern "C" fn(*const c_char, hid_t, *const c_void, usize) -> herr_t>,
    pub query: Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void, usize) -> ssize_t>,
}

pub type H5L_iterate2_t = Option<unsafe extern "C" fn(hid_t, *const c_char, *const H5L_info2_t, *mut c_void) -> herr_t>;
pub type H5O_iterate2_t = Option<unsafe extern "C" fn(hid_t, *const c_char, *const H5O_info2_t, *mut c_void) -> herr_t>;
pub type H5A_operator2_t = Option<unsafe extern "C" fn(hid_t, *const c_char, *const H5A_info_t, *mut c_void) -> herr_t>;
pub type H5I_iterate_func_t = Option<unsafe extern "C" fn(hid_t, *mut c_void) -> herr_t>;
pub type H5E_auto2_t = Option<unsafe extern "C" fn(hid_t, *mut c_void) -> herr_t>;
pub type H5E_walk2_t = Option<unsafe extern "C" fn(c_uint, *const H5E_error2_t, *mut c_void) -> herr_t>;
/// An entry of an error stack.
#[repr(C)]
pub struct H5E_error2_t {
    pub cls_id: hid_t,
    pub maj_num: hid_t,
    pub min_num: hid_t,
    pub line: c_uint,
    pub func_name: *const c_char,
    pub file_name: *const c_char,
    pub desc: *const c_char,
}
pub type H5D_chunk_iter_op_t =
    Option<unsafe extern "C" fn(*const hsize_t, c_uint, haddr_t, hsize_t, *mut c_void) -> c_int>;
