//! Indices: ordered records.

use cenote::{Index, IndexId, NextFrom, Records};

use crate::abi::{free, give, give_handle, guard, put, quietly, required, slice, slice_mut};
use crate::container::cenote_container_t;
use crate::error::cenote_error_t;
use crate::handle::{self, handle};
use crate::types::{cenote_bytes_t, cenote_id_t, cenote_record_t, cenote_slice_t, fill_codes};

/// An ordered key-value index.
pub struct cenote_index_t {
    _opaque: (),
}
handle!(cenote_index_t, Index, "index", b"cnIndex\x01");

/// Records from a read; valid until `cenote_records_free`.
pub struct cenote_records_t {
    _opaque: (),
}
handle!(cenote_records_t, Records, "records", b"cnRecs \x01");

/// Creates an index. `id`: null for a random one. Free the handle with `cenote_index_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_create(
    container: *const cenote_container_t,
    id: *const cenote_id_t,
    index: *mut *mut cenote_index_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, index, "index", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (container, id) = unsafe { (handle::get(container)?, id.as_ref()) };
        container.create_index(id.map(|id| IndexId(id.number())))
    })
}

/// Opens the index with that id, and creates it if it does not exist. Free the handle with `cenote_index_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_open_or_create(
    container: *const cenote_container_t,
    id: cenote_id_t,
    index: *mut *mut cenote_index_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, index, "index", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { handle::get(container) }?.open_index(IndexId(id.number()))
    })
}

/// Deletes an index with its records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_delete(
    container: *const cenote_container_t,
    id: cenote_id_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(container) }?.delete_index(IndexId(id.number())))
}

/// Frees the handle; the index stays in the store. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_free(index: *mut cenote_index_t) {
    free(index);
}

/// Returns the index's id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_id(
    index: *const cenote_index_t,
    id: *mut cenote_id_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give(error, id, "id", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        unsafe { Ok(cenote_id_t::of(handle::get(index)?.key().index.0)) }
    })
}

unsafe fn records_of<'a>(records: *const cenote_record_t, count: usize) -> cenote::Result<Vec<(&'a [u8], &'a [u8])>> {
    // SAFETY: the caller vouches for it.
    let records = unsafe { slice(records, count, "records") }?;
    let pair = |record: &cenote_record_t| {
        // SAFETY: the caller vouches for it.
        unsafe {
            Ok((
                slice(record.key.data, record.key.len, "records")?,
                slice(record.value.data, record.value.len, "records")?,
            ))
        }
    };
    records.iter().map(pair).collect()
}

unsafe fn keys_of<'a>(keys: *const cenote_slice_t, count: usize) -> cenote::Result<Vec<&'a [u8]>> {
    // SAFETY: the caller vouches for it.
    let keys = unsafe { slice(keys, count, "keys") }?;
    // SAFETY: as above.
    keys.iter().map(|key| unsafe { slice(key.data, key.len, "keys") }).collect()
}

unsafe fn codes_of<'a>(codes: *mut u8, count: usize) -> cenote::Result<&'a mut [u8]> {
    // SAFETY: the caller vouches for it.
    unsafe { slice_mut(codes, if codes.is_null() { 0 } else { count }, "codes") }
}

/// Sets records. `codes` (may be null) has space for a `CENOTE_KEY_...` per record.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_put(
    index: *const cenote_index_t,
    records: *const cenote_record_t,
    count: usize,
    codes: *mut u8,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (index, records, out) =
            unsafe { (handle::get(index)?, records_of(records, count)?, codes_of(codes, count)?) };
        fill_codes(out, &index.put(&records)?);
        Ok(())
    })
}

/// Sets records whose keys do not exist; the code of the others is `CENOTE_KEY_EXISTS`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_put_new(
    index: *const cenote_index_t,
    records: *const cenote_record_t,
    count: usize,
    codes: *mut u8,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (index, records, out) =
            unsafe { (handle::get(index)?, records_of(records, count)?, codes_of(codes, count)?) };
        fill_codes(out, &index.put_new(&records)?);
        Ok(())
    })
}

/// Gets values by key into `values`, which has space for `count`. Free each with `cenote_bytes_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_get(
    index: *const cenote_index_t,
    keys: *const cenote_slice_t,
    count: usize,
    values: *mut cenote_bytes_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (index, keys) = unsafe { (handle::get(index)?, keys_of(keys, count)?) };
        if count > 0 {
            required(values, "values")?;
        }
        for (at, value) in index.get(&keys)?.into_iter().enumerate().take(count) {
            // SAFETY: as above: there is space for `count`.
            unsafe { put(values.add(at), bytes_out(value)) };
        }
        Ok(())
    })
}

/// Creates a value for the caller, who frees it.
pub fn bytes_out(value: Option<Vec<u8>>) -> cenote_bytes_t {
    match value {
        None => cenote_bytes_t { data: std::ptr::null_mut(), len: 0, found: 0 },
        Some(value) if value.is_empty() => cenote_bytes_t { data: std::ptr::null_mut(), len: 0, found: 1 },
        Some(value) => {
            let len = value.len();
            cenote_bytes_t { data: Box::into_raw(value.into_boxed_slice()).cast(), len, found: 1 }
        }
    }
}

/// Frees a value that the library gave out, and empties it. Allows null, and values that were not found.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_bytes_free(bytes: *mut cenote_bytes_t) {
    quietly((), || {
        // SAFETY: the caller gives a value that the library filled in, or null.
        let Some(bytes) = (unsafe { bytes.as_mut() }) else { return };
        if !bytes.data.is_null() {
            // SAFETY: it came from a boxed slice of this length.
            drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(bytes.data, bytes.len)) });
        }
        *bytes = bytes_out(None);
    });
}

/// Deletes records; the code of a missing one is `CENOTE_KEY_NOT_FOUND`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_del(
    index: *const cenote_index_t,
    keys: *const cenote_slice_t,
    count: usize,
    codes: *mut u8,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (index, keys, out) = unsafe { (handle::get(index)?, keys_of(keys, count)?, codes_of(codes, count)?) };
        fill_codes(out, &index.del(&keys)?);
        Ok(())
    })
}

/// Reads up to `limit` records in key order whose keys begin with `prefix`. `from`: null for the first; otherwise that
/// key or the next greater one, or (with `after` not 0) the next greater one. Free `*records` with
/// `cenote_records_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_index_next(
    index: *const cenote_index_t,
    prefix: cenote_slice_t,
    from: *const cenote_slice_t,
    after: i32,
    limit: u32,
    records: *mut *mut cenote_records_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, records, "records", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (index, prefix) = unsafe { (handle::get(index)?, slice(prefix.data, prefix.len, "prefix")?) };
        // SAFETY: as above.
        let from = match unsafe { from.as_ref() } {
            None => NextFrom::Start,
            Some(key) => {
                // SAFETY: as above.
                let key = unsafe { slice(key.data, key.len, "from") }?.to_vec();
                if after == 0 { NextFrom::At(key) } else { NextFrom::After(key) }
            }
        };
        index.next_with_prefix(prefix, from, limit)
    })
}

/// Returns the number of records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_records_count(records: *const cenote_records_t) -> usize {
    // SAFETY: the caller keeps the rules in the header's introduction.
    quietly(0, || unsafe { handle::get(records) }.map_or(0, cenote::Records::len))
}

/// Returns a record, which lives as long as `records`. Empty if there is none at `at`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_records_get(records: *const cenote_records_t, at: usize) -> cenote_record_t {
    let none = cenote_slice_t { data: std::ptr::null(), len: 0 };
    let nothing = cenote_record_t { key: none, value: none };
    quietly(nothing, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let record = unsafe { handle::get(records) }.ok().and_then(|records| records.get(at));
        record.map_or(nothing, |(key, value)| cenote_record_t {
            key: cenote_slice_t { data: key.as_ptr(), len: key.len() },
            value: cenote_slice_t { data: value.as_ptr(), len: value.len() },
        })
    })
}

/// Frees records. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_records_free(records: *mut cenote_records_t) {
    free(records);
}
