//! The callbacks that HDF5 calls: each turns C arguments into Rust ones, catches panics, and puts failures on the
//! error stack. What they do is in the other rooms.
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
mod native_file;
mod object;
mod pending;
mod token;
mod visit;

pub use visit::register;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error;
use crate::ffi::Api;
use crate::ffi::class::{ConnectorClass, RequestClass, WrapClass};
use crate::ffi::entry;
use crate::ffi::types::{OptionalArgs, herr_t, hid_t};
use crate::object::Handle;

pub use args::{oid_of, token_of};

/// Number that names this connector to HDF5 (from the range for connectors under development; the name is what counts).
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
        terminate: None,
        info: info::CLASS,
        wrap: WrapClass {
            get_object: None,
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
        // Nothing is asynchronous here, so there is never a request.
        request: RequestClass { wait: None, notify: None, cancel: None, specific: None, optional: None, free: None },
        blob: blob::class::<N>(),
        token: token::class::<N>(),
        optional: Some(optional::<N>),
    }
}

/// Runs a callback's work; a failure or panic goes to the error stack and becomes `failed`.
fn run<const N: usize, T>(callback: &'static str, failed: T, work: impl FnOnce(&'static Api) -> Result<T>) -> T {
    let h5 = entry::api(N);
    match catch_unwind(AssertUnwindSafe(|| pending::settle(callback).and_then(|()| work(h5)))) {
        Ok(Ok(out)) => out,
        Ok(Err(error)) => {
            error::push(h5, callback, &error);
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
    _: *mut c_void,
    args: *mut OptionalArgs,
    _: hid_t,
    _: *mut *mut c_void,
) -> herr_t {
    status::<N>("optional", |_| Err(unknown_op("optional", args::of(args)?.op_type)))
}
