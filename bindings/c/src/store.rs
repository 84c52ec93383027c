//! Stores: opening and closing, tiers, operations on the whole store.

use std::ffi::c_char;

use cenote::{OpenOptions, Store, StoreConfig};

use crate::abi::{give_handle, guard, path, put, required, slice, text};
use crate::error::cenote_error_t;
use crate::handle::{self, handle};
use crate::types::{CENOTE_MODE_AUTO, cenote_options_t, mode, sized};

/// A store.
pub struct cenote_store_t {
    _opaque: (),
}
handle!(cenote_store_t, Store, "store", b"cnStore\x01");

/// Fills in the defaults: mode auto; the store is created if it does not exist.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_options_init(options: *mut cenote_options_t) {
    let defaults = cenote_options_t {
        size: size_of::<cenote_options_t>(),
        mode: CENOTE_MODE_AUTO,
        create: 1,
        create_new: 0,
        read_only: 0,
        tiers: std::ptr::null(),
        tiers_len: 0,
    };
    // SAFETY: the caller gives memory for the structure, or null.
    unsafe { put(options, defaults) };
}

unsafe fn options_of(options: *const cenote_options_t) -> cenote::Result<OpenOptions> {
    // SAFETY: the caller vouches for it.
    let Some(options) = unsafe { sized(options, "options") }? else {
        return Ok(OpenOptions { create: true, ..OpenOptions::default() });
    };
    // SAFETY: the caller vouches for it.
    let tiers = unsafe { slice(options.tiers, options.tiers_len, "tiers") }?;
    let devices = tiers
        .iter()
        // SAFETY: the caller vouches for it.
        .map(|tier| unsafe { text(*tier, "tiers") }?.parse())
        .collect::<cenote::Result<Vec<_>>>()?;
    Ok(OpenOptions {
        mode: mode(options.mode)?,
        create: options.create != 0,
        create_new: options.create_new != 0,
        read_only: options.read_only != 0,
        config: StoreConfig { devices, ..StoreConfig::default() },
        ..OpenOptions::default()
    })
}

/// Opens the store in directory `dir` with `options`; null: the defaults of `cenote_options_init`.
/// Close the handle with `cenote_close`. After `fork`, the child may go on using it: it gets its own session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_open(
    dir: *const c_char,
    options: *const cenote_options_t,
    store: *mut *mut cenote_store_t,
    error: *mut *mut cenote_error_t,
) -> i32 {
    give_handle(error, store, "store", || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (dir, options) = unsafe { (path(dir, "dir")?, options_of(options)?) };
        Store::open_with(dir, &options)
    })
}

/// Ends the session and frees the handle, even if it returns an error. Containers, objects and indices of the store
/// cannot be used afterwards, but must still be freed. Null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_close(store: *mut cenote_store_t, error: *mut *mut cenote_error_t) -> i32 {
    guard(error, || if store.is_null() { Ok(()) } else { handle::take(store)?.close() })
}

/// Returns when everything acknowledged so far survives power loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_flush(store: *const cenote_store_t, error: *mut *mut cenote_error_t) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store) }?.flush())
}

/// Writes a checkpoint now, so that the next opening replays nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_checkpoint(store: *const cenote_store_t, error: *mut *mut cenote_error_t) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store) }?.checkpoint())
}

/// Waits for every launched operation of this session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_wait_all(store: *const cenote_store_t, error: *mut *mut cenote_error_t) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store) }?.wait_all())
}

/// Asks the daemon that serves the store in `dir` to finish its work and exit. `*stopped` (may be null) is 0 if there
/// is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_stop_daemon(
    dir: *const c_char,
    stopped: *mut i32,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let served = Store::stop_daemon(unsafe { path(dir, "dir") }?)?;
        // SAFETY: as above.
        unsafe { put(stopped, i32::from(served)) };
        Ok(())
    })
}

/// Destroys the store in `dir`: its segments in memory, the files of its tiers, its metadata, and finally the
/// directory unless it holds other files. If other sessions are open it fails with `CENOTE_BUSY`, unless `force` is
/// not 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_destroy(dir: *const c_char, force: i32, error: *mut *mut cenote_error_t) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || Store::destroy(unsafe { path(dir, "dir") }?, force != 0).map(drop))
}

/// Adds a tier, written as on the command line: "name=disk,kind=directory,path=/data,size=100GiB".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_tier_add(
    store: *const cenote_store_t,
    spec: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let (store, spec) = unsafe { (handle::get(store)?, text(spec, "spec")?) };
        store.add_device(&spec.parse()?)
    })
}

/// Moves everything off a tier.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_tier_drain(
    store: *const cenote_store_t,
    name: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store)?.drain_device(text(name, "name")?) })
}

/// Removes an empty tier from the store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_tier_remove(
    store: *const cenote_store_t,
    name: *const c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    // SAFETY: the caller keeps the rules in the header's introduction.
    guard(error, || unsafe { handle::get(store)?.remove_device(text(name, "name")?) })
}

/// Writes the id of the store as 32 hexadecimal digits and a NUL byte into `text`, which has space for 33 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_store_id(
    store: *const cenote_store_t,
    text: *mut c_char,
    error: *mut *mut cenote_error_t,
) -> i32 {
    guard(error, || {
        // SAFETY: the caller keeps the rules in the header's introduction.
        let store = unsafe { handle::get(store) }?;
        write_id(text, store.id().0)
    })
}

/// Writes an id as text.
pub fn write_id(to: *mut c_char, number: u128) -> cenote::Result<()> {
    let to = required(to, "text")?;
    let digits = format!("{number:032x}\0");
    // SAFETY: the caller gives memory for 33 bytes.
    unsafe { std::ptr::copy_nonoverlapping(digits.as_ptr(), to.cast(), digits.len()) };
    Ok(())
}
