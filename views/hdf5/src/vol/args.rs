//! From C arguments to Rust ones.

use std::ffi::{CStr, c_char, c_void};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::ffi::Api;
use crate::ffi::types::{
    H5I_GENPROP_LST, H5O_token_t, H5P_DEFAULT, H5VL_OBJECT_BY_IDX, H5VL_OBJECT_BY_NAME, H5VL_OBJECT_BY_SELF,
    H5VL_OBJECT_BY_TOKEN, LocParams, hid_t,
};
use crate::meta::links::{self, Target};
use crate::meta::resolve::{self, Location, ResolvedPath};
use crate::object::Handle;

fn null(what: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, what).because("HDF5 passed a null pointer")
}

/// The target of a pointer argument.
pub fn of<'a, T>(pointer: *const T) -> Result<&'a T> {
    // SAFETY: HDF5 passes pointers to valid arguments that live during the call, or null.
    unsafe { pointer.as_ref() }.ok_or_else(|| null("argument"))
}

/// Writes a result to the place that HDF5 gave.
pub fn put<T>(place: *mut T, value: T) -> Result<()> {
    if place.is_null() {
        return Err(null("place of a result"));
    }
    // SAFETY: HDF5 passes a valid place for the result.
    unsafe { place.write(value) };
    Ok(())
}

/// A string argument.
pub fn name<'a>(text: *const c_char) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(null("name"));
    }
    // SAFETY: HDF5 passes a C string that lives during the call.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// A string argument that may be null.
pub fn name_or_none<'a>(text: *const c_char) -> Result<Option<&'a [u8]>> {
    if text.is_null() { Ok(None) } else { name(text).map(Some) }
}

/// Returns a name in HDF5's way: as much as fits with a final NUL, and the whole length.
pub fn give_name(text: &[u8], buf: *mut c_char, size: usize, len: *mut usize) -> Result<()> {
    if !buf.is_null() && size > 0 {
        let n = text.len().min(size - 1);
        // SAFETY: the buffer has `size` bytes; `n` of them and the NUL are written.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), buf.cast::<u8>(), n);
            buf.add(n).write(0);
        }
    }
    if len.is_null() { Ok(()) } else { put(len, text.len()) }
}

/// Object number in a token.
pub fn oid_of(token: &H5O_token_t) -> u64 {
    let mut low = [0; 8];
    low.copy_from_slice(&token.0[..8]);
    u64::from_le_bytes(low)
}

/// Token of an object number.
pub fn token_of(oid: u64) -> H5O_token_t {
    let mut token = H5O_token_t::default();
    token.0[..8].copy_from_slice(&oid.to_le_bytes());
    token
}

/// Refuses an id that is no property list: HDF5 passes access lists on unchecked.
pub fn check_list(h5: &'static Api, list: hid_t) -> Result<()> {
    // SAFETY: a plain query of any number.
    if list == H5P_DEFAULT || list > 0 && unsafe { (h5.H5Iget_type)(list) } == H5I_GENPROP_LST {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("id {list}"))
        .because("not a property list")
        .try_next("give H5P_DEFAULT or a list of the class that the call names"))
}

/// The existing object that an object pointer and location parameters name.
pub fn place(object: *mut c_void, loc: *const LocParams) -> Result<Location> {
    let base = Handle::at(object)?.place()?;
    at(&base, of(loc)?)
}

/// The object that location parameters name relative to `base`.
pub fn at(base: &Location, loc: &LocParams) -> Result<Location> {
    // SAFETY: `kind` says which member of the union HDF5 has filled.
    unsafe {
        match loc.kind {
            H5VL_OBJECT_BY_SELF => Ok(base.clone()),
            H5VL_OBJECT_BY_NAME => {
                let by = loc.data.by_name;
                check_list(base.file.h5, by.lapl_id)?;
                resolve::resolve_as(base, name(by.name)?, true, by.lapl_id)?.place()
            }
            H5VL_OBJECT_BY_IDX => {
                let by = loc.data.by_idx;
                check_list(base.file.h5, by.lapl_id)?;
                let group = resolve::resolve_as(base, name(by.name)?, true, by.lapl_id)?.place()?;
                let (link_name, _) = links::nth(&group.file, group.oid, by.idx_type, by.order, by.n)?;
                resolve::resolve_as(&group, &link_name, true, by.lapl_id)?.place()
            }
            H5VL_OBJECT_BY_TOKEN => {
                let oid = crate::meta::objects::canonical(&base.file, oid_of(of(loc.data.by_token.token)?))?;
                if crate::meta::header::find(&base.file, oid)?.is_none() {
                    return Err(crate::meta::gone(&base.file, oid));
                }
                Ok(Location { file: base.file.clone(), oid, path: Vec::new() })
            }
            other => Err(Error::new(ErrorKind::InvalidInput, "location").because(format!("kind {other} is unknown"))),
        }
    }
}

/// The link that an object pointer and location parameters name, by name or by index; it is not followed.
pub fn link(object: *mut c_void, loc: *const LocParams) -> Result<ResolvedPath> {
    let base = Handle::at(object)?.place()?;
    let loc = of(loc)?;
    // SAFETY: `kind` says which member of the union HDF5 has filled.
    unsafe {
        match loc.kind {
            H5VL_OBJECT_BY_NAME => {
                let by = loc.data.by_name;
                check_list(base.file.h5, by.lapl_id)?;
                resolve::resolve_as(&base, name(by.name)?, false, by.lapl_id)
            }
            H5VL_OBJECT_BY_IDX => {
                let by = loc.data.by_idx;
                check_list(base.file.h5, by.lapl_id)?;
                let group = resolve::resolve_as(&base, name(by.name)?, true, by.lapl_id)?.place()?;
                let (link_name, link) = links::nth(&group.file, group.oid, by.idx_type, by.order, by.n)?;
                let oid = if let Target::Hard(oid) = link.target { Some(oid) } else { None };
                let path = resolve::join(&group.path, &link_name);
                Ok(ResolvedPath { file: group.file, group: group.oid, name: link_name, link: Some(link), oid, path })
            }
            _ => Err(Error::new(ErrorKind::InvalidInput, "location").because("a link is named by name or by index")),
        }
    }
}

/// The name in location parameters; empty if the link is named by index.
pub fn link_name<'a>(loc: *const LocParams) -> Result<&'a [u8]> {
    let loc = of(loc)?;
    // SAFETY: `kind` says which member of the union HDF5 has filled.
    if loc.kind == H5VL_OBJECT_BY_NAME { name(unsafe { loc.data.by_name.name }) } else { Ok(b"") }
}

/// Values of a link creation property list: intermediate groups, and the name's character set.
pub fn link_create(h5: &'static Api, lcpl: hid_t) -> Result<(bool, u8)> {
    check_list(h5, lcpl)?;
    let (mut groups, mut cset) = (0u32, 0i32);
    if lcpl > 0 && lcpl != h5.H5P_LST_LINK_CREATE_ID_g() {
        // SAFETY: the places are valid; a list of another class makes the calls fail and leaves the defaults.
        unsafe {
            (h5.H5Pget_create_intermediate_group)(lcpl, &raw mut groups);
            (h5.H5Pget_char_encoding)(lcpl, &raw mut cset);
        }
    }
    Ok((groups != 0, cset as u8))
}

/// The object number behind a datatype id, if it is a committed datatype of this file; 0 otherwise.
pub fn committed_oid(h5: &'static Api, dtype: hid_t, file: &std::sync::Arc<crate::file::File>) -> u64 {
    // SAFETY: plain queries of an id that HDF5 passed.
    let pointer = unsafe { if (h5.H5Tcommitted)(dtype) > 0 { (h5.H5VLobject)(dtype) } else { std::ptr::null_mut() } };
    match Handle::at(pointer).map(|h| &h.body) {
        Ok(crate::object::Body::Datatype(t)) if t.place.file.is_same(file) => t.place.oid,
        _ => 0,
    }
}
