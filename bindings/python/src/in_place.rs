//! Mapped memory that Python fills through the buffer protocol and commits.
#![allow(unsafe_code, reason = "the buffer protocol is filled in through a pointer")]

use std::ffi::c_int;
use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors::{invalid, raise};

struct Inner {
    /// `None` once committed or released.
    write: Option<cenote::InPlaceWrite>,
    /// Number of exported buffers: while it is not 0, the memory must stay in place.
    exports: usize,
}

/// Reserved room in the store's memory: fill it (`memoryview(write)`, `numpy.frombuffer(write, dtype)`), then
/// `commit`.
///
/// Release everything made from it first (`del array`, `view.release()`). As a context manager it releases the room
/// if it was not committed.
#[pyclass(frozen, module = "cenote")]
pub struct InPlaceWrite {
    inner: Mutex<Inner>,
    size: usize,
}

impl InPlaceWrite {
    /// Wraps the client's reservation.
    pub fn new(write: cenote::InPlaceWrite, size: usize) -> Self {
        Self { inner: Mutex::new(Inner { write: Some(write), exports: 0 }), size }
    }
    fn take(&self) -> PyResult<Option<cenote::InPlaceWrite>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.exports > 0 {
            return Err(PyBufferError::new_err(
                "views of the memory are still there; release them first (del array, view.release())",
            ));
        }
        Ok(inner.write.take())
    }
}

#[pymethods]
impl InPlaceWrite {
    fn __len__(&self) -> usize {
        self.size
    }
    /// Commit the bytes to the object at `offset`; acknowledged when this returns.
    fn commit(&self, py: Python<'_>, offset: u64) -> PyResult<()> {
        let write = self.take()?.ok_or_else(|| invalid("write in place", "it was committed or given back already"))?;
        py.detach(|| write.commit(offset)).map_err(raise)
    }
    /// Release the room. Does nothing after a commit.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let write = self.take()?;
        py.detach(|| drop(write));
        Ok(())
    }
    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }
    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: Bound<'_, PyTuple>) -> PyResult<()> {
        self.release(py)
    }
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let mut inner = slf.get().inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(write) = inner.write.as_mut().filter(|_| !view.is_null()) else {
            return Err(PyBufferError::new_err("the memory was committed or given back"));
        };
        let bytes = write.bytes();
        // SAFETY: Python provides a Py_buffer; the call fills it in with our bytes and a reference to us. They stay
        // in place until it is released: `take` releases nothing while buffers are counted.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len() as isize, 0, flags)
        };
        if failed != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        inner.exports += 1;
        Ok(())
    }
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.exports = inner.exports.saturating_sub(1);
    }
}
