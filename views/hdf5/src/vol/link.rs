//! Links.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::ffi::Api;
use crate::ffi::class::{
    LINK_CREATE_HARD, LINK_CREATE_SOFT, LINK_CREATE_UD, LINK_DELETE, LINK_EXISTS, LINK_GET_INFO, LINK_GET_NAME,
    LINK_GET_VAL, LINK_ITER, LinkClass, LinkCreateArgs, LinkGetArgs, LinkIterate, LinkSpecificArgs,
};
use crate::ffi::types::{H5VL_OBJECT_BY_NAME, LocParams, OptionalArgs, herr_t, hid_t};
use crate::file::File;
use crate::meta::links::{self, Link, Target};
use crate::meta::resolve::{self, Location, ResolvedPath};
use crate::meta::{objects, transact};
use crate::object::Handle;
use crate::team::Call;
use crate::udlink::{self, Event};

use super::group::link_new;
use super::visit::{self, Step};
use super::{args, status, unknown_op};

pub fn class<const N: usize>() -> LinkClass {
    LinkClass {
        create: Some(create::<N>),
        copy: Some(copy::<N>),
        move_: Some(move_link::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
    }
}

/// The place for a new link, and its name.
fn target<'a>(pointer: *mut c_void, loc: &LocParams) -> Result<(Location, &'a [u8])> {
    if loc.kind != H5VL_OBJECT_BY_NAME {
        return Err(Error::new(ErrorKind::InvalidInput, "link").because("a new link needs a name"));
    }
    // SAFETY: `kind` says which member of the union is in use.
    Ok((Handle::at(pointer)?.place()?, args::name(unsafe { loc.data.by_name.name })?))
}

/// The name in location parameters; empty if there is none.
fn name_of<'a>(loc: &LocParams) -> Result<&'a [u8]> {
    // SAFETY: `kind` says which member of the union is in use.
    if loc.kind == H5VL_OBJECT_BY_NAME { args::name(unsafe { loc.data.by_name.name }) } else { Ok(&[]) }
}

/// The file that is changed, given two object pointers of which one may be null.
fn file_of(dst: *mut c_void, src: *mut c_void) -> Result<Arc<File>> {
    Handle::at(if dst.is_null() { src } else { dst })?.file()
}

unsafe extern "C" fn create<const N: usize>(
    what: *mut LinkCreateArgs,
    pointer: *mut c_void,
    loc: *const LocParams,
    lcpl: hid_t,
    lapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("link_create", |h5| {
        args::check_list(h5, lapl)?;
        let what = args::of(what)?;
        let loc = args::of(loc)?;
        let options = args::link_create(h5, lcpl)?;
        let cset = options.1;
        // SAFETY: as below.
        let first = if pointer.is_null() { unsafe { what.args.hard.obj } } else { pointer };
        let call = Call::new("link_create").named(name_of(loc)?);
        // SAFETY: `op` says which member of the union is in use; a value has the size that it says.
        Handle::at(first)?.file()?.once(&call, || unsafe {
            match what.op {
                LINK_CREATE_HARD => {
                    let hard = what.args.hard;
                    let pointer = if pointer.is_null() { hard.obj } else { pointer };
                    let object = if hard.obj.is_null() { pointer } else { hard.obj };
                    let existing = args::at(&Handle::at(object)?.place()?, &hard.loc)?;
                    let (base, name) = target(pointer, loc)?;
                    create_hard(&base, name, &existing, options)
                }
                LINK_CREATE_SOFT => {
                    let (base, name) = target(pointer, loc)?;
                    let value = normal(args::name(what.args.soft)?);
                    create_other(
                        &base,
                        name,
                        options,
                        &Link { target: Target::Soft(value), order: None, cset },
                        Event::Made(lcpl),
                    )
                }
                LINK_CREATE_UD => {
                    let ud = what.args.ud;
                    let (base, name) = target(pointer, loc)?;
                    let value = match ud.size {
                        0 => Vec::new(),
                        size => std::slice::from_raw_parts(ud.buf.cast::<u8>(), size).to_vec(),
                    };
                    let link = Link { target: Target::User(ud.kind as u8, value), order: None, cset };
                    create_other(&base, name, options, &link, Event::Made(lcpl))
                }
                other => Err(unknown_op("link_create", other)),
            }
        })
    })
}

/// A path without repeated and trailing slashes, as HDF5 stores soft links.
fn normal(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    for byte in path {
        if *byte != b'/' || out.last() != Some(&b'/') {
            out.push(*byte);
        }
    }
    if out.len() > 1 && out.last() == Some(&b'/') {
        out.pop();
    }
    out
}

fn create_hard(base: &Location, name: &[u8], existing: &Location, options: (bool, u8)) -> Result<()> {
    base.file.need_writable("creating a link")?;
    link_new(base, name, options, |tx, file, group, last| {
        need_same_file(&Link::hard(existing.oid, options.1), &existing.file, file, name)?;
        objects::link_hard(tx, file, group, last, existing.oid, options.1)?;
        Ok(existing.oid)
    })
    .map(|_| ())
}

fn create_other(base: &Location, name: &[u8], options: (bool, u8), link: &Link, event: Event) -> Result<()> {
    base.file.need_writable("creating a link")?;
    link_new(base, name, options, |tx, file, group, last| {
        links::insert(tx, file, group, last, link.clone())?;
        Ok(0)
    })?;
    tell_or_undo(base, name, link, event)
}

/// Notifies the class of a user-defined link just made; if the class refuses, the link is removed.
fn tell_or_undo(base: &Location, name: &[u8], link: &Link, event: Event) -> Result<()> {
    let Target::User(class, value) = &link.target else { return Ok(()) };
    let found = resolve::resolve(base, name, false)?;
    let group = Location { file: found.file.clone(), oid: found.group, path: Vec::new() };
    let told = udlink::tell(&udlink::Link { group: &group, name: &found.name, class: *class, value }, event);
    // A moved link stays at its new place: the old one is gone.
    if told.is_err() && !matches!(event, Event::Moved) {
        transact(&found.file, |tx| objects::unlink(tx, &found.file, found.group, &found.name))?;
    }
    told
}

/// Notifies the class of a user-defined link that the link is leaving its place.
fn tell_deleted(from: &ResolvedPath, link: &Link) -> Result<()> {
    let Target::User(class, value) = &link.target else { return Ok(()) };
    let group = Location { file: from.file.clone(), oid: from.group, path: Vec::new() };
    udlink::tell_deleted(&udlink::Link { group: &group, name: &from.name, class: *class, value })
}

/// Source link and destination of a copy or move; either object pointer may be null, meaning "the same".
fn ends<'a>(
    src: *mut c_void,
    src_loc: *const LocParams,
    dst: *mut c_void,
    dst_loc: *const LocParams,
) -> Result<(ResolvedPath, Link, Location, &'a [u8])> {
    let (a, b) = (if src.is_null() { dst } else { src }, if dst.is_null() { src } else { dst });
    let from = args::link(a, src_loc)?;
    let Some(link) = from.link.clone() else {
        return Err(Error::new(ErrorKind::NotFound, format!("link `{}`", String::from_utf8_lossy(&from.path)))
            .because("name doesn't exist"));
    };
    let (base, name) = target(b, args::of(dst_loc)?)?;
    base.file.need_writable("changing links")?;
    Ok((from, link, base, name))
}

/// Refuses a hard link in a file other than its object's, to which an external link in the path may
/// lead.
fn need_same_file(link: &Link, from: &File, to: &File, name: &[u8]) -> Result<()> {
    if matches!(link.target, Target::Hard(_)) && !from.is_same(to) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("link `{}`", String::from_utf8_lossy(name)))
            .because("source and destination should be in the same file")
            .try_next("copy the object with H5Ocopy"));
    }
    Ok(())
}

unsafe extern "C" fn copy<const N: usize>(
    src: *mut c_void,
    src_loc: *const LocParams,
    dst: *mut c_void,
    dst_loc: *const LocParams,
    lcpl: hid_t,
    lapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("link_copy", |h5| {
        args::check_list(h5, lapl)?;
        let call = Call::new("link_copy").named(name_of(args::of(dst_loc)?)?);
        file_of(dst, src)?.once(&call, || copy_now(h5, (src, src_loc), (dst, dst_loc), lcpl))
    })
}

/// An object pointer and location parameters.
type At = (*mut c_void, *const LocParams);

fn copy_now(h5: &'static Api, src: At, dst: At, lcpl: hid_t) -> Result<()> {
    let (from, link, base, name) = ends(src.0, src.1, dst.0, dst.1)?;
    let options = args::link_create(h5, lcpl)?;
    link_new(&base, name, options, |tx, file, group, last| {
        need_same_file(&link, &from.file, file, name)?;
        match &link.target {
            Target::Hard(oid) => objects::link_hard(tx, file, group, last, *oid, options.1).map(|()| *oid),
            _ => links::insert(tx, file, group, last, Link { cset: options.1, ..link.clone() }).map(|()| 0),
        }
    })?;
    tell_or_undo(&base, name, &link, Event::Copied)
}

unsafe extern "C" fn move_link<const N: usize>(
    src: *mut c_void,
    src_loc: *const LocParams,
    dst: *mut c_void,
    dst_loc: *const LocParams,
    lcpl: hid_t,
    lapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("link_move", |h5| {
        args::check_list(h5, lapl)?;
        let call = Call::new("link_move").named(name_of(args::of(dst_loc)?)?);
        file_of(dst, src)?.once_unlinking(call, || move_now(h5, (src, src_loc), (dst, dst_loc), lcpl))
    })
}

fn move_now(h5: &'static Api, src: At, dst: At, lcpl: hid_t) -> Result<()> {
    let (from, link, base, name) = ends(src.0, src.1, dst.0, dst.1)?;
    let options = args::link_create(h5, lcpl)?;
    let is_within = std::cell::Cell::new(true);
    link_new(&base, name, options, |tx, file, group, last| {
        need_same_file(&link, &from.file, file, name)?;
        links::insert(tx, file, group, last, Link { cset: options.1, ..link.clone() })?;
        is_within.set(from.file.is_same(file));
        if is_within.get() {
            // Read again in the transaction: another process may have been faster.
            let now = links::get_in(tx, file, from.group, &from.name)?;
            if now.as_ref() != Some(&link) {
                return Err(resolve::not_found(file, &from.path, &from.name));
            }
            links::remove(tx, file, from.group, &from.name, &link)?;
            if group != from.group {
                links::restart_order_if_last(tx, file, from.group, &from.name)?;
            }
        }
        Ok(0)
    })?;
    tell_or_undo(&base, name, &link, Event::Moved)?;
    tell_deleted(&from, &link)?;
    if !is_within.get() {
        transact(&from.file, |tx| objects::unlink(tx, &from.file, from.group, &from.name))?;
    }
    Ok(())
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    what: *mut LinkGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("link_get", |_| {
        let what = args::of(what)?;
        let found = args::link(pointer, loc)?;
        let Some(link) = &found.link else {
            return Err(resolve::not_found(&found.file, &found.path, &found.name));
        };
        // SAFETY: `op` says which member of the union is in use.
        unsafe {
            match what.op {
                LINK_GET_INFO => args::put(what.args.info, visit::link_info(found.file.h5, &found.name, link)?),
                LINK_GET_NAME => {
                    let g = what.args.name;
                    args::give_name(&found.name, g.name, g.size, g.len)
                }
                LINK_GET_VAL => {
                    let g = what.args.val;
                    let value = match &link.target {
                        Target::Hard(_) => {
                            return Err(
                                Error::new(ErrorKind::InvalidInput, "link value").because("a hard link has no value")
                            );
                        }
                        // A truncated value ends in NUL too.
                        Target::Soft(value) => [&value[..value.len().min(g.size.saturating_sub(1))], &[0]].concat(),
                        Target::User(class, value) => udlink::value(found.file.h5, *class, &found.name, value, g.size)?,
                    };
                    let n = value.len().min(g.size);
                    if !g.buf.is_null() {
                        std::ptr::copy_nonoverlapping(value.as_ptr(), g.buf.cast::<u8>(), n);
                    }
                    Ok(())
                }
                other => Err(unknown_op("link_get", other)),
            }
        }
    })
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    what: *mut LinkSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    super::run::<N, herr_t>("link_specific", -1, |h5| {
        let what = args::of(what)?;
        match what.op {
            LINK_DELETE => {
                let call = Call::new("link_delete").named(name_of(args::of(loc)?)?);
                Handle::at(pointer)?.file()?.once_unlinking(call, || {
                    let found = args::link(pointer, loc)?;
                    found.file.need_writable("deleting a link")?;
                    if found.name.is_empty() {
                        return Err(Error::new(ErrorKind::InvalidInput, "link").because("can't delete self"));
                    }
                    if let Some(link) = &found.link {
                        tell_deleted(&found, link)?;
                    }
                    transact(&found.file, |tx| objects::unlink(tx, &found.file, found.group, &found.name))
                })?;
                Ok(0)
            }
            LINK_EXISTS => {
                let found = args::link(pointer, loc)?;
                // Only `/` itself exists without a link; for `.` and the like HDF5 says no.
                let exists = found.link.is_some() || args::link_name(loc)? == b"/";
                // SAFETY: `op` says which member of the union is in use.
                args::put(unsafe { what.args.exists }, exists)?;
                Ok(0)
            }
            LINK_ITER => {
                let group = args::place(pointer, loc)?;
                // SAFETY: as above.
                iterate(h5, &group, unsafe { &what.args.iterate })
            }
            other => Err(unknown_op("link_specific", other)),
        }
    })
}

fn iterate(h5: &'static Api, group: &Location, it: &LinkIterate) -> Result<herr_t> {
    let op = it.op.ok_or_else(|| unknown_op("link_specific", LINK_ITER))?;
    let id = visit::GroupId::new(h5, group)?;
    let file = &group.file;
    let call = |name: &[u8], link: &Link| -> Result<herr_t> {
        let info = visit::link_info(h5, name.rsplit(|b| *b == b'/').next().unwrap_or(name), link)?;
        let name = visit::c_name(name)?;
        // SAFETY: the program's function gets a valid id, name and description.
        Ok(unsafe { op(id.get(), name.as_ptr(), &raw const info, it.op_data) })
    };
    if it.recursive {
        let step = visit::links_below(file, group.oid, it.idx_type, it.order, &mut |met| {
            Ok(Step::of(call(met.path, met.link)?))
        })?;
        return Ok(step.status());
    }
    let all = links::list_in(file, group.oid, it.idx_type, it.order)?;
    // SAFETY: the index is a valid place or null.
    let start = unsafe { it.idx.as_ref() }.copied().unwrap_or(0);
    if start > 0 && start >= all.len() as u64 {
        return Err(Error::new(ErrorKind::InvalidInput, "iteration over links").because("index out of bound"));
    }
    let (mut done, mut result) = (start, 0);
    for (name, link) in all.into_iter().skip(start as usize) {
        result = call(&name, &link)?;
        done += 1;
        if Step::of(result) != Step::Go {
            break;
        }
    }
    // After a failure HDF5 leaves the index unchanged.
    if !it.idx.is_null() && result >= 0 {
        args::put(it.idx, done)?;
    }
    Ok(result)
}

unsafe extern "C" fn optional<const N: usize>(
    _: *mut c_void,
    _: *const LocParams,
    what: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("link_optional", |_| Err(unknown_op("link_optional", args::of(what)?.op_type as c_int)))
}
