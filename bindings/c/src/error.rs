//! Errors as C programs see them.

use std::ffi::{CString, c_char};

use cenote::{Error, ErrorKind};

use crate::abi::quietly;

/// Success.
pub const CENOTE_OK: i32 = 0;
/// No such store, container, object, index or tier.
pub const CENOTE_NOT_FOUND: i32 = 1;
/// It exists already.
pub const CENOTE_EXISTS: i32 = 2;
/// The request is invalid: a bad size, range, name, handle or combination.
pub const CENOTE_INVALID_INPUT: i32 = 3;
/// It would exceed a limit of the format or a quota.
pub const CENOTE_LIMIT_EXCEEDED: i32 = 4;
/// All tiers that may take the data are full.
pub const CENOTE_FULL: i32 = 5;
/// Stored bytes do not match their checksum, or metadata contradict each other.
pub const CENOTE_CORRUPT: i32 = 6;
/// Written by a version that this one cannot read, or an unknown format.
pub const CENOTE_VERSION_MISMATCH: i32 = 7;
/// This user lacks the right.
pub const CENOTE_PERMISSION_DENIED: i32 = 8;
/// Another transaction changed what this one had read.
pub const CENOTE_CONFLICT: i32 = 9;
/// The device or file system failed.
pub const CENOTE_IO: i32 = 10;
/// Another process has exclusive use of the store, or the store is shutting down.
pub const CENOTE_BUSY: i32 = 11;
/// The daemon went away, and the result of requests in flight is unknown.
pub const CENOTE_DISCONNECTED: i32 = 12;
/// This version does not support the request.
pub const CENOTE_UNSUPPORTED: i32 = 13;
/// A bug in Cenote.
pub const CENOTE_INTERNAL: i32 = 14;

/// An error. All texts are UTF-8 and live until `cenote_error_free`.
#[repr(C)]
pub struct cenote_error_t {
    /// The kind, for programs: `CENOTE_NOT_FOUND` and so on.
    pub kind: i32,
    /// Not 0 if the same call may succeed later without any change.
    pub retry_helps: i32,
    /// The whole error in one line.
    pub message: *const c_char,
    /// The subject: the object, tier, path.
    pub subject: *const c_char,
    /// The cause; may be empty.
    pub cause: *const c_char,
    /// The next step; may be empty.
    pub next_step: *const c_char,
}

fn c_text(text: &str) -> *const c_char {
    // A NUL byte inside would end the text for a C program.
    let clean: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(clean).unwrap_or_default().into_raw()
}

/// Creates an error for the caller, who frees it.
pub fn hand_out(error: &Error) -> *mut cenote_error_t {
    Box::into_raw(Box::new(cenote_error_t {
        kind: i32::from(error.kind() as u8),
        retry_helps: i32::from(error.kind().retry_helps()),
        message: c_text(&error.to_string()),
        subject: c_text(error.subject()),
        cause: c_text(error.cause()),
        next_step: c_text(error.next_step()),
    }))
}

/// Frees an error. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_error_free(error: *mut cenote_error_t) {
    if error.is_null() {
        return;
    }
    quietly((), || {
        // SAFETY: it came from `hand_out`, and the caller returns it once.
        let error = unsafe { Box::from_raw(error) };
        for text in [error.message, error.subject, error.cause, error.next_step] {
            if !text.is_null() {
                // SAFETY: it came from `CString::into_raw`.
                drop(unsafe { CString::from_raw(text.cast_mut()) });
            }
        }
    });
}

/// Returns a few words for a kind, such as "not found". Never freed.
#[unsafe(no_mangle)]
pub extern "C" fn cenote_kind_words(kind: i32) -> *const c_char {
    let words = match u8::try_from(kind).ok().and_then(ErrorKind::from_code) {
        None if kind == CENOTE_OK => c"no error",
        None => c"unknown kind of error",
        Some(ErrorKind::NotFound) => c"not found",
        Some(ErrorKind::Exists) => c"exists already",
        Some(ErrorKind::InvalidInput) => c"invalid",
        Some(ErrorKind::LimitExceeded) => c"past a limit",
        Some(ErrorKind::Full) => c"no space left",
        Some(ErrorKind::Corrupt) => c"corrupt",
        Some(ErrorKind::VersionMismatch) => c"wrong version",
        Some(ErrorKind::PermissionDenied) => c"permission denied",
        Some(ErrorKind::Conflict) => c"conflict",
        Some(ErrorKind::Io) => c"I/O error",
        Some(ErrorKind::Busy) => c"busy",
        Some(ErrorKind::Disconnected) => c"disconnected",
        Some(ErrorKind::Unsupported) => c"not supported",
        Some(ErrorKind::Internal) => c"internal error",
    };
    words.as_ptr()
}
