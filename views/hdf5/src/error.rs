//! Errors, and how they get to the HDF5 error stack.

use std::ffi::{CString, c_void};

use cenote::{Error, ErrorKind};

use crate::ffi::types::{H5E_DEFAULT, H5E_auto2_t, herr_t, hid_t};
use crate::ffi::{Api, Hid};

/// Start of the cause when a path has too many links: h5py recognises this case by HDF5's number for it.
pub const TOO_MANY_LINKS: &str = "too many links";

/// The result of everything in this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of `kind` about `subject`, with its cause.
#[cold]
pub fn fail(kind: ErrorKind, subject: impl Into<String>, cause: impl Into<String>) -> Error {
    Error::new(kind, subject).because(cause)
}

/// The error for an operation that this connector does not support.
#[cold]
pub fn unsupported(what: impl Into<String>, remedy: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unsupported, what).because("the cenote connector does not do this").try_next(remedy)
}

/// Turns the status of an HDF5 call into a result.
pub fn h5_check(call: &'static str, status: herr_t) -> Result<herr_t> {
    if status < 0 { Err(h5_failed(call)) } else { Ok(status) }
}

/// Takes over the id that an HDF5 call returned.
pub fn h5_id(h5: &'static Api, call: &'static str, id: hid_t) -> Result<Hid> {
    Hid::new(h5, id).ok_or_else(|| h5_failed(call))
}

/// The failure of an HDF5 call.
#[cold]
pub fn h5_failed(call: &'static str) -> Error {
    Error::new(ErrorKind::InvalidInput, call).because("HDF5 itself refused this call")
}

/// Runs `act` without HDF5 printing errors.
pub fn quietly<T>(h5: &Api, act: impl FnOnce() -> T) -> T {
    let (mut function, mut data): (H5E_auto2_t, *mut c_void) = (None, std::ptr::null_mut());
    // SAFETY: the places written to are ours; the previous setting is restored.
    unsafe {
        (h5.H5Eget_auto2)(H5E_DEFAULT, &raw mut function, &raw mut data);
        (h5.H5Eset_auto2)(H5E_DEFAULT, None, std::ptr::null_mut());
    }
    let done = act();
    // SAFETY: as above.
    unsafe { (h5.H5Eset_auto2)(H5E_DEFAULT, function, data) };
    done
}

/// Pushes `error` on the calling thread's HDF5 error stack.
pub fn push(h5: &Api, callback: &'static str, error: &Error) {
    push_to(h5, H5E_DEFAULT, callback, error);
}

/// Pushes `error` on an HDF5 error stack.
pub fn push_to(h5: &Api, stack: hid_t, callback: &'static str, error: &Error) {
    let (major, mut minor) = ids(h5, callback, error.kind());
    if error.cause().starts_with(TOO_MANY_LINKS) {
        minor = h5.H5E_NLINKS_g();
    }
    let mut text = format!("cenote {callback}: {error}").replace('\0', "\u{fffd}");
    // h5py makes a `PermissionError` of this text, which is HDF5's own for a file that cannot be opened.
    let is_opening = matches!(callback, "file_open" | "file_create");
    if is_opening && error.kind() == ErrorKind::PermissionDenied && !text.contains("errno = ") {
        text.push_str(", errno = 13, error message = 'Permission denied'");
    }
    let text = CString::new(text).unwrap_or_default();
    let function = CString::new(callback).unwrap_or_default();
    let class = error_class(h5);
    // SAFETY: all strings end in NUL and live across the call; "%s" takes exactly the one string that follows.
    unsafe {
        (h5.H5Epush2)(
            stack,
            c"cenote-hdf5".as_ptr(),
            function.as_ptr(),
            0,
            class,
            major,
            minor,
            c"%s".as_ptr(),
            text.as_ptr(),
        );
    }
}

/// Runs `work` and restores HDF5's errors afterwards, since HDF5 calls clear them: when HDF5 closes objects after a failed
/// call, the cause must not be lost.
pub fn keeping<T>(h5: &Api, work: impl FnOnce() -> T) -> T {
    // SAFETY: a plain query, which clears nothing.
    if unsafe { (h5.H5Eget_num)(H5E_DEFAULT) } <= 0 {
        return work();
    }
    // SAFETY: the stack taken here is put back whole, which also closes it.
    let kept = unsafe { (h5.H5Eget_current_stack)() };
    let done = work();
    if kept > 0 {
        // SAFETY: as above.
        unsafe { (h5.H5Eset_current_stack)(kept) };
    }
    done
}

fn error_class(h5: &Api) -> hid_t {
    h5.H5E_ERR_CLS_g()
}

fn ids(h5: &Api, callback: &str, kind: ErrorKind) -> (hid_t, hid_t) {
    let major = match callback.split('_').next() {
        Some("file") => h5.H5E_FILE_g(),
        Some("group") => h5.H5E_SYM_g(),
        Some("link") => h5.H5E_LINK_g(),
        Some("attr") => h5.H5E_ATTR_g(),
        Some("dataset") => h5.H5E_DATASET_g(),
        Some("datatype") => h5.H5E_DATATYPE_g(),
        Some("object") => h5.H5E_OHDR_g(),
        _ => h5.H5E_VOL_g(),
    };
    let minor = match kind {
        ErrorKind::NotFound => h5.H5E_NOTFOUND_g(),
        ErrorKind::Exists => h5.H5E_EXISTS_g(),
        ErrorKind::InvalidInput => h5.H5E_BADVALUE_g(),
        ErrorKind::LimitExceeded => h5.H5E_BADRANGE_g(),
        ErrorKind::Full => h5.H5E_NOSPACE_g(),
        ErrorKind::Unsupported => h5.H5E_UNSUPPORTED_g(),
        ErrorKind::PermissionDenied => h5.H5E_WRITEERROR_g(),
        ErrorKind::Corrupt | ErrorKind::VersionMismatch => h5.H5E_READERROR_g(),
        ErrorKind::Io | ErrorKind::Busy | ErrorKind::Disconnected | ErrorKind::Conflict => h5.H5E_SYSTEM_g(),
        ErrorKind::Internal => h5.H5E_INTERNAL_g(),
    };
    (major, minor)
}
