//! Native HDF5 files, read in place through the connector.
//!
//! The process's own libhdf5 reads a native file by its own connector, chosen explicitly. Metadata become Cenote records
//! on demand ([`records`]), so that links, attributes, properties and paths work as in any Cenote file; an object's number
//! is its address in the file, which references in the file's data contain. HDF5 itself reads raw data and attribute
//! values in place ([`data`], [`attr`]). Nothing is copied, written or kept.
//!
//! This module must not change a native file, nor know what a program does with what it reads.

pub mod attr;
pub mod data;
mod driver;
pub mod making;
pub mod records;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use cenote::{Error, ErrorKind, Object};

use crate::Result;
use crate::error::{h5_check, h5_id, quietly};
use crate::ffi::types::{H5E_DEFAULT, H5E_error2_t, H5O_INFO_BASIC, H5O_info2_t, herr_t, hid_t};
use crate::ffi::{Api, Hid};
use crate::meta::keys::ROOT;
use crate::vol::{oid_of, token_of};

/// `H5F_ACC_RDONLY`.
const READ_ONLY: c_uint = 0;
/// `H5E_WALK_UPWARD`: the first error comes first.
const WALK_UPWARD: i32 = 0;

thread_local! {
    /// This thread is opening a native file: HDF5 must not learn that this connector knows it too.
    static OPENING: Cell<bool> = const { Cell::new(false) };
}

/// Returns true while this thread opens a native file by HDF5's own connector.
pub fn is_opening() -> bool {
    OPENING.get()
}

/// A native file, open in this process by HDF5's own connector.
pub struct Native {
    /// The libhdf5 that has it open.
    pub h5: &'static Api,
    file: Hid,
    /// HDF5's own connector.
    connector: Hid,
    /// Address of the root group.
    pub root: u64,
    /// The file's name for errors.
    name: String,
}

impl Native {
    /// Opens the file at `path`, read-only.
    pub fn open(h5: &'static Api, path: &Path) -> Result<Self> {
        Self::open_with(h5, path, |_, open| Ok(open()))
    }
    /// Opens a native file whose bytes are in `object`, read-only. `path`: its name.
    pub fn open_staged(h5: &'static Api, path: &Path, object: &Object) -> Result<Self> {
        let bytes = object.stat()?.size;
        Self::open_with(h5, path, |fapl, open| driver::opening(h5, fapl, object, bytes, open))
    }
    fn open_with(
        h5: &'static Api,
        path: &Path,
        with: impl FnOnce(hid_t, &mut dyn FnMut() -> hid_t) -> Result<hid_t>,
    ) -> Result<Self> {
        let name = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::new(ErrorKind::InvalidInput, "file name").because("it contains a NUL"))?;
        let shown = format!("native HDF5 file {}", path.display());
        let connector = connector(h5)?;
        // SAFETY: plain calls with ids of this scope.
        let fapl = unsafe {
            let fapl = h5_id(h5, "H5Pcreate", (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()))?;
            h5_check("H5Pset_vol", (h5.H5Pset_vol)(fapl.get(), connector.get(), std::ptr::null()))?;
            fapl
        };
        let mut open = || {
            OPENING.set(true);
            // SAFETY: the name ends in NUL.
            let id = unsafe { (h5.H5Fopen)(name.as_ptr(), READ_ONLY, fapl.get()) };
            OPENING.set(false);
            id
        };
        let mut refused = None;
        let file = call(
            h5,
            || format!("unable to open file: name = '{}'", path.display()),
            || {
                with(fapl.get(), &mut open).unwrap_or_else(|error| {
                    refused = Some(error);
                    -1
                })
            },
        );
        let file = h5_id(h5, "H5Fopen", refused.map_or(file, Err)?)?;
        let root = info(h5, file.get(), H5O_INFO_BASIC, || shown.clone())?;
        Ok(Self { h5, file, connector, root: oid_of(&root.token), name: shown })
    }
    /// The file's creation properties.
    pub fn creation(&self) -> Result<Hid> {
        // SAFETY: a plain call.
        h5_id(self.h5, "H5Fget_create_plist", unsafe { (self.h5.H5Fget_create_plist)(self.file.get()) })
    }
    /// Opens an object by its number.
    pub fn object(&self, oid: u64) -> Result<Hid> {
        let address = if oid == ROOT { self.root } else { oid };
        let named = || format!("object at address {address} of {}", self.name);
        // SAFETY: a plain call; HDF5 checks what it finds at the address.
        let id = call(self.h5, named, || unsafe { (self.h5.H5Oopen_by_token)(self.file.get(), token_of(address)) })?;
        h5_id(self.h5, "H5Oopen_by_token", id)
    }
    /// The number of the object behind an id of this file.
    pub fn oid(&self, id: hid_t) -> Result<u64> {
        Ok(self.number(oid_of(&info(self.h5, id, H5O_INFO_BASIC, || self.name.clone())?.token)))
    }
    /// The number of the object at an address.
    pub fn number(&self, address: u64) -> u64 {
        if address == self.root { ROOT } else { address }
    }
    /// The file's id.
    pub fn id(&self) -> hid_t {
        self.file.get()
    }
    /// libhdf5's structure for the file.
    pub fn structure(&self) -> *mut c_void {
        // SAFETY: a plain query of a valid id.
        unsafe { (self.h5.H5VLobject)(self.file.get()) }
    }
    /// HDF5's own connector.
    pub fn connector(&self) -> hid_t {
        self.connector.get()
    }
    /// The file's name for errors.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// HDF5's own connector in this libhdf5.
pub fn connector(h5: &'static Api) -> Result<Hid> {
    // SAFETY: a plain call.
    h5_id(h5, "H5VLget_connector_id_by_name", unsafe { (h5.H5VLget_connector_id_by_name)(c"native".as_ptr()) })
}

/// HDF5's description of the object behind an id.
pub fn info(h5: &'static Api, id: hid_t, fields: c_uint, what: impl FnOnce() -> String) -> Result<H5O_info2_t> {
    let mut info = H5O_info2_t::default();
    // SAFETY: the place is valid.
    call(h5, what, || i64::from(unsafe { (h5.H5Oget_info3)(id, &raw mut info, fields) }))?;
    Ok(info)
}

/// Makes a reading HDF5 call without printing; a negative result is an error about `what` with HDF5's own cause.
pub fn call(h5: &'static Api, what: impl FnOnce() -> String, act: impl FnOnce() -> i64) -> Result<i64> {
    tried(h5, act).map_err(|cause| {
        let kind = kind_of(&cause);
        let failed =
            Error::new(kind.unwrap_or(ErrorKind::Corrupt), what()).because(format!("HDF5 cannot read it: {cause}"));
        match kind {
            Some(_) => failed,
            None => failed.try_next(
                "try it without the connector (unset HDF5_VOL_CONNECTOR); if that fails too, the file is damaged",
            ),
        }
    })
}

/// Makes a writing HDF5 call without printing; a negative result is an error about `what` with HDF5's own cause.
pub fn written(h5: &'static Api, what: impl FnOnce() -> String, act: impl FnOnce() -> i64) -> Result<i64> {
    tried(h5, act).map_err(|cause| match kind_of(&cause) {
        Some(kind) => Error::new(kind, what()).because(format!("HDF5 could not write it: {cause}")),
        None => Error::new(ErrorKind::InvalidInput, what()).because(format!("HDF5 refuses it: {cause}")),
    })
}

/// The kind of system failure in HDF5's error text, which has the number in the middle of a sentence.
fn kind_of(cause: &str) -> Option<ErrorKind> {
    let number = cause.split_once("errno = ")?.1;
    let end = number.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(number.len());
    Some(match number[..end].parse().ok()? {
        libc::ENOSPC | libc::EDQUOT => ErrorKind::Full,
        libc::EACCES | libc::EPERM => ErrorKind::PermissionDenied,
        libc::ENOENT => ErrorKind::NotFound,
        _ => ErrorKind::Io,
    })
}

/// Makes an HDF5 call without printing; an error is HDF5's own cause alone.
pub fn tried(h5: &'static Api, act: impl FnOnce() -> i64) -> Result<i64, String> {
    quietly(h5, || {
        let out = act();
        if out >= 0 { Ok(out) } else { Err(cause(h5)) }
    })
}

/// The first error on the calling thread's error stack.
fn cause(h5: &'static Api) -> String {
    unsafe extern "C" fn each(_: c_uint, entry: *const H5E_error2_t, to: *mut c_void) -> herr_t {
        // SAFETY: HDF5 passes an entry of its stack, and the string given below.
        unsafe {
            let to = &mut *to.cast::<String>();
            if let (true, Some(entry)) = (to.is_empty(), entry.as_ref())
                && !entry.desc.is_null()
            {
                *to = CStr::from_ptr(entry.desc).to_string_lossy().into_owned();
            }
        }
        0
    }
    let mut found = String::new();
    // SAFETY: the callback gets back the pointer to `found`, which outlives the call.
    unsafe {
        (h5.H5Ewalk2)(H5E_DEFAULT, WALK_UPWARD, Some(each), (&raw mut found).cast());
        (h5.H5Eclear2)(H5E_DEFAULT);
    }
    if found.is_empty() { "it gives no reason".to_owned() } else { found }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_failure_is_the_systems() {
        let full = "file write failed: time = Tue, file descriptor = 23, errno = 28, error message = 'No space left'";
        assert_eq!(kind_of(full), Some(ErrorKind::Full));
        assert_eq!(kind_of("file read failed: errno = 5"), Some(ErrorKind::Io));
        assert_eq!(kind_of("unable to open file: errno = 13, message"), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind_of("truncated file: eof = 1000"), None);
        assert_eq!(kind_of("errno = many"), None);
    }
}
