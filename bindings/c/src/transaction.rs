//! Transactions: a group of updates, applied as a whole or not at all.

use std::ffi::c_void;

use cenote::{IndexId, ObjectId, Transaction};

use crate::abi::{give, give_handle, give_if_wanted, guard, quietly, slice, slice_mut};
use crate::container::cenote_container_t;
use crate::error::cenote_error_t;
use crate::handle::{self, handle};
use crate::index::{bytes_out, cenote_index_t};
use crate::object::cenote_object_t;
use crate::store::cenote_store_t;
use crate::types::{block_shift, cenote_bytes_t, cenote_id_t, cenote_slice_t};

/// A transaction. Reads see its own writes. One thread at a time.
pub struct cenote_transaction_t {
    _opaque: (),
}
handle!(cenote_transaction_t, Transaction, "transaction", b"cnTrans\x01");

/// Begins a transaction. `detect_conflicts` not 0: the commit fails with `CENOTE_CONFLICT` if others changed anything
/// read through it meanwhile. End it with `cenote_commit` or `cenote_abort`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_begin(
    store: *const cenote_store_t,
    detect_conflicts: i32,
    transaction: *mut *mut cenote_transaction_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, transaction, "transaction", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let mut begun = unsafe { handle::get(store) }?.begin();
        begun.detect_conflicts(detect_conflicts != 0);
        Ok(begun)
    })
}

/// Applies everything, or nothing. Invalidates the handle, whatever the result. `*epoch` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_commit(
    transaction: *mut cenote_transaction_t,
    epoch: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_if_wanted(error, epoch, || handle::take(transaction)?.commit())
}

/// Discards everything. Invalidates the handle. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_abort(transaction: *mut cenote_transaction_t) {
    quietly((), || {
        if let Ok(transaction) = handle::take(transaction) {
            transaction.abort();
        }
    });
}

/// Writes a byte range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_write(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    offset: u64,
    data: *const c_void,
    len: usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, object) = unsafe { (handle::get_mut(transaction)?, handle::get(object)?) };
        // SAFETY: as above.
        transaction.write(object, offset, unsafe { slice(data.cast::<u8>(), len, "data") }?)
    })
}

/// Reads a byte range, including own writes; otherwise as `cenote_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_read(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    offset: u64,
    data: *mut c_void,
    len: usize,
    got: *mut usize,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_if_wanted(error, got, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, object) = unsafe { (handle::get_mut(transaction)?, handle::get(object)?) };
        // SAFETY: as above.
        transaction.read(object, offset, unsafe { slice_mut(data.cast::<u8>(), len, "data") }?)
    })
}

/// Sets an object's size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_truncate(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    size: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get_mut(transaction)?.truncate(handle::get(object)?, size) })
}

/// Turns a range into a hole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_punch(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    offset: u64,
    len: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get_mut(transaction)?.punch(handle::get(object)?, offset, len) })
}

/// Creates an object; as `cenote_object_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_create_object(
    transaction: *mut cenote_transaction_t,
    container: *const cenote_container_t,
    id: *const cenote_id_t,
    block_size: u64,
    object: *mut *mut cenote_object_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, object, "object", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, container, id) =
            unsafe { (handle::get_mut(transaction)?, handle::get(container)?, id.as_ref()) };
        let id = id.map(|id| ObjectId(id.number()));
        transaction.create_object(container, id, block_shift(block_size)?)
    })
}

/// Deletes an object.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_delete_object(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get_mut(transaction)?.delete_object(handle::get(object)?) })
}

/// Creates an index; as `cenote_index_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_create_index(
    transaction: *mut cenote_transaction_t,
    container: *const cenote_container_t,
    id: *const cenote_id_t,
    index: *mut *mut cenote_index_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, index, "index", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, container, id) =
            unsafe { (handle::get_mut(transaction)?, handle::get(container)?, id.as_ref()) };
        transaction.create_index(container, id.map(|id| IndexId(id.number())))
    })
}

/// Deletes an index with its records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_delete_index(
    transaction: *mut cenote_transaction_t,
    index: *const cenote_index_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get_mut(transaction)?.delete_index(handle::get(index)?) })
}

/// Sets a record. `only_new` not 0: the commit fails with `CENOTE_EXISTS` if the key exists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_put(
    transaction: *mut cenote_transaction_t,
    index: *const cenote_index_t,
    key: cenote_slice_t,
    value: cenote_slice_t,
    only_new: i32,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, index) = unsafe { (handle::get_mut(transaction)?, handle::get(index)?) };
        // SAFETY: as above.
        let (key, value) = unsafe { (slice(key.data, key.len, "key")?, slice(value.data, value.len, "value")?) };
        if only_new == 0 { transaction.put(index, key, value) } else { transaction.put_new(index, key, value) }
    })
}

/// Gets a value, including own puts. Free it with `cenote_bytes_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_get(
    transaction: *mut cenote_transaction_t,
    index: *const cenote_index_t,
    key: cenote_slice_t,
    value: *mut cenote_bytes_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, value, "value", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, index) = unsafe { (handle::get_mut(transaction)?, handle::get(index)?) };
        // SAFETY: as above.
        let found = transaction.get(index, unsafe { slice(key.data, key.len, "key") }?)?;
        Ok(bytes_out(found))
    })
}

/// Deletes a record; no error if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_del(
    transaction: *mut cenote_transaction_t,
    index: *const cenote_index_t,
    key: cenote_slice_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, index) = unsafe { (handle::get_mut(transaction)?, handle::get(index)?) };
        // SAFETY: as above.
        transaction.del(index, unsafe { slice(key.data, key.len, "key") }?)
    })
}
