//! Blobs: variable-length parts, as HDF5 converts elements to stored form.
//!
//! During the conversion of an attribute or fill value, blobs are in a heap beside it: see [`with_heap`]. Otherwise they
//! are raw data, kept by [`crate::data`].

use std::cell::RefCell;
use std::sync::Arc;

use crate::file::File;

/// Size of a blob id in bytes. All zeros is the null id.
pub const ID_BYTES: usize = 16;

thread_local! {
    static HEAP: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    static FILE: RefCell<Option<Arc<File>>> = const { RefCell::new(None) };
}

/// Runs `f` (a conversion) with `heap` as the place of blobs on this thread; returns the heap.
pub fn with_heap<T>(heap: Vec<u8>, f: impl FnOnce() -> T) -> (T, Vec<u8>) {
    let outer = HEAP.replace(Some(heap));
    let out = f();
    (out, HEAP.replace(outer).unwrap_or_default())
}

/// Applies `f` to this thread's heap, during a conversion with one.
pub fn heap<T>(f: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
    HEAP.with_borrow_mut(|heap| heap.as_mut().map(f))
}

/// Runs `f` (conversions) with `file` as the file of stored types on this thread. HDF5 keeps stored types in its
/// conversion table forever, so each is made once per process and cannot itself belong to a file.
pub fn with_file<T>(file: &Arc<File>, f: impl FnOnce() -> T) -> T {
    with(Some(file.clone()), f)
}

/// Runs `f` (calls other than conversions) as if no conversion were in progress on this thread.
pub fn without_file<T>(f: impl FnOnce() -> T) -> T {
    with(None, f)
}

fn with<T>(file: Option<Arc<File>>, f: impl FnOnce() -> T) -> T {
    /// Restores the previous file, also when `f` panics.
    struct Outer(Option<Arc<File>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            FILE.replace(self.0.take());
        }
    }
    let _outer = Outer(FILE.replace(file));
    f()
}

/// The file of the conversion in progress on this thread.
pub fn current_file() -> Option<Arc<File>> {
    FILE.with_borrow(Clone::clone)
}
