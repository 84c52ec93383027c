//! Objects: reads and writes of byte ranges, with and without copies.

use std::ffi::c_void;

use cenote::{BorrowedBytes, InPlaceWrite, Object, ObjectId};

use crate::abi::{free, give, give_handle, give_if_wanted, guard, put, quietly, required, slice, slice_mut};
use crate::container::cenote_container_t;
use crate::error::cenote_error_t;
use crate::handle::{self, handle};
use crate::types::{block_shift, cenote_id_t, cenote_iov_t, cenote_object_stat_t, durability};

/// An object: an array of bytes with a recorded size, up to 2^63 bytes, sparse.
pub struct cenote_object_t {
    _opaque: (),
}
handle!(cenote_object_t, Object, "object", b"cnObj  \x01");

/// A view: bytes of an object by reference. They do not change until it is freed.
pub struct cenote_view_t {
    _opaque: (),
}
handle!(cenote_view_t, BorrowedBytes, "view", b"cnView \x01");

/// Mapped memory to be filled and committed: a write without a copy.
pub struct cenote_write_t {
    _opaque: (),
}
handle!(cenote_write_t, InPlaceWrite, "write in place", b"cnWrite\x01");

/// Creates an object. `id`: null for a random one. `block_size`: 0 for the container's.
/// Free the handle with `cenote_object_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_create(
    container: *const cenote_container_t,
    id: *const cenote_id_t,
    block_size: u64,
    object: *mut *mut cenote_object_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, object, "object", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (container, id) = unsafe { (handle::get(container)?, id.as_ref()) };
        container.create_object(id.map(|id| ObjectId(id.number())), block_shift(block_size)?)
    })
}

/// Returns a handle of the object with that id, without a message: a missing object is reported at first use.
/// Free the handle with `cenote_object_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_open(
    container: *const cenote_container_t,
    id: cenote_id_t,
    object: *mut *mut cenote_object_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, object, "object", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let opened = unsafe { handle::get(container) }?.object(ObjectId(id.number()));
        Ok(opened)
    })
}

/// Returns a handle of the same object with a write mode other than the container's: `CENOTE_SYNC` (write-through: on a
/// persistent tier, acknowledged when it survives power loss), `CENOTE_ASYNC` (write-back) or `CENOTE_BYPASS` (straight to the
/// lowest persistent tier). Refused if that is less than the container promises, and in scratch containers.
/// Free the handle with `cenote_object_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_buffered(
    object: *const cenote_object_t,
    mode: i32,
    buffered: *mut *mut cenote_object_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, buffered, "buffered", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { handle::get(object) }?.buffered(durability(mode)?)
    })
}

/// Frees the handle; the object stays in the store. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_free(object: *mut cenote_object_t) {
    free(object);
}

/// Deletes the object with that id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_delete(
    container: *const cenote_container_t,
    id: cenote_id_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(container) }?.delete_object(ObjectId(id.number())))
}

/// Returns the object's id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_id(
    object: *const cenote_object_t,
    id: *mut cenote_id_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, id, "id", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { Ok(cenote_id_t::of(handle::get(object)?.key().object.0)) }
    })
}

/// Returns size, block size and use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_stat(
    object: *const cenote_object_t,
    stat: *mut cenote_object_stat_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, stat, "stat", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let found = unsafe { handle::get(object) }?.stat()?;
        let stat = cenote_object_stat_t {
            size: found.size,
            block_size: 1 << found.block_shift,
            extents: found.extents,
            mapped_bytes: found.mapped_bytes,
            epoch: found.epoch,
        };
        Ok(stat)
    })
}

/// Reads `len` bytes at `offset` into `data`. Holes are zeros. `*got` (may be null) is the number of bytes before the recorded
/// size; the rest of `data` is untouched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_read(
    object: *const cenote_object_t,
    offset: u64,
    data: *mut c_void,
    len: usize,
    got: *mut usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_if_wanted(error, got, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, data) = unsafe { (handle::get(object)?, slice_mut(data.cast::<u8>(), len, "data")?) };
        object.read_at(offset, data)
    })
}

/// Writes `len` bytes at `offset`: acknowledged by the container's durability, and visible to every process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_write(
    object: *const cenote_object_t,
    offset: u64,
    data: *const c_void,
    len: usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, data) = unsafe { (handle::get(object)?, slice(data.cast::<u8>(), len, "data")?) };
        object.write_at(offset, data)
    })
}

/// Reads many ranges at once; bytes beyond the recorded size read as zeros.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_readv(
    object: *const cenote_object_t,
    parts: *const cenote_iov_t,
    count: usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, parts) = unsafe { (handle::get(object)?, slice(parts, count, "parts")?) };
        let mut parts = parts
            .iter()
            // SAFETY: as above.
            .map(|part| Ok((part.offset, unsafe { slice_mut(part.data, part.len, "parts") }?)))
            .collect::<cenote::Result<Vec<_>>>()?;
        object.readv(&mut parts)
    })
}

/// Writes many ranges as one transaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_writev(
    object: *const cenote_object_t,
    parts: *const cenote_iov_t,
    count: usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, parts) = unsafe { (handle::get(object)?, slice(parts, count, "parts")?) };
        let parts = parts
            .iter()
            // SAFETY: as above.
            .map(|part| Ok((part.offset, unsafe { slice(part.data.cast_const(), part.len, "parts") }?)))
            .collect::<cenote::Result<Vec<_>>>()?;
        object.writev(&parts)
    })
}

/// Sets the recorded size; what lies beyond is dropped.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_truncate(
    object: *const cenote_object_t,
    size: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(object) }?.truncate(size))
}

/// Turns a range into a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_punch(
    object: *const cenote_object_t,
    offset: u64,
    len: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(object) }?.punch(offset, len))
}

/// Returns when everything acknowledged so far survives power loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_flush(object: *const cenote_object_t, error: *mut *mut cenote_error_t) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(object) }?.flush())
}

/// Returns a range by reference, without a copy. `*view` is null, and the result 0, if the range is not in one piece of mapped
/// memory: read it instead. Free the view with `cenote_view_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_view(
    object: *const cenote_object_t,
    offset: u64,
    len: usize,
    view: *mut *mut cenote_view_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, view, "view", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let found = unsafe { handle::get(object) }?.view(offset, len)?;
        Ok(found.map_or(std::ptr::null_mut(), handle::make))
    })
}

/// Returns the bytes of a view; null if it is no view. `*len` (may be null) is their number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_view_data(view: *const cenote_view_t, len: *mut usize) -> *const u8 {
    quietly(std::ptr::null(), || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let bytes: &[u8] = match unsafe { handle::get(view) } {
            Ok(view) => view,
            Err(_) => return std::ptr::null(),
        };
        // SAFETY: as above.
        unsafe { put(len, bytes.len()) };
        bytes.as_ptr()
    })
}

/// Frees a view; its bytes may change or disappear from then on. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_view_free(view: *mut cenote_view_t) {
    free(view);
}

/// Begins a write in place: reserves `len` bytes of mapped memory at `*data`. Fill them, then call `cenote_write_commit`
/// or `cenote_write_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_write_in_place(
    object: *const cenote_object_t,
    len: usize,
    write: *mut *mut cenote_write_t,
    data: *mut *mut u8,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        let (to, data_to) = (required(write, "write")?, required(data, "data")?);
        // SAFETY: the caller keeps the rules in the header's introduction.
        let made = handle::make::<cenote_write_t>(unsafe { handle::get(object) }?.write_in_place(len)?);
        // SAFETY: as above; the handle is new, so nobody else uses it.
        unsafe {
            put(data_to, handle::get_mut(made)?.bytes().as_mut_ptr());
            put(to, made);
        }
        Ok(())
    })
}

/// Makes the bytes the object's at `offset`. Invalidates the handle, and its memory must not be used any more, whatever
/// the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_write_commit(
    write: *mut cenote_write_t,
    offset: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || handle::take(write)?.commit(offset))
}

/// Releases the memory without writing. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_write_free(write: *mut cenote_write_t) {
    free(write);
}
