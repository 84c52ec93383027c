//! A read-only HDF5 file driver for objects of the store: reads native files that are staged as plain bytes.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote::{Error, ErrorKind, Object};

use crate::Result;
use crate::error;
use crate::ffi::Api;
use crate::ffi::driver::{DriverClass, DriverHead, Needed};
use crate::ffi::types::{haddr_t, herr_t, hid_t};

/// From the range for unregistered drivers; only the name matters.
const CLASS_VALUE: c_int = 523;
const ADDRESS_MAX: haddr_t = (1 << 63) - 1;
/// `H5FD_FEAT_DATA_SIEVE`.
const FEATURES: c_ulong = 0x8;

static CLASS: DriverClass<OpenFile> = DriverClass {
    cmp: Some(cmp),
    ..DriverClass::new(
        CLASS_VALUE,
        c"cenote-staged",
        ADDRESS_MAX,
        &Needed { open, query, get_eoa, set_eoa, get_eof, read, write },
    )
};

/// An open file of this driver.
#[repr(C)]
struct OpenFile {
    head: DriverHead,
    eoa: haddr_t,
    bytes: u64,
    object: Object,
    h5: &'static Api,
}

thread_local! {
    /// The file that is being opened on this thread.
    static OPENING: RefCell<Option<OpenFile>> = const { RefCell::new(None) };
}

/// Runs `open` (`H5Fopen` with these access properties) so that it opens `object`, which has `bytes`.
pub fn opening<T>(h5: &'static Api, fapl: hid_t, object: &Object, bytes: u64, open: impl FnOnce() -> T) -> Result<T> {
    CLASS.set(h5, fapl)?;
    OPENING.set(Some(OpenFile { head: DriverHead::default(), eoa: 0, bytes, object: object.clone(), h5 }));
    let opened = open();
    OPENING.take();
    Ok(opened)
}

unsafe extern "C" fn open(_: *const c_char, _: c_uint, _: hid_t, _: haddr_t) -> *mut OpenFile {
    OPENING.take().map_or(std::ptr::null_mut(), |file| Box::into_raw(Box::new(file)))
}

unsafe extern "C" fn cmp(a: *const OpenFile, b: *const OpenFile) -> c_int {
    // SAFETY: both were made by `open` and are not closed.
    let (a, b) = unsafe { ((*a).object.key(), (*b).object.key()) };
    (a.container, a.object).cmp(&(b.container, b.object)) as c_int
}

unsafe extern "C" fn query(_: *const OpenFile, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        // SAFETY: HDF5 passes a valid place.
        unsafe { flags.write(FEATURES) };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const OpenFile, _: c_int) -> haddr_t {
    // SAFETY: it was made by `open` and is not closed.
    unsafe { (*file).eoa }
}

unsafe extern "C" fn set_eoa(file: *mut OpenFile, _: c_int, address: haddr_t) -> herr_t {
    // SAFETY: as above.
    unsafe { (*file).eoa = address };
    0
}

unsafe extern "C" fn get_eof(file: *const OpenFile, _: c_int) -> haddr_t {
    // SAFETY: as above.
    unsafe { (*file).bytes }
}

unsafe extern "C" fn read(
    file: *mut OpenFile,
    _: c_int,
    _: hid_t,
    address: haddr_t,
    size: usize,
    buf: *mut c_void,
) -> herr_t {
    // SAFETY: the file was made by `open`; the buffer has the size given.
    let (file, buf) = unsafe { (&*file, std::slice::from_raw_parts_mut(buf.cast::<u8>(), size)) };
    let done = catch_unwind(AssertUnwindSafe(|| {
        let got = file.object.read_at(address, buf)?;
        if got == buf.len() {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Corrupt, format!("staged file {:?}", file.object.key()))
            .because(format!("{size} bytes at {address} are not within its {}", file.bytes)))
    }));
    match done {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            error::push(file.h5, "file_read", &error);
            -1
        }
        Err(_) => -1,
    }
}

unsafe extern "C" fn write(_: *mut OpenFile, _: c_int, _: hid_t, _: haddr_t, _: usize, _: *const c_void) -> herr_t {
    -1
}
