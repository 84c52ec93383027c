//! Files.

use std::ffi::{c_char, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::class::{
    FILE_DELETE, FILE_FLUSH, FILE_GET_CONT_INFO, FILE_GET_FAPL, FILE_GET_FCPL, FILE_GET_FILENO, FILE_GET_INTENT,
    FILE_GET_NAME, FILE_GET_OBJ_COUNT, FILE_GET_OBJ_IDS, FILE_IS_ACCESSIBLE, FILE_IS_EQUAL, FILE_REOPEN, FileClass,
    FileGetArgs, FileSpecificArgs,
};
use crate::ffi::types::{
    ContainerInfo, H5F_CLOSE_SEMI, H5F_CLOSE_STRONG, H5F_OBJ_ATTR, H5F_OBJ_DATASET, H5F_OBJ_DATATYPE, H5F_OBJ_FILE,
    H5F_OBJ_GROUP, H5F_OBJ_LOCAL, H5I_ATTR, H5I_DATASET, H5I_DATATYPE, H5I_FILE, H5I_GROUP, OptionalArgs, herr_t,
    hid_t,
};
use crate::file::{File, creation, given, making, mounts, open, opening};
use crate::meta::{header, keys};
use crate::object::{Body, Handle};
use crate::{regions, tasks, team};

use super::dataset::{close_later, may_close_later};
use super::{args, object, status, unknown_op};

/// Significant bytes of a token: an object's number.
const TOKEN_BYTES: usize = 8;
/// `H5F_OBJ_*` of everything except files.
const OBJECTS: c_uint = H5F_OBJ_ATTR | H5F_OBJ_DATASET | H5F_OBJ_GROUP | H5F_OBJ_DATATYPE;

pub fn class<const N: usize>() -> FileClass {
    FileClass {
        create: Some(create::<N>),
        open: Some(open_file::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
        close: Some(close::<N>),
    }
}

unsafe extern "C" fn create<const N: usize>(
    name: *const c_char,
    flags: c_uint,
    fcpl: hid_t,
    fapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("file_create", |h5| {
        let name = args::name(name)?;
        match given::create(h5, name, flags, fcpl, fapl)? {
            Some(given) => Ok(given),
            None => Ok(making::create(h5, name, flags, fcpl, fapl)?.handle()),
        }
    })
}

unsafe extern "C" fn open_file<const N: usize>(
    name: *const c_char,
    flags: c_uint,
    fapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("file_open", |h5| {
        let name = args::name(name)?;
        match given::open(h5, name, flags, fapl)? {
            Some(given) => Ok(given),
            None => Ok(open::open(h5, name, flags, fapl)?.handle()),
        }
    })
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    what: *mut FileGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("file_get", |h5| {
        // SAFETY: HDF5 passes valid arguments; `op` says which member of the union is in use.
        let what = unsafe { what.as_mut() }.ok_or_else(|| unknown_op("file_get", -1))?;
        if what.op == FILE_GET_CONT_INFO {
            super::facade::reset();
            regions::asked(pointer);
            let info = ContainerInfo {
                version: 1,
                feature_flags: 0,
                token_size: TOKEN_BYTES,
                blob_id_size: crate::blob::ID_BYTES,
            };
            // SAFETY: as above.
            return args::put(unsafe { what.args.info }, info);
        }
        let handle = Handle::at(pointer)?;
        let file = handle.file()?;
        // SAFETY: as above.
        unsafe {
            match what.op {
                FILE_GET_FAPL => what.args.id = h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(file.fapl.get()))?.release(),
                FILE_GET_FCPL => what.args.id = fcpl(h5, &file)?,
                FILE_GET_FILENO => args::put(what.args.fileno, file.fileno())?,
                FILE_GET_INTENT => args::put(what.args.flags, file.intent.load(Ordering::Relaxed))?,
                FILE_GET_NAME => {
                    let g = what.args.name;
                    args::give_name(&file.name, g.buf, g.buf_size, g.len)?;
                }
                FILE_GET_OBJ_COUNT => {
                    let g = what.args.obj_count;
                    args::put(g.count, ids_of(h5, &file, g.types).len())?;
                }
                FILE_GET_OBJ_IDS => {
                    let g = what.args.obj_ids;
                    let ids = ids_of(h5, &file, g.types);
                    let n = ids.len().min(g.max_objs);
                    if n > 0 {
                        std::ptr::copy_nonoverlapping(ids.as_ptr(), g.list, n);
                    }
                    args::put(g.count, n)?;
                }
                other => return Err(unknown_op("file_get", other)),
            }
        }
        Ok(())
    })
}

fn fcpl(h5: &'static Api, file: &Arc<File>) -> Result<hid_t> {
    if let Some(kept) = &file.fcpl {
        // SAFETY: a plain call.
        return Ok(h5_id(h5, "H5Pcopy", unsafe { (h5.H5Pcopy)(kept.get()) })?.release());
    }
    match header::get(file, keys::ROOT)?.body {
        header::Body::Group(props) => {
            let fcpl = props.plist(h5, h5.H5P_CLS_FILE_CREATE_ID_g())?;
            creation::onto(file, fcpl.get())?;
            Ok(fcpl.release())
        }
        _ => Err(Error::new(ErrorKind::Corrupt, format!("root group of file {}", file.path)).because("not a group")),
    }
}

/// Ids of objects that this libhdf5 has open in a file, by `H5F_OBJ_*` bits. With `H5F_OBJ_LOCAL`, only through this
/// open call.
fn ids_of(h5: &'static Api, file: &Arc<File>, types: c_uint) -> Vec<hid_t> {
    struct Ask<'a> {
        h5: &'static Api,
        file: &'a Arc<File>,
        local: bool,
        datatypes: bool,
        found: Vec<hid_t>,
    }
    unsafe extern "C" fn each(id: hid_t, data: *mut c_void) -> herr_t {
        // SAFETY: it is the `Ask` given below; HDF5 calls back on this thread during the call.
        let ask = unsafe { &mut *data.cast::<Ask<'_>>() };
        // SAFETY: plain queries. Only committed datatypes have an object behind them.
        let pointer = unsafe {
            if ask.datatypes && (ask.h5.H5Tcommitted)(id) <= 0 {
                return 0;
            }
            (ask.h5.H5VLobject)(id)
        };
        if let Ok(other) = Handle::at(pointer).and_then(Handle::file) {
            let mine = if ask.local { Arc::ptr_eq(&other, ask.file) } else { other.is_same(ask.file) };
            if mine {
                ask.found.push(id);
            }
        }
        0
    }
    let mut ask = Ask { h5, file, local: types & H5F_OBJ_LOCAL != 0, datatypes: false, found: Vec::new() };
    for (bit, id_type) in [
        (H5F_OBJ_FILE, H5I_FILE),
        (H5F_OBJ_DATASET, H5I_DATASET),
        (H5F_OBJ_GROUP, H5I_GROUP),
        (H5F_OBJ_DATATYPE, H5I_DATATYPE),
        (H5F_OBJ_ATTR, H5I_ATTR),
    ] {
        if types & bit != 0 {
            ask.datatypes = id_type == H5I_DATATYPE;
            // SAFETY: the callback gets back the pointer to `ask`, which outlives the call.
            unsafe { (h5.H5Iiterate)(id_type, Some(each), (&raw mut ask).cast()) };
        }
    }
    ask.found
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    what: *mut FileSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("file_specific", |h5| {
        let what = args::of(what)?;
        // SAFETY: `op` says which member of the union HDF5 has filled.
        unsafe {
            match what.op {
                FILE_FLUSH => flush(&Handle::at(pointer)?.file()?),
                FILE_REOPEN => {
                    let again = opening::reopen(&Handle::at(pointer)?.file()?)?;
                    args::put(what.args.reopen, again.handle().cast())
                }
                FILE_IS_ACCESSIBLE => {
                    let a = what.args.is_accessible;
                    args::put(a.accessible, given::is_accessible(h5, args::name(a.name)?, a.fapl_id)?)
                }
                FILE_DELETE => given::delete(h5, args::name(what.args.del.name)?, what.args.del.fapl_id),
                FILE_IS_EQUAL => {
                    let e = what.args.is_equal;
                    let mine = Handle::at(pointer)?.file()?;
                    let same = Handle::at(e.obj2).and_then(Handle::file).is_ok_and(|other| other.is_same(&mine));
                    args::put(e.same, same)
                }
                other => Err(unknown_op("file_specific", other)),
            }
        }
    })
}

/// Stores what this process buffers; it is then visible to all and survives the death of any process, like every
/// acknowledged change. It survives power loss as well if that was asked for ([`File::flush_to_media`]).
pub fn flush(file: &Arc<File>) -> Result<()> {
    let stored = crate::data::flush_file(file).and_then(|()| file.settle());
    // All ranks call this: when it returns, the data of every rank are stored.
    match &file.team {
        Some(team) => team.agree("file_flush", stored),
        None => stored,
    }?;
    file.publish()?;
    file.flush_to_media()?;
    mounts::children(file).iter().try_for_each(flush)
}

unsafe extern "C" fn optional<const N: usize>(
    pointer: *mut c_void,
    what: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("file_optional", |h5| {
        let what = args::of(what)?;
        if what.op_type == super::native_file::POST_OPEN && given::exchange(h5, pointer)? {
            return Ok(());
        }
        let file = Handle::at(pointer)?.file()?;
        super::native_file::optional(&file, what)
    })
}

unsafe extern "C" fn close<const N: usize>(pointer: *mut c_void, _: hid_t, req: *mut *mut c_void) -> herr_t {
    status::<N>("file_close", |h5| {
        if may_close_later(req, pointer) {
            return close_later(req, "file_close", pointer, move |pointer| close_file(h5, pointer));
        }
        tasks::settle()?;
        close_file(h5, pointer)
    })
}

fn close_file(h5: &'static Api, pointer: *mut c_void) -> Result<()> {
    let handle = Handle::at(pointer)?;
    let Body::File(file) = &handle.body else { return Handle::close(pointer) };
    let file = file.clone();
    if file.close_degree() == H5F_CLOSE_SEMI && !ids_of(h5, &file, H5F_OBJ_LOCAL | OBJECTS).is_empty() {
        return Err(Error::new(ErrorKind::Busy, format!("file {}", file.path))
            .because("can't close file, there are objects still open")
            .try_next("close them, or open the file with another degree (H5Pset_fclose_degree)"));
    }
    // The two references are this handle and `file` itself.
    let is_last = Arc::strong_count(&file) == 2;
    let stored = crate::data::flush_file(&file).and_then(|()| file.settle_to_close(is_last));
    let stored = match &file.team {
        Some(team) => team::close(&file, team, stored),
        None => stored,
    };
    let stored = stored.and_then(|()| file.publish());
    if let Err(error) = stored
        && handle.may_refuse()
    {
        return Err(error);
    }
    crate::data::give_up(&file);
    Handle::close(pointer)?;
    if file.close_degree() == H5F_CLOSE_STRONG {
        close_objects(h5, &file);
    }
    file.closed(Arc::strong_count(&file) > 1);
    Ok(())
}

/// Closes all objects of a file that is closed with the degree "strong".
fn close_objects(h5: &'static Api, file: &Arc<File>) {
    for id in ids_of(h5, file, H5F_OBJ_LOCAL | OBJECTS) {
        // SAFETY: the ids are valid until their count is zero.
        unsafe { while (h5.H5Iis_valid)(id) > 0 && (h5.H5Idec_ref)(id) > 0 {} }
    }
}
