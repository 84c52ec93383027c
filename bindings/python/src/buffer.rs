//! Buffers of other Python objects (bytes, bytearray, memoryview, arrays), read and filled without a copy.
#![allow(unsafe_code, reason = "the buffer protocol hands out pointers")]

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// A contiguous buffer owned by another Python object, which keeps it in place while this lives.
///
/// Another thread may change the bytes while the store reads them, as with every library that releases the GIL: it is
/// then undefined which value is stored, and nothing else.
pub struct Bytes(PyUntypedBuffer);

// SAFETY: the buffer stays in place until it is released, which PyO3 does attached to the interpreter, whatever the
// thread; the accessors below are plain reads of pointer and length.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    /// The buffer of `value`.
    pub fn of(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(value)?;
        if buffer.is_c_contiguous() {
            Ok(Self(buffer))
        } else {
            Err(PyBufferError::new_err(
                "the buffer is not contiguous in C order; copy it first (numpy.ascontiguousarray)",
            ))
        }
    }
    /// The writable buffer of `value`.
    pub fn to_fill(value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = Self::of(value)?;
        if bytes.0.readonly() {
            Err(PyBufferError::new_err("the buffer is read-only; give a bytearray, a writable memoryview or an array"))
        } else {
            Ok(bytes)
        }
    }
    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: the exporter guarantees `len` bytes at the pointer while the buffer is held, and it is contiguous.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), len) }
    }
    /// Its bytes, for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.0.len_bytes();
        if len == 0 || self.0.readonly() {
            return &mut [];
        }
        // SAFETY: as above, and the exporter allows writing; `&mut self` prevents a second such slice.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) }
    }
}
