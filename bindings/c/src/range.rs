//! File-like use of objects: appending, data and holes, ranges of other objects.

use std::ffi::c_void;

use crate::abi::{give, give_if_wanted, guard, slice};
use crate::error::cenote_error_t;
use crate::handle;
use crate::index::cenote_index_t;
use crate::object::cenote_object_t;
use crate::transaction::cenote_transaction_t;
use crate::types::cenote_slice_t;

/// "None" in place of an offset.
pub const CENOTE_NOWHERE: u64 = u64::MAX;

/// Appends `len` bytes at the size that the object has when this is applied; `*at` (may be null) is the offset. If several
/// processes append at once, the bytes of each are in the object whole, once, in some order.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_append(
    object: *const cenote_object_t,
    data: *const c_void,
    len: usize,
    at: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_if_wanted(error, at, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, data) = unsafe { (handle::get(object)?, slice(data.cast::<u8>(), len, "data")?) };
        object.append(data)
    })
}

/// Returns the recorded size in bytes: without a message if the value that this process knows still holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_object_size(
    object: *const cenote_object_t,
    size: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, size, "size", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { handle::get(object) }?.size()
    })
}

/// Returns the first offset with data at or after `offset`; `CENOTE_NOWHERE` if there is none before the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_next_data(
    object: *const cenote_object_t,
    offset: u64,
    found: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, found, "found", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let at = unsafe { handle::get(object) }?.next_data(offset)?;
        Ok(at.unwrap_or(CENOTE_NOWHERE))
    })
}

/// Returns the first offset in a hole at or after `offset`, or the size if there is none before it; `CENOTE_NOWHERE` from the end
/// on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_next_hole(
    object: *const cenote_object_t,
    offset: u64,
    found: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, found, "found", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let at = unsafe { handle::get(object) }?.next_hole(offset)?;
        Ok(at.unwrap_or(CENOTE_NOWHERE))
    })
}

/// Makes `[at, at + len)` of `object` equal to `[offset, offset + len)` of `from`: by one update without copying bytes if both
/// are in one container, or `from` is in a snapshot of it; otherwise by copying, piece by piece. `*done` (may be null) is the
/// number of bytes: fewer if `from` ends before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_copy(
    object: *const cenote_object_t,
    at: u64,
    from: *const cenote_object_t,
    offset: u64,
    len: u64,
    done: *mut u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_if_wanted(error, done, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (object, from) = unsafe { (handle::get(object)?, handle::get(from)?) };
        object.copy_from(at, from, offset, len)
    })
}

/// In a transaction: makes `[at, at + len)` of `object` equal to what `[offset, offset + len)` of `from` is at the commit,
/// without copying bytes. Both must be in one container, or `from` in a snapshot of it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_share(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    at: u64,
    from: *const cenote_object_t,
    offset: u64,
    len: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, object, from) =
            unsafe { (handle::get_mut(transaction)?, handle::get(object)?, handle::get(from)?) };
        transaction.share(object, at, from, offset, len)
    })
}

/// Makes the commit fail with `CENOTE_CONFLICT` if a record's key then begins with this prefix, before the transaction's own
/// changes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_expect_none(
    transaction: *mut cenote_transaction_t,
    index: *const cenote_index_t,
    prefix: cenote_slice_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, index) = unsafe { (handle::get_mut(transaction)?, handle::get(index)?) };
        // SAFETY: as above.
        transaction.expect_none(index, unsafe { slice(prefix.data, prefix.len, "prefix") }?)
    })
}

/// Makes the commit fail with `CENOTE_CONFLICT` unless the object then has this size in bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_transaction_expect_size(
    transaction: *mut cenote_transaction_t,
    object: *const cenote_object_t,
    size: u64,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (transaction, object) = unsafe { (handle::get_mut(transaction)?, handle::get(object)?) };
        transaction.expect_size(object, size)
    })
}
