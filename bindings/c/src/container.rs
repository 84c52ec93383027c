//! Containers: objects and indices under one policy.

use std::ffi::{c_char, c_void};

use cenote::{Container, ObjectId, Result, Store};

use crate::abi::{free, give, give_handle, guard, put, slice, slice_mut, tell, text};
use crate::error::cenote_error_t;
use crate::handle::{self, handle};
use crate::store::{cenote_store_t, write_id};
use crate::types::{CENOTE_ASYNC, cenote_container_spec_t, cenote_id_t, container_spec};

/// A container.
pub struct cenote_container_t {
    _opaque: (),
}
handle!(cenote_container_t, Container, "container", b"cnCont \x01");

/// Fills in the defaults: blocks of 4 KiB, async, no quota, the default policy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_spec_init(spec: *mut cenote_container_spec_t) {
    let defaults = cenote_container_spec_t {
        size: size_of::<cenote_container_spec_t>(),
        block_size: 1 << cenote::model::BLOCK_SHIFT_DEFAULT,
        durability: CENOTE_ASYNC,
        quota_bytes: 0,
        policy: std::ptr::null(),
    };
    // SAFETY: the caller gives memory for the structure, or null.
    unsafe { put(spec, defaults) };
}

/// Opens the container with that label, and creates it with the settings in `spec` (null: the defaults) if it does not exist.
/// Free the handle with `cenote_container_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_open_or_create(
    store: *const cenote_store_t,
    label: *const c_char,
    spec: *const cenote_container_spec_t,
    container: *mut *mut cenote_container_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, container, "container", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (store, label, spec) = unsafe { (handle::get(store)?, text(label, "label")?, container_spec(spec)?) };
        store.open_container(label, &spec)
    })
}

/// Opens an existing container. Free the handle with `cenote_container_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_open(
    store: *const cenote_store_t,
    label: *const c_char,
    container: *mut *mut cenote_container_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, container, "container", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { handle::get(store)?.container(text(label, "label")?) }
    })
}

/// Creates a container; `CENOTE_EXISTS` if the label is taken. Free the handle with `cenote_container_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_create(
    store: *const cenote_store_t,
    label: *const c_char,
    spec: *const cenote_container_spec_t,
    container: *mut *mut cenote_container_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, container, "container", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (store, label, spec) = unsafe { (handle::get(store)?, text(label, "label")?, container_spec(spec)?) };
        store.create_container(label, &spec)
    })
}

/// Frees the handle; the container stays in the store. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_free(container: *mut cenote_container_t) {
    free(container);
}

/// Renames a container.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_rename(
    store: *const cenote_store_t,
    from: *const c_char,
    to: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store)?.rename_container(text(from, "from")?, text(to, "to")?) })
}

/// Deletes a container with everything in it, atomically.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_delete(
    store: *const cenote_store_t,
    label: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store)?.delete_container(text(label, "label")?) })
}

/// Calls `each` with the label of every container whose label begins with `prefix` (null: all), in label order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_containers(
    store: *const cenote_store_t,
    prefix: *const c_char,
    each: Option<unsafe extern "C" fn(context: *mut c_void, label: *const c_char)>,
    context: *mut c_void,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let prefix = if prefix.is_null() { "" } else { unsafe { text(prefix, "prefix") }? };
        // SAFETY: as above.
        let found = unsafe { handle::get(store) }?.containers(prefix)?;
        // SAFETY: as above.
        unsafe { tell(found.iter().map(|info| info.label.as_str()), each, context) };
        Ok(())
    })
}

/// Fills `ids` with up to `capacity` ids of objects greater than `*after` (null: from the first), ascending;
/// `*count` is their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_objects(
    container: *const cenote_container_t,
    after: *const cenote_id_t,
    ids: *mut cenote_id_t,
    capacity: usize,
    count: *mut usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, count, "count", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (container, after, ids) =
            unsafe { (handle::get(container)?, after.as_ref(), slice_mut(ids, capacity, "ids")?) };
        let limit = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        let found = container.objects(after.map(|id| ObjectId(id.number())), limit)?;
        for (place, id) in ids.iter_mut().zip(&found) {
            *place = cenote_id_t::of(id.0);
        }
        Ok(found.len())
    })
}

/// Makes a snapshot of the container under a name: its current content stays readable; no data are copied. `replace` not 0:
/// replaces a snapshot of that name; otherwise `CENOTE_EXISTS` if there is one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_snapshot(
    container: *const cenote_container_t,
    name: *const c_char,
    replace: i32,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (container, name) = unsafe { (handle::get(container)?, text(name, "name")?) };
        if replace != 0 { container.replace_snapshot(name) } else { container.snapshot(name) }
    })
}

/// Opens a snapshot as a read-only container. It lasts as long as the handle, even if it is deleted meanwhile. Free the handle
/// with `cenote_container_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_open_snapshot(
    container: *const cenote_container_t,
    name: *const c_char,
    snapshot: *mut *mut cenote_container_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, snapshot, "snapshot", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { handle::get(container)?.open_snapshot(text(name, "name")?) }
    })
}

/// Calls `each` with the name of every snapshot of the container, in the order of names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_snapshots(
    container: *const cenote_container_t,
    each: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char)>,
    context: *mut c_void,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let found = unsafe { handle::get(container) }?.snapshots()?;
        // SAFETY: as above.
        unsafe { tell(found.iter().map(|info| info.name.as_str()), each, context) };
        Ok(())
    })
}

/// Deletes a snapshot.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_delete_snapshot(
    container: *const cenote_container_t,
    name: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(container)?.delete_snapshot(text(name, "name")?) })
}

/// Restores the content that the container had when the snapshot was made, in one transaction; the snapshot stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_roll_back(
    container: *const cenote_container_t,
    name: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(container)?.roll_back(text(name, "name")?) })
}

/// Makes a snapshot of each of `count` containers under one name, all of one moment: in one transaction, wherever these
/// containers are. `replace` not 0: replaces snapshots of that name; otherwise `CENOTE_EXISTS` if a container has one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_snapshot(
    store: *const cenote_store_t,
    containers: *const *const cenote_container_t,
    count: usize,
    name: *const c_char,
    replace: i32,
    error: *mut *mut cenote_error_t,
) -> i32 {
    let change = if replace != 0 { Store::replace_snapshot } else { Store::snapshot };
    // SAFETY: the caller keeps the rules in the header's introduction.
    unsafe { together(store, (containers, count), name, error, change) }
}

/// Deletes the snapshot of that name of each of `count` containers: of all, or of none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_delete_snapshot(
    store: *const cenote_store_t,
    containers: *const *const cenote_container_t,
    count: usize,
    name: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    unsafe { together(store, (containers, count), name, error, Store::delete_snapshot) }
}

/// Restores the content that each of `count` containers had when its snapshot of that name was made: all, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_roll_back(
    store: *const cenote_store_t,
    containers: *const *const cenote_container_t,
    count: usize,
    name: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    unsafe { together(store, (containers, count), name, error, Store::roll_back) }
}

/// Changes the snapshot of one name of several containers.
///
/// # Safety
/// The caller keeps the rules in the header's introduction.
unsafe fn together(
    store: *const cenote_store_t,
    (containers, count): (*const *const cenote_container_t, usize),
    name: *const c_char,
    error: *mut *mut cenote_error_t,
    change: fn(&Store, &[Container], &str) -> Result<()>,
) -> i32 {
    guard(error, || {
        // SAFETY: as the caller promises.
        let (store, handles, name) =
            unsafe { (handle::get(store)?, slice(containers, count, "containers")?, text(name, "name")?) };
        // SAFETY: as above.
        let of = handles.iter().map(|container| unsafe { handle::get(*container) }.cloned());
        change(store, &of.collect::<Result<Vec<Container>>>()?, name)
    })
}

/// Returns when everything acknowledged so far in this container survives power loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_container_flush(
    container: *const cenote_container_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(container) }?.flush())
}

/// Writes an id as 32 hexadecimal digits and a NUL byte into `text`, which has space for 33 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_id_format(id: cenote_id_t, text: *mut c_char, error: *mut *mut cenote_error_t) -> i32 {
    guard(error, || write_id(text, id.number()))
}

/// Parses an id of up to 32 hexadecimal digits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_id_parse(
    digits: *const c_char,
    id: *mut cenote_id_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, id, "id", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let found: ObjectId = unsafe { text(digits, "digits") }?.parse()?;
        Ok(cenote_id_t::of(found.0))
    })
}
