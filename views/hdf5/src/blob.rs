//! Blobs: what HDF5 makes of variable-length parts when it converts elements to stored form.
//!
//! While an attribute or fill value is converted, blobs go to (and come from) a heap beside it: see [`with_heap`].
//! Otherwise they are raw data, and [`crate::data`] keeps them.

use std::cell::RefCell;
use std::sync::Arc;

use crate::file::File;

/// Bytes of a blob id. All zeros is the null id.
pub const ID_BYTES: usize = 16;

thread_local! {
    static HEAP: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
    static FILE: RefCell<Option<Arc<File>>> = const { RefCell::new(None) };
}

/// Runs `f` (a conversion) with `heap` as the place of blobs on this thread; gives back the heap.
pub fn with_heap<T>(heap: Vec<u8>, f: impl FnOnce() -> T) -> (T, Vec<u8>) {
    let outer = HEAP.replace(Some(heap));
    let out = f();
    (out, HEAP.replace(outer).unwrap_or_default())
}

/// Applies `f` to this thread's heap, if a conversion with one is under way.
pub fn heap<T>(f: impl FnOnce(&mut Vec<u8>) -> T) -> Option<T> {
    HEAP.with_borrow_mut(|heap| heap.as_mut().map(f))
}

/// Runs `f` (conversions) with `file` as the one that stored types on this thread are of: HDF5 keeps stored types in its
/// table of conversions for ever, so that they are made once per process and know no file themselves.
pub fn with_file<T>(file: &Arc<File>, f: impl FnOnce() -> T) -> T {
    with(Some(file.clone()), f)
}

/// Runs `f` (calls that are no conversions) as if none were under way on this thread.
pub fn without_file<T>(f: impl FnOnce() -> T) -> T {
    with(None, f)
}

fn with<T>(file: Option<Arc<File>>, f: impl FnOnce() -> T) -> T {
    /// Puts back what was there, also when `f` panics.
    struct Outer(Option<Arc<File>>);
    impl Drop for Outer {
        fn drop(&mut self) {
            FILE.replace(self.0.take());
        }
    }
    let _outer = Outer(FILE.replace(file));
    f()
}

/// The file of the conversion that is under way on this thread.
pub fn current_file() -> Option<Arc<File>> {
    FILE.with_borrow(Clone::clone)
}
