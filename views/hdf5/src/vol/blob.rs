//! Blobs: variable-length parts, which HDF5 hands over while it converts elements to stored form.

use std::ffi::c_void;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::blob::{ID_BYTES, heap};
use crate::data;
use crate::ffi::class::{BLOB_DELETE, BLOB_ISNULL, BLOB_SETNULL, BlobClass, BlobSpecificArgs};
use crate::ffi::types::herr_t;

use super::{args, status, unknown_op};

pub fn class<const N: usize>() -> BlobClass {
    BlobClass { put: Some(put::<N>), get: Some(get::<N>), specific: Some(specific::<N>), optional: None }
}

type Id = [u8; ID_BYTES];
/// First byte of an id in a heap, so that a null id differs from the id of the first blob.
const HEAP_MARK: u8 = 1;

unsafe extern "C" fn put<const N: usize>(
    _: *mut c_void,
    bytes: *const c_void,
    size: usize,
    id: *mut c_void,
    _: *mut c_void,
) -> herr_t {
    status::<N>("blob_put", |_| {
        // SAFETY: HDF5 passes `size` bytes (possibly none at a null address).
        let bytes = if size == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), size) } };
        let new = match heap(|heap| put_in_heap(heap, bytes)) {
            Some(id) => id,
            None => data::blob_put(bytes)?,
        };
        args::put(id.cast::<Id>(), new)
    })
}

/// A heap of this length fits no record. It stands for any longer heap: failing here would crash programs, see
/// `data::heap`.
const TOO_LONG: usize = 64 << 20;

fn put_in_heap(heap: &mut Vec<u8>, bytes: &[u8]) -> Id {
    let mut id = [0; ID_BYTES];
    id[0] = HEAP_MARK;
    let offset = heap.len();
    if offset + bytes.len() > TOO_LONG {
        heap.resize(TOO_LONG, 0); // storing the record then reports that it is too large
        return id;
    }
    heap.extend_from_slice(bytes);
    id[4..8].copy_from_slice(&(offset as u32).to_le_bytes());
    id[8..12].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    id
}

fn get_from_heap(heap: &[u8], id: &Id, out: &mut [u8]) -> Result<()> {
    let word = |at: usize| u32::from_le_bytes([id[at], id[at + 1], id[at + 2], id[at + 3]]) as usize;
    let (offset, len) = (word(4), word(8));
    let found = heap.get(offset..offset.saturating_add(len)).filter(|b| id[0] == HEAP_MARK && b.len() == out.len());
    let found = found.ok_or_else(|| {
        Error::new(ErrorKind::Corrupt, "variable-length attribute")
            .because("a part of it lies outside its record")
            .try_next("run `cenote verify` on the store")
    })?;
    out.copy_from_slice(found);
    Ok(())
}

unsafe extern "C" fn get<const N: usize>(
    _: *mut c_void,
    id: *const c_void,
    buf: *mut c_void,
    size: usize,
    _: *mut c_void,
) -> herr_t {
    status::<N>("blob_get", |_| {
        let id = *args::of(id.cast::<Id>())?;
        // SAFETY: HDF5 passes room for `size` bytes (possibly none at a null address).
        let out =
            if size == 0 { &mut [][..] } else { unsafe { std::slice::from_raw_parts_mut(buf.cast::<u8>(), size) } };
        match heap(|heap| get_from_heap(heap, &id, out)) {
            Some(done) => done,
            None => data::blob_get(id, out),
        }
    })
}

unsafe extern "C" fn specific<const N: usize>(_: *mut c_void, id: *mut c_void, what: *mut BlobSpecificArgs) -> herr_t {
    status::<N>("blob_specific", |_| {
        let what = args::of(what)?;
        let id = id.cast::<Id>();
        match what.op {
            BLOB_ISNULL => args::put(what.is_null, *args::of(id)? == [0; ID_BYTES]),
            BLOB_SETNULL => args::put(id, [0; ID_BYTES]),
            // Space of old blobs is not reused before the dataset is deleted: another process may be reading it.
            BLOB_DELETE => Ok(()),
            other => Err(unknown_op("blob_specific", other)),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heap_gives_back_what_was_put_and_refuses_ids_that_lie() {
        let mut heap = vec![];
        let a = put_in_heap(&mut heap, b"hello");
        let b = put_in_heap(&mut heap, b"");
        assert_ne!(a, [0; ID_BYTES]);
        let mut out = [0; 5];
        get_from_heap(&heap, &a, &mut out).unwrap();
        assert_eq!(&out, b"hello");
        get_from_heap(&heap, &b, &mut []).unwrap();
        assert!(get_from_heap(&heap, &a, &mut [0; 6]).is_err());
        let mut bad = a;
        bad[7] = 0xff;
        assert!(get_from_heap(&heap, &bad, &mut out).is_err());
        assert!(get_from_heap(&heap, &[0; ID_BYTES], &mut []).is_err());
    }
}
