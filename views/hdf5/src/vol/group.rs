//! Groups.

use std::ffi::{c_char, c_void};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::ffi::class::{
    GROUP_FLUSH, GROUP_GET_GCPL, GROUP_GET_INFO, GROUP_MOUNT, GROUP_REFRESH, GROUP_UNMOUNT, GroupClass, GroupGetArgs,
    GroupGetObjinfo, GroupIterateOld, GroupMount, GroupSpecificArgs, NATIVE_GROUP_GET_OBJINFO,
    NATIVE_GROUP_ITERATE_OLD,
};
use crate::ffi::types::{
    H5_INDEX_NAME, H5_ITER_INC, H5G_info_t, H5G_stat_t, H5O_TYPE_DATASET, H5O_TYPE_GROUP, LocParams, OptionalArgs,
    herr_t, hid_t,
};
use crate::file::mounts;
use crate::meta::header::{self, Body as HeaderBody, Header};
use crate::meta::links::{self, Link, Target};
use crate::meta::resolve::{self, Location};
use crate::meta::{self, keys, objects};
use crate::object::{Body, Group, Handle};
use crate::props::{GroupProps, ObjectProps};
use crate::team::Call;
use crate::team::wire::Spot;

use super::visit::{self, Step};
use super::{args, close, object, status, unknown_op};

pub fn class<const N: usize>() -> GroupClass {
    GroupClass {
        create: Some(create::<N>),
        open: Some(open::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
        close: Some(close_group::<N>),
    }
}

unsafe extern "C" fn create<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    lcpl: hid_t,
    gcpl: hid_t,
    gapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("group_create", |h5| {
        args::check_list(h5, gapl)?;
        let base = args::place(pointer, loc)?;
        let props = GroupProps::of(h5, gcpl)?;
        let header =
            Header { born_unix_s: objects::born(props.object.track_times), body: HeaderBody::Group(props.clone()) };
        let place =
            create_object(&base, args::name_or_none(name)?, args::link_create(h5, lcpl)?, &header, |_, _, _| Ok(()))?;
        Ok(Handle::new(h5, Body::Group(Group { place, props })))
    })
}

/// Creates an object and its link (none if `name` is `None`), with intermediate groups if asked for, in one
/// transaction to which `more` may add. The new object counts as open.
pub fn create_object(
    base: &Location,
    name: Option<&[u8]>,
    (intermediate, cset): (bool, u8),
    header: &Header,
    more: impl Fn(&mut cenote::Transaction, &std::sync::Arc<crate::file::File>, u64) -> Result<()>,
) -> Result<Location> {
    base.file.need_writable("creating an object")?;
    let call = Call::new("create_object").named(name.unwrap_or_default());
    let spot = base.file.once(&call, || Ok(Spot::of(&make_object(base, name, (intermediate, cset), header, more)?)))?;
    let place = spot.place(&base.file)?;
    place.file.shared.opened(place.oid, name.is_none());
    Ok(place)
}

fn make_object(
    base: &Location,
    name: Option<&[u8]>,
    (intermediate, cset): (bool, u8),
    header: &Header,
    more: impl Fn(&mut cenote::Transaction, &std::sync::Arc<crate::file::File>, u64) -> Result<()>,
) -> Result<Location> {
    let Some(name) = name else {
        let file = base.file.clone();
        let oid = file.new_id()?;
        meta::transact(&file, |tx| {
            objects::create(tx, &file, oid, header)?;
            more(tx, &file, oid)
        })?;
        return Ok(Location { file, oid, path: Vec::new() });
    };
    // As in HDF5, intermediate groups of a new group or dataset get its general object properties.
    let on_the_way = match &header.body {
        HeaderBody::Datatype { .. } => None,
        _ => Some(header.object_props()),
    };
    let (place, _) = link_new_as(base, name, (intermediate, cset), on_the_way, |tx, file, group, last| {
        let oid = file.new_id()?;
        objects::create_linked(tx, file, oid, header)?;
        more(tx, file, oid)?;
        links::insert(tx, file, group, last, Link::hard(oid, cset))?;
        Ok(oid)
    })?;
    Ok(place)
}

/// [`link_new_as`] with default properties for intermediate groups.
pub fn link_new(
    base: &Location,
    name: &[u8],
    options: (bool, u8),
    make: impl Fn(&mut cenote::Transaction, &std::sync::Arc<crate::file::File>, u64, &[u8]) -> Result<u64>,
) -> Result<(Location, Vec<u8>)> {
    link_new_as(base, name, options, None, make)
}

/// Finds the group for a new link, creating intermediate ones if asked for, and calls `make` with it and the last
/// component of the path, all in one transaction.
fn link_new_as(
    base: &Location,
    name: &[u8],
    (intermediate, _): (bool, u8),
    on_the_way: Option<&ObjectProps>,
    make: impl Fn(&mut cenote::Transaction, &std::sync::Arc<crate::file::File>, u64, &[u8]) -> Result<u64>,
) -> Result<(Location, Vec<u8>)> {
    let parts = resolve::components(name);
    let Some((last, before)) = parts.split_last().filter(|_| !resolve::names_no_link(name)) else {
        // The path is `/`, `.` or `a/.`, which exists.
        return Err(links::exists(name));
    };
    let mut at = if name.first() == Some(&b'/') { resolve::root_of(&base.file) } else { base.clone() };
    let mut missing: &[&[u8]] = &[];
    for (i, part) in before.iter().enumerate() {
        let found = resolve::resolve(&at, part, true)?;
        match found.oid {
            Some(_) => at = found.place()?,
            None if intermediate && found.link.is_none() => {
                missing = &before[i..];
                break;
            }
            None => return Err(resolve::not_found(&found.file, &found.path, part)),
        }
    }
    let file = at.file.clone();
    file.need_writable("making a link")?;
    let oid = meta::transact(&file, |tx| {
        let mut group = at.oid;
        for part in missing {
            let props = intermediate_props(&file, group, on_the_way, tx)?;
            let header =
                Header { born_unix_s: objects::born(props.object.track_times), body: HeaderBody::Group(props) };
            let new = file.new_id()?;
            objects::create_linked(tx, &file, new, &header)?;
            // As in HDF5, the requested character set is that of the last name only.
            links::insert(tx, &file, group, part, Link::hard(new, 0))?;
            group = new;
        }
        make(tx, &file, group, last)
    })
    .map_err(|error| if error.kind() == ErrorKind::Exists { links::exists(last) } else { error })?;
    let mut path = at.path.clone();
    for part in missing.iter().chain(std::iter::once(last)) {
        path = resolve::join(&path, part);
    }
    Ok((Location { file, oid, path }, last.to_vec()))
}

/// Properties of an intermediate group: those about links are the parent's, as in HDF5.
fn intermediate_props(
    file: &std::sync::Arc<crate::file::File>,
    parent: u64,
    object: Option<&ObjectProps>,
    tx: &mut cenote::Transaction,
) -> Result<GroupProps> {
    let h5 = file.h5;
    // SAFETY: a plain call.
    let plist = crate::error::h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_GROUP_CREATE_ID_g()) })?;
    let defaults = GroupProps::of(h5, plist.get())?;
    let record = tx.get(&file.meta, &keys::of(keys::TAG_HEADER, parent))?;
    let header = Header::decode(&record.ok_or_else(|| meta::gone(file, parent))?)?;
    let HeaderBody::Group(above) = header.body else { return Err(links::not_a_group(file, parent)) };
    Ok(GroupProps {
        object: object.unwrap_or(&defaults.object).clone(),
        link_order: above.link_order,
        link_phase: above.link_phase,
        est_link_info: above.est_link_info,
        heap_size_hint: defaults.heap_size_hint,
    })
}

unsafe extern "C" fn open<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    gapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("group_open", |h5| {
        args::check_list(h5, gapl)?;
        let base = args::place(pointer, loc)?;
        let place = resolve::resolve_as(&base, args::name(name)?, true, gapl)?.place()?;
        let body = crate::object::open(&place)?;
        if !matches!(body, Body::Group(_)) {
            place.file.shared.closed(place.oid);
            return Err(links::not_a_group(&place.file, place.oid));
        }
        Ok(Handle::new(h5, body))
    })
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    what: *mut GroupGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("group_get", |h5| {
        // SAFETY: HDF5 passes valid arguments; `op` says which member of the union is in use.
        let what = unsafe { what.as_mut() }.ok_or_else(|| unknown_op("group_get", -1))?;
        match what.op {
            GROUP_GET_GCPL => {
                let place = Handle::at(pointer)?.place()?;
                let HeaderBody::Group(props) = header::get(&place.file, place.oid)?.body else {
                    return Err(links::not_a_group(&place.file, place.oid));
                };
                what.args.id = props.plist(h5, h5.H5P_CLS_GROUP_CREATE_ID_g())?.release();
                Ok(())
            }
            GROUP_GET_INFO => {
                // SAFETY: as above.
                let g = unsafe { what.args.info };
                let place = args::at(&Handle::at(pointer)?.place()?, &g.loc)?;
                args::put(g.info, info(&place)?)
            }
            other => Err(unknown_op("group_get", other)),
        }
    })
}

fn info(place: &Location) -> Result<H5G_info_t> {
    /// `H5G_STORAGE_TYPE_COMPACT` and `_DENSE`, `_SYMBOL_TABLE`: what a native group of this size would have.
    const COMPACT: i32 = 1;
    const DENSE: i32 = 2;
    let HeaderBody::Group(props) = header::get(&place.file, place.oid)?.body else {
        return Err(links::not_a_group(&place.file, place.oid));
    };
    let nlinks = meta::count(&place.file, &keys::of(keys::TAG_LINK, place.oid))?;
    let max_corder = meta::counter(&place.file, &keys::of(keys::TAG_LINK_NEXT, place.oid))? as i64;
    let storage_type = match props.link_order {
        0 => 0,
        _ if nlinks <= u64::from(props.link_phase.0) => COMPACT,
        _ => DENSE,
    };
    Ok(H5G_info_t { storage_type, nlinks, max_corder, mounted: mounts::is_mount_point(&place.file, place.oid) })
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    what: *mut GroupSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    // SAFETY: `op` says which member of the union is in use.
    status::<N>("group_specific", |_| match args::of(what)?.op {
        GROUP_MOUNT => mount(&Handle::at(pointer)?.place()?, unsafe { &args::of(what)?.args.mount }),
        GROUP_UNMOUNT => {
            // SAFETY: as above.
            let name = args::name(unsafe { args::of(what)?.args.unmount })?;
            let found = resolve::resolve(&Handle::at(pointer)?.place()?, name, true)?.place()?;
            mounts::unmount(&found.file, found.oid)
        }
        GROUP_FLUSH => super::file::flush(&Handle::at(pointer)?.file()?),
        // Nothing to do: metadata are read from the store each time.
        GROUP_REFRESH => Ok(()),
        other => Err(unknown_op("group_specific", other)),
    })
}

/// Does `H5Fmount`: first HDF5's checks, then those of mounts.
fn mount(base: &Location, what: &GroupMount) -> Result<()> {
    let child = Handle::at(what.child)?.file()?;
    let point = resolve::resolve(base, args::name(what.name)?, true)?.place()?;
    let refuse =
        |why: &str| Err(Error::new(ErrorKind::InvalidInput, format!("mounting file {}", child.path)).because(why));
    if !matches!(header::get(&point.file, point.oid)?.body, HeaderBody::Group(_)) {
        return refuse("mount point is not a group");
    }
    if !mounts::is_inside(&base.file, &point.file) {
        return refuse("mount path cannot contain links to external files");
    }
    if point.file.close_degree() != child.close_degree() {
        return refuse("mounted file has different file close degree than parent");
    }
    mounts::mount(&point.file, point.oid, &point.path, &child)
}

unsafe extern "C" fn optional<const N: usize>(
    pointer: *mut c_void,
    what: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    super::run::<N, herr_t>("group_optional", -1, |h5| {
        let what = args::of(what)?;
        match what.op_type {
            NATIVE_GROUP_GET_OBJINFO => {
                let a = args::of(what.args.cast::<GroupGetObjinfo>())?;
                let stat = objinfo(pointer, &a.loc, a.follow_link)?;
                if a.stat.is_null() { Ok(0) } else { args::put(a.stat, stat).map(|()| 0) }
            }
            NATIVE_GROUP_ITERATE_OLD => {
                let a = args::of(what.args.cast::<GroupIterateOld>())?;
                let base = Handle::at(pointer)?.place()?;
                let group = args::at(&base, &a.loc)?;
                let op = a.op.ok_or_else(|| unknown_op("group_optional", what.op_type))?;
                let id = visit::GroupId::new(h5, &group)?;
                let names = links::list_in(&group.file, group.oid, H5_INDEX_NAME, H5_ITER_INC)?;
                if a.idx > 0 && a.idx >= names.len() as u64 {
                    return Err(Error::new(ErrorKind::InvalidInput, "iteration").because("index out of bound"));
                }
                let mut done = a.idx;
                let mut result = 0;
                for (name, _) in names.into_iter().skip(a.idx as usize) {
                    let name = visit::c_name(&name)?;
                    done += 1;
                    // SAFETY: the program's callback gets a valid group id and name.
                    result = unsafe { op(id.get(), name.as_ptr(), a.op_data) };
                    if result != 0 {
                        break;
                    }
                }
                if !a.last.is_null() {
                    args::put(a.last, done)?;
                }
                Ok(Step::of(result).status())
            }
            other => Err(unknown_op("group_optional", other)),
        }
    })
}

/// Answers `H5Gget_objinfo`, by which netCDF tells groups from datasets and recognises an object.
fn objinfo(pointer: *mut c_void, loc: &LocParams, follow: bool) -> Result<H5G_stat_t> {
    const LINK: i32 = 3;
    const USER_LINK: i32 = 4;
    let mut stat = H5G_stat_t::default();
    if !follow && loc.kind == crate::ffi::types::H5VL_OBJECT_BY_NAME {
        let found = args::link(pointer, loc)?;
        match found.link.as_ref().map(|l| &l.target) {
            Some(Target::Soft(value)) => {
                stat.kind = LINK;
                stat.linklen = value.len() + 1;
                return Ok(stat);
            }
            Some(Target::User(_, value)) => {
                stat.kind = USER_LINK;
                stat.linklen = value.len();
                return Ok(stat);
            }
            _ => {}
        }
    }
    let place = args::at(&Handle::at(pointer)?.place()?, loc)?;
    let header = header::get(&place.file, place.oid)?;
    let kind = super::object::kind_of(&header);
    stat.fileno = [place.file.fileno(), 0];
    stat.objno = [place.oid, 0];
    stat.nlink = objects::link_count(&place.file, place.oid)?;
    stat.mtime = header.born_unix_s;
    // H5G_GROUP 0, H5G_DATASET 1, H5G_TYPE 2: the same numbers as H5O_TYPE_*.
    stat.kind = match kind {
        H5O_TYPE_GROUP => 0,
        H5O_TYPE_DATASET => 1,
        _ => 2,
    };
    Ok(stat)
}

unsafe extern "C" fn close_group<const N: usize>(pointer: *mut c_void, _: hid_t, _: *mut *mut c_void) -> herr_t {
    close::<N>("group_close", pointer)
}
