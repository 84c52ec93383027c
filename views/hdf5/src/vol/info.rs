//! The connector's info: which store. As text: `store=/path`.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use crate::ffi::Api;
use crate::ffi::class::InfoClass;
use crate::ffi::types::{herr_t, hid_t};

/// What an info pointer points to.
struct Info {
    store: Vec<u8>,
}

/// The callbacks. They need no libhdf5, so they are the same for all slots.
pub const CLASS: InfoClass = InfoClass {
    size: size_of::<Info>(),
    copy: Some(copy),
    cmp: Some(cmp),
    free: Some(free),
    to_str: Some(to_str),
    from_str: Some(from_str),
};

/// The store that a file access property list names, if it does.
pub fn store_of_fapl(h5: &'static Api, fapl: hid_t) -> Option<PathBuf> {
    let mut pointer: *mut c_void = std::ptr::null_mut();
    // SAFETY: the place is valid. HDF5 gives a copy that `free` takes back.
    if unsafe { (h5.H5Pget_vol_info)(fapl, &raw mut pointer) } < 0 || pointer.is_null() {
        return None;
    }
    // SAFETY: the file is opened through this connector, so the info is one of ours, copied by `copy`.
    let info = unsafe { Box::from_raw(pointer.cast::<Info>()) };
    (!info.store.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&info.store)))
}

/// Makes a file access property list name this connector and a store.
pub fn set_store(h5: &'static Api, fapl: hid_t, connector: hid_t, store: &Path) -> crate::Result<()> {
    let info = Info { store: store.as_os_str().as_bytes().to_vec() };
    // SAFETY: HDF5 copies the info with `copy`.
    let status = unsafe { (h5.H5Pset_vol)(fapl, connector, (&raw const info).cast()) };
    crate::error::h5_check("H5Pset_vol", status).map(|_| ())
}

fn info<'a>(pointer: *const c_void) -> Option<&'a Info> {
    // SAFETY: HDF5 passes what `copy` or `from_str` made, or null.
    unsafe { pointer.cast::<Info>().as_ref() }
}

unsafe extern "C" fn copy(pointer: *const c_void) -> *mut c_void {
    info(pointer).map_or(std::ptr::null_mut(), |i| Box::into_raw(Box::new(Info { store: i.store.clone() })).cast())
}

unsafe extern "C" fn cmp(out: *mut c_int, a: *const c_void, b: *const c_void) -> herr_t {
    if out.is_null() {
        return -1;
    }
    let store = |p| info(p).map_or(&[][..], |i| &i.store);
    // SAFETY: HDF5 passes a valid place.
    unsafe { out.write(store(a).cmp(store(b)) as c_int) };
    0
}

unsafe extern "C" fn free(pointer: *mut c_void) -> herr_t {
    if !pointer.is_null() {
        // SAFETY: HDF5 gives back what `copy` or `from_str` made, once.
        drop(unsafe { Box::from_raw(pointer.cast::<Info>()) });
    }
    0
}

unsafe extern "C" fn to_str(pointer: *const c_void, out: *mut *mut c_char) -> herr_t {
    let Some(info) = info(pointer) else { return -1 };
    let text = [b"store=".as_slice(), &info.store].concat();
    let Ok(text) = CString::new(text) else { return -1 };
    // SAFETY: HDF5 frees the string with its own free, which is the C library's; the place is valid.
    unsafe {
        let copy = libc::strdup(text.as_ptr());
        if copy.is_null() {
            return -1;
        }
        out.write(copy);
    }
    0
}

unsafe extern "C" fn from_str(text: *const c_char, out: *mut *mut c_void) -> herr_t {
    let parsed = catch_unwind(|| {
        // SAFETY: HDF5 passes a C string or null.
        let text = if text.is_null() { &[][..] } else { unsafe { CStr::from_ptr(text) }.to_bytes() };
        parse(text)
    });
    match parsed {
        Ok(Ok(store)) => {
            // SAFETY: the place is valid.
            unsafe { out.write(Box::into_raw(Box::new(Info { store })).cast()) };
            0
        }
        Ok(Err(why)) => {
            // HDF5 gives no error stack of the caller's here.
            eprintln!("cenote: {why}");
            -1
        }
        Err(_) => -1,
    }
}

fn parse(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = text.trim_ascii();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let Some(path) = text.strip_prefix(b"store=") else {
        return Err(format!(
            "the connector's info string is `{}`; it must be `store=/path` (as in HDF5_VOL_CONNECTOR='cenote store=/path')",
            String::from_utf8_lossy(text)
        ));
    };
    Ok(path.trim_ascii().trim_ascii_end().strip_suffix(b";").unwrap_or(path.trim_ascii()).to_vec())
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_info_string_names_a_store_or_is_refused() {
        assert_eq!(parse(b"store=/a b/c").unwrap(), b"/a b/c");
        assert_eq!(parse(b" store=/x; ").unwrap(), b"/x");
        assert_eq!(parse(b"").unwrap(), b"");
        assert!(parse(b"/x").is_err());
    }
}
