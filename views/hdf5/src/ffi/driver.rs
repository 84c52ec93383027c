//! HDF5's file driver class. The structure is the same from HDF5 1.14.5 to 2.x, and HDF5 checks its version.

#![allow(missing_docs, reason = "the names and meanings are those of HDF5's headers")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulong, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::types::{haddr_t, herr_t, hid_t};
use super::{Api, Hid};
use crate::Result;
use crate::error::{h5_check, h5_id};

/// `H5FD_CLASS_VERSION`.
const DRIVER_CLASS_VERSION: c_uint = 1;
/// `H5FD_MEM_NTYPES`.
pub const DRIVER_KINDS: usize = 7;
/// `H5F_CLOSE_WEAK`.
const CLOSE_WEAK: c_int = 1;

type Callback = Option<unsafe extern "C" fn()>;

/// `H5FD_class_t` of a driver with open files of type `F`.
#[repr(C)]
pub struct DriverClass<F> {
    pub version: c_uint,
    pub value: c_int,
    pub name: *const c_char,
    pub maxaddr: haddr_t,
    pub fc_degree: c_int,
    pub terminate: Callback,
    pub sb: [Callback; 3],
    pub fapl_size: usize,
    pub fapl: [Callback; 3],
    pub dxpl_size: usize,
    pub dxpl: [Callback; 2],
    pub open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut F,
    pub close: unsafe extern "C" fn(*mut F) -> herr_t,
    pub cmp: Option<unsafe extern "C" fn(*const F, *const F) -> c_int>,
    pub query: unsafe extern "C" fn(*const F, *mut c_ulong) -> herr_t,
    pub get_type_map: Callback,
    pub alloc: Option<unsafe extern "C" fn(*mut F, c_int, hid_t, u64) -> haddr_t>,
    pub free: Callback,
    pub get_eoa: unsafe extern "C" fn(*const F, c_int) -> haddr_t,
    pub set_eoa: unsafe extern "C" fn(*mut F, c_int, haddr_t) -> herr_t,
    pub get_eof: unsafe extern "C" fn(*const F, c_int) -> haddr_t,
    pub get_handle: Callback,
    pub read: unsafe extern "C" fn(*mut F, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    pub write: unsafe extern "C" fn(*mut F, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
    pub many: [Callback; 4],
    pub flush: Callback,
    pub truncate: Callback,
    pub lock: Callback,
    pub unlock: Callback,
    pub del: Callback,
    pub ctl: Callback,
    pub fl_map: [c_int; DRIVER_KINDS],
}

/// The callbacks that every driver has.
pub struct Needed<F> {
    pub open: unsafe extern "C" fn(*const c_char, c_uint, hid_t, haddr_t) -> *mut F,
    pub query: unsafe extern "C" fn(*const F, *mut c_ulong) -> herr_t,
    pub get_eoa: unsafe extern "C" fn(*const F, c_int) -> haddr_t,
    pub set_eoa: unsafe extern "C" fn(*mut F, c_int, haddr_t) -> herr_t,
    pub get_eof: unsafe extern "C" fn(*const F, c_int) -> haddr_t,
    pub read: unsafe extern "C" fn(*mut F, c_int, hid_t, haddr_t, usize, *mut c_void) -> herr_t,
    pub write: unsafe extern "C" fn(*mut F, c_int, hid_t, haddr_t, usize, *const c_void) -> herr_t,
}

impl<F> DriverClass<F> {
    /// A driver with the required callbacks only. Its `open` must return a `Box<F>`.
    pub const fn new(value: c_int, name: &'static CStr, maxaddr: haddr_t, needed: &Needed<F>) -> Self {
        Self {
            version: DRIVER_CLASS_VERSION,
            value,
            name: name.as_ptr(),
            maxaddr,
            fc_degree: CLOSE_WEAK,
            terminate: None,
            sb: [None; 3],
            fapl_size: 0,
            fapl: [None; 3],
            dxpl_size: 0,
            dxpl: [None; 2],
            open: needed.open,
            close: close::<F>,
            cmp: None,
            query: needed.query,
            get_type_map: None,
            alloc: None,
            free: None,
            get_eoa: needed.get_eoa,
            set_eoa: needed.set_eoa,
            get_eof: needed.get_eof,
            get_handle: None,
            read: needed.read,
            write: needed.write,
            many: [None; 4],
            flush: None,
            truncate: None,
            lock: None,
            unlock: None,
            del: None,
            ctl: None,
            fl_map: [0; DRIVER_KINDS],
        }
    }
    /// Makes this the driver of these access properties.
    pub fn set(&'static self, h5: &'static Api, fapl: hid_t) -> Result<()> {
        // SAFETY: HDF5 copies the class; the driver lives as long as the access properties or a file use it.
        unsafe {
            let driver: Hid = h5_id(h5, "H5FDregister", (h5.H5FDregister)((&raw const *self).cast()))?;
            h5_check("H5Pset_driver", (h5.H5Pset_driver)(fapl, driver.get(), std::ptr::null()))?;
        }
        Ok(())
    }
}

unsafe extern "C" fn close<F>(file: *mut F) -> herr_t {
    // SAFETY: `open` made it, and HDF5 closes it once.
    let file = unsafe { Box::from_raw(file) };
    if catch_unwind(AssertUnwindSafe(|| drop(file))).is_ok() { 0 } else { -1 }
}

// SAFETY: such tables are never written, and point to static strings.
unsafe impl<F> Sync for DriverClass<F> {}

/// The first part of an open file, `H5FD_t`, which HDF5 itself fills.
#[derive(Default)]
#[repr(C)]
pub struct DriverHead([u64; 16]);
