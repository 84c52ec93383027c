//! Datasets: creating, opening and describing them. Their raw data are [`crate::data`]'s.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::data::filter::FLAG_OPTIONAL;
use crate::data::{self, Direction, Io};
use crate::error::{h5_id, unsupported};
use crate::ffi::class::{
    DATASET_FLUSH, DATASET_GET_DAPL, DATASET_GET_DCPL, DATASET_GET_SPACE, DATASET_GET_SPACE_STATUS,
    DATASET_GET_STORAGE_SIZE, DATASET_GET_TYPE, DATASET_REFRESH, DATASET_SET_EXTENT, DatasetClass, DatasetGetArgs,
    DatasetSpecificArgs,
};
use crate::ffi::types::{
    H5D_ALLOC_TIME_EARLY, H5D_FILL_TIME_ALLOC, H5D_FILL_TIME_IFSET, H5D_FILL_TIME_NEVER, H5D_FILL_VALUE_DEFAULT,
    H5D_FILL_VALUE_UNDEFINED, LocParams, OptionalArgs, herr_t, hid_t,
};
use crate::ffi::{Api, Hid};
use crate::meta::header::{self, Body as HeaderBody, Header};
use crate::meta::objects;
use crate::meta::resolve::{self, Location};
use crate::object::{self as objects_open, Body, Dataset, DatasetHeader, Handle};
use crate::props::{DatasetProps, Layout};
use crate::space::Extent;
use crate::team::Call;
use crate::{Result, blob, dtype, tasks};

use super::{args, collective, group, object, request, status, unknown_op, visit};

pub fn class<const N: usize>() -> DatasetClass {
    DatasetClass {
        create: Some(create::<N>),
        open: Some(open::<N>),
        read: Some(read::<N>),
        write: Some(write::<N>),
        get: Some(get::<N>),
        specific: Some(specific::<N>),
        optional: Some(optional::<N>),
        close: Some(close_dataset::<N>),
    }
}

fn dataset<'a>(pointer: *mut c_void) -> Result<&'a Dataset> {
    match &Handle::at(pointer)?.body {
        Body::Dataset(d) => Ok(d),
        _ => Err(Error::new(ErrorKind::InvalidInput, "object").because("it is not a dataset")),
    }
}

/// Copies the access properties; `None` for the default list, since copying costs as much as everything else that HDF5
/// does for a new dataset.
fn keep_dapl(h5: &'static Api, dapl: hid_t) -> Result<Option<Hid>> {
    if dapl <= 0 || dapl == h5.H5P_LST_DATASET_ACCESS_ID_g() {
        return Ok(None);
    }
    // SAFETY: the list is valid during the call.
    h5_id(h5, "H5Pcopy", unsafe { (h5.H5Pcopy)(dapl) }).map(Some)
}

unsafe extern "C" fn create<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    lcpl: hid_t,
    type_id: hid_t,
    space_id: hid_t,
    dcpl: hid_t,
    dapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("dataset_create", |h5| {
        args::check_list(h5, dapl)?;
        let base = args::place(pointer, loc)?;
        let file = base.file.clone();
        file.need_writable("creating a dataset")?;
        dtype::look(h5, type_id)?;
        let encoded = dtype::encode(h5, type_id)?;
        let mut fixed = DatasetHeader {
            dtype: dtype::decode(h5, &encoded)?.hidden(),
            committed: args::committed_oid(h5, type_id, &file),
            props: DatasetProps::of(&file, dcpl, type_id)?,
            extent: Extent::of(h5, space_id)?,
        };
        check(&fixed)?;
        settle_fill(h5, &mut fixed)?;
        let header = Header {
            born_unix_s: objects::born(fixed.props.object.track_times),
            body: HeaderBody::Dataset {
                dtype: encoded,
                committed: fixed.committed,
                props: fixed.props.clone(),
                extent: fixed.extent.clone(),
            },
        };
        let name = args::name_or_none(name)?;
        let place = group::create_object(&base, name, args::link_create(h5, lcpl)?, &header, |tx, file, oid| {
            data::create(tx, file, oid, &fixed)
        })?;
        let mut open = objects_open::open_dataset(&place, fixed)?;
        open.dapl = keep_dapl(h5, dapl)?;
        Ok(Handle::new(h5, Body::Dataset(Box::new(open))))
    })
}

/// Refuses combinations that HDF5 refuses for a new dataset.
fn check(fixed: &DatasetHeader) -> Result<()> {
    let bad = |why: &str| Err(Error::new(ErrorKind::InvalidInput, "dataset to be created").because(why));
    let (dims, max) = (fixed.extent.dims(), fixed.extent.max_dims());
    match &fixed.props.layout {
        Layout::Chunked(chunk) => {
            if chunk.len() != dims.len() {
                return bad("dimensionality of chunks doesn't match the dataspace");
            }
            // Checked only for a nonempty extent: a dataset made empty may grow, and is copied and imported
            // afterwards.
            if chunk.iter().zip(dims.iter().zip(max)).any(|(c, (d, m))| *m != u64::MAX && c > m && *d > 0) {
                return bad("chunk size must be <= maximum dimension size for fixed-sized dimensions");
            }
        }
        // `data` checks these.
        Layout::Virtual(_) | Layout::External(_) if fixed.props.filters.is_empty() => {}
        _ => {
            if matches!(fixed.props.layout, Layout::Compact | Layout::Contiguous) && dims != max {
                return bad("extendible dataspaces need a chunked layout");
            }
            // Where there is nothing to filter, optional filters are left out.
            let single = !matches!(fixed.extent, Extent::Simple { .. });
            if fixed.props.filters.iter().any(|filter| !single || filter.flags & FLAG_OPTIONAL == 0) {
                return bad("filters need a chunked layout");
            }
            if fixed.props.layout == Layout::Compact && fixed.props.alloc_time != H5D_ALLOC_TIME_EARLY {
                return bad("compact dataset must have early space allocation");
            }
        }
    }
    Ok(())
}

/// Applies HDF5's rules on when fill values are written: elements with variable-length parts always have one.
fn settle_fill(h5: &'static Api, fixed: &mut DatasetHeader) -> Result<()> {
    let bad = |why: &str| Err(Error::new(ErrorKind::InvalidInput, "dataset to be created").because(why));
    let props = &mut fixed.props;
    if dtype::has_variable_parts(h5, fixed.dtype.get()) {
        if props.fill_time == H5D_FILL_TIME_IFSET && props.fill_status == H5D_FILL_VALUE_DEFAULT {
            props.fill_time = H5D_FILL_TIME_ALLOC;
        }
        if props.fill_time == H5D_FILL_TIME_NEVER {
            return bad("variable-length elements need a fill value, and it is never to be written");
        }
    }
    if props.fill_status == H5D_FILL_VALUE_UNDEFINED && props.fill_time == H5D_FILL_TIME_ALLOC {
        return bad("fill value writing on allocation set, but no fill value defined");
    }
    Ok(())
}

unsafe extern "C" fn open<const N: usize>(
    pointer: *mut c_void,
    loc: *const LocParams,
    name: *const c_char,
    dapl: hid_t,
    _: hid_t,
    _: *mut *mut c_void,
) -> *mut c_void {
    object::<N>("dataset_open", |h5| {
        args::check_list(h5, dapl)?;
        let base = args::place(pointer, loc)?;
        let place = resolve::resolve_as(&base, args::name(name)?, true, dapl)?.place()?;
        let kind = header::get(&place.file, place.oid)?;
        if !matches!(kind.body, HeaderBody::Dataset { .. }) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("object {:016x} of file {}", place.oid, place.file.path),
            )
            .because("not a dataset"));
        }
        let mut body = objects_open::open(&place)?;
        if let Body::Dataset(d) = &mut body {
            d.dapl = keep_dapl(h5, dapl)?;
        }
        Ok(Handle::new(h5, body))
    })
}

/// The parts of a read or write call.
fn parts<'a>(
    count: usize,
    dsets: *const *mut c_void,
    mem_types: *const hid_t,
    mem_spaces: *const hid_t,
    file_spaces: *const hid_t,
    bufs: *const *mut c_void,
) -> Result<Vec<Io<'a>>> {
    (0..count)
        .map(|i| {
            // SAFETY: HDF5 passes arrays of `count` elements.
            unsafe {
                Ok(Io {
                    dataset: dataset(*dsets.add(i))?,
                    mem_type: *mem_types.add(i),
                    mem_space: *mem_spaces.add(i),
                    file_space: *file_spaces.add(i),
                    buf: *bufs.add(i),
                })
            }
        })
        .collect()
}

/// Processes the parts file by file, since a conversion knows one file.
fn by_file(parts: &[Io<'_>], f: impl Fn(&[Io<'_>]) -> Result<()>) -> Result<()> {
    parts
        .chunk_by(|a, b| Arc::ptr_eq(&a.dataset.file, &b.dataset.file))
        .try_for_each(|part| blob::with_file(&part[0].dataset.file, || f(part)))
}

/// Begins an asynchronous transfer (`req`), if it needs nothing of libhdf5. Returns true if it did.
fn data_later(
    req: *mut *mut c_void,
    callback: &'static str,
    parts: &[Io<'_>],
    dxpl: hid_t,
    direction: Direction,
) -> Result<bool> {
    // Ranks that act together transfer at once.
    if req.is_null() || parts.iter().any(|part| part.dataset.file.team.is_some()) {
        return Ok(false);
    }
    let Some(later) = data::later(parts, dxpl, direction)? else { return Ok(false) };
    let keep: Vec<_> = parts.iter().map(|part| part.dataset.data.clone()).collect();
    request::give(req, callback, tasks::submit(Box::new(move || later.run()))?, keep)?;
    Ok(true)
}

unsafe extern "C" fn read<const N: usize>(
    count: usize,
    dsets: *const *mut c_void,
    mem_types: *const hid_t,
    mem_spaces: *const hid_t,
    file_spaces: *const hid_t,
    dxpl: hid_t,
    bufs: *const *mut c_void,
    req: *mut *mut c_void,
) -> herr_t {
    status::<N>("dataset_read", |_| {
        let parts = parts(count, dsets, mem_types, mem_spaces, file_spaces, bufs)?;
        if data_later(req, "dataset_read", &parts, dxpl, Direction::Read)? {
            return Ok(());
        }
        tasks::settle()?;
        by_file(&parts, |part| data::read(part, dxpl))?;
        collective::done(&parts, dxpl);
        Ok(())
    })
}

unsafe extern "C" fn write<const N: usize>(
    count: usize,
    dsets: *const *mut c_void,
    mem_types: *const hid_t,
    mem_spaces: *const hid_t,
    file_spaces: *const hid_t,
    dxpl: hid_t,
    bufs: *const *const c_void,
    req: *mut *mut c_void,
) -> herr_t {
    status::<N>("dataset_write", |_| {
        // The buffers are only read; one type serves both directions.
        let parts = parts(count, dsets, mem_types, mem_spaces, file_spaces, bufs.cast())?;
        for part in &parts {
            part.dataset.file.need_writable("writing a dataset")?;
        }
        if data_later(req, "dataset_write", &parts, dxpl, Direction::Write)? {
            return Ok(());
        }
        tasks::settle()?;
        by_file(&parts, |part| data::write(part, dxpl))?;
        collective::wrote(&parts, dxpl)
    })
}

unsafe extern "C" fn get<const N: usize>(
    pointer: *mut c_void,
    what: *mut DatasetGetArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("dataset_get", |h5| {
        let d = dataset(pointer)?;
        // SAFETY: HDF5 passes valid arguments; `op` says which member of the union is in use.
        let what = unsafe { what.as_mut() }.ok_or_else(|| unknown_op("dataset_get", -1))?;
        if matches!(what.op, DATASET_GET_SPACE_STATUS | DATASET_GET_STORAGE_SIZE) {
            tasks::settle()?;
        }
        // SAFETY: as above.
        unsafe {
            match what.op {
                DATASET_GET_DAPL => what.args.id = data::access_plist(d)?.release(),
                DATASET_GET_DCPL => what.args.id = data::props(d).plist(&d.file, d.header.dtype.get())?.release(),
                DATASET_GET_SPACE => what.args.id = d.extent()?.space(h5)?.release(),
                DATASET_GET_SPACE_STATUS => args::put(what.args.status, data::space_status(d)?)?,
                DATASET_GET_STORAGE_SIZE => args::put(what.args.size, data::storage_size(d)?)?,
                DATASET_GET_TYPE => what.args.id = type_id(h5, &d.place(), d.header.committed, d.header.dtype.get())?,
                other => return Err(unknown_op("dataset_get", other)),
            }
        }
        Ok(())
    })
}

/// An id of a dataset's or attribute's type: the committed datatype itself if it was created with one that still
/// exists.
pub fn type_id(h5: &'static Api, owner: &Location, committed: u64, dtype: hid_t) -> Result<hid_t> {
    if committed != 0
        && let Some(header) = header::find(&owner.file, committed)?
        && matches!(header.body, HeaderBody::Datatype { .. })
    {
        let place = Location { file: owner.file.clone(), oid: committed, path: Vec::new() };
        return Ok(visit::register(h5, Handle::new(h5, objects_open::open(&place)?))?.release());
    }
    Ok(dtype::copy(h5, dtype)?.release())
}

unsafe extern "C" fn specific<const N: usize>(
    pointer: *mut c_void,
    what: *mut DatasetSpecificArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("dataset_specific", |_| {
        let d = dataset(pointer)?;
        let what = args::of(what)?;
        match what.op {
            DATASET_SET_EXTENT => {
                d.file.need_writable("changing a dataset's extent")?;
                let rank = d.header.extent.dims().len();
                if rank == 0 {
                    return Err(Error::new(ErrorKind::InvalidInput, d.name()).because("it has no dimensions"));
                }
                // SAFETY: HDF5 passes as many dimensions as the dataset has.
                let dims = unsafe { std::slice::from_raw_parts(what.args.size, rank) };
                d.file.once(&Call::new("set_extent").about((d.oid, dims)), || data::set_extent(d, dims))
            }
            DATASET_FLUSH => data::flush(d),
            DATASET_REFRESH => {
                data::refresh(d);
                Ok(())
            }
            other => Err(unknown_op("dataset_specific", other)),
        }
    })
}

unsafe extern "C" fn optional<const N: usize>(
    pointer: *mut c_void,
    what: *mut OptionalArgs,
    dxpl: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("dataset_optional", |_| {
        let what = args::of(what)?;
        if what.op_type < 0 {
            return Err(unsupported(format!("dataset operation {}", what.op_type), "avoid it"));
        }
        data::optional(dataset(pointer)?, what.op_type as c_int, what.args, dxpl)
    })
}

unsafe extern "C" fn close_dataset<const N: usize>(pointer: *mut c_void, _: hid_t, req: *mut *mut c_void) -> herr_t {
    status::<N>("dataset_close", |_| {
        if may_close_later(req, pointer) {
            return close_later(req, "dataset_close", pointer, Handle::close);
        }
        // A failure stays with the task.
        let _ = tasks::settle();
        Handle::close(pointer)
    })
}

/// Returns true if a program wants a handle closed without waiting for operations in progress. Ranks that act together
/// close at once.
pub fn may_close_later(req: *mut *mut c_void, pointer: *mut c_void) -> bool {
    let is_single = |handle: &Handle| handle.file().is_ok_and(|file| file.team.is_none());
    !req.is_null() && tasks::any() && Handle::at(pointer).is_ok_and(is_single)
}

/// Closes a handle after the operations in progress.
pub fn close_later(
    req: *mut *mut c_void,
    callback: &'static str,
    pointer: *mut c_void,
    close: impl Fn(*mut c_void) -> Result<()> + Send + 'static,
) -> Result<()> {
    // An address, since pointers are not `Send`: HDF5 lets one thread in at a time.
    let address = pointer as usize;
    let work = move || {
        let pointer = address as *mut c_void;
        let closed = close(pointer);
        if closed.is_err() && Handle::at(pointer).is_ok() {
            // The handle was kept for another attempt, but HDF5 no longer has its id: a second attempt is never
            // refused.
            let _ = close(pointer);
        }
        closed
    };
    let task = tasks::put_off(Box::new(work))?;
    request::give(req, callback, task, ())
}
