//! HDF5's callbacks: each turns C arguments into Rust ones, catches panics, and puts failures on the error stack. The
//! work itself is in the other modules.
//!
//! Callbacks are generic over the slot (`const N`) of the libhdf5 that calls them.

mod args;
mod attr;
mod blob;
mod collective;
mod copy;
mod copy_refs;
mod dataset;
mod datatype;
pub mod facade;
mod file;
mod group;
pub mod info;
mod introspect;
mod link;
mod map;
mod native_file;
mod object;
mod pending;
mod request;
mod token;
pub(crate) mod visit;

pub use visit::register;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error;
use crate::ffi::Api;
use crate::ffi::class::{ConnectorClass, WrapClass};
use crate::ffi::entry;
use crate::ffi::types::{OptionalArgs, herr_t, hid_t};
use crate::file::shared;
use crate::object::Handle;
use crate::regions;
use crate::tasks;

pub use args::{oid_of, token_of};

/// Number of this connector in HDF5 (from the range for connectors under development; only the name matters).
pub const CONNECTOR_VALUE: c_int = 523;

/// The class table of slot `slot`.
pub fn class(slot: usize) -> ConnectorClass {
    match slot {
        0 => class_for::<0>(),
        1 => class_for::<1>(),
        2 => class_for::<2>(),
        3 => class_for::<3>(),
        4 => class_for::<4>(),
        5 => class_for::<5>(),
        6 => class_for::<6>(),
        _ => class_for::<7>(),
    }
}

fn class_for<const N: usize>() -> ConnectorClass {
    ConnectorClass {
        version: 3,
        value: CONNECTOR_VALUE,
        name: c"cenote".as_ptr(),
        conn_version: 1,
        cap_flags: introspect::CAPABILITIES,
        initialize: None,
        terminate: Some(terminate),
        info: info::CLASS,
        wrap: WrapClass {
            get_object: Some(get_object),
            get_wrap_ctx: None,
            wrap_object: None,
            unwrap_object: None,
            free_wrap_ctx: None,
        },
        attr: attr::class::<N>(),
        dataset: dataset::class::<N>(),
        datatype: datatype::class::<N>(),
        file: file::class::<N>(),
        group: group::class::<N>(),
        link: link::class::<N>(),
        object: object::class::<N>(),
        introspect: introspect::class::<N>(),
        request: request::class::<N>(),
        blob: blob::class::<N>(),
        token: token::class::<N>(),
        optional: Some(optional::<N>),
    }
}

/// Answers `get_object`: the structure into which libhdf5 itself looks, see [`regions`].
unsafe extern "C" fn get_object(pointer: *const c_void) -> *mut c_void {
    let pointer = pointer.cast_mut();
    catch_unwind(|| regions::object_of(pointer)).unwrap_or(pointer)
}

/// Runs a callback's work; a failure or panic goes to the error stack and returns `failed`.
fn run<const N: usize, T>(callback: &'static str, failed: T, work: impl FnOnce(&'static Api) -> Result<T>) -> T {
    let h5 = entry::api(N);
    regions::began(callback);
    let begin =
        || pending::settle(callback).and_then(|()| settle_tasks(callback)).and_then(|()| regions::settle(callback));
    let all = || begin().and_then(|()| work(h5));
    let all = || if callback.ends_with("_close") { error::keeping(h5, all) } else { all() };
    match catch_unwind(AssertUnwindSafe(all)) {
        Ok(Ok(out)) => out,
        Ok(Err(error)) => {
            error::push(h5, callback, &shared::explained(error));
            failed
        }
        Err(_) => {
            let error = Error::new(ErrorKind::Internal, callback)
                .because("a bug in the connector (it panicked)")
                .try_next("report this with the program that shows it");
            error::push(h5, callback, &error);
            failed
        }
    }
}

/// Callbacks that do not observe asynchronous transfers, or wait for them themselves where needed.
const INDIFFERENT: [&str; 23] = [
    "attr_create",
    "attr_open",
    "attr_read",
    "attr_write",
    "attr_get",
    "attr_specific",
    "attr_optional",
    "attr_close",
    "dataset_create",
    "dataset_open",
    "dataset_read",
    "dataset_write",
    "dataset_get",
    "dataset_close",
    "datatype_commit",
    "datatype_open",
    "datatype_get",
    "datatype_close",
    "file_close",
    "group_create",
    "group_open",
    "group_get",
    "group_close",
];
/// Prefixes of further such callbacks.
const INDIFFERENT_GROUPS: [&str; 10] = [
    "introspect_",
    "blob_",
    "token_",
    "request_",
    "link_get",
    "link_create",
    "link_specific",
    "object_open",
    "object_get",
    "file_get",
];

/// Waits for asynchronous operations, unless `callback` does not depend on them.
fn settle_tasks(callback: &str) -> Result<()> {
    if !tasks::any()
        || INDIFFERENT.contains(&callback)
        || INDIFFERENT_GROUPS.iter().any(|group| callback.starts_with(group))
    {
        return Ok(());
    }
    tasks::settle()
}

/// Called when a libhdf5 unloads the connector: finishes asynchronous operations first.
unsafe extern "C" fn terminate() -> herr_t {
    match catch_unwind(tasks::settle) {
        Ok(Ok(())) => 0,
        _ => -1,
    }
}

/// Runs a callback that returns a status.
fn status<const N: usize>(callback: &'static str, work: impl FnOnce(&'static Api) -> Result<()>) -> herr_t {
    run::<N, herr_t>(callback, -1, |h5| work(h5).map(|()| 0))
}

/// Runs a callback that returns an object.
fn object<const N: usize>(
    callback: &'static str,
    work: impl FnOnce(&'static Api) -> Result<*mut Handle>,
) -> *mut c_void {
    run::<N, *mut c_void>(callback, std::ptr::null_mut(), |h5| work(h5).map(<*mut Handle>::cast))
}

/// Runs a close callback.
fn close<const N: usize>(callback: &'static str, pointer: *mut c_void) -> herr_t {
    status::<N>(callback, |_| Handle::close(pointer))
}

/// The error for an operation number that this connector does not know.
fn unknown_op(callback: &'static str, op: c_int) -> Error {
    error::unsupported(format!("{callback} operation number {op}"), "avoid the HDF5 call that asks for it")
}

unsafe extern "C" fn optional<const N: usize>(
    pointer: *mut c_void,
    args: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    run::<N, herr_t>("map", -1, |h5| map::optional(h5, pointer, args::of(args)?))
}
