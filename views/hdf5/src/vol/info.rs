//! The connector's info: the store, and whether files are written in atomic checkpoints. As text: `store=/path atomic`.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use crate::ffi::Api;
use crate::ffi::class::InfoClass;
use crate::ffi::types::{herr_t, hid_t};

/// Target of an info pointer.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Info {
    store: Vec<u8>,
    /// Value of `atomic`, `atomic=1` or `atomic=0`; `None` if absent.
    atomic: Option<bool>,
}

/// The callbacks. They need no libhdf5, so all slots share them.
pub const CLASS: InfoClass = InfoClass {
    size: size_of::<Info>(),
    copy: Some(copy),
    cmp: Some(cmp),
    free: Some(free),
    to_str: Some(to_str),
    from_str: Some(from_str),
};

/// The store named in a file access property list, if any.
pub fn store_of_fapl(h5: &'static Api, fapl: hid_t) -> Option<PathBuf> {
    let store = of_fapl(h5, fapl)?.store;
    (!store.is_empty()).then(|| PathBuf::from(OsStr::from_bytes(&store)))
}

/// Whether a file access property list asks for atomic checkpoints; `None` if it says nothing about them.
pub fn atomic_of_fapl(h5: &'static Api, fapl: hid_t) -> Option<bool> {
    of_fapl(h5, fapl)?.atomic
}

fn of_fapl(h5: &'static Api, fapl: hid_t) -> Option<Info> {
    let mut pointer: *mut c_void = std::ptr::null_mut();
    // SAFETY: the place is valid. HDF5 returns a copy, which `free` takes back.
    if unsafe { (h5.H5Pget_vol_info)(fapl, &raw mut pointer) } < 0 || pointer.is_null() {
        return None;
    }
    // SAFETY: the file is opened through this connector, so the info is one of ours, copied by `copy`.
    Some(*unsafe { Box::from_raw(pointer.cast::<Info>()) })
}

/// Makes a file access property list name this connector and a store; its setting for checkpoints stays.
pub fn set_store(h5: &'static Api, fapl: hid_t, connector: hid_t, store: &Path) -> crate::Result<()> {
    let info = Info { store: store.as_os_str().as_bytes().to_vec(), atomic: atomic_of_fapl(h5, fapl) };
    // SAFETY: HDF5 copies the info with `copy`.
    let status = unsafe { (h5.H5Pset_vol)(fapl, connector, (&raw const info).cast()) };
    crate::error::h5_check("H5Pset_vol", status).map(|_| ())
}

fn info<'a>(pointer: *const c_void) -> Option<&'a Info> {
    // SAFETY: HDF5 passes what `copy` or `from_str` made, or null.
    unsafe { pointer.cast::<Info>().as_ref() }
}

unsafe extern "C" fn copy(pointer: *const c_void) -> *mut c_void {
    info(pointer).map_or(std::ptr::null_mut(), |i| Box::into_raw(Box::new(i.clone())).cast())
}

unsafe extern "C" fn cmp(out: *mut c_int, a: *const c_void, b: *const c_void) -> herr_t {
    if out.is_null() {
        return -1;
    }
    let none = Info::default();
    // SAFETY: HDF5 passes a valid place.
    unsafe { out.write(info(a).unwrap_or(&none).cmp(info(b).unwrap_or(&none)) as c_int) };
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
    let store: &[u8] = if info.store.is_empty() { b"" } else { b"store=" };
    let atomic: &[u8] = match info.atomic {
        None => b"",
        Some(true) => b" atomic",
        Some(false) => b" atomic=0",
    };
    let text = [store, &info.store, atomic].concat();
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
        Ok(Ok(info)) => {
            // SAFETY: the place is valid.
            unsafe { out.write(Box::into_raw(Box::new(info)).cast()) };
            0
        }
        Ok(Err(why)) => {
            // The caller's error stack is not available here.
            eprintln!("cenote: {why}");
            -1
        }
        Err(_) => -1,
    }
}

fn parse(text: &[u8]) -> Result<Info, String> {
    let mut info = Info::default();
    let mut rest = text.trim_ascii();
    // The path may contain blanks, so words after it are searched from the end, and words before it from the beginning.
    while let Some((before, atomic)) = word_at_end(rest) {
        (rest, info.atomic) = (before, Some(atomic));
    }
    if rest.is_empty() {
        return Ok(info);
    }
    let Some(path) = rest.strip_prefix(b"store=") else {
        return Err(format!(
            "the connector's info string is `{}`; it must be `store=/path`, `atomic` or both (as in \
             HDF5_VOL_CONNECTOR='cenote store=/path atomic')",
            String::from_utf8_lossy(text)
        ));
    };
    let path = path.trim_ascii();
    info.store = path.strip_suffix(b";").unwrap_or(path).to_vec();
    Ok(info)
}

/// The text before the last word, if that word is about checkpoints.
fn word_at_end(text: &[u8]) -> Option<(&[u8], bool)> {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(b";").unwrap_or(text);
    let words = [(&b"atomic"[..], true), (b"atomic=1", true), (b"atomic=0", false)];
    let (before, atomic) = words.iter().find_map(|(word, atomic)| Some((text.strip_suffix(*word)?, *atomic)))?;
    let is_word = before.last().is_none_or(|byte| byte.is_ascii_whitespace() || *byte == b';');
    is_word.then_some((before, atomic))
}

#[cfg(test)]
mod tests {
    use super::{Info, parse};

    fn said(store: &[u8], atomic: Option<bool>) -> Info {
        Info { store: store.to_vec(), atomic }
    }

    #[test]
    fn the_info_string_names_a_store_or_is_refused() {
        assert_eq!(parse(b"store=/a b/c").unwrap(), said(b"/a b/c", None));
        assert_eq!(parse(b" store=/x; ").unwrap(), said(b"/x", None));
        assert_eq!(parse(b"").unwrap(), said(b"", None));
        assert_eq!(parse(b"atomic").unwrap(), said(b"", Some(true)));
        assert_eq!(parse(b"store=/a b atomic").unwrap(), said(b"/a b", Some(true)));
        assert_eq!(parse(b"store=/x; atomic=0").unwrap(), said(b"/x", Some(false)));
        assert_eq!(parse(b"store=/nonatomic").unwrap(), said(b"/nonatomic", None));
        assert!(parse(b"/x").is_err());
    }
}
