//! Handles: what a C program holds instead of Rust values, checked at every use.
//!
//! The memory of a handle is never returned to the allocator, only reused for handles of the same type. So a null,
//! foreign or closed handle gives an error rather than a crash, as far as a pointer allows to tell.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use cenote::{Error, ErrorKind, Result};

/// Memory for a value, with a tag that tells whether it is in use.
pub struct Cell<T> {
    tag: AtomicU64,
    value: UnsafeCell<Option<T>>,
}

/// Addresses of free cells.
pub struct Pool(Mutex<Vec<usize>>);

impl Pool {
    /// Creates an empty pool.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

/// A handle type.
pub trait Handle: Sized {
    /// The Rust value.
    type Value: 'static;
    /// Tag of a live cell of this type; no two types share it.
    const TAG: u64;
    /// Name in errors.
    const NAME: &'static str;
    /// Free cells of the type.
    fn pool() -> &'static Pool;
}

/// Declares an opaque handle type.
macro_rules! handle {
    ($name:ident, $value:ty, $words:literal, $tag:literal) => {
        impl $crate::handle::Handle for $name {
            type Value = $value;
            const TAG: u64 = u64::from_be_bytes(*$tag);
            const NAME: &'static str = $words;
            fn pool() -> &'static $crate::handle::Pool {
                static POOL: $crate::handle::Pool = $crate::handle::Pool::new();
                &POOL
            }
        }
    };
}
pub(crate) use handle;

/// Creates a handle for `value`.
pub fn make<H: Handle>(value: H::Value) -> *mut H {
    let free = H::pool().0.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let cell: *mut Cell<H::Value> = match free {
        Some(address) => std::ptr::with_exposed_provenance_mut(address),
        None => Box::into_raw(Box::new(Cell { tag: AtomicU64::new(0), value: UnsafeCell::new(None) })),
    };
    // SAFETY: the cell came from a box that is never dropped, and nobody else has it: its tag is 0, and only we took
    // it from the pool.
    unsafe {
        *(*cell).value.get() = Some(value);
        (*cell).tag.store(H::TAG, Ordering::Release);
    }
    cell.cast()
}

fn bad<H: Handle>(cause: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("{} handle", H::NAME))
        .because(cause)
        .try_next("check the result of the call that made it, and that it is used before it is freed")
}

fn cell_of<'a, H: Handle>(handle: *const H) -> Result<&'a Cell<H::Value>> {
    let cell = handle.cast::<Cell<H::Value>>();
    if cell.is_null() {
        return Err(bad::<H>("it is null"));
    }
    if !cell.is_aligned() {
        return Err(bad::<H>("it is no handle"));
    }
    // SAFETY: cells are never freed, so every pointer that this library gave out can be read; the interface's rules
    // exclude any other pointer.
    let cell = unsafe { &*cell };
    if cell.tag.load(Ordering::Acquire) == H::TAG {
        Ok(cell)
    } else {
        Err(bad::<H>("it was freed, or is a handle of another type"))
    }
}

/// Returns the value of a handle.
///
/// # Safety
/// No other thread frees the handle meanwhile.
pub unsafe fn get<'a, H: Handle>(handle: *const H) -> Result<&'a H::Value> {
    let cell = cell_of(handle)?;
    // SAFETY: the tag tells that the value exists, and the caller that it stays.
    unsafe { (*cell.value.get()).as_ref() }.ok_or_else(|| bad::<H>("it was freed"))
}

/// Returns the value of a handle for changes.
///
/// # Safety
/// No other thread uses the handle meanwhile.
pub unsafe fn get_mut<'a, H: Handle>(handle: *mut H) -> Result<&'a mut H::Value> {
    let cell = cell_of(handle)?;
    // SAFETY: as above.
    unsafe { (*cell.value.get()).as_mut() }.ok_or_else(|| bad::<H>("it was freed"))
}

/// Takes the value out and invalidates the handle. Of two threads that try, one succeeds.
pub fn take<H: Handle>(handle: *mut H) -> Result<H::Value> {
    let cell = cell_of(handle)?;
    if cell.tag.compare_exchange(H::TAG, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return Err(bad::<H>("it was freed"));
    }
    // SAFETY: the exchange made this thread the only one with access to the value.
    let value = unsafe { (*cell.value.get()).take() };
    let address = std::ptr::from_ref(cell).expose_provenance();
    H::pool().0.lock().unwrap_or_else(PoisonError::into_inner).push(address);
    value.ok_or_else(|| bad::<H>("it was freed"))
}
