//! Attributes.

use std::ffi::{c_char, c_void};

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use crate::ffi::Api;
use crate::ffi::class::{
    ATTR_DELETE, ATTR_DELETE_BY_IDX, ATTR_EXISTS, ATTR_GET_ACPL, ATTR_GET_INFO, ATTR_GET_NAME, ATTR_GET_SPACE,
    ATTR_GET_STORAGE_SIZE, ATTR_GET_TYPE, ATTR_ITER, ATTR_RENAME, AttrClass, AttrGetArgs, AttrIterate, AttrIterateOld,
    AttrSpecificArgs, NATIVE_ATTR_ITERATE_OLD,
};
use crate::ffi::types::{
    H5_INDEX_CRT_ORDER, H5_ITER_INC, H5A_info_t, H5VL_OBJECT_BY_IDX, LocParams, OptionalArgs, herr_t, hid_t,
};
use crate::meta::attrs::{self, Attr as Record};
use crate::meta::resolve::{self, Location};
use crate::meta::{header, objects, transact};
use crate::object::{Attr, Body, Handle};
use crate::space::Extent;
use crate::team::Call;
use crate::{Result, dtype, value};

use super::visit::{self, Step};
use super::{args, close, object, pending, status, unknown_op};

pub fn class<const N: usize>() -> AttrClass {
    AttrClass {
        create: Some(create::<N>),
        open: Some(open::<N>),
        read: Some(read::<N>),
        write: Some(write::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
        close: Some(close_attr::<N>),
    }
}

fn attr<'a>(pointer: *mut c_void) -> Result<&'a Attr> {
    match &Handle::at(pointer)?.body {
        Body::Attr(a) => Ok(a),
        _ => Err(Error::new(ErrorKind::InvalidInput, "object").because("it is not an attribute")),
    }
}

/// Makes a handle for an attribute record.
fn handle(h5: &'static Api, place: Location, name: Vec<u8>, record: &Record) -> Result<*mut Handle> {
    let file = place.file.clone();
    let body = Attr {
        place,
        name: Mutex::new(name),
        uid: record.uid,
        dtype: dtype::decode(h5, &record.dtype)?.hidden(),
        committed: record.committed,
        extent: record.extent.clone(),
    };
    file.shared.attr_opened(record.uid);
    Ok(Handle::new(h5, Body::Attr(body)))
}

unsafe extern "C" fn create<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    type_id: hid_t,
    space_id: hid_t,
    acpl: hid_t,
    aapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("attr_create", |h5| {
        args::check_list(h5, acpl)?;
        args::check_list(h5, aapl)?;
        let place = args::place(pointer, loc)?;
        place.file.need_writable("creating an attribute")?;
        let name = args::name(name)?;
        dtype::look(h5, type_id)?;
        let mut cset = 0;
        if acpl > 0 {
            // SAFETY: the place is valid; failure leaves the default.
            unsafe { (h5.H5Pget_char_encoding)(acpl, &raw mut cset) };
        }
        let mut record = Record {
            uid: 0,
            order: 0,
            cset: cset as u8,
            dtype: dtype::encode(h5, type_id)?,
            committed: args::committed_oid(h5, type_id, &place.file),
            extent: Extent::of(h5, space_id)?,
            value: None,
        };
        if record.extent.counted().is_none() {
            return Err(Error::new(ErrorKind::LimitExceeded, format!("attribute `{}`", String::from_utf8_lossy(name)))
                .because("its extent has more than 2^64 elements"));
        }
        if place.file.team.is_some() {
            // All ranks make it at once: if one of them deferred it, the others would wait.
            record.uid = place.file.once(&Call::new("attr_create").named(name), || {
                transact(&place.file, |tx| attrs::create(tx, &place.file, place.oid, name, &mut record))?;
                Ok(record.uid)
            })?;
            return handle(h5, place, name.to_vec(), &record);
        }
        attrs::check_new(&place.file, place.oid, name)?;
        record.uid = crate::file::random_u64()?;
        pending::put_off(&place.file, place.oid, name, &record);
        handle(h5, place, name.to_vec(), &record)
    })
}

/// The object that holds the attribute, and the attribute, by location parameters and name.
fn find(pointer: *mut c_void, loc: &LocParams, name: Option<&[u8]>) -> Result<(Location, Vec<u8>, Record)> {
    let base = Handle::at(pointer)?.place()?;
    if loc.kind == H5VL_OBJECT_BY_IDX {
        // SAFETY: `kind` says which member of the union is in use.
        let by = unsafe { loc.data.by_idx };
        args::check_list(base.file.h5, by.lapl_id)?;
        let place = resolve::resolve_as(&base, args::name(by.name)?, true, by.lapl_id)?.place()?;
        let (name, record) = attrs::nth(&place.file, place.oid, by.idx_type, by.order, by.n)?;
        return Ok((place, name, record));
    }
    let place = args::at(&base, loc)?;
    let name = name.ok_or_else(|| Error::new(ErrorKind::InvalidInput, "attribute").because("no name given"))?;
    let record = attrs::get(&place.file, place.oid, name)?;
    Ok((place, name.to_vec(), record))
}

unsafe extern "C" fn open<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    aapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("attr_open", |h5| {
        args::check_list(h5, aapl)?;
        let (place, name, record) = find(pointer, args::of(loc)?, args::name_or_none(name)?)?;
        handle(h5, place, name, &record)
    })
}

unsafe extern "C" fn read<const N: usize>(
    pointer: *mut c_void,
    mem_type: hid_t,
    buf: *mut c_void,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("attr_read", |h5| {
        let a = attr(pointer)?;
        let (name, record) = attrs::current(&a.place.file, a.place.oid, &a.name.lock(), a.uid)?;
        if let Some(native) = &a.place.file.native {
            return crate::foreign::attr::read(native, a.place.oid, &name, mem_type, buf);
        }
        let count = record.extent.npoints() as usize;
        match &record.value {
            Some(stored) => value::load(&a.place.file, a.dtype.get(), stored, count, mem_type, buf),
            None => value::zero(h5, count, mem_type, buf),
        }
    })
}

unsafe extern "C" fn write<const N: usize>(
    pointer: *mut c_void,
    mem_type: hid_t,
    buf: *const c_void,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("attr_write", |_| {
        let a = attr(pointer)?;
        let file = &a.place.file;
        let count = a.extent.npoints() as usize;
        if count == 0 {
            return Ok(()); // also in a file that is open read-only
        }
        file.need_writable("writing an attribute")?;
        let store = |old: Option<&value::Stored>| value::store(file, a.dtype.get(), count, mem_type, buf, old);
        let name = a.name.lock().clone();
        file.once(&Call::new("attr_write").named(&name).about(a.place.oid), || {
            if value::is_partial(file, a.dtype.get(), mem_type)? {
                pending::settle("attr_of_fields")?;
                return transact(file, |tx| {
                    attrs::update(tx, file, a.place.oid, &name, a.uid, |record| {
                        record.value = Some(store(record.value.as_ref())?);
                        Ok(())
                    })
                });
            }
            let stored = store(None)?;
            if pending::settle_with(a.uid, &stored)? {
                return Ok(());
            }
            transact(file, |tx| {
                attrs::update(tx, file, a.place.oid, &name, a.uid, |record| {
                    record.value = Some(stored.clone());
                    Ok(())
                })
            })
        })
    })
}

fn info(place: &Location, record: &Record) -> Result<H5A_info_t> {
    // The object may be deleted while the attribute is open.
    let header = header::find(&place.file, place.oid)?;
    let tracked = header.is_some_and(|header| header.object_props().attr_order & 1 != 0);
    let dtype = dtype::decode(place.file.h5, &record.dtype)?;
    Ok(H5A_info_t {
        corder_valid: tracked,
        corder: if tracked { record.order as u32 } else { 0 },
        cset: i32::from(record.cset),
        data_size: data_size(place, dtype.get(), &record.extent)?,
    })
}

/// Size of an attribute's elements as HDF5 counts it, in bytes.
fn data_size(place: &Location, dtype: hid_t, extent: &Extent) -> Result<u64> {
    let each = dtype::size(place.file.h5, dtype::disk(&place.file, dtype)?.get())? as u64;
    Ok(each.saturating_mul(extent.npoints()))
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    what: *mut AttrGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("attr_get", |h5| {
        // SAFETY: HDF5 passes valid arguments; `op` says which member of the union is in use.
        let what = unsafe { what.as_mut() }.ok_or_else(|| unknown_op("attr_get", -1))?;
        // SAFETY: as above.
        unsafe {
            match what.op {
                ATTR_GET_ACPL => {
                    pending::settle("attr_acpl")?;
                    let a = attr(pointer)?;
                    let (_, record) = attrs::current(&a.place.file, a.place.oid, &a.name.lock(), a.uid)?;
                    let id = (h5.H5Pcreate)(h5.H5P_CLS_ATTRIBUTE_CREATE_ID_g());
                    let plist = crate::error::h5_id(h5, "H5Pcreate", id)?;
                    (h5.H5Pset_char_encoding)(plist.get(), i32::from(record.cset));
                    what.args.id = plist.release();
                }
                ATTR_GET_INFO => {
                    pending::settle("attr_info")?;
                    let g = what.args.info;
                    let out = match &Handle::at(pointer)?.body {
                        Body::Attr(a) if g.loc.kind == crate::ffi::types::H5VL_OBJECT_BY_SELF => {
                            let (_, record) = attrs::current(&a.place.file, a.place.oid, &a.name.lock(), a.uid)?;
                            info(&a.place, &record)?
                        }
                        _ => {
                            let (place, _, record) = find(pointer, &g.loc, args::name_or_none(g.name)?)?;
                            info(&place, &record)?
                        }
                    };
                    args::put(g.info, out)?;
                }
                ATTR_GET_NAME => {
                    pending::settle("attr_name")?;
                    let g = what.args.name;
                    let name = match &Handle::at(pointer)?.body {
                        Body::Attr(a) if g.loc.kind != H5VL_OBJECT_BY_IDX => {
                            attrs::current(&a.place.file, a.place.oid, &a.name.lock(), a.uid)?.0
                        }
                        _ => find(pointer, &g.loc, None)?.1,
                    };
                    args::give_name(&name, g.buf, g.buf_size, g.len)?;
                }
                ATTR_GET_SPACE => what.args.id = attr(pointer)?.extent.space(h5)?.release(),
                ATTR_GET_STORAGE_SIZE => {
                    let a = attr(pointer)?;
                    args::put(what.args.size, data_size(&a.place, a.dtype.get(), &a.extent)?)?;
                }
                ATTR_GET_TYPE => {
                    let a = attr(pointer)?;
                    what.args.id = super::dataset::type_id(h5, &a.place, a.committed, a.dtype.get())?;
                }
                other => return Err(unknown_op("attr_get", other)),
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    what: *mut AttrSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    super::run::<N, herr_t>("attr_specific", -1, |h5| {
        let what = args::of(what)?;
        let loc = args::of(loc)?;
        let place = args::at(&Handle::at(pointer)?.place()?, loc)?;
        let file = &place.file;
        // SAFETY: `op` says which member of the union is in use.
        unsafe {
            match what.op {
                ATTR_DELETE => {
                    file.need_writable("deleting an attribute")?;
                    let name = args::name(what.args.name)?;
                    file.once(&Call::new("attr_delete").named(name).about(place.oid), || {
                        transact(file, |tx| objects::remove_attr(tx, file, place.oid, name))
                    })?;
                }
                ATTR_DELETE_BY_IDX => {
                    file.need_writable("deleting an attribute")?;
                    let by = what.args.delete_by_idx;
                    let (name, _) = attrs::nth(file, place.oid, by.idx_type, by.order, by.n)?;
                    file.once(&Call::new("attr_delete").named(&name).about(place.oid), || {
                        transact(file, |tx| objects::remove_attr(tx, file, place.oid, &name))
                    })?;
                }
                ATTR_EXISTS => {
                    let e = what.args.exists;
                    args::put(e.exists, attrs::has(file, place.oid, args::name(e.name)?)?)?;
                }
                ATTR_RENAME => {
                    file.need_writable("renaming an attribute")?;
                    let (old, new) = (args::name(what.args.rename.old)?, args::name(what.args.rename.new)?);
                    file.once(&Call::new("attr_rename").named(new).about(place.oid), || {
                        transact(file, |tx| attrs::rename(tx, file, place.oid, old, new))
                    })?;
                }
                ATTR_ITER => return iterate(h5, &place, &what.args.iterate),
                other => return Err(unknown_op("attr_specific", other)),
            }
        }
        Ok(0)
    })
}

fn iterate(h5: &'static Api, place: &Location, it: &AttrIterate) -> Result<herr_t> {
    let op = it.op.ok_or_else(|| unknown_op("attr_specific", ATTR_ITER))?;
    let all = attrs::list_in(&place.file, place.oid, it.idx_type, it.order)?;
    // SAFETY: the index is a valid place or null.
    let start = unsafe { it.idx.as_ref() }.copied().unwrap_or(0);
    if start > 0 && start >= all.len() as u64 {
        return Err(Error::new(ErrorKind::InvalidInput, "iteration over attributes").because("invalid index specified"));
    }
    let id = visit::GroupId::new(h5, place)?;
    let mut done = start;
    for (name, record) in all.into_iter().skip(start as usize) {
        let name = visit::c_name(&name)?;
        let info = info(place, &record)?;
        done += 1;
        // SAFETY: the program's function gets a valid id, name and description.
        let result = unsafe { op(id.get(), name.as_ptr(), &raw const info, it.op_data) };
        if !it.idx.is_null() {
            args::put(it.idx, done)?;
        }
        if Step::of(result) != Step::Go {
            return Ok(result);
        }
    }
    Ok(0)
}

unsafe extern "C" fn optional<const N: usize>(
    pointer: *mut c_void,
    what: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    super::run::<N, herr_t>("attr_optional", -1, |_| {
        let what = args::of(what)?;
        if what.op_type != NATIVE_ATTR_ITERATE_OLD {
            return Err(unknown_op("attr_optional", what.op_type));
        }
        let a = args::of(what.args.cast::<AttrIterateOld>())?;
        let op = a.op.ok_or_else(|| unknown_op("attr_optional", what.op_type))?;
        let place = Handle::at(pointer)?.place()?;
        let all = attrs::list_in(&place.file, place.oid, H5_INDEX_CRT_ORDER, H5_ITER_INC)?;
        // SAFETY: the index is a valid place or null.
        let start = unsafe { a.attr_num.as_ref() }.copied().unwrap_or(0);
        let mut done = start;
        for (name, _) in all.into_iter().skip(start as usize) {
            let name = visit::c_name(&name)?;
            done += 1;
            // SAFETY: the program's function gets the id that the program gave, and a valid name.
            let result = unsafe { op(a.loc_id, name.as_ptr(), a.op_data) };
            if !a.attr_num.is_null() {
                args::put(a.attr_num, done)?;
            }
            if result != 0 {
                return Ok(result);
            }
        }
        Ok(0)
    })
}

unsafe extern "C" fn close_attr<const N: usize>(pointer: *mut c_void, _: hid_t, _: *mut *mut c_void) -> herr_t {
    close::<N>("attr_close", pointer)
}
