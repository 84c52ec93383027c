//! Bytes of an object by reference, through the buffer protocol: `memoryview(view)`, `numpy.frombuffer(view)`.
#![allow(unsafe_code, reason = "the buffer protocol is filled in through a pointer")]

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The holder of the bytes.
pub enum Held {
    /// The store: the bytes are in mapped memory, and do not change while this lives.
    Store(cenote::BorrowedBytes),
    /// This process: a copy.
    Copy(Vec<u8>),
}

/// Bytes of an object. They do not change while the view, or anything made from it, lives.
#[pyclass(frozen, module = "cenote")]
pub struct View(Held);

impl View {
    /// Makes a view.
    pub fn new(held: Held) -> Self {
        Self(held)
    }
    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Held::Store(view) => view,
            Held::Copy(bytes) => bytes,
        }
    }
}

#[pymethods]
impl View {
    /// True if the bytes are the store's own, without a copy.
    #[getter]
    fn by_reference(&self) -> bool {
        matches!(self.0, Held::Store(_))
    }
    fn __len__(&self) -> usize {
        self.bytes().len()
    }
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().bytes();
        if view.is_null() || flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("a view is read-only; use Object.write"));
        }
        // SAFETY: Python provides a Py_buffer; the call fills it in with our bytes and a reference to us, which keeps
        // them in place until the buffer is released. The class is frozen, so they never change.
        let failed = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), bytes.len() as isize, 1, flags)
        };
        if failed == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
