//! The connector class and the argument structures of its callbacks (`H5VLconnector.h`), declared by hand.

#![allow(missing_docs, reason = "the names and meanings are those of HDF5's headers")]
#![allow(clippy::wildcard_imports, reason = "the types of HDF5 are this file's vocabulary")]

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use super::types::*;

type Ptr = *mut c_void;
type Req = *mut *mut c_void;
type Loc = *const LocParams;

// op_type of the `get`, `specific` and `create` callbacks, in the order of HDF5's enumerations.
pub const ATTR_GET_ACPL: c_int = 0;
pub const ATTR_GET_INFO: c_int = 1;
pub const ATTR_GET_NAME: c_int = 2;
pub const ATTR_GET_SPACE: c_int = 3;
pub const ATTR_GET_STORAGE_SIZE: c_int = 4;
pub const ATTR_GET_TYPE: c_int = 5;
pub const ATTR_DELETE: c_int = 0;
pub const ATTR_DELETE_BY_IDX: c_int = 1;
pub const ATTR_EXISTS: c_int = 2;
pub const ATTR_ITER: c_int = 3;
pub const ATTR_RENAME: c_int = 4;
pub const DATASET_GET_DAPL: c_int = 0;
pub const DATASET_GET_DCPL: c_int = 1;
pub const DATASET_GET_SPACE: c_int = 2;
pub const DATASET_GET_SPACE_STATUS: c_int = 3;
pub const DATASET_GET_STORAGE_SIZE: c_int = 4;
pub const DATASET_GET_TYPE: c_int = 5;
pub const DATASET_SET_EXTENT: c_int = 0;
pub const DATASET_FLUSH: c_int = 1;
pub const DATASET_REFRESH: c_int = 2;
pub const DATATYPE_GET_BINARY_SIZE: c_int = 0;
pub const DATATYPE_GET_BINARY: c_int = 1;
pub const DATATYPE_GET_TCPL: c_int = 2;
pub const DATATYPE_FLUSH: c_int = 0;
pub const DATATYPE_REFRESH: c_int = 1;
pub const FILE_GET_CONT_INFO: c_int = 0;
pub const FILE_GET_FAPL: c_int = 1;
pub const FILE_GET_FCPL: c_int = 2;
pub const FILE_GET_FILENO: c_int = 3;
pub const FILE_GET_INTENT: c_int = 4;
pub const FILE_GET_NAME: c_int = 5;
pub const FILE_GET_OBJ_COUNT: c_int = 6;
pub const FILE_GET_OBJ_IDS: c_int = 7;
pub const FILE_FLUSH: c_int = 0;
pub const FILE_REOPEN: c_int = 1;
pub const FILE_IS_ACCESSIBLE: c_int = 2;
pub const FILE_DELETE: c_int = 3;
pub const FILE_IS_EQUAL: c_int = 4;
pub const GROUP_GET_GCPL: c_int = 0;
pub const GROUP_GET_INFO: c_int = 1;
pub const GROUP_MOUNT: c_int = 0;
pub const GROUP_UNMOUNT: c_int = 1;
pub const GROUP_FLUSH: c_int = 2;
pub const GROUP_REFRESH: c_int = 3;
pub const LINK_CREATE_HARD: c_int = 0;
pub const LINK_CREATE_SOFT: c_int = 1;
pub const LINK_CREATE_UD: c_int = 2;
pub const LINK_GET_INFO: c_int = 0;
pub const LINK_GET_NAME: c_int = 1;
pub const LINK_GET_VAL: c_int = 2;
pub const LINK_DELETE: c_int = 0;
pub const LINK_EXISTS: c_int = 1;
pub const LINK_ITER: c_int = 2;
pub const OBJECT_GET_FILE: c_int = 0;
pub const OBJECT_GET_NAME: c_int = 1;
pub const OBJECT_GET_TYPE: c_int = 2;
pub const OBJECT_GET_INFO: c_int = 3;
pub const OBJECT_CHANGE_REF_COUNT: c_int = 0;
pub const OBJECT_EXISTS: c_int = 1;
pub const OBJECT_LOOKUP: c_int = 2;
pub const OBJECT_VISIT: c_int = 3;
pub const OBJECT_FLUSH: c_int = 4;
pub const OBJECT_REFRESH: c_int = 5;
pub const BLOB_DELETE: c_int = 0;
pub const BLOB_ISNULL: c_int = 1;
pub const BLOB_SETNULL: c_int = 2;

// Optional operations of the native connector that programs use through ordinary API calls.
pub const NATIVE_ATTR_ITERATE_OLD: c_int = 0;
pub const NATIVE_DATASET_FORMAT_CONVERT: c_int = 0;
pub const NATIVE_DATASET_GET_CHUNK_INDEX_TYPE: c_int = 1;
pub const NATIVE_DATASET_GET_CHUNK_STORAGE_SIZE: c_int = 2;
pub const NATIVE_DATASET_GET_NUM_CHUNKS: c_int = 3;
pub const NATIVE_DATASET_GET_CHUNK_INFO_BY_IDX: c_int = 4;
pub const NATIVE_DATASET_GET_CHUNK_INFO_BY_COORD: c_int = 5;
pub const NATIVE_DATASET_CHUNK_READ: c_int = 6;
pub const NATIVE_DATASET_CHUNK_WRITE: c_int = 7;
pub const NATIVE_DATASET_GET_VLEN_BUF_SIZE: c_int = 8;
pub const NATIVE_DATASET_GET_OFFSET: c_int = 9;
pub const NATIVE_DATASET_CHUNK_ITER: c_int = 10;
pub const NATIVE_GROUP_ITERATE_OLD: c_int = 0;
pub const NATIVE_GROUP_GET_OBJINFO: c_int = 1;
pub const NATIVE_OBJECT_GET_COMMENT: c_int = 0;
pub const NATIVE_OBJECT_SET_COMMENT: c_int = 1;
pub const NATIVE_OBJECT_DISABLE_MDC_FLUSHES: c_int = 2;
pub const NATIVE_OBJECT_ENABLE_MDC_FLUSHES: c_int = 3;
pub const NATIVE_OBJECT_ARE_MDC_FLUSHES_DISABLED: c_int = 4;
pub const NATIVE_OBJECT_GET_NATIVE_INFO: c_int = 5;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct AttrGetName {
    pub loc: LocParams,
    pub buf_size: usize,
    pub buf: *mut c_char,
    pub len: *mut usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AttrGetInfo {
    pub loc: LocParams,
    pub name: *const c_char,
    pub info: *mut H5A_info_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union AttrGetU {
    pub id: hid_t,
    pub info: AttrGetInfo,
    pub name: AttrGetName,
    pub size: *mut hsize_t,
}
#[repr(C)]
pub struct AttrGetArgs {
    pub op: c_int,
    pub args: AttrGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AttrIterate {
    pub idx_type: c_int,
    pub order: c_int,
    pub idx: *mut hsize_t,
    pub op: H5A_operator2_t,
    pub op_data: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct AttrDeleteByIdx {
    pub idx_type: c_int,
    pub order: c_int,
    pub n: hsize_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct NameExists {
    pub name: *const c_char,
    pub exists: *mut bool,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Rename {
    pub old: *const c_char,
    pub new: *const c_char,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union AttrSpecificU {
    pub name: *const c_char,
    pub delete_by_idx: AttrDeleteByIdx,
    pub exists: NameExists,
    pub iterate: AttrIterate,
    pub rename: Rename,
}
#[repr(C)]
pub struct AttrSpecificArgs {
    pub op: c_int,
    pub args: AttrSpecificU,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub union DatasetGetU {
    pub id: hid_t,
    pub status: *mut c_int,
    pub size: *mut hsize_t,
}
#[repr(C)]
pub struct DatasetGetArgs {
    pub op: c_int,
    pub args: DatasetGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatasetSpecificU {
    pub size: *const hsize_t,
    pub id: hid_t,
}
#[repr(C)]
pub struct DatasetSpecificArgs {
    pub op: c_int,
    pub args: DatasetSpecificU,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GetBinary {
    pub buf: Ptr,
    pub buf_size: usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union DatatypeGetU {
    pub size: *mut usize,
    pub binary: GetBinary,
    pub id: hid_t,
}
#[repr(C)]
pub struct DatatypeGetArgs {
    pub op: c_int,
    pub args: DatatypeGetU,
}
#[repr(C)]
pub struct DatatypeSpecificArgs {
    pub op: c_int,
    pub id: hid_t,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileGetName {
    pub kind: c_int,
    pub buf_size: usize,
    pub buf: *mut c_char,
    pub len: *mut usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileObjCount {
    pub types: c_uint,
    pub count: *mut usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileObjIds {
    pub types: c_uint,
    pub max_objs: usize,
    pub list: *mut hid_t,
    pub count: *mut usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union FileGetU {
    pub info: *mut ContainerInfo,
    pub id: hid_t,
    pub fileno: *mut c_ulong,
    pub flags: *mut c_uint,
    pub name: FileGetName,
    pub obj_count: FileObjCount,
    pub obj_ids: FileObjIds,
}
#[repr(C)]
pub struct FileGetArgs {
    pub op: c_int,
    pub args: FileGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileFlush {
    pub obj_type: c_int,
    pub scope: c_int,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileIsAccessible {
    pub name: *const c_char,
    pub fapl_id: hid_t,
    pub accessible: *mut bool,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileDelete {
    pub name: *const c_char,
    pub fapl_id: hid_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct FileIsEqual {
    pub obj2: Ptr,
    pub same: *mut bool,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union FileSpecificU {
    pub flush: FileFlush,
    pub reopen: *mut *mut c_void,
    pub is_accessible: FileIsAccessible,
    pub del: FileDelete,
    pub is_equal: FileIsEqual,
}
#[repr(C)]
pub struct FileSpecificArgs {
    pub op: c_int,
    pub args: FileSpecificU,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct GroupGetInfo {
    pub loc: LocParams,
    pub info: *mut H5G_info_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union GroupGetU {
    pub id: hid_t,
    pub info: GroupGetInfo,
}
#[repr(C)]
pub struct GroupGetArgs {
    pub op: c_int,
    pub args: GroupGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct GroupMount {
    pub name: *const c_char,
    pub child: Ptr,
    pub fmpl_id: hid_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union GroupSpecificU {
    pub mount: GroupMount,
    pub unmount: *const c_char,
    pub id: hid_t,
}
#[repr(C)]
pub struct GroupSpecificArgs {
    pub op: c_int,
    pub args: GroupSpecificU,
}
#[repr(C)]
pub struct GroupGetObjinfo {
    pub loc: LocParams,
    pub follow_link: bool,
    pub stat: *mut H5G_stat_t,
}
#[repr(C)]
pub struct GroupIterateOld {
    pub loc: LocParams,
    pub idx: hsize_t,
    pub last: *mut hsize_t,
    pub op: Option<unsafe extern "C" fn(hid_t, *const c_char, Ptr) -> herr_t>,
    pub op_data: Ptr,
}
#[repr(C)]
pub struct AttrIterateOld {
    pub loc_id: hid_t,
    pub attr_num: *mut c_uint,
    pub op: Option<unsafe extern "C" fn(hid_t, *const c_char, Ptr) -> herr_t>,
    pub op_data: Ptr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinkHard {
    pub obj: Ptr,
    pub loc: LocParams,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinkUd {
    pub kind: c_int,
    pub buf: *const c_void,
    pub size: usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union LinkCreateU {
    pub hard: LinkHard,
    pub soft: *const c_char,
    pub ud: LinkUd,
}
#[repr(C)]
pub struct LinkCreateArgs {
    pub op: c_int,
    pub args: LinkCreateU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinkGetName {
    pub size: usize,
    pub name: *mut c_char,
    pub len: *mut usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinkGetVal {
    pub size: usize,
    pub buf: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union LinkGetU {
    pub info: *mut H5L_info2_t,
    pub name: LinkGetName,
    pub val: LinkGetVal,
}
#[repr(C)]
pub struct LinkGetArgs {
    pub op: c_int,
    pub args: LinkGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LinkIterate {
    pub recursive: bool,
    pub idx_type: c_int,
    pub order: c_int,
    pub idx: *mut hsize_t,
    pub op: H5L_iterate2_t,
    pub op_data: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union LinkSpecificU {
    pub exists: *mut bool,
    pub iterate: LinkIterate,
}
#[repr(C)]
pub struct LinkSpecificArgs {
    pub op: c_int,
    pub args: LinkSpecificU,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectGetName {
    pub size: usize,
    pub buf: *mut c_char,
    pub len: *mut usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectGetInfo {
    pub fields: c_uint,
    pub info: *mut H5O_info2_t,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union ObjectGetU {
    pub file: *mut *mut c_void,
    pub name: ObjectGetName,
    pub kind: *mut c_int,
    pub info: ObjectGetInfo,
}
#[repr(C)]
pub struct ObjectGetArgs {
    pub op: c_int,
    pub args: ObjectGetU,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ObjectVisit {
    pub idx_type: c_int,
    pub order: c_int,
    pub fields: c_uint,
    pub op: H5O_iterate2_t,
    pub op_data: Ptr,
}
#[repr(C)]
#[derive(Clone, Copy)]
pub union ObjectSpecificU {
    pub delta: c_int,
    pub exists: *mut bool,
    pub token: *mut H5O_token_t,
    pub visit: ObjectVisit,
    pub id: hid_t,
}
#[repr(C)]
pub struct ObjectSpecificArgs {
    pub op: c_int,
    pub args: ObjectSpecificU,
}
#[repr(C)]
pub struct BlobSpecificArgs {
    pub op: c_int,
    pub is_null: *mut bool,
}

macro_rules! callbacks {
    ($(#[$doc:meta])* $struct:ident { $( $name:ident ( $($arg:ty),* ) -> $ret:ty ),* $(,)? }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $struct { $( pub $name: Option<unsafe extern "C" fn($($arg),*) -> $ret> ),* }
    };
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct InfoClass {
    pub size: usize,
    pub copy: Option<unsafe extern "C" fn(*const c_void) -> Ptr>,
    pub cmp: Option<unsafe extern "C" fn(*mut c_int, *const c_void, *const c_void) -> herr_t>,
    pub free: Option<unsafe extern "C" fn(Ptr) -> herr_t>,
    pub to_str: Option<unsafe extern "C" fn(*const c_void, *mut *mut c_char) -> herr_t>,
    pub from_str: Option<unsafe extern "C" fn(*const c_char, *mut Ptr) -> herr_t>,
}
callbacks! { WrapClass {
    get_object(*const c_void) -> Ptr,
    get_wrap_ctx(*const c_void, *mut Ptr) -> herr_t,
    wrap_object(Ptr, c_int, Ptr) -> Ptr,
    unwrap_object(Ptr) -> Ptr,
    free_wrap_ctx(Ptr) -> herr_t,
}}
callbacks! { AttrClass {
    create(Ptr, Loc, *const c_char, hid_t, hid_t, hid_t, hid_t, hid_t, Req) -> Ptr,
    open(Ptr, Loc, *const c_char, hid_t, hid_t, Req) -> Ptr,
    read(Ptr, hid_t, Ptr, hid_t, Req) -> herr_t,
    write(Ptr, hid_t, *const c_void, hid_t, Req) -> herr_t,
    get(Ptr, *mut AttrGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, Loc, *mut AttrSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, *mut OptionalArgs, hid_t, Req) -> herr_t,
    close(Ptr, hid_t, Req) -> herr_t,
}}
callbacks! { DatasetClass {
    create(Ptr, Loc, *const c_char, hid_t, hid_t, hid_t, hid_t, hid_t, hid_t, Req) -> Ptr,
    open(Ptr, Loc, *const c_char, hid_t, hid_t, Req) -> Ptr,
    read(usize, *const Ptr, *const hid_t, *const hid_t, *const hid_t, hid_t, *const Ptr, Req) -> herr_t,
    write(usize, *const Ptr, *const hid_t, *const hid_t, *const hid_t, hid_t, *const *const c_void, Req) -> herr_t,
    get(Ptr, *mut DatasetGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, *mut DatasetSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, *mut OptionalArgs, hid_t, Req) -> herr_t,
    close(Ptr, hid_t, Req) -> herr_t,
}}
callbacks! { DatatypeClass {
    commit(Ptr, Loc, *const c_char, hid_t, hid_t, hid_t, hid_t, hid_t, Req) -> Ptr,
    open(Ptr, Loc, *const c_char, hid_t, hid_t, Req) -> Ptr,
    get(Ptr, *mut DatatypeGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, *mut DatatypeSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, *mut OptionalArgs, hid_t, Req) -> herr_t,
    close(Ptr, hid_t, Req) -> herr_t,
}}
callbacks! { FileClass {
    create(*const c_char, c_uint, hid_t, hid_t, hid_t, Req) -> Ptr,
    open(*const c_char, c_uint, hid_t, hid_t, Req) -> Ptr,
    get(Ptr, *mut FileGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, *mut FileSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, *mut OptionalArgs, hid_t, Req) -> herr_t,
    close(Ptr, hid_t, Req) -> herr_t,
}}
callbacks! { GroupClass {
    create(Ptr, Loc, *const c_char, hid_t, hid_t, hid_t, hid_t, Req) -> Ptr,
    open(Ptr, Loc, *const c_char, hid_t, hid_t, Req) -> Ptr,
    get(Ptr, *mut GroupGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, *mut GroupSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, *mut OptionalArgs, hid_t, Req) -> herr_t,
    close(Ptr, hid_t, Req) -> herr_t,
}}
callbacks! { LinkClass {
    create(*mut LinkCreateArgs, Ptr, Loc, hid_t, hid_t, hid_t, Req) -> herr_t,
    copy(Ptr, Loc, Ptr, Loc, hid_t, hid_t, hid_t, Req) -> herr_t,
    move_(Ptr, Loc, Ptr, Loc, hid_t, hid_t, hid_t, Req) -> herr_t,
    get(Ptr, Loc, *mut LinkGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, Loc, *mut LinkSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, Loc, *mut OptionalArgs, hid_t, Req) -> herr_t,
}}
callbacks! { ObjectClass {
    open(Ptr, Loc, *mut c_int, hid_t, Req) -> Ptr,
    copy(Ptr, Loc, *const c_char, Ptr, Loc, *const c_char, hid_t, hid_t, hid_t, Req) -> herr_t,
    get(Ptr, Loc, *mut ObjectGetArgs, hid_t, Req) -> herr_t,
    specific(Ptr, Loc, *mut ObjectSpecificArgs, hid_t, Req) -> herr_t,
    optional(Ptr, Loc, *mut OptionalArgs, hid_t, Req) -> herr_t,
}}
callbacks! { IntrospectClass {
    get_conn_cls(Ptr, c_int, *mut *const ConnectorClass) -> herr_t,
    get_cap_flags(*const c_void, *mut u64) -> herr_t,
    opt_query(Ptr, c_int, c_int, *mut u64) -> herr_t,
}}
pub const REQUEST_GET_ERR_STACK: c_int = 0;
pub const REQUEST_GET_EXEC_TIME: c_int = 1;
#[repr(C)]
#[derive(Clone, Copy)]
pub struct RequestExecTime {
    pub begun_us: *mut u64,
    pub took_ns: *mut u64,
}
#[repr(C)]
pub union RequestSpecificU {
    pub err_stack_id: hid_t,
    pub exec_time: RequestExecTime,
}
#[repr(C)]
pub struct RequestSpecificArgs {
    pub op: c_int,
    pub args: RequestSpecificU,
}

callbacks! { RequestClass {
    wait(Ptr, u64, *mut c_int) -> herr_t,
    notify(Ptr, Ptr, Ptr) -> herr_t,
    cancel(Ptr, *mut c_int) -> herr_t,
    specific(Ptr, Ptr) -> herr_t,
    optional(Ptr, *mut OptionalArgs) -> herr_t,
    free(Ptr) -> herr_t,
}}
callbacks! { BlobClass {
    put(Ptr, *const c_void, usize, Ptr, Ptr) -> herr_t,
    get(Ptr, *const c_void, Ptr, usize, Ptr) -> herr_t,
    specific(Ptr, Ptr, *mut BlobSpecificArgs) -> herr_t,
    optional(Ptr, Ptr, *mut OptionalArgs) -> herr_t,
}}
callbacks! { TokenClass {
    cmp(Ptr, *const H5O_token_t, *const H5O_token_t, *mut c_int) -> herr_t,
    to_str(Ptr, c_int, *const H5O_token_t, *mut *mut c_char) -> herr_t,
    from_str(Ptr, c_int, *const c_char, *mut H5O_token_t) -> herr_t,
}}

/// `H5VL_class_t`.
#[repr(C)]
pub struct ConnectorClass {
    pub version: c_uint,
    pub value: c_int,
    pub name: *const c_char,
    pub conn_version: c_uint,
    pub cap_flags: u64,
    pub initialize: Option<unsafe extern "C" fn(hid_t) -> herr_t>,
    pub terminate: Option<unsafe extern "C" fn() -> herr_t>,
    pub info: InfoClass,
    pub wrap: WrapClass,
    pub attr: AttrClass,
    pub dataset: DatasetClass,
    pub datatype: DatatypeClass,
    pub file: FileClass,
    pub group: GroupClass,
    pub link: LinkClass,
    pub object: ObjectClass,
    pub introspect: IntrospectClass,
    pub request: RequestClass,
    pub blob: BlobClass,
    pub token: TokenClass,
    pub optional: Option<unsafe extern "C" fn(Ptr, *mut OptionalArgs, hid_t, Req) -> herr_t>,
}
// The size in every libhdf5 from 1.14.5 to 2.2.0 on 64-bit machines.
const _: () = assert!(size_of::<ConnectorClass>() == 632);
const _: () = assert!(size_of::<LocParams>() == 40);
