//! Tokens: object names that programs may keep. The first 8 bytes are the object's number, the rest zero.

use std::ffi::{CString, c_char, c_int, c_void};

use cenote::{Error, ErrorKind};

use crate::ffi::class::TokenClass;
use crate::ffi::types::{H5O_token_t, herr_t};

use super::{args, status};

pub fn class<const N: usize>() -> TokenClass {
    TokenClass { cmp: Some(cmp::<N>), to_str: Some(to_str::<N>), from_str: Some(from_str::<N>) }
}

unsafe extern "C" fn cmp<const N: usize>(
    _: *mut c_void,
    a: *const H5O_token_t,
    b: *const H5O_token_t,
    out: *mut c_int,
) -> herr_t {
    status::<N>("token_cmp", |_| {
        let (a, b) = (args::oid_of(args::of(a)?), args::oid_of(args::of(b)?));
        args::put(out, a.cmp(&b) as c_int)
    })
}

unsafe extern "C" fn to_str<const N: usize>(
    _: *mut c_void,
    _: c_int,
    token: *const H5O_token_t,
    out: *mut *mut c_char,
) -> herr_t {
    status::<N>("token_to_str", |h5| {
        let text = CString::new(format!("{:016x}", args::oid_of(args::of(token)?))).unwrap_or_default();
        let bytes = text.as_bytes_with_nul();
        // SAFETY: HDF5 frees the string with its own allocator, which made it; it has room for all bytes.
        let copy = unsafe { (h5.H5allocate_memory)(bytes.len(), false) }.cast::<u8>();
        if copy.is_null() {
            return Err(Error::new(ErrorKind::LimitExceeded, "token").because("no memory"));
        }
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len()) };
        args::put(out, copy.cast())
    })
}

unsafe extern "C" fn from_str<const N: usize>(
    _: *mut c_void,
    _: c_int,
    text: *const c_char,
    out: *mut H5O_token_t,
) -> herr_t {
    status::<N>("token_from_str", |_| {
        let text = String::from_utf8_lossy(args::name(text)?).into_owned();
        let oid = u64::from_str_radix(&text, 16).map_err(|_| {
            Error::new(ErrorKind::InvalidInput, format!("token `{text}`")).because("it is not 16 hexadecimal digits")
        })?;
        args::put(out, args::token_of(oid))
    })
}
