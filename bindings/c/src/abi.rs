//! The boundary of every function of the interface: catches panics, turns results into codes, checks pointers.

use std::any::Any;
use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use cenote::{Error, ErrorKind, Result};

use crate::error::{CENOTE_OK, cenote_error_t, hand_out};
use crate::handle::{self, Handle};

/// Runs a function's body: returns 0 on success, otherwise the error's kind, with the error in `*error` unless that
/// is null.
pub fn guard(error: *mut *mut cenote_error_t, body: impl FnOnce() -> Result<()>) -> i32 {
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => {
            // SAFETY: the caller gives a pointer that may be written, or null.
            unsafe { put(error, std::ptr::null_mut()) };
            return CENOTE_OK;
        }
        Ok(Err(failure)) => failure,
        Err(panic) => Error::new(ErrorKind::Internal, "the Cenote library")
            .because(words_of(panic.as_ref()))
            .try_next("this is a bug in Cenote: please report it"),
    };
    let kind = i32::from(failure.kind() as u8);
    if !error.is_null() {
        let made = catch_unwind(AssertUnwindSafe(|| hand_out(&failure))).unwrap_or(std::ptr::null_mut());
        // SAFETY: the caller gives a pointer that may be written, or null.
        unsafe { put(error, made) };
    }
    kind
}

/// Runs a function's body whose result goes to `*to`, which must not be null; otherwise as [`guard`].
pub fn give<T>(error: *mut *mut cenote_error_t, to: *mut T, name: &str, body: impl FnOnce() -> Result<T>) -> i32 {
    guard(error, || {
        let to = required(to, name)?;
        let value = body()?;
        // SAFETY: the caller gives a pointer that may be written, or null.
        unsafe { put(to, value) };
        Ok(())
    })
}

/// Runs a function's body whose result the caller gets a handle of; otherwise as [`guard`].
pub fn give_handle<H: Handle>(
    error: *mut *mut cenote_error_t,
    to: *mut *mut H,
    name: &str,
    body: impl FnOnce() -> Result<H::Value>,
) -> i32 {
    give(error, to, name, || body().map(handle::make))
}

/// Runs a function's body whose result goes to `*to` unless that is null; otherwise as [`guard`].
pub fn give_if_wanted<T>(error: *mut *mut cenote_error_t, to: *mut T, body: impl FnOnce() -> Result<T>) -> i32 {
    guard(error, || {
        let value = body()?;
        // SAFETY: the caller gives a pointer that may be written, or null.
        unsafe { put(to, value) };
        Ok(())
    })
}

/// Frees a handle and drops its value. Ignores null and invalid handles.
pub fn free<H: Handle>(handle: *mut H) {
    quietly((), || drop(handle::take(handle)));
}

/// Runs a body that cannot fail; returns `fallback` if it panics all the same.
pub fn quietly<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or(fallback)
}

fn words_of(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    words.unwrap_or("it panicked").to_owned()
}

/// Writes a result to the caller's memory, unless the pointer is null.
///
/// # Safety
/// `to` is null or may be written.
pub unsafe fn put<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: the caller vouches for it.
        unsafe { to.write(value) };
    }
}

/// Creates the error for an invalid argument.
pub fn invalid(subject: &str, cause: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("argument `{subject}`")).because(cause)
}

/// Returns the place for a result, which must not be null.
pub fn required<T>(to: *mut T, name: &str) -> Result<*mut T> {
    if to.is_null() { Err(invalid(name, "it is null")) } else { Ok(to) }
}

/// Returns a text that ends in a NUL byte.
///
/// # Safety
/// `text` is null or ends in a NUL byte and lives as long as `'a`.
unsafe fn c_str<'a>(text: *const c_char, name: &str) -> Result<&'a CStr> {
    if text.is_null() {
        return Err(invalid(name, "it is null"));
    }
    // SAFETY: the caller vouches for it.
    Ok(unsafe { CStr::from_ptr(text) })
}

/// Returns a text in UTF-8.
///
/// # Safety
/// As [`c_str`].
pub unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<&'a str> {
    // SAFETY: the caller vouches for it.
    unsafe { c_str(text, name) }?.to_str().map_err(|_| invalid(name, "it is not UTF-8"))
}

/// Returns a path: any bytes.
///
/// # Safety
/// As [`c_str`].
pub unsafe fn path<'a>(path: *const c_char, name: &str) -> Result<&'a Path> {
    // SAFETY: the caller vouches for it.
    let bytes = unsafe { c_str(path, name) }?.to_bytes();
    if bytes.is_empty() { Err(invalid(name, "it is empty")) } else { Ok(Path::new(OsStr::from_bytes(bytes))) }
}

/// Converts to a text that ends in a NUL byte, without NUL bytes in it.
pub fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', "")).unwrap_or_default()
}

/// A caller's function that receives texts.
type EachText = Option<unsafe extern "C" fn(context: *mut c_void, text: *const c_char)>;

/// Calls `each`, if there is one, with every text.
///
/// # Safety
/// `each` may be called with `context`.
pub unsafe fn tell<'a>(texts: impl Iterator<Item = &'a str>, each: EachText, context: *mut c_void) {
    let Some(each) = each else { return };
    for text in texts {
        let text = c_text(text);
        // SAFETY: the caller vouches for it.
        unsafe { each(context, text.as_ptr()) };
    }
}

fn check<T>(data: *const T, len: usize, name: &str) -> Result<()> {
    if data.is_null() {
        return Err(invalid(name, format!("it is null, but its length is {len}")));
    }
    if !data.is_aligned() {
        return Err(invalid(name, "it is not aligned for its type"));
    }
    if len.checked_mul(size_of::<T>()).is_none_or(|bytes| isize::try_from(bytes).is_err()) {
        return Err(invalid(name, format!("its length {len} is more than a process can hold")));
    }
    Ok(())
}

/// Returns a caller's array.
///
/// # Safety
/// `data` points to `len` values that do not change for `'a`, or `len` is 0.
pub unsafe fn slice<'a, T>(data: *const T, len: usize, name: &str) -> Result<&'a [T]> {
    if len == 0 {
        return Ok(&[]);
    }
    check(data, len, name)?;
    // SAFETY: the caller vouches for it, and what can be checked was checked.
    Ok(unsafe { std::slice::from_raw_parts(data, len) })
}

/// Returns a caller's array to be filled.
///
/// # Safety
/// `data` points to `len` values that nobody else uses for `'a`, or `len` is 0.
pub unsafe fn slice_mut<'a, T>(data: *mut T, len: usize, name: &str) -> Result<&'a mut [T]> {
    if len == 0 {
        return Ok(&mut []);
    }
    check(data, len, name)?;
    // SAFETY: the caller vouches for it, and what can be checked was checked.
    Ok(unsafe { std::slice::from_raw_parts_mut(data, len) })
}
