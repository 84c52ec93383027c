//! Objects of any kind.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use crate::Result;
use crate::ffi::Api;
use crate::ffi::class::{
    NATIVE_OBJECT_ARE_MDC_FLUSHES_DISABLED, NATIVE_OBJECT_DISABLE_MDC_FLUSHES, NATIVE_OBJECT_ENABLE_MDC_FLUSHES,
    NATIVE_OBJECT_GET_COMMENT, NATIVE_OBJECT_GET_NATIVE_INFO, NATIVE_OBJECT_SET_COMMENT, OBJECT_CHANGE_REF_COUNT,
    OBJECT_EXISTS, OBJECT_FLUSH, OBJECT_GET_FILE, OBJECT_GET_INFO, OBJECT_GET_NAME, OBJECT_GET_TYPE, OBJECT_LOOKUP,
    OBJECT_REFRESH, OBJECT_VISIT, ObjectClass, ObjectGetArgs, ObjectSpecificArgs, ObjectVisit,
};
use crate::ffi::types::{
    H5O_INFO_NUM_ATTRS, H5O_TYPE_DATASET, H5O_TYPE_GROUP, H5O_TYPE_MAP, H5O_TYPE_NAMED_DATATYPE, H5O_info2_t,
    H5VL_OBJECT_BY_NAME, LocParams, OptionalArgs, herr_t, hid_t,
};
use crate::file::File;
use crate::file::mounts;
use crate::meta::header::{self, Body as HeaderBody, Header};
use crate::meta::resolve::{self, Location};
use crate::meta::{attrs, keys, objects, transact};
use crate::object::{self as objects_open, Handle};
use crate::team::Call;

use super::visit::{self, Step};
use super::{args, object, status, unknown_op};

pub fn class<const N: usize>() -> ObjectClass {
    ObjectClass {
        open: Some(open::<N>),
        copy: Some(copy::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
    }
}

/// `H5O_type_t`.
pub fn kind_of(header: &Header) -> c_int {
    match header.body {
        HeaderBody::Group(_) => H5O_TYPE_GROUP,
        HeaderBody::Dataset { .. } => H5O_TYPE_DATASET,
        HeaderBody::Datatype { .. } => H5O_TYPE_NAMED_DATATYPE,
        HeaderBody::Map { .. } => H5O_TYPE_MAP,
    }
}

unsafe extern "C" fn open<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    opened: *mut c_int,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("object_open", |h5| {
        let place = args::place(pointer, loc)?;
        let handle = Handle::new(h5, objects_open::open(&place)?);
        if !opened.is_null() {
            args::put(opened, Handle::at(handle.cast())?.id_type())?;
        }
        Ok(handle)
    })
}

unsafe extern "C" fn copy<const N: usize>(
    src: *mut c_void,
    src_loc: *const LocParams,
    src_name: *const c_char,
    dst: *mut c_void,
    dst_loc: *const LocParams,
    dst_name: *const c_char,
    ocpypl: hid_t,
    lcpl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("object_copy", |h5| {
        let name = args::name(dst_name)?;
        Handle::at(dst)?.file()?.once(&Call::new("object_copy").named(name), || {
            let from = resolve::resolve(&args::place(src, src_loc)?, args::name(src_name)?, true)?.place()?;
            let to = args::place(dst, dst_loc)?;
            let mut flags: c_uint = 0;
            // SAFETY: the place is valid; failure leaves the default.
            unsafe { (h5.H5Pget_copy_object)(ocpypl, &raw mut flags) };
            super::copy::object(&from, &to, name, flags, args::link_create(h5, lcpl)?)
        })
    })
}

/// HDF5's description of an object.
pub fn info(place: &Location, fields: c_uint) -> Result<H5O_info2_t> {
    info_of(&place.file, place.oid, &header::get(&place.file, place.oid)?, fields)
}

/// HDF5's description of an object with a known header.
fn info_of(file: &File, oid: u64, header: &header::Header, fields: c_uint) -> Result<H5O_info2_t> {
    info_with(file, oid, header, fields, objects::link_count_or_one(file, oid)?)
}

fn info_with(file: &File, oid: u64, header: &header::Header, fields: c_uint, links: u32) -> Result<H5O_info2_t> {
    let t = header.born_unix_s;
    let is_type = matches!(header.body, HeaderBody::Datatype { .. });
    let users = if is_type { objects::users(file, oid)? } else { 0 };
    Ok(H5O_info2_t {
        fileno: file.fileno(),
        token: args::token_of(oid),
        kind: kind_of(header),
        rc: links + users,
        atime: t,
        mtime: t,
        ctime: t,
        btime: t,
        num_attrs: if fields & H5O_INFO_NUM_ATTRS != 0 { attrs::count(file, oid)? } else { 0 },
    })
}

/// A valid path to an object: the one by which it was opened if that still leads there, else another; empty if none
/// exists.
fn path_now(place: &Location) -> Result<Vec<u8>> {
    if !place.path.is_empty() {
        let root = resolve::root_of(&place.file);
        if let Ok(found) = resolve::resolve(&root, &place.path, true)
            && found.oid == Some(place.oid)
            && found.file.is_same(&place.file)
        {
            return Ok(place.path.clone());
        }
        // After an external link the path already is one of the other file; or the object was moved or unlinked.
    }
    let mut path = mounts::prefix(&place.file);
    match resolve::search_path(&place.file, place.oid)? {
        Some(root) if root == b"/" && !path.is_empty() => Ok(path),
        Some(found) => {
            path.extend_from_slice(&found);
            Ok(path)
        }
        None => Ok(Vec::new()),
    }
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    what: *mut ObjectGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("object_get", |_| {
        let what = args::of(what)?;
        // SAFETY: `op` says which member of the union is in use.
        unsafe {
            match what.op {
                OBJECT_GET_FILE => args::put(what.args.file, Handle::at(pointer)?.file()?.handle().cast()),
                OBJECT_GET_NAME => {
                    let g = what.args.name;
                    args::give_name(&path_now(&args::place(pointer, loc)?)?, g.buf, g.size, g.len)
                }
                OBJECT_GET_TYPE => {
                    let place = args::place(pointer, loc)?;
                    if info(&place, 0)?.rc == 0 {
                        return Err(crate::meta::gone(&place.file, place.oid)); // "dereferencing deleted object"
                    }
                    args::put(what.args.kind, kind_of(&header::get(&place.file, place.oid)?))
                }
                OBJECT_GET_INFO => {
                    let g = what.args.info;
                    args::put(g.info, info(&args::place(pointer, loc)?, g.fields)?)
                }
                other => Err(unknown_op("object_get", other)),
            }
        }
    })
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    what: *mut ObjectSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    super::run::<N, herr_t>("object_specific", -1, |h5| {
        let what = args::of(what)?;
        // SAFETY: `op` says which member of the union is in use.
        unsafe {
            match what.op {
                OBJECT_CHANGE_REF_COUNT => {
                    let place = args::place(pointer, loc)?;
                    place.file.need_writable("changing a link count")?;
                    let delta = i64::from(what.args.delta);
                    place.file.once_unlinking(Call::new("link_count").about((place.oid, delta)), || {
                        transact(&place.file, |tx| objects::link_count_add(tx, &place.file, place.oid, delta))
                    })?;
                }
                OBJECT_EXISTS => args::put(what.args.exists, exists(pointer, args::of(loc)?)?)?,
                OBJECT_LOOKUP => {
                    args::put(what.args.token, args::token_of(args::place(pointer, loc)?.oid))?;
                    crate::regions::looked_up();
                }
                OBJECT_VISIT => return visit_objects(h5, &args::place(pointer, loc)?, &what.args.visit),
                OBJECT_FLUSH => super::file::flush(&Handle::at(pointer)?.file()?)?,
                OBJECT_REFRESH => {}
                other => return Err(unknown_op("object_specific", other)),
            }
        }
        Ok(0)
    })
}

fn exists(pointer: *mut c_void, loc: &LocParams) -> Result<bool> {
    if loc.kind != H5VL_OBJECT_BY_NAME {
        return Ok(args::at(&Handle::at(pointer)?.place()?, loc).is_ok());
    }
    // SAFETY: `kind` says which member of the union is in use.
    let by = unsafe { loc.data.by_name };
    let name = args::name(by.name)?;
    args::check_list(Handle::at(pointer)?.h5, by.lapl_id)?;
    resolve::leads_to_object(&Handle::at(pointer)?.place()?, name, by.lapl_id)
}

fn visit_objects(h5: &'static Api, top: &Location, v: &ObjectVisit) -> Result<herr_t> {
    let op = v.op.ok_or_else(|| unknown_op("object_specific", OBJECT_VISIT))?;
    let id = visit::GroupId::new(h5, top)?;
    let mut counts = objects::Counts::new(&top.file);
    let mut call = |name: &[u8], file: &Arc<File>, oid: u64, header: &header::Header| -> Result<herr_t> {
        let name = visit::c_name(name)?;
        let info = if Arc::ptr_eq(file, &top.file) {
            info_with(file, oid, header, v.fields, counts.of(oid)?)?
        } else {
            info_of(file, oid, header, v.fields)?
        };
        // SAFETY: the program's function gets a valid id, name and description.
        Ok(unsafe { op(id.get(), name.as_ptr(), &raw const info, v.op_data) })
    };
    let header = header::get(&top.file, top.oid)?;
    let first = call(b".", &top.file, top.oid, &header)?;
    if first != 0 || !matches!(header.body, HeaderBody::Group(_)) {
        return Ok(first);
    }
    let step = visit::links_below(&top.file, top.oid, v.idx_type, v.order, &mut |met| {
        met.object.map_or(Ok(Step::Go), |(oid, header)| Ok(Step::of(call(met.path, met.file, oid, header)?)))
    })?;
    Ok(step.status())
}

unsafe extern "C" fn optional<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    what: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("object_optional", |_| {
        let what = args::of(what)?;
        let place = args::place(pointer, loc)?;
        let key = keys::of(keys::TAG_COMMENT, place.oid);
        match what.op_type {
            NATIVE_OBJECT_GET_COMMENT => {
                let a = args::of(what.args.cast::<GetComment>())?;
                let comment = place.file.meta.get_one(&key)?.unwrap_or_default();
                // Unlike names, a truncated comment does not end in NUL.
                let n = comment.len().min(a.size);
                if !a.buf.is_null() {
                    // SAFETY: the buffer has the size that the program says.
                    unsafe {
                        std::ptr::copy_nonoverlapping(comment.as_ptr(), a.buf.cast::<u8>(), n);
                        if n < a.size {
                            a.buf.add(n).write(0);
                        }
                    }
                }
                if a.len.is_null() { Ok(()) } else { args::put(a.len, comment.len()) }
            }
            NATIVE_OBJECT_SET_COMMENT => {
                let comment = args::name_or_none(*args::of(what.args.cast::<*const c_char>())?)?.unwrap_or_default();
                if comment.is_empty() && place.file.meta.get_one(&key)?.is_none() {
                    return Ok(()); // also in a file that is open read-only
                }
                place.file.need_writable("setting a comment")?;
                place.file.once(&Call::new("set_comment").named(comment).about(place.oid), || {
                    transact(&place.file, |tx| {
                        if comment.is_empty() {
                            tx.del(&place.file.meta, &key)
                        } else {
                            tx.put(&place.file.meta, &key, comment)
                        }
                    })
                })
            }
            // No metadata are buffered here that a flush could leave out; the setting is only remembered.
            NATIVE_OBJECT_DISABLE_MDC_FLUSHES | NATIVE_OBJECT_ENABLE_MDC_FLUSHES => {
                place.file.shared.cork(place.oid, what.op_type == NATIVE_OBJECT_DISABLE_MDC_FLUSHES);
                Ok(())
            }
            NATIVE_OBJECT_ARE_MDC_FLUSHES_DISABLED => {
                args::put(*args::of(what.args.cast::<*mut bool>())?, place.file.shared.is_corked(place.oid))
            }
            NATIVE_OBJECT_GET_NATIVE_INFO => {
                let a = args::of(what.args.cast::<GetNativeInfo>())?;
                // There is no native object header: all its counts are zero.
                args::put(a.info, [0; NATIVE_INFO_BYTES])
            }
            other => Err(unknown_op("object_optional", other)),
        }
    })
}

/// Size of `H5O_native_info_t`.
const NATIVE_INFO_BYTES: usize = 96;

#[repr(C)]
struct GetComment {
    size: usize,
    buf: *mut c_char,
    len: *mut usize,
}
#[repr(C)]
struct GetNativeInfo {
    fields: c_uint,
    info: *mut [u8; NATIVE_INFO_BYTES],
}
