//! Maps (`H5M`), for a libhdf5 built with them: they arrive as optional operations of the whole connector.

use std::ffi::c_void;

use cenote::{Error, ErrorKind};

use crate::ffi::maps::{
    MAP_CLOSE, MAP_CREATE, MAP_DELETE, MAP_EXISTS, MAP_GET, MAP_GET_COUNT, MAP_GET_KEY_TYPE, MAP_GET_MAPL,
    MAP_GET_MCPL, MAP_GET_VAL, MAP_GET_VAL_TYPE, MAP_ITER, MAP_OPEN, MAP_PUT, MAP_SPECIFIC, MapArgs, MapGet,
    MapIterate, MapSpecific,
};
use crate::ffi::types::{OptionalArgs, herr_t, hid_t};
use crate::ffi::{Api, Hid};
use crate::meta::header::{Body as HeaderBody, Header};
use crate::meta::maps::{self, Pair};
use crate::meta::{objects, resolve, transact};
use crate::object::{self as objects_open, Body, Handle, Map};
use crate::props::ObjectProps;
use crate::value::{self, Stored};
use crate::{Result, dtype};

use super::visit::{self, Step};
use super::{args, group, unknown_op};

/// Carries out an operation on maps.
pub fn optional(h5: &'static Api, pointer: *mut c_void, what: &OptionalArgs) -> Result<herr_t> {
    if what.op_type == MAP_CLOSE {
        return Handle::close(pointer).map(|()| 0);
    }
    // SAFETY: HDF5 passes valid arguments of the operation that it names, which says which member of the union is in use.
    let arguments = unsafe { what.args.cast::<MapArgs>().as_mut() }.ok_or_else(|| unknown_op("map", what.op_type))?;
    // SAFETY: as above.
    unsafe {
        match what.op_type {
            MAP_CREATE => create(h5, pointer, arguments)?,
            MAP_OPEN => {
                let it = &mut arguments.open;
                args::check_list(h5, it.mapl_id)?;
                let base = args::place(pointer, &raw const it.loc)?;
                let place = resolve::resolve_as(&base, args::name(it.name)?, true, it.mapl_id)?.place()?;
                let body = objects_open::open(&place)?;
                if !matches!(body, Body::Map(_)) {
                    place.file.shared.closed(place.oid);
                    return Err(not_a_map());
                }
                it.map = Handle::new(h5, body).cast();
            }
            MAP_PUT => {
                let (map, it) = (map(pointer)?, &arguments.put);
                let file = &map.place.file;
                file.need_writable("putting into a map")?;
                let value = value::store(file, map.value_type.get(), 1, it.value_type, it.value, None)?;
                let pair = Pair { key: key(map, it.key_type, it.key)?, value };
                transact(file, |tx| maps::put(tx, file, map.place.oid, &pair))?;
            }
            MAP_GET_VAL => {
                let (map, it) = (map(pointer)?, &arguments.get_val);
                let (file, oid) = (&map.place.file, map.place.oid);
                let found = maps::get(file, oid, &key(map, it.key_type, it.key)?)?;
                let pair = found.ok_or_else(|| maps::missing(file, oid))?;
                value::load(file, map.value_type.get(), &pair.value, 1, it.value_type, it.value)?;
            }
            MAP_EXISTS => {
                let (map, it) = (map(pointer)?, &mut arguments.exists);
                let found = maps::get(&map.place.file, map.place.oid, &key(map, it.key_type, it.key)?)?;
                it.exists = found.is_some();
            }
            MAP_GET => get(h5, map(pointer)?, &mut arguments.get)?,
            MAP_SPECIFIC => return specific(h5, map(pointer)?, &mut arguments.specific),
            other => return Err(unknown_op("map", other)),
        }
    }
    Ok(0)
}

fn map<'a>(pointer: *mut c_void) -> Result<&'a Map> {
    match &Handle::at(pointer)?.body {
        Body::Map(map) => Ok(map),
        _ => Err(not_a_map()),
    }
}

fn not_a_map() -> Error {
    Error::new(ErrorKind::InvalidInput, "object").because("it is not a map")
}

/// A program's key in stored form.
fn key(map: &Map, mem_type: hid_t, at: *const c_void) -> Result<Stored> {
    value::store(&map.place.file, map.key_packed.get(), 1, mem_type, at, None)
}

unsafe fn create(h5: &'static Api, pointer: *mut c_void, arguments: &mut MapArgs) -> Result<()> {
    // SAFETY: the caller has checked that this member is in use.
    let it = unsafe { &mut arguments.create };
    args::check_list(h5, it.mapl_id)?;
    let base = args::place(pointer, &raw const it.loc)?;
    base.file.need_writable("creating a map")?;
    for one in [it.key_type, it.value_type] {
        dtype::look(h5, one)?;
    }
    let props = ObjectProps::of(h5, it.mcpl_id)?;
    let (key, value) = (dtype::encode(h5, it.key_type)?, dtype::encode(h5, it.value_type)?);
    let header = Header {
        born_unix_s: objects::born(props.track_times),
        body: HeaderBody::Map { key: key.clone(), value: value.clone(), props: props.clone() },
    };
    let name = args::name_or_none(it.name)?;
    let place = group::create_object(&base, name, args::link_create(h5, it.lcpl_id)?, &header, |_, _, _| Ok(()))?;
    it.map = Handle::new(h5, Body::Map(Box::new(Map::new(place, &key, &value, props)?))).cast();
    Ok(())
}

fn get(h5: &'static Api, map: &Map, it: &mut MapGet) -> Result<()> {
    let list = |class: hid_t| {
        // SAFETY: a plain call.
        crate::error::h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(class) }).map(Hid::release)
    };
    match it.op {
        MAP_GET_MAPL => it.args.id = list(h5.H5P_CLS_MAP_ACCESS_ID_g())?,
        MAP_GET_MCPL => it.args.id = map.props.plist(h5, h5.H5P_CLS_MAP_CREATE_ID_g())?.release(),
        MAP_GET_KEY_TYPE => it.args.id = dtype::copy(h5, map.key_type.get())?.release(),
        MAP_GET_VAL_TYPE => it.args.id = dtype::copy(h5, map.value_type.get())?.release(),
        MAP_GET_COUNT => it.args.count = maps::count(&map.place.file, map.place.oid)?,
        other => return Err(unknown_op("map_get", other)),
    }
    Ok(())
}

unsafe fn specific(h5: &'static Api, map: &Map, it: &mut MapSpecific) -> Result<herr_t> {
    // SAFETY: `op` says which member of the union is in use.
    unsafe {
        match it.op {
            MAP_ITER => iterate(h5, map, &mut it.args.iterate),
            MAP_DELETE => {
                let file = &map.place.file;
                file.need_writable("deleting from a map")?;
                let key = key(map, it.args.delete.key_type, it.args.delete.key)?;
                transact(file, |tx| maps::remove(tx, file, map.place.oid, &key)).map(|()| 0)
            }
            other => Err(unknown_op("map_specific", other)),
        }
    }
}

fn iterate(h5: &'static Api, map: &Map, it: &mut MapIterate) -> Result<herr_t> {
    let op = it.op.ok_or_else(|| unknown_op("map_specific", MAP_ITER))?;
    let file = &map.place.file;
    let id = visit::register(h5, Handle::new(h5, objects_open::open(&map.place)?))?;
    let all = maps::list(file, map.place.oid)?;
    let start = it.idx;
    if start > 0 && start >= all.len() as u64 {
        return Err(Error::new(ErrorKind::InvalidInput, "iteration over a map").because("index out of bound"));
    }
    let mut element = vec![0u8; dtype::size(h5, it.key_type)?];
    for pair in all.into_iter().skip(start as usize) {
        let at = element.as_mut_ptr().cast::<c_void>();
        value::load(file, map.key_packed.get(), &pair.key, 1, it.key_type, at)?;
        it.idx += 1;
        // SAFETY: the program's function gets a valid id and a key of the type that it asked for.
        let result = unsafe { op(id.get(), at, it.op_data) };
        value::reclaim(h5, it.key_type, at);
        if Step::of(result) != Step::Go {
            return Ok(result);
        }
    }
    Ok(0)
}
