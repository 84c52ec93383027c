//! A file driver of HDF5 that reads an object of the store: how native files are read that were staged as plain bytes.
//!
//! The driver structure is the same from HDF5 1.14.5 to 2.x, and has a version that HDF5 checks. It can only read.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote::{Error, ErrorKind, Object};

use crate::Result;
use crate::error::{self, h5_check, h5_id};
use crate::ffi::types::{haddr_t, herr_t, hid_t};
use crate::ffi::{Api, Hid};

/// `H5FD_CLASS_VERSION`.
const CLASS_VERSION: c_uint = 1;
/// From the range for drivers that are not registered with anybody; the name is what counts.
const CLASS_VALUE: c_int = 523;
const ADDRESS_MAX: haddr_t = (1 << 63) - 1;
/// `H5F_CLOSE_WEAK`.
const CLOSE_WEAK: c_int = 1;
/// `H5FD_FEAT_DATA_SIEVE`.
const FEATURES: c_ulong = 0x8;
/// `H5FD_MEM_NTYPES`.
const KINDS: usize = 7;

type Callback = Option<unsafe extern "C" fn()>;

/// `H5FD_class_t`.
#[repr(C)]
struct DriverClass {
    version: c_uint,
    value: c_int,
    name: *const c_char,
    maxaddr: haddr_t,
    fc_degree: c_int,
    terminate: Callback,
    sb: [Callback; 3],
    fapl_size: usize,
    fapl: [Callback; 3],
    dxpl_size: usize,
    dxpl: [Callback; 2],
    open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut Staged,
    close: unsafe extern "C" fn(*mut Staged) -> herr_t,
    cmp: unsafe extern "C" fn(*const Staged, *const Staged) -> c_int,
    query: unsafe extern "C" fn(*const Staged, *mut c_ulong) -> herr_t,
    get_type_map: Callback,
    alloc: Callback,
    free: Callback,
    get_eoa: unsafe extern "C" fn(*const Staged, c_int) -> haddr_t,
    set_eoa: unsafe extern "C" fn(*mut Staged, c_int, haddr_t) -> herr_t,
    get_eof: unsafe extern "C" fn(*const Staged, c_int) -> haddr_t,
    get_handle: Callback,
    read: unsafe extern "C" fn(*mut Staged, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    write: unsafe extern "C" fn(*mut Staged, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
    many: [Callback; 4],
    flush: Callback,
    truncate: Callback,
    lock: Callback,
    unlock: Callback,
    del: Callback,
    ctl: Callback,
    fl_map: [c_int; KINDS],
}

// SAFETY: it is never written, and points to a static string.
unsafe impl Sync for DriverClass {}

static CLASS: DriverClass = DriverClass {
    version: CLASS_VERSION,
    value: CLASS_VALUE,
    name: c"cenote-staged".as_ptr(),
    maxaddr: ADDRESS_MAX,
    fc_degree: CLOSE_WEAK,
    terminate: None,
    sb: [None; 3],
    fapl_size: 0,
    fapl: [None; 3],
    dxpl_size: 0,
    dxpl: [None; 2],
    open,
    close,
    cmp,
    query,
    get_type_map: None,
    alloc: None,
    free: None,
    get_eoa,
    set_eoa,
    get_eof,
    get_handle: None,
    read,
    write,
    many: [None; 4],
    flush: None,
    truncate: None,
    lock: None,
    unlock: None,
    del: None,
    ctl: None,
    fl_map: [0; KINDS],
};

/// The part of `H5FD_t` that HDF5 itself fills.
#[repr(C)]
struct Head([u64; 16]);

/// An open file of this driver.
#[repr(C)]
struct Staged {
    head: Head,
    eoa: haddr_t,
    bytes: u64,
    object: Object,
    h5: &'static Api,
}

thread_local! {
    /// What is being opened on this thread.
    static OPENING: RefCell<Option<Staged>> = const { RefCell::new(None) };
}

/// Runs `open` (`H5Fopen` with these access properties) so that it opens `object`, which has `bytes`.
pub fn opening<T>(h5: &'static Api, fapl: hid_t, object: &Object, bytes: u64, open: impl FnOnce() -> T) -> Result<T> {
    // SAFETY: HDF5 copies the class; the driver lives as long as the access properties or a file use it.
    unsafe {
        let driver: Hid = h5_id(h5, "H5FDregister", (h5.H5FDregister)((&raw const CLASS).cast()))?;
        h5_check("H5Pset_driver", (h5.H5Pset_driver)(fapl, driver.get(), std::ptr::null()))?;
    }
    OPENING.set(Some(Staged { head: Head([0; 16]), eoa: 0, bytes, object: object.clone(), h5 }));
    let opened = open();
    OPENING.take();
    Ok(opened)
}

unsafe extern "C" fn open(_: *const c_char, _: c_uint, _: hid_t, _: haddr_t) -> *mut Staged {
    OPENING.take().map_or(std::ptr::null_mut(), |file| Box::into_raw(Box::new(file)))
}

unsafe extern "C" fn close(file: *mut Staged) -> herr_t {
    // SAFETY: it was made by `open`, and HDF5 closes it once.
    let file = unsafe { Box::from_raw(file) };
    if catch_unwind(AssertUnwindSafe(|| drop(file))).is_ok() { 0 } else { -1 }
}

unsafe extern "C" fn cmp(a: *const Staged, b: *const Staged) -> c_int {
    // SAFETY: both were made by `open` and are not closed.
    let (a, b) = unsafe { ((*a).object.key(), (*b).object.key()) };
    (a.container, a.object).cmp(&(b.container, b.object)) as c_int
}

unsafe extern "C" fn query(_: *const Staged, flags: *mut c_ulong) -> herr_t {
    if !flags.is_null() {
        // SAFETY: HDF5 passes a valid place.
        unsafe { flags.write(FEATURES) };
    }
    0
}

unsafe extern "C" fn get_eoa(file: *const Staged, _: c_int) -> haddr_t {
    // SAFETY: it was made by `open` and is not closed.
    unsafe { (*file).eoa }
}

unsafe extern "C" fn set_eoa(file: *mut Staged, _: c_int, address: haddr_t) -> herr_t {
    // SAFETY: as above.
    unsafe { (*file).eoa = address };
    0
}

unsafe extern "C" fn get_eof(file: *const Staged, _: c_int) -> haddr_t {
    // SAFETY: as above.
    unsafe { (*file).bytes }
}

unsafe extern "C" fn read(
    file: *mut Staged,
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

unsafe extern "C" fn write(_: *mut Staged, _: c_int, _: hid_t, _: haddr_t, _: usize, _: *const c_void) -> herr_t {
    -1
}
