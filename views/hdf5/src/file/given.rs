//! Files left to HDF5's own connector: files in memory, files of a program's own drivers, and native files that are changed.
//!
//! A file that a program keeps out of file systems does not belong in a store, nor do changes to existing native files. A
//! connector cannot decline a file: HDF5 treats whatever the connector returns as one of its files. So HDF5's own connector
//! opens such a file under another id. When HDF5 runs its step after opening, the two ids exchange their objects: from then
//! on the program's id is that of a native file, and no call about it comes here. The exchange needs two functions that are
//! in every libhdf5, though not in its headers; without them such files are refused.
//!
//! This module must not know what is in such files.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::sync::LazyLock;

use cenote::{Error, ErrorKind};
use parking_lot::Mutex;

use super::stub::{self, Seen};
use super::{open, path};
use crate::Result;
use crate::error::{h5_check, h5_id, unsupported};
use crate::ffi::types::{
    H5F_ACC_EXCL, H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE, H5F_ACC_TRUNC, H5I_FILE, herr_t, hid_t,
};
use crate::ffi::{Api, Hid};
use crate::foreign;
use crate::object::{Body, Handle};
use crate::team;

/// The connector that keeps a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Keeper {
    Store,
    Native,
}

/// What HDF5's own connector has opened, by the handle that HDF5 was given in its place.
static WAITING: LazyLock<Mutex<HashMap<usize, Hid>>> = LazyLock::new(Mutex::default);

/// How a file is handled, by the driver in its access properties.
enum Driver {
    /// A file on disk.
    Plain,
    /// In memory; true: written to a file at closing.
    Core(bool),
    /// A driver of HDF5 that is not supported.
    Refused,
    /// The program's own driver.
    Other,
}

fn driver(h5: &'static Api, fapl: hid_t) -> Driver {
    // SAFETY: plain queries. In HDF5 1.14 a driver's id comes from its init function.
    unsafe {
        let init = |f: Option<unsafe extern "C" fn() -> hid_t>| f.map_or(-1, |f| f());
        let asked = (h5.H5Pget_driver)(fapl);
        let plain = [
            h5.H5FD_SEC2_id_g(),
            h5.H5FD_STDIO_id_g(),
            h5.H5FD_LOG_id_g(),
            init(h5.H5FD_sec2_init),
            init(h5.H5FD_stdio_init),
            init(h5.H5FD_log_init),
        ];
        if asked <= 0 || plain.contains(&asked) || plain.iter().all(|id| *id <= 0) || team::is_mpio(h5, fapl) {
            return Driver::Plain;
        }
        if [h5.H5FD_CORE_id_g(), init(h5.H5FD_core_init)].contains(&asked) {
            let (mut increment, mut is_backed) = (0, false);
            let known = h5.H5Pget_fapl_core.is_some_and(|get| get(fapl, &raw mut increment, &raw mut is_backed) >= 0);
            return Driver::Core(known && is_backed);
        }
        let refused = [
            h5.H5FD_FAMILY_id_g(),
            h5.H5FD_MULTI_id_g(),
            h5.H5FD_SPLITTER_id_g(),
            h5.H5FD_ONION_id_g(),
            h5.H5FD_DIRECT_id_g(),
            h5.H5FD_SUBFILING_id_g(),
            h5.H5FD_IOC_id_g(),
            h5.H5FD_MIRROR_id_g(),
            init(h5.H5FD_family_init),
            init(h5.H5FD_multi_init),
            init(h5.H5FD_splitter_init),
            init(h5.H5FD_onion_init),
            init(h5.H5FD_direct_init),
            init(h5.H5FD_subfiling_init),
            init(h5.H5FD_ioc_init),
            init(h5.H5FD_mirror_init),
        ];
        if refused.contains(&asked) { Driver::Refused } else { Driver::Other }
    }
}

fn has_image(h5: &'static Api, fapl: hid_t) -> bool {
    let mut bytes = 0usize;
    // SAFETY: the place is valid; no copy of the image is asked for.
    h5.H5Pget_file_image.is_some_and(|get| unsafe { get(fapl, std::ptr::null_mut(), &raw mut bytes) } >= 0) && bytes > 0
}

/// Decides for a file on disk: a native file opened for changes is left to HDF5. One that is only read goes through this
/// connector, so that links lead into it and objects can be copied out of it.
fn plain(h5: &'static Api, name: &[u8], flags: Option<c_uint>) -> Result<Keeper> {
    if flags.is_none_or(|flags| flags & H5F_ACC_RDWR == 0) || !can_exchange(h5) {
        return Ok(Keeper::Store);
    }
    let path = path::absolute(path::from_bytes(name)?)?;
    Ok(if matches!(stub::look(&path), Ok(Seen::Native)) { Keeper::Native } else { Keeper::Store })
}

fn can_exchange(h5: &Api) -> bool {
    h5.H5I_object.is_some() && h5.H5I_subst.is_some()
}

/// Decides who keeps a file. `flags`: `None` if it is to be created.
fn keeper(h5: &'static Api, name: &[u8], flags: Option<c_uint>, fapl: hid_t) -> Result<Keeper> {
    let is_backed = match driver(h5, fapl) {
        Driver::Plain => return plain(h5, name, flags),
        Driver::Refused => {
            return Err(unsupported(
                "a file driver that spreads a file over several or bypasses the system (family, multi, split, …)",
                "open such files with HDF5_VOL_CONNECTOR unset",
            ));
        }
        Driver::Other => return Ok(Keeper::Native),
        Driver::Core(is_backed) => is_backed,
    };
    let Some(flags) = flags else { return Ok(if is_backed { Keeper::Store } else { Keeper::Native }) };
    if has_image(h5, fapl) {
        return Ok(Keeper::Native);
    }
    let path = path::absolute(path::from_bytes(name)?)?;
    match stub::look(&path)? {
        Seen::Stub(stub) if !stub.staged => {}
        Seen::Nothing => return Err(stub::refuse(&path, &Seen::Nothing)),
        _ => return Ok(Keeper::Native),
    }
    // Reading it does not need the whole file in memory.
    if is_backed || flags & H5F_ACC_RDWR == 0 {
        return Ok(Keeper::Store);
    }
    Err(unsupported(
        format!("opening {} in memory, for changes that are thrown away", path.display()),
        "open it read-only, or with the core driver's backing store",
    ))
}

/// The same access properties with HDF5's own connector.
fn own(h5: &'static Api, fapl: hid_t) -> Result<Hid> {
    // SAFETY: plain calls with ids of this scope.
    unsafe {
        let own = h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(fapl))?;
        h5_check("H5Pset_vol", (h5.H5Pset_vol)(own.get(), h5.native_connector()?.get(), std::ptr::null()))?;
        Ok(own)
    }
}

fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::new(ErrorKind::InvalidInput, "file name").because("it contains a NUL"))
}

/// Does `H5Fcreate` with HDF5's own connector, if that keeps the file.
pub fn create(h5: &'static Api, name: &[u8], flags: c_uint, fcpl: hid_t, fapl: hid_t) -> Result<Option<*mut Handle>> {
    if keeper(h5, name, None, fapl)? == Keeper::Store {
        return Ok(None);
    }
    let flags = flags & (H5F_ACC_TRUNC | H5F_ACC_EXCL | H5F_ACC_SWMR_WRITE);
    give(h5, name, fapl, "create", |name, fapl| {
        // SAFETY: the name ends in NUL; the lists are valid.
        unsafe { (h5.H5Fcreate)(name.as_ptr(), flags, fcpl, fapl) }
    })
}

/// Does `H5Fopen` with HDF5's own connector, if that keeps the file.
pub fn open(h5: &'static Api, name: &[u8], flags: c_uint, fapl: hid_t) -> Result<Option<*mut Handle>> {
    if keeper(h5, name, Some(flags), fapl)? == Keeper::Store {
        return Ok(None);
    }
    let flags = flags & (H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE | H5F_ACC_SWMR_READ);
    give(h5, name, fapl, "open", |name, fapl| {
        // SAFETY: as above.
        unsafe { (h5.H5Fopen)(name.as_ptr(), flags, fapl) }
    })
}

fn give(
    h5: &'static Api,
    name: &[u8],
    fapl: hid_t,
    what: &str,
    act: impl FnOnce(&CStr, hid_t) -> hid_t,
) -> Result<Option<*mut Handle>> {
    if !can_exchange(h5) {
        return Err(unsupported(
            "a file in memory, or of a driver of the program's",
            "open such files with HDF5_VOL_CONNECTOR unset (this libhdf5 hides its functions)",
        ));
    }
    let fapl = own(h5, fapl)?;
    let terminated = c_name(name)?;
    let shown = || format!("unable to {what} file: name = '{}'", String::from_utf8_lossy(name));
    let file = foreign::call(h5, shown, || act(&terminated, fapl.get()))?;
    let file = h5_id(h5, "H5Fopen", file)?;
    let handle = Handle::new(h5, Body::Anchor);
    WAITING.lock().insert(handle as usize, file);
    Ok(Some(handle))
}

/// Returns true if HDF5 will return with this handle after it has opened the file.
pub fn is_waiting(pointer: *mut c_void) -> bool {
    WAITING.lock().contains_key(&(pointer as usize))
}

/// Called after HDF5 has opened a file. If the handle stands for a native file, the program's id becomes that file's id.
pub fn exchange(h5: &'static Api, pointer: *mut c_void) -> Result<bool> {
    let Some(file) = WAITING.lock().remove(&(pointer as usize)) else { return Ok(false) };
    let failed = || Error::new(ErrorKind::Internal, "a file in memory").because("HDF5 does not show its id");
    let id = id_of(h5, pointer).ok_or_else(failed)?;
    let (Some(object), Some(subst)) = (h5.H5I_object, h5.H5I_subst) else { return Err(failed()) };
    // SAFETY: both ids are valid, and each stands for an object of HDF5's that stays one: afterwards each has the other's.
    // The caller is the last user of what the program's id stood for.
    unsafe {
        let theirs = object(file.get());
        if theirs.is_null() {
            return Err(failed());
        }
        let ours = subst(id, theirs);
        if ours.is_null() {
            return Err(failed());
        }
        subst(file.get(), ours);
    }
    drop(file); // closes the handle
    Ok(true)
}

/// The file id that stands for a handle.
fn id_of(h5: &'static Api, pointer: *mut c_void) -> Option<hid_t> {
    struct Ask {
        h5: &'static Api,
        pointer: *mut c_void,
        found: Option<hid_t>,
    }
    unsafe extern "C" fn each(id: hid_t, data: *mut c_void) -> herr_t {
        // SAFETY: it is the `Ask` given below; HDF5 calls back on this thread during the call.
        let ask = unsafe { &mut *data.cast::<Ask>() };
        // SAFETY: a plain query of a valid id.
        if unsafe { (ask.h5.H5VLobject)(id) } == ask.pointer {
            ask.found = Some(id);
            return 1;
        }
        0
    }
    let mut ask = Ask { h5, pointer, found: None };
    // SAFETY: the callback gets back the pointer to `ask`, which outlives the call.
    unsafe { (h5.H5Iiterate)(H5I_FILE, Some(each), (&raw mut ask).cast()) };
    ask.found
}

/// `H5Fis_accessible`.
pub fn is_accessible(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<bool> {
    if keeper(h5, name, Some(0), fapl)? == Keeper::Store {
        return open::is_accessible(h5, name, fapl);
    }
    let (Some(ask), fapl, terminated) = (h5.H5Fis_accessible, own(h5, fapl)?, c_name(name)?) else {
        return Err(unsupported("asking whether such a file is HDF5", "open it"));
    };
    // SAFETY: the name ends in NUL; the list is valid.
    let act = || i64::from(unsafe { ask(terminated.as_ptr(), fapl.get()) });
    foreign::call(h5, || format!("file {}", String::from_utf8_lossy(name)), act).map(|answer| answer > 0)
}

/// `H5Fdelete`.
pub fn delete(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<()> {
    if keeper(h5, name, Some(0), fapl)? == Keeper::Store {
        return open::delete(h5, name, fapl);
    }
    let (Some(delete), fapl, terminated) = (h5.H5Fdelete, own(h5, fapl)?, c_name(name)?) else {
        return Err(unsupported("deleting such a file", "remove it by other means"));
    };
    // SAFETY: the name ends in NUL; the list is valid.
    let act = || i64::from(unsafe { delete(terminated.as_ptr(), fapl.get()) });
    foreign::call(h5, || format!("file {}", String::from_utf8_lossy(name)), act).map(|_| ())
}
