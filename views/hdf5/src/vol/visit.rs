//! Iteration: calling a program's function for links, objects and attributes.

use std::collections::HashSet;
use std::ffi::{CString, c_int};
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::ffi::types::{H5L_info2_t, LinkInfoU, herr_t, hid_t};
use crate::ffi::{Api, Hid};
use crate::file::{File, mounts};
use crate::meta::header::{self, Body, Header};
use crate::meta::links::{self, Link, Target};
use crate::meta::resolve::Location;
use crate::object::{self, Handle};

use super::args;

/// The next step that a program's function asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Continue.
    Go,
    /// Stop, with this value as the result of the call.
    Stop(herr_t),
    /// Stop with an error that is already on the stack.
    Fail(herr_t),
}

impl Step {
    /// From the function's result.
    pub fn of(result: herr_t) -> Self {
        match result {
            0 => Self::Go,
            n if n > 0 => Self::Stop(n),
            n => Self::Fail(n),
        }
    }
    /// The callback's result.
    pub fn status(self) -> herr_t {
        match self {
            Self::Go => 0,
            Self::Stop(n) | Self::Fail(n) => n,
        }
    }
}

/// An id for a program's function, closed afterwards.
pub struct GroupId(Hid);

impl GroupId {
    /// An id of the object at `place`.
    pub fn new(h5: &'static Api, place: &Location) -> Result<Self> {
        register(h5, Handle::new(h5, object::open(place)?)).map(Self)
    }
    /// The id.
    pub fn get(&self) -> hid_t {
        self.0.get()
    }
}

/// Registers a handle with HDF5. Returns an id that belongs to the caller.
pub fn register(h5: &'static Api, handle: *mut Handle) -> Result<Hid> {
    let id_type = Handle::at(handle.cast())?.id_type();
    // SAFETY: the handle is live; HDF5 closes it when the id is closed.
    let id = unsafe { (h5.H5VLwrap_register)(handle.cast(), id_type) };
    if id > 0
        && let Some(hid) = Hid::new(h5, id)
    {
        return Ok(hid);
    }
    Handle::close(handle.cast())?;
    Err(crate::error::h5_failed("H5VLwrap_register"))
}

/// A name as a C string.
pub fn c_name(name: &[u8]) -> Result<CString> {
    CString::new(name).map_err(|_| Error::new(ErrorKind::Corrupt, "name").because("it contains a NUL"))
}

/// HDF5's description of a link.
pub fn link_info(h5: &'static Api, name: &[u8], link: &Link) -> Result<H5L_info2_t> {
    let u = match &link.target {
        Target::Hard(oid) => LinkInfoU { token: args::token_of(*oid) },
        Target::Soft(value) => LinkInfoU { val_size: value.len() + 1 },
        Target::User(class, value) => LinkInfoU { val_size: crate::udlink::value(h5, *class, name, value, 0)?.len() },
    };
    Ok(H5L_info2_t {
        kind: link.kind() as c_int,
        corder_valid: link.order.is_some(),
        corder: link.order.unwrap_or(0) as i64,
        cset: c_int::from(link.cset),
        u,
    })
}

/// One link met on a recursive visit.
pub struct Met<'a> {
    /// Path relative to the group where the visit began.
    pub path: &'a [u8],
    /// The link.
    pub link: &'a Link,
    /// The object's file: the one where the visit began, or one mounted below.
    pub file: &'a Arc<File>,
    /// The object that the link leads to, if this is the first hard link met that leads there.
    pub object: Option<(u64, &'a Header)>,
}

/// Visits all links below a group and in files mounted there, each group once, and calls `f`. As in HDF5, a group's links
/// follow the group's own link.
pub fn links_below(
    file: &Arc<File>,
    top: u64,
    index: c_int,
    order: c_int,
    f: &mut dyn FnMut(&Met<'_>) -> Result<Step>,
) -> Result<Step> {
    // Opens of the same file share one address.
    let key = |file: &Arc<File>, oid: u64| (Arc::as_ptr(&file.shared) as usize, oid);
    let mut seen = HashSet::with_hasher(foldhash::fast::RandomState::default());
    seen.insert(key(file, top));
    // A stack of the remaining links of each group on the way down: no recursion, so that depth has no limit.
    // Groups that do not track creation order are visited by name, as in HDF5.
    let listed = |file: &Arc<File>, group: u64| {
        let by = if links::is_ordered(file, group)? { index } else { crate::ffi::types::H5_INDEX_NAME };
        links::list_in(file, group, by, order)
    };
    let mut stack = vec![(file.clone(), Vec::new(), listed(file, top)?.into_iter())];
    while let Some((file, prefix, rest)) = stack.last_mut() {
        let Some((name, link)) = rest.next() else {
            stack.pop();
            continue;
        };
        let mut path = prefix.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(&name);
        let mut file = file.clone();
        let header = match link.target {
            Target::Hard(mut child) => {
                mounts::traverse(&mut file, &mut child);
                let is_new = seen.insert(key(&file, child));
                if is_new { header::find(&file, child)?.map(|header| (child, header)) } else { None }
            }
            _ => None,
        };
        let object = header.as_ref().map(|(child, header)| (*child, header));
        let step = f(&Met { path: &path, link: &link, file: &file, object })?;
        if step != Step::Go {
            return Ok(step);
        }
        // Looked up again: the program's function may have deleted it.
        if let Some((child, Header { body: Body::Group(_), .. })) = header
            && header::find(&file, child)?.is_some()
        {
            let links = listed(&file, child)?.into_iter();
            stack.push((file, path, links));
        }
    }
    Ok(Step::Go)
}
