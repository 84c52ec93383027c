//! Requests: HDF5's event sets hold one for each asynchronous operation.

use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::error;
use crate::ffi::class::{REQUEST_GET_ERR_STACK, REQUEST_GET_EXEC_TIME, RequestClass, RequestSpecificArgs};
use crate::ffi::types::herr_t;
use crate::tasks::{Status, Task};

use super::{args, status, unknown_op};

/// Target of this connector's request pointers.
struct Request {
    task: Arc<Task>,
    /// The callback that began it, for errors.
    callback: &'static str,
    /// What the operation uses and only a thread inside an HDF5 call may drop.
    _keep: Box<dyn Any>,
}

pub fn class<const N: usize>() -> RequestClass {
    RequestClass {
        wait: Some(wait::<N>),
        notify: Some(notify::<N>),
        cancel: Some(cancel::<N>),
        specific: Some(specific::<N>),
        optional: None,
        free: Some(free::<N>),
    }
}

/// Gives HDF5 a request for a task, at `place`.
pub fn give(place: *mut *mut c_void, callback: &'static str, task: Arc<Task>, keep: impl Any) -> Result<()> {
    let request = Request { task, callback, _keep: Box::new(keep) };
    args::put(place, Box::into_raw(Box::new(request)).cast())
}

fn request<'a>(pointer: *mut c_void) -> Result<&'a Request> {
    // SAFETY: HDF5 passes requests that `give` made and `free` has not taken back.
    unsafe { pointer.cast::<Request>().as_ref() }
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "request").because("HDF5 passed a null pointer"))
}

/// `H5VL_request_status_t`.
fn code(status: &Status) -> c_int {
    match status {
        Status::UnderWay => 0,
        Status::Succeeded => 1,
        Status::Failed(_) => 2,
        Status::Canceled => 4,
    }
}
/// `H5VL_REQUEST_STATUS_CANT_CANCEL`.
const CANT_CANCEL: c_int = 3;

unsafe extern "C" fn wait<const N: usize>(pointer: *mut c_void, timeout_ns: u64, out: *mut c_int) -> herr_t {
    status::<N>("request_wait", |_| args::put(out, code(&request(pointer)?.task.wait(timeout_ns)?)))
}

unsafe extern "C" fn notify<const N: usize>(pointer: *mut c_void, act: *mut c_void, context: *mut c_void) -> herr_t {
    type Notify = unsafe extern "C" fn(*mut c_void, c_int) -> herr_t;
    status::<N>("request_notify", |_| {
        // The function may call HDF5, so this thread calls it, after the task has ended.
        let over = request(pointer)?.task.wait(u64::MAX)?;
        if act.is_null() {
            return Ok(());
        }
        // SAFETY: HDF5 passes a function of this type as an address.
        let result = unsafe { std::mem::transmute::<*mut c_void, Notify>(act)(context, code(&over)) };
        error::h5_check("the function to be told of a request's end", result).map(|_| ())
    })
}

unsafe extern "C" fn cancel<const N: usize>(pointer: *mut c_void, out: *mut c_int) -> herr_t {
    status::<N>("request_cancel", |_| {
        let now = request(pointer)?.task.cancel();
        args::put(out, if matches!(now, Status::UnderWay) { CANT_CANCEL } else { code(&now) })
    })
}

unsafe extern "C" fn specific<const N: usize>(pointer: *mut c_void, what: *mut c_void) -> herr_t {
    status::<N>("request_specific", |h5| {
        let request = request(pointer)?;
        // SAFETY: HDF5 passes valid arguments; `op` says which member of the union is in use.
        let what =
            unsafe { what.cast::<RequestSpecificArgs>().as_mut() }.ok_or_else(|| unknown_op("request_specific", -1))?;
        match what.op {
            REQUEST_GET_ERR_STACK => {
                let create = h5.H5Ecreate_stack.ok_or_else(|| error::h5_failed("H5Ecreate_stack"))?;
                // SAFETY: a plain call.
                let stack = error::h5_id(h5, "H5Ecreate_stack", unsafe { create() })?;
                if let Status::Failed(error) = request.task.status() {
                    error::push_to(h5, stack.get(), request.callback, &error);
                }
                what.args.err_stack_id = stack.release();
                Ok(())
            }
            REQUEST_GET_EXEC_TIME => {
                let times = request.task.times();
                // SAFETY: as above.
                let to = unsafe { what.args.exec_time };
                args::put(to.begun_us, times.begun_us)?;
                args::put(to.took_ns, times.took_ns)
            }
            other => Err(unknown_op("request_specific", other)),
        }
    })
}

unsafe extern "C" fn free<const N: usize>(pointer: *mut c_void) -> herr_t {
    status::<N>("request_free", |_| {
        // An operation in progress uses what the request keeps.
        request(pointer)?.task.wait(u64::MAX)?;
        // SAFETY: `give` made it, and HDF5 gives it back once.
        drop(unsafe { Box::from_raw(pointer.cast::<Request>()) });
        Ok(())
    })
}
