//! Asynchronous operations: launch, then wait, poll, or get a callback.

use std::ffi::c_void;

use cenote::Op;

use crate::abi::{give_handle, give_if_wanted, guard, quietly, slice, slice_mut};
use crate::error::{CENOTE_OK, cenote_error_free, cenote_error_t, hand_out};
use crate::handle::{self, handle};
use crate::index::cenote_index_t;
use crate::object::cenote_object_t;
use crate::types::cenote_slice_t;

/// A write, read or put in flight. End it with one of `cenote_op_wait`, `cenote_op_wait_read`, `cenote_op_on_done`.
pub struct cenote_op_t {
    _opaque: (),
}
handle!(cenote_op_t, Op, "operation", b"cnOp   \x01");

/// Starts a write. `data` may be reused when this returns; the write is acknowledged when the operation is done.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_launch_write(
    object: *const cenote_object_t,
    offset: u64,
    data: *const c_void,
    len: usize,
    op: *mut *mut cenote_op_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, op, "op", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, data) = unsafe { (handle::get(object)?, slice(data.cast::<u8>(), len, "data")?) };
        object.launch_write(offset, data)
    })
}

/// Starts a read of `len` bytes; `cenote_op_wait_read` returns them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_launch_read(
    object: *const cenote_object_t,
    offset: u64,
    len: usize,
    op: *mut *mut cenote_op_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, op, "op", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { handle::get(object)?.launch_read(offset, len) }
    })
}

/// Starts setting a record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_launch_put(
    index: *const cenote_index_t,
    key: cenote_slice_t,
    value: cenote_slice_t,
    op: *mut *mut cenote_op_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, op, "op", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (key, value) = unsafe { (slice(key.data, key.len, "key")?, slice(value.data, value.len, "value")?) };
        // SAFETY: as above.
        unsafe { handle::get(index) }?.launch_put(key, value)
    })
}

/// Waits until it is acknowledged. Invalidates the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_op_wait(op: *mut cenote_op_t, error: *mut *mut cenote_error_t) -> i32 {
    guard(error, || handle::take(op)?.wait())
}

/// Waits for the bytes of a read and copies up to `len` of them to `data`; `*got` (may be null) is their number.
/// Invalidates the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_op_wait_read(
    op: *mut cenote_op_t,
    data: *mut c_void,
    len: usize,
    got: *mut usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_if_wanted(error, got, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let data = unsafe { slice_mut(data.cast::<u8>(), len, "data") }?;
        let bytes = handle::take(op)?.wait_read()?;
        let count = bytes.len().min(data.len());
        data[..count].copy_from_slice(&bytes[..count]);
        Ok(count)
    })
}

/// Returns 1 if waiting would not block, 0 if it would, -1 if it is no operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_op_is_done(op: *const cenote_op_t) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    quietly(-1, || unsafe { handle::get(op) }.map_or(-1, |op| i32::from(op.is_done())))
}

/// A caller's pointer, which goes to another thread with the callback.
struct Context(*mut c_void);
// SAFETY: the caller requests a call from another thread, and so vouches for the context there.
unsafe impl Send for Context {}

impl Context {
    /// Returns the pointer. A method, so that a closure captures all of `self`.
    fn pointer(&self) -> *mut c_void {
        self.0
    }
}

/// Calls `callback` once when it is done, from a thread of the library, with 0 or the kind of the error, and the error
/// (freed after the call). Invalidates the handle.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_op_on_done(
    op: *mut cenote_op_t,
    callback: Option<unsafe extern "C" fn(context: *mut c_void, kind: i32, error: *const cenote_error_t)>,
    context: *mut c_void,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        let op = handle::take(op)?;
        let context = Context(context);
        op.on_done(move |result| {
            let Some(callback) = callback else { return };
            let (kind, failure) = match &result {
                Ok(()) => (CENOTE_OK, std::ptr::null_mut()),
                Err(error) => (i32::from(error.kind() as u8), hand_out(error)),
            };
            // SAFETY: the caller gave the function and its context for this; the error is ours to free.
            unsafe {
                callback(context.pointer(), kind, failure);
                cenote_error_free(failure);
            }
        });
        Ok(())
    })
}
