//! Committed datatypes.

use std::ffi::{c_char, c_void};

use cenote::{Error, ErrorKind};

use crate::ffi::class::{
    DATATYPE_FLUSH, DATATYPE_GET_BINARY, DATATYPE_GET_BINARY_SIZE, DATATYPE_GET_TCPL, DATATYPE_REFRESH, DatatypeClass,
    DatatypeGetArgs, DatatypeSpecificArgs,
};
use crate::ffi::types::{LocParams, OptionalArgs, herr_t, hid_t};
use crate::meta::header::{Body as HeaderBody, Header};
use crate::meta::{objects, resolve};
use crate::object::{self as objects_open, Body, Datatype, Handle};
use crate::props::ObjectProps;
use crate::{Result, dtype};

use super::{args, close, group, object, status, unknown_op};

pub fn class<const N: usize>() -> DatatypeClass {
    DatatypeClass {
        commit: Some(commit::<N>),
        open: Some(open::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
        close: Some(close_type::<N>),
    }
}

unsafe extern "C" fn commit<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    type_id: hid_t,
    lcpl: hid_t,
    tcpl: hid_t,
    tapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("datatype_commit", |h5| {
        args::check_list(h5, tapl)?;
        let base = args::place(pointer, loc)?;
        dtype::look(h5, type_id)?;
        let encoded = dtype::encode(h5, type_id)?;
        let props = ObjectProps::of(h5, tcpl)?;
        let header = Header {
            born_unix_s: objects::born(props.track_times),
            body: HeaderBody::Datatype { dtype: encoded.clone(), props: props.clone() },
        };
        let name = args::name_or_none(name)?;
        let place = group::create_object(&base, name, args::link_create(h5, lcpl)?, &header, |_, _, _| Ok(()))?;
        Ok(Handle::new(h5, Body::Datatype(Datatype { place, encoded, props })))
    })
}

unsafe extern "C" fn open<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    tapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("datatype_open", |h5| {
        args::check_list(h5, tapl)?;
        let base = args::place(pointer, loc)?;
        let place = resolve::resolve_as(&base, args::name(name)?, true, tapl)?.place()?;
        let body = objects_open::open(&place)?;
        if !matches!(body, Body::Datatype(_)) {
            place.file.shared.closed(place.oid);
            return Err(Error::new(ErrorKind::InvalidInput, format!("object of file {}", place.file.path))
                .because("not a committed datatype"));
        }
        Ok(Handle::new(h5, body))
    })
}

fn datatype<'a>(pointer: *mut c_void) -> Result<&'a Datatype> {
    match &Handle::at(pointer)?.body {
        Body::Datatype(t) => Ok(t),
        _ => Err(Error::new(ErrorKind::InvalidInput, "object").because("it is not a committed datatype")),
    }
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    what: *mut DatatypeGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("datatype_get", |h5| {
        let t = datatype(pointer)?;
        // SAFETY: HDF5 passes valid arguments; `op` says which member of the union is in use.
        let what = unsafe { what.as_mut() }.ok_or_else(|| unknown_op("datatype_get", -1))?;
        // SAFETY: as above; a binary buffer has the size that it says.
        unsafe {
            match what.op {
                DATATYPE_GET_BINARY_SIZE => args::put(what.args.size, t.encoded.len()),
                DATATYPE_GET_BINARY => {
                    let b = what.args.binary;
                    if b.buf_size < t.encoded.len() {
                        return Err(Error::new(ErrorKind::InvalidInput, "buffer").because("too small for the datatype"));
                    }
                    std::ptr::copy_nonoverlapping(t.encoded.as_ptr(), b.buf.cast::<u8>(), t.encoded.len());
                    Ok(())
                }
                DATATYPE_GET_TCPL => {
                    what.args.id = t.props.plist(h5, h5.H5P_CLS_DATATYPE_CREATE_ID_g())?.release();
                    Ok(())
                }
                other => Err(unknown_op("datatype_get", other)),
            }
        }
    })
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    what: *mut DatatypeSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("datatype_specific", |_| match args::of(what)?.op {
        DATATYPE_FLUSH => super::file::flush(&datatype(pointer)?.place.file),
        DATATYPE_REFRESH => Ok(()),
        other => Err(unknown_op("datatype_specific", other)),
    })
}

unsafe extern "C" fn optional<const N: usize>(
    _: *mut c_void,
    what: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("datatype_optional", |_| Err(unknown_op("datatype_optional", args::of(what)?.op_type)))
}

unsafe extern "C" fn close_type<const N: usize>(pointer: *mut c_void, _: hid_t, _: *mut *mut c_void) -> herr_t {
    close::<N>("datatype_close", pointer)
}
