//! User-defined links: calls the class that a program registered for them (`H5Lregister`) when such a link is made,
//! followed, copied, moved, deleted or asked for its value.
//!
//! The link, its class number and its value are stored; their meaning is the program's. HDF5 has no public call that
//! returns a registered class to a connector, so the class is looked up by the library's own function where that is
//! visible.

use std::ffi::{CString, c_int, c_void};
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error::fail;
use crate::ffi::Api;
use crate::ffi::Hid;
use crate::ffi::types::{H5L_TYPE_EXTERNAL, H5L_class_t, H5P_DEFAULT, hid_t};
use crate::file::File;
use crate::meta::resolve::Location;
use crate::object::Handle;
use crate::vol::register;

/// A link's place and its stored content.
pub struct Link<'a> {
    /// The group that holds it, or will.
    pub group: &'a Location,
    /// Its name.
    pub name: &'a [u8],
    /// The number of its class.
    pub class: u8,
    /// Its value.
    pub value: &'a [u8],
}

/// The class registered under a number; `None` for external links, which the connector handles itself.
fn class_of(h5: &'static Api, number: u8) -> Option<&'static H5L_class_t> {
    let find = h5.H5L_find_class.filter(|_| c_int::from(number) != H5L_TYPE_EXTERNAL)?;
    // SAFETY: the table of classes is HDF5's; an entry stays while the program leaves it registered, and the program's
    // thread is in this call.
    unsafe { find(c_int::from(number)).as_ref() }
}

/// The error for a link whose class is not registered.
pub fn unknown(class: u8, name: &[u8]) -> Error {
    fail(
        ErrorKind::Unsupported,
        format!("user-defined link `{}`", String::from_utf8_lossy(name)),
        format!("link class {class} is not registered in this process"),
    )
    .try_next("register the class with H5Lregister first")
}

fn text(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| fail(ErrorKind::InvalidInput, "link name", "it contains a NUL"))
}

fn failed(link: &Link<'_>, what: &str) -> Error {
    fail(
        ErrorKind::InvalidInput,
        format!("user-defined link `{}`", String::from_utf8_lossy(link.name)),
        format!("the {what} function of link class {} failed", link.class),
    )
}

fn group_id(place: &Location) -> Result<Hid> {
    register(place.file.h5, Handle::new(place.file.h5, crate::object::open(place)?))
}

/// What happened to a link.
#[derive(Clone, Copy)]
pub enum Event {
    /// Created with these creation properties.
    Made(hid_t),
    /// Moved here from another place.
    Moved,
    /// Copied here.
    Copied,
}

/// Notifies a link's class; an unregistered class is an error for new links.
pub fn tell(link: &Link<'_>, event: Event) -> Result<()> {
    let h5 = link.group.file.h5;
    let Some(class) = class_of(h5, link.class) else {
        let is_made = matches!(event, Event::Made(_)) && c_int::from(link.class) != H5L_TYPE_EXTERNAL;
        return if is_made { Err(unknown(link.class, link.name)) } else { Ok(()) };
    };
    let name = text(link.name)?;
    let (value, size) = (link.value.as_ptr().cast::<c_void>(), link.value.len());
    // SAFETY: the program's functions, with the arguments that HDF5 documents; the group's id lives during the call.
    let (status, what) = unsafe {
        match (event, class.create, class.move_, class.copy) {
            (Event::Made(lcpl), Some(create), ..) => {
                (create(name.as_ptr(), group_id(link.group)?.get(), value, size, lcpl), "creation")
            }
            (Event::Moved, _, Some(moved), _) => {
                (moved(name.as_ptr(), group_id(link.group)?.get(), value, size), "move")
            }
            (Event::Copied, .., Some(copied)) => {
                (copied(name.as_ptr(), group_id(link.group)?.get(), value, size), "copy")
            }
            _ => return Ok(()),
        }
    };
    if status < 0 { Err(failed(link, what)) } else { Ok(()) }
}

/// Notifies a link's class of its deletion.
pub fn tell_deleted(link: &Link<'_>) -> Result<()> {
    let h5 = link.group.file.h5;
    if c_int::from(link.class) == H5L_TYPE_EXTERNAL {
        return Ok(());
    }
    let class = class_of(h5, link.class).ok_or_else(|| unknown(link.class, link.name))?;
    let Some(delete) = class.delete else { return Ok(()) };
    let name = text(link.name)?;
    let file = file_id(&link.group.file)?;
    // SAFETY: as above.
    let status = unsafe { delete(name.as_ptr(), file.get(), link.value.as_ptr().cast(), link.value.len()) };
    if status < 0 { Err(failed(link, "deletion")) } else { Ok(()) }
}

fn file_id(file: &Arc<File>) -> Result<Hid> {
    let again = crate::file::opening::reopen(file)?;
    register(file.h5, again.handle())
}

/// Follows a link as its class does.
pub fn follow(link: &Link<'_>, lapl: hid_t) -> Result<Location> {
    let h5 = link.group.file.h5;
    let class = class_of(h5, link.class).ok_or_else(|| unknown(link.class, link.name))?;
    let traverse = class.traverse.ok_or_else(|| failed(link, "traversal"))?;
    let name = text(link.name)?;
    let group = group_id(link.group)?;
    // SAFETY: as above; the returned id belongs to us.
    let id = unsafe {
        let (value, size) = (link.value.as_ptr().cast(), link.value.len());
        traverse(name.as_ptr(), group.get(), value, size, lapl, H5P_DEFAULT)
    };
    let id = Hid::new(h5, id).ok_or_else(|| failed(link, "traversal"))?;
    // SAFETY: a plain query of a valid id.
    Handle::at(unsafe { (h5.H5VLobject)(id.get()) })?.place()
}

/// A link's value as its class shows it; empty if the class shows none.
pub fn value(h5: &'static Api, link: u8, name: &[u8], stored: &[u8], room: usize) -> Result<Vec<u8>> {
    if c_int::from(link) == H5L_TYPE_EXTERNAL {
        return Ok(stored.to_vec());
    }
    let Some(query) = class_of(h5, link).and_then(|class| class.query) else { return Ok(Vec::new()) };
    let name = text(name)?;
    let (from, size) = (stored.as_ptr().cast(), stored.len());
    let mut out = vec![0u8; room];
    let to = if room == 0 { std::ptr::null_mut() } else { out.as_mut_ptr().cast() };
    // SAFETY: the program's function may write `room` bytes.
    let length = unsafe { query(name.as_ptr(), from, size, to, room) };
    let length = usize::try_from(length).map_err(|_| {
        fail(ErrorKind::InvalidInput, "user-defined link", format!("the query function of link class {link} failed"))
    })?;
    out.resize(length, 0);
    Ok(out)
}
